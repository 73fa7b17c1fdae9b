#include "engine/families/text_model.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/gguf_weights.h"
#include "engine/core/config_bytes.h"
#include "engine/core/io.h"
#include "engine/families/describe.h"
#include "engine/families/family.h"
#include "engine/families/folder_files.h"
#include "engine/families/folder_pointers.h"
#include "engine/families/gguf_config.h"
#include "engine/families/gguf_keys.h"
#include "engine/families/language.h"
#include "engine/families/quantised_config.h"
#include "engine/families/unreadable.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::array kTypes = {std::string_view("llama"), std::string_view("mistral"),
                               std::string_view("qwen2"), std::string_view("qwen3"),
                               std::string_view("gemma3_text")};

void read_config(const JsonReader& reader, TextSpec& spec) {
  const LanguageConfig language = parse_language(reader, kTypes);
  StreamModelConfig& model = spec.model.model;
  model.transformer = language.model;
  model.vocab = language.vocab;
  model.max_positions = language.max_positions;
  model.tied_head = language.tied;
  model.transformer.rope.positions = text_places(model);
  model.transformer.window_rope.positions = text_places(model);
  spec.model.names.norm_offset = language.norm_offset;
  spec.limit = language.limit;
  spec.class_end = language.end;
  spec.model.layouts = {{"model.", "lm_head.weight"}};
  spec.model.size = size_label(language.model);
  spec.model.licence = "as its card says";
}

[[noreturn]] void refuse_folder(const fs::path& file, std::string found) {
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_TEXT_MODEL",
               .file = file.string(),
               .where = "model_type",
               .expected = "a model that writes text alone: " + text_model_types(),
               .found = std::move(found),
               .hint = "`tessera models` lists what can be loaded"});
}

void read_folder(const fs::path& folder, TextSpec& spec) {
  refuse_pointers(folder);
  refuse_adapters(folder);
  const fs::path file = folder / "config.json";
  const auto config = std::make_shared<const Json>(
      parse_json(read_file(file, kConfigBytes), file.string(), {.max_bytes = kConfigBytes}));
  if (!config->is_object()) refuse_folder(file, std::string(config->type_name()));
  const std::string type = model_type(*config);
  if (std::find(kTypes.begin(), kTypes.end(), type) == kTypes.end()) {
    refuse_folder(file, type.empty() ? "none" : type);
  }
  FolderFiles files = FolderFiles::read(folder, config);
  spec.model.quantised = read_quantised(files);
  read_config(files.reader(FolderFile::kConfig), spec);
  spec.config = config;
  spec.account = std::make_shared<const FolderAccount>(files.account(FolderHalf::kDescribing));
}

void read_gguf(const fs::path& path, const Checkpoint& weights, TextSpec& spec) {
  const std::string name = gguf_parts(path).front().string();
  FolderAccount account;
  spec.config = std::make_shared<const Json>(
      gguf_config(*weights.gguf(), weights, name, GgufUse::kTexts, account));
  spec.account = std::make_shared<const FolderAccount>(std::move(account));
  read_config(JsonReader(*spec.config, name), spec);
  spec.model.names.norm_offset = 0;  // files of this format have norms as they are multiplied
  spec.model.licence = gguf_licence(*weights.gguf());
}

// All tensors of the model, and no others: those would be another model's.
void settle_tensors(const Json& config, const Checkpoint& weights, ModelSpec& spec) {
  const TextLayout& layout = spec.layouts.front();
  const bool head = weights.tensors().contains(layout.head);
  if (!head && !spec.model.tied_head) {
    refuse_missing_head(config, HeadTie::kWhole, (spec.folder / "config.json").string(),
                        layout.head, weights);
  }
  spec.model.tied_head = spec.model.tied_head || !head;
  const float norm_offset = spec.names.norm_offset;
  spec.names = text_names(spec.model, layout);
  spec.names.norm_offset = norm_offset;
  spec.tensors = text_tensors(spec.model, layout);
  spec.ignored = {std::string(kGgufFrequencies)};  // read with the configuration
  if (head && spec.model.tied_head) spec.ignored.push_back(layout.head);
  for (const auto& [name, view] : weights.tensors()) {
    // A table in every layer of older files, which the reference computes.
    if (name.ends_with(".rotary_emb.inv_freq")) spec.ignored.push_back(name);
  }
  check_tensors(spec, weights);
}

}  // namespace

std::string text_model_types() {
  std::string out;
  for (const std::string_view type : kTypes) out += (out.empty() ? "" : ", ") + std::string(type);
  return out;
}

bool is_text_model(const fs::path& path) {
  if (is_gguf_file(path)) return true;
  const fs::path file = path / "config.json";
  if (!is_folder(path) || !file_exists(file)) return false;
  const Json config =
      parse_json(read_file(file, kConfigBytes), file.string(), {.max_bytes = kConfigBytes});
  const std::string type = config.is_object() ? model_type(config) : std::string();
  return std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end();
}

OpenedModel open_text_model(const fs::path& path, TextSpec& spec) {
  OpenedModel out;
  const bool gguf = is_gguf_file(path);
  if (!gguf) read_folder(path, spec);
  ModelSpec& model = spec.model;
  Checkpoint weights = open_weights(path, model);
  if (gguf) read_gguf(path, weights, spec);
  model.folder = gguf ? fs::path() : path;
  model.weights = path;
  model.family = model_type(*spec.config);
  model.title = model.family + " " + model.size + quantised_title(model);
  if (!gguf) model.tokenizer = path / "tokenizer.json";
  locate_text(model.layouts, weights);
  settle_tensors(*spec.config, weights, model);
  out.weights = std::make_shared<const Checkpoint>(std::move(weights));
  out.source = source_of(out.weights);
  out.spec = model;
  return out;
}

}  // namespace tessera
