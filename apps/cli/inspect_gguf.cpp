// Opens a GGUF file without its weights and says what it is.
#include "apps/cli/inspect_gguf.h"

#include <array>
#include <nlohmann/json.hpp>

#include "apps/cli/folder_keys.h"
#include "apps/runtime/caption_memory.h"
#include "apps/runtime/completion_model.h"
#include "engine/checkpoint/gguf_weights.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/storage.h"
#include "engine/families/gguf_config.h"
#include "engine/families/gguf_keys.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

// A part of a model, mapped.
struct Part {
  MappedFile file;
  GgufFile gguf;
};

std::vector<Part> parts_of(const fs::path& model) {
  std::vector<Part> out;
  for (const fs::path& path : gguf_parts(model)) {
    MappedFile file(path);
    GgufFile gguf = parse_gguf(file.bytes(), path.string());
    out.push_back({std::move(file), std::move(gguf)});
  }
  return out;
}

// The model, or why there is none.
struct Opened {
  std::unique_ptr<CompletionModel> model;
  ErrorInfo problem;
};

Opened open_completion(const ModelReference& model) {
  try {
    return {CompletionModel::open(model.open_name), {}};
  } catch (const Error& error) {  // part of what is shown
    return {nullptr, error.info()};
  }
}

std::string text_of(const GgufFile& head, std::string_view key) {
  const GgufValue* const value = head.find(key);
  return value != nullptr && value->text() ? std::string(*value->text()) : std::string();
}

// Numbers of the architecture under the names that other models are shown with.
constexpr std::array kSizes = {std::pair{"layers", "block_count"},
                               std::pair{"hidden", "embedding_length"},
                               std::pair{"heads", "attention.head_count"},
                               std::pair{"kv_heads", "attention.head_count_kv"},
                               std::pair{"head_dim", "attention.key_length"},
                               std::pair{"ffn", "feed_forward_length"},
                               std::pair{"context", "context_length"}};

void add_sizes(const GgufFile& head, const std::string& prefix, Json& out) {
  for (const auto& [name, key] : kSizes) {
    const GgufValue* const value = head.find(prefix + "." + key);
    if (value == nullptr) continue;
    if (const auto number = value->integer()) out[name] = *number;
  }
}

Json types_json(std::span<const Part> parts, std::int64_t& numbers) {
  Json out = Json::object();
  for (const Part& part : parts) {
    for (const GgufTensor& tensor : part.gguf.tensors) {
      Json& type = out[std::string(tensor.type->name)];
      if (type.is_null()) type = {{"tensors", 0}, {"bytes", 0}};
      type["tensors"] = type["tensors"].get<std::int64_t>() + 1;
      type["bytes"] = type["bytes"].get<std::uint64_t>() + (tensor.end - tensor.begin);
      numbers += tensor.numbers();
    }
  }
  return out;
}

Json tokenizer_json(const GgufFile& head) {
  Json out = {{"model", text_of(head, "tokenizer.ggml.model")},
              {"pre", text_of(head, "tokenizer.ggml.pre")}};
  const GgufValue* const tokens = head.find("tokenizer.ggml.tokens");
  const auto list = tokens == nullptr ? std::nullopt : tokens->array();
  out["tokens"] = list ? list->left() : 0;
  return out;
}

// "default" for the one that chats are written by, then those for tools.
Json template_names(const GgufFile& head) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  Json out = Json::array();
  for (const auto& [key, value] : head.keys) {
    if (key == kKey) out.insert(out.begin(), "default");
    if (key.starts_with(std::string(kKey) + ".")) out.push_back(key.substr(kKey.size() + 1));
  }
  return out;
}

// One text of usual length with weights kept in each way.
Json memory_json(const CompletionModel& model, bool parts) {
  constexpr std::int64_t kPromptRows = 64, kTokens = 256;
  const auto backend = make_backend("cpu", {.threads = 1});
  std::vector<DType> types;
  if (model.stored() == DType::kFile) types.push_back(DType::kFile);
  for (const std::string_view name : kKeptNames) types.push_back(*storage_named(name));
  Json out;
  for (const DType storage : types) {
    const StreamLimits limits{
        .prompt_rows = kPromptRows,
        .grammar = VocabularyGrammar::line(to_size(model.spec().model.vocab), to_size(kTokens)),
        .kv = beside(storage)};
    const CaptionMemoryPlan plan =
        plan_captioning(model.spec(), *backend, KeptWeights(storage, &model.weights()), limits, {});
    Json& row = out[std::string(dtype_name(storage))];
    if (!parts) {
      row = plan.total();
      continue;
    }
    row = {{"language", plan.language},
           {"texts", plan.texts},
           {"process", plan.process},
           {"total", plan.total()}};
  }
  return out;
}

void add_model(const CompletionModel& model, bool parts, Json& out) {
  const ModelSpec& spec = model.spec();
  const ModelConfig& lm = spec.model.transformer;
  out["family"] = spec.family;
  out["title"] = spec.title;
  out["layers"] = lm.layers;
  out["hidden"] = lm.width;
  out["heads"] = lm.heads;
  out["kv_heads"] = lm.kv_heads;
  out["head_dim"] = lm.head_dim;
  out["ffn"] = lm.ffn_width;
  out["vocab"] = spec.model.vocab;
  out["positions"] = text_places(spec.model);
  if (!model.text().limit.empty()) out["limit"] = model.text().limit;
  out["commands"] = {"complete"};
  out["stored_as"] = dtype_name(model.stored());
  out["memory"] = memory_json(model, parts);
}

}  // namespace

bool is_gguf_model(const ModelReference& model) {
  return model.origin != ModelOrigin::kMadeUp && is_gguf_file(model.open_name);
}

Json gguf_json(const ModelReference& model, bool parts) {
  const std::vector<Part> files = parts_of(model.open_name);
  const GgufFile& head = files.front().gguf;
  const std::string file = files.front().file.path().string();
  const std::string architecture = gguf_architecture(head, file);
  std::int64_t numbers = 0;
  const Json types = types_json(files, numbers);
  std::uint64_t bytes = 0;
  for (const Part& part : files) bytes += part.file.bytes().size();
  Json out = {{"model", model.shown_name},
              {"format", "gguf"},
              {"version", head.version},
              {"files", files.size()},
              {"file_bytes", bytes},
              {"architecture", architecture},
              {"name", text_of(head, "general.name")},
              {"licence", text_of(head, "general.license")},
              {"parameters", numbers},
              {"types", types},
              {"tokenizer", tokenizer_json(head)},
              {"chat_templates", template_names(head)}};
  add_sizes(head, architecture, out);
  const Opened opened = open_completion(model);
  if (opened.model != nullptr) {
    add_model(*opened.model, parts, out);
  } else {
    out["commands"] = Json::array();
    const std::string missing = missing_of_architecture(architecture);
    if (!missing.empty()) out["missing"] = missing;
    out["problem"] = format_error(opened.problem);
  }
  return out;
}

void print_gguf_tensors(const Session& session, const fs::path& file) {
  for (const Part& part : parts_of(file)) {
    for (const GgufTensor& tensor : part.gguf.tensors) {
      if (session.json) {
        print_json_line({{"tensor", tensor.name},
                         {"shape", tensor.shape.extents()},
                         {"type", tensor.type->name}});
      } else {
        print_line(escape_for_terminal(tensor.name) + "  " + tensor.shape.to_string() + "  " +
                   std::string(tensor.type->name));
      }
    }
  }
}

void print_gguf_keys(const Session& session, const ModelReference& model) {
  const Opened opened = open_completion(model);
  if (opened.model != nullptr) {
    return print_keys(session, opened.model->text().account.get(), "texts");
  }
  // Nobody read the keys of a model that cannot be run.
  const std::vector<Part> files = parts_of(model.open_name);
  FolderAccount account;
  account_other_keys(files.front().gguf, {}, files.front().file.path().string(), account);
  print_keys(session, &account, "texts");
}

}  // namespace tessera
