// The one table of families, and the search of a folder that comes before it.
#include "engine/families/registry.h"

#include <array>
#include <nlohmann/json.hpp>
#include <system_error>

#include "engine/core/io.h"
#include "engine/families/family.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::array<Family, 5> kFamilies = {{
    {"cosmos", detect_cosmos, parse_cosmos},
    {"emu3", detect_emu3, parse_emu3},
    {"janus", detect_janus, parse_janus},
    {"llamagen", detect_llamagen, parse_llamagen},
    {"nbp", detect_nbp, parse_nbp},
}};

std::string known_families() {
  std::string list;
  for (const Family& family : kFamilies) {
    if (!list.empty()) list += ", ";
    list += family.name;
  }
  return list;
}

[[noreturn]] void refuse(const std::string& file, std::string where, std::string found) {
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_FAMILY_UNKNOWN",
               .file = file,
               .where = std::move(where),
               .expected = "a checkpoint of a known family (" + known_families() + ")",
               .found = std::move(found),
               .hint = "`tessera models` lists what can be loaded"});
}

std::string describe(const ModelSource& source) {
  if (source.config == nullptr) return "no config.json and no tensors of a known family";
  const auto type = source.config->find("model_type");
  if (type == source.config->end() || !type->is_string()) return "no model_type";
  return "model_type \"" + type->get<std::string>() + "\"";
}

// `license:` in the front matter of a folder's model card (README.md), or nothing.
std::string card_licence(const fs::path& folder) {
  constexpr std::uintmax_t kCardBytes = std::uintmax_t{1} << 20;
  const fs::path path = folder / "README.md";
  std::error_code error;
  const std::uintmax_t size = folder.empty() ? 0 : fs::file_size(path, error);
  if (error || size == 0 || size > kCardBytes) return {};
  const std::string text = read_file(path, kCardBytes);
  if (!text.starts_with("---\n")) return {};
  const std::string_view front = std::string_view(text).substr(0, text.find("\n---", 3));
  constexpr std::string_view kKey = "\nlicense:";
  const std::size_t at = front.find(kKey);
  if (at == std::string_view::npos) return {};
  std::string_view value = front.substr(at + kKey.size(), 80);
  value = value.substr(0, value.find('\n'));
  const std::size_t begin = value.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return std::string(value.substr(begin, value.find_last_not_of(" \t\r") - begin + 1));
}

FamilySpec parse_source(const ModelSource& source, const std::string& file) {
  for (const Family& family : kFamilies) {
    if (family.detect(source)) {
      FamilySpec spec = family.parse(source);
      spec.family = family.name;
      spec.folder = source.folder;
      if (std::string licence = card_licence(source.folder); !licence.empty()) {
        spec.licence = std::move(licence);
      }
      return spec;
    }
  }
  refuse(file, source.config != nullptr ? "model_type" : "", describe(source));
}

Json read_config(std::string_view text, const std::string& file) {
  Json config = parse_json(text, file, {.max_bytes = std::size_t{32} << 20});
  if (!config.is_object()) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_JSON_TYPE",
                 .file = file,
                 .where = "$",
                 .expected = "an object",
                 .found = config.type_name()});
  }
  return config;
}

}  // namespace

FamilySpec load_family_spec(const fs::path& path, const FamilyOptions& options) {
  // Emu3 lists its whole vocabulary there.
  constexpr std::size_t kConfigBytes = std::size_t{32} << 20;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_MODEL_MISSING",
                 .file = path.string(),
                 .expected = "a model folder or weight file",
                 .found = "nothing there",
                 .hint = "`tessera models` lists what can be loaded"});
  }
  ModelSource source;
  source.options = options;
  if (fs::is_directory(status)) {
    source.folder = path;
  } else {
    source.folder = path.parent_path();
    source.file = path;
  }
  Json config;
  const fs::path config_path = source.folder / "config.json";
  source.config_file = config_path.string();
  if (file_exists(config_path)) {
    config = read_config(read_file(config_path, kConfigBytes), source.config_file);
    source.config = &config;
  }
  return parse_source(source, source.config != nullptr ? source.config_file : path.string());
}

FamilySpec parse_family_config(std::string_view json, const std::string& file,
                               const FamilyOptions& options) {
  const Json config = read_config(json, file);
  ModelSource source;
  source.options = options;
  source.config = &config;
  source.config_file = file;
  source.config_only = true;
  return parse_source(source, file);
}

std::vector<std::string_view> family_names() {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.name);
  return names;
}

}  // namespace tessera
