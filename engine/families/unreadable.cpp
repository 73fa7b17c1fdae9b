// What other tools write into a model's folder that this runtime does not compute with.
#include "engine/families/unreadable.h"

#include <nlohmann/json.hpp>

#include "engine/core/io.h"
#include "engine/core/json.h"

namespace tessera {

void refuse_adapters(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "adapter_config.json";
  if (folder.empty() || !file_exists(path)) return;
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

}  // namespace tessera
