#include "tokenizers/template/folder_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/io.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;

struct FoundTemplate {
  std::string text, file;
  bool of_tokenizer = false;
};

[[noreturn]] void refuse_template(const std::string& file, const char* code, std::string where,
                                  std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kModel,
               .code = code,
               .file = file,
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = "--chat-template FILE takes another"});
}

std::optional<Json> read_config(const fs::path& path) {
  if (!file_exists(path)) return std::nullopt;
  Json json = parse_json(read_file(path, kMaxConfigBytes), path.string(),
                         {.max_bytes = kMaxConfigBytes, .max_depth = 64, .large_integers = true});
  if (!json.is_object()) {
    refuse_template(path.string(), "E_JSON_TYPE", "$", "an object", std::string(json.type_name()));
  }
  return json;
}

// The template called "default", else the only one.
std::string default_of(const Json& list, const std::string& file) {
  for (const bool only : {false, true}) {
    for (const Json& row : list) {
      const bool named = row.is_object() && row.contains("name") && row.contains("template") &&
                         row["name"].is_string() && row["template"].is_string();
      if (!named) break;
      if (row["name"] == "default" || (only && list.size() == 1)) {
        return row["template"].get<std::string>();
      }
    }
  }
  refuse_template(file, "E_TEMPLATE_CHOICE", "chat_template", "a template named \"default\"",
                  "another list");
}

std::optional<FoundTemplate> template_in(const fs::path& path, bool of_tokenizer) {
  const std::optional<Json> json = read_config(path);
  if (!json) return std::nullopt;
  const auto found = json->find("chat_template");
  if (found == json->end() || found->is_null()) return std::nullopt;
  if (found->is_string())
    return FoundTemplate{found->get<std::string>(), path.string(), of_tokenizer};
  if (found->is_array())
    return FoundTemplate{default_of(*found, path.string()), path.string(), of_tokenizer};
  refuse_template(path.string(), "E_JSON_TYPE", "chat_template", "a text or a list of templates",
                  std::string(found->type_name()));
}

FoundTemplate template_text(const fs::path& path) {
  return {read_file(path, ChatTemplate::kMaxSourceBytes + 1), path.string(), false};
}

// Templates with names of their own: the first file of additional_chat_templates, else empty.
fs::path named_template(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder / "additional_chat_templates", missing)) {
    if (entry.path().extension() == ".jinja") files.push_back(entry.path());
  }
  return files.empty() ? fs::path() : *std::ranges::min_element(files);
}

// In the order of the reference's processors: one of chat_template.json goes with no named ones,
// chat_template.jinja is the default of several.
std::optional<FoundTemplate> find_template(const fs::path& folder) {
  if (auto found = template_in(folder / "processor_config.json", false)) return found;
  const fs::path named = named_template(folder), own = folder / "chat_template.jinja";
  if (auto found = template_in(folder / "chat_template.json", false)) {
    if (named.empty()) return found;
    refuse_template(named.string(), "E_TEMPLATE_CHOICE", "chat_template.json",
                    "chat_template.jinja in its place next to other templates", "both");
  }
  const fs::path standard = named.parent_path() / "default.jinja";
  if (file_exists(own)) return template_text(own);
  if (!named.empty() && file_exists(standard)) return template_text(standard);
  if (!named.empty()) {
    refuse_template(named.string(), "E_TEMPLATE_CHOICE", "additional_chat_templates",
                    "default.jinja, or chat_template.jinja next to the folder", "other names");
  }
  return template_in(folder / "tokenizer_config.json", true);
}

// "</s>" or {"content": "</s>", ...}; empty for what is neither.
std::string token_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) return {};
  const auto content = value.find("content");
  return content != value.end() && content->is_string() ? content->get<std::string>()
                                                        : std::string();
}

std::vector<std::pair<std::string, std::string>> special_tokens_of(const fs::path& folder) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::optional<Json> json = read_config(folder / name);
    if (!json) continue;
    for (const auto& [key, value] : json->items()) {
      const std::string text = key.ends_with("_token") ? token_text(value) : std::string();
      const auto known = [&name_of = key](const auto& token) { return token.first == name_of; };
      if (text.empty() || std::any_of(out.begin(), out.end(), known)) continue;
      out.emplace_back(key, text);
    }
  }
  return out;
}

// Whether a user's text in this form comes out once and as it is, and nothing else of the data.
bool writes_text(const FolderTemplate& of, const Json& content, const std::string& text) {
  const Json messages = {{{"role", "user"}, {"content", content}}};
  TemplateInput input;
  input.messages = &messages;
  input.special_tokens = of.special_tokens;
  std::string data;
  for (const RenderedPart& part : of.source.render(input)) {
    if (part.from_data) data += part.text;
  }
  return data == text;
}

ContentForm content_form(const FolderTemplate& of) {
  const std::string probe = "probe";
  const Json parts = {{{"type", "text"}, {"text", probe}}};
  std::optional<Error> refusal;
  for (const ContentForm form : {ContentForm::kParts, ContentForm::kText}) {
    try {
      if (writes_text(of, form == ContentForm::kParts ? parts : Json(probe), probe)) return form;
    } catch (const Error& error) {  // the other form may do; else this error is reported
      if (!refusal || form == ContentForm::kParts) refusal = error;
    }
  }
  if (refusal) throw Error(*refusal);
  refuse_template(of.file, "E_TEMPLATE_TEXT", "messages", "a template that writes a user's text",
                  "one that leaves it out or changes it");
}

FolderTemplate checked_template(const FoundTemplate& found, const fs::path& folder) {
  FolderTemplate out{.source = ChatTemplate::parse(found.text, found.file),
                     .text = found.text,
                     .file = found.file,
                     .of_tokenizer = found.of_tokenizer,
                     .special_tokens = special_tokens_of(folder)};
  if (const auto processor = read_config(folder / "processor_config.json")) {
    out.default_system = processor->value("use_default_system_prompt", Json(false)) == Json(true);
  }
  out.content = content_form(out);
  return out;
}

}  // namespace

std::optional<FolderTemplate> read_folder_template(const fs::path& folder) {
  const std::optional<FoundTemplate> found = find_template(folder);
  if (!found) return std::nullopt;
  return checked_template(*found, folder);
}

FolderTemplate read_template_text(
    std::string text, std::string file,
    std::vector<std::pair<std::string, std::string>> special_tokens) {
  FolderTemplate out{.source = ChatTemplate::parse(text, file),
                     .text = std::move(text),
                     .file = std::move(file),
                     .of_tokenizer = true,
                     .special_tokens = std::move(special_tokens)};
  out.content = content_form(out);
  return out;
}

FolderTemplate read_template_file(const fs::path& file, const fs::path& folder) {
  if (file.extension() == ".json") {
    if (const auto found = template_in(file, false)) return checked_template(*found, folder);
    refuse_template(file.string(), "E_JSON_MISSING", "chat_template", "a template", "none");
  }
  return checked_template(template_text(file), folder);
}

}  // namespace tessera
