#include "apps/runtime/text_stops.h"

#include <nlohmann/json.hpp>

#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr const char* kKey = "eos_token_id";

[[noreturn]] void refuse_stops(const fs::path& file, std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_CAPTION_MODEL",
               .file = file.string(),
               .where = kKey,
               .expected = std::move(expected),
               .found = std::move(found)});
}

// One id or a list of them.
std::vector<std::int32_t> read_ids(const fs::path& file, const Json& value) {
  std::vector<std::int32_t> out;
  for (const Json& id : value.is_array() ? value : Json::array({value})) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
        id.get<std::int64_t>() >= std::int64_t{1} << 30 || out.size() >= 64) {
      refuse_stops(file, "token ids", id.dump());
    }
    out.push_back(id.get<std::int32_t>());
  }
  return out;
}

}  // namespace

Json read_generation(const fs::path& folder) {
  const fs::path path = generation_path(folder);
  if (!file_exists(path)) return {};
  return parse_json(read_file(path, std::size_t{1} << 20), path.string());
}

std::vector<std::int32_t> read_stops(const fs::path& folder, const Json& generation,
                                     const Json& config, const TextTokenizer& tokenizer,
                                     const UnnamedEnd& unnamed) {
  if (generation.is_object()) {
    const auto found = generation.find(kKey);
    if (found == generation.end() || found->is_null()) return {};
    return read_ids(generation_path(folder), *found);
  }
  std::vector<const Json*> places = {&config};
  for (const char* key : {"text_config", "language_config"}) {
    if (const auto part = config.find(key); part != config.end() && part->is_object()) {
      places.push_back(&*part);
    }
  }
  for (const Json* place : places) {
    const auto found = place->find(kKey);
    if (found == place->end() || found->is_null()) continue;
    return read_ids(folder / "config.json", *found);
  }
  if (!unnamed.token.empty()) {
    const std::string token(unnamed.token);
    if (const auto id = tokenizer.id_of(token)) return {*id};
    refuse_stops(folder, "a token " + token + ", or an id in config.json", "none");
  }
  if (unnamed.id == kNoEnd || places.back()->contains(kKey)) return {};
  return {unnamed.id};
}

}  // namespace tessera
