// What other tools write into a model's folder that this runtime does not compute with.
#include "engine/families/unreadable.h"

#include <nlohmann/json.hpp>

#include "engine/core/io.h"

namespace tessera {

void refuse_adapter(const std::filesystem::path& folder) {
  if (folder.empty()) return;
  const std::filesystem::path path = folder / "adapter_config.json";
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

namespace {

void refuse_method(const JsonReader& keys, const std::string& file, const std::string& where) {
  std::string method = keys.string_or("quant_method", "an unnamed method");
  for (const char* bits : {"bits", "w_bit"}) {
    if (keys.has(bits)) method += ", " + keys.raw(bits).dump() + " bits";
  }
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_QUANTISED",
               .file = file,
               .where = where,
               .expected = "weights as they were trained: f32, f16, bf16 or f64",
               .found = "weights quantised by " + method,
               .hint = "use the folder that the model had before, or dequantise and save it"});
}

}  // namespace

void refuse_quantised(const Json& config, const std::string& file) {
  constexpr const char* kKey = "quantization_config";
  if (!config.is_object()) return;
  for (const char* half : {"", "text_config", "language_config", "vision_config"}) {
    const bool whole = *half == 0;
    if (!whole && !config.contains(half)) continue;
    const Json& part = whole ? config : config[half];
    if (!part.is_object() || !part.contains(kKey) || !part[kKey].is_object()) continue;
    const std::string where = (whole ? "" : std::string(half) + ".") + kKey;
    refuse_method(JsonReader(part[kKey], file, where), file, where);
  }
  // What quantisers write in place of the key.
  for (const char* name : {"quantize_config.json", "quant_config.json"}) {
    const std::filesystem::path path = std::filesystem::path(file).parent_path() / name;
    if (!file_exists(path)) continue;
    const Json json = parse_json(read_file(path, std::size_t{1} << 20), path.string());
    refuse_method(JsonReader(json, path.string()), path.string(), "");
  }
}

}  // namespace tessera
