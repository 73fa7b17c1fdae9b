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

void refuse_quantised(const Json& config, const std::string& file) {
  const auto found = config.is_object() ? config.find("quantization_config") : config.end();
  if (found == config.end() || !found->is_object()) return;
  const JsonReader keys(*found, file, "quantization_config");
  std::string method = keys.string_or("quant_method", "an unnamed method");
  for (const char* bits : {"bits", "w_bit"}) {
    if (keys.has(bits)) method += ", " + keys.raw(bits).dump() + " bits";
  }
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_QUANTISED",
               .file = file,
               .where = "quantization_config",
               .expected = "weights as they were trained: f32, f16, bf16 or f64",
               .found = "weights quantised by " + method,
               .hint = "use the folder that the model had before, or dequantise and save it"});
}

}  // namespace tessera
