// What other tools write into a model's folder that this runtime does not compute with.
#include "engine/families/unreadable.h"

#include <nlohmann/json.hpp>

#include "engine/core/io.h"

namespace tessera {

namespace {

[[noreturn]] void refuse_blocks(const JsonReader& keys, const std::string& where) {
  std::string method = keys.string_or("quant_method", "an unnamed method");
  for (const char* bits : {"bits", "w_bit"}) {
    if (keys.has(bits)) method += ", " + keys.raw(bits).dump() + " bits";
  }
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_QUANTISED",
               .file = keys.file(),
               .where = where,
               .expected = "weights as they were trained: f32, f16, bf16 or f64",
               .found = "weights quantised by " + method,
               .hint = "use the folder that the model had before, or dequantise and save it"});
}

void refuse_adapter(const std::filesystem::path& path) {
  if (!file_exists(path)) return;
  const Json json = parse_json(read_file(path, std::size_t{1} << 20), path.string());
  std::string base = "its base model";
  if (json.is_object()) {
    base = JsonReader(json, path.string()).string_or("base_model_name_or_path", base);
  }
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_ADAPTER",
               .file = path.string(),
               .expected = "a whole model",
               .found = "a LoRA adapter of " + base,
               .hint = "merge both and save the result: merge_and_unload() of the peft library"});
}

}  // namespace

void refuse_foreign_files(const std::filesystem::path& folder) {
  if (folder.empty()) return;
  refuse_adapter(folder / "adapter_config.json");
  // What AutoGPTQ and AutoAWQ write next to a configuration that may not speak of it.
  for (const char* const name : {"quantize_config.json", "quant_config.json"}) {
    const std::filesystem::path path = folder / name;
    if (!file_exists(path)) continue;
    const Json json = parse_json(read_file(path, std::size_t{1} << 20), path.string());
    refuse_blocks(JsonReader(json, path.string()), json.contains("bits") ? "bits" : "");
  }
}

void refuse_quantised(const Json& config, const std::string& file) {
  if (!config.is_object()) return;
  for (const char* const half : {"", "text_config", "language_config", "vision_config"}) {
    const bool whole = *half == 0;
    const auto part = whole ? config.end() : config.find(half);
    if (!whole && (part == config.end() || !part->is_object())) continue;
    const Json& keys = whole ? config : *part;
    const auto found = keys.find("quantization_config");
    if (found == keys.end() || !found->is_object()) continue;
    const std::string where = (whole ? "" : std::string(half) + ".") + "quantization_config";
    refuse_blocks(JsonReader(*found, file, where), where);
  }
}

}  // namespace tessera
