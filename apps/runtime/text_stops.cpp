#include "apps/runtime/text_stops.h"

#include <nlohmann/json.hpp>

#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse_stops(const fs::path& file, std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_CAPTION_MODEL",
               .file = file.string(),
               .where = "eos_token_id",
               .expected = std::move(expected),
               .found = std::move(found)});
}

}  // namespace

Json read_generation(const fs::path& folder) {
  const fs::path path = generation_path(folder);
  if (!file_exists(path)) return {};
  return parse_json(read_file(path, std::size_t{1} << 20), path.string());
}

std::vector<std::int32_t> read_stops(const fs::path& folder, const Json& generation,
                                     const Json& config, const TextTokenizer& tokenizer) {
  const std::pair<fs::path, const Json*> files[] = {
      {generation_path(folder), &generation}, {folder / "config.json", &config}};
  for (const auto& [path, json] : files) {
    if (!json->is_object()) continue;
    std::vector<const Json*> places = {json};
    for (const char* key : {"text_config", "language_config"}) {
      if (const auto part = json->find(key); part != json->end() && part->is_object()) {
        places.push_back(&*part);
      }
    }
    for (const Json* place : places) {
      const auto found = place->find("eos_token_id");
      if (found == place->end() || found->is_null()) continue;
      std::vector<std::int32_t> out;
      for (const Json& id : found->is_array() ? *found : Json::array({*found})) {
        if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
            id.get<std::int64_t>() >= std::int64_t{1} << 30 || out.size() >= 64) {
          refuse_stops(path, "token ids", id.dump());
        }
        out.push_back(id.get<std::int32_t>());
      }
      return out;
    }
  }
  for (const char* token : {"</s>", "<|im_end|>", "<end_of_utterance>",
                            "<\xef\xbd\x9c"
                            "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"}) {
    if (const auto id = tokenizer.id_of(token)) return {*id};
  }
  refuse_stops(folder, "a token that ends a text", "none");
}

}  // namespace tessera
