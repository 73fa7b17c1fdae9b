#include "engine/families/named_tokens.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/core/io.h"
#include "engine/core/json.h"

namespace tessera {

namespace {

constexpr std::size_t kTokenFileBytes = std::size_t{8} << 20;
constexpr std::int64_t kMaxTokenId = std::int64_t{1} << 30;

std::optional<Json> read_list(const std::filesystem::path& path) {
  if (!file_exists(path)) return std::nullopt;
  return parse_json(read_file(path, kTokenFileBytes), path.string(),
                    {.max_bytes = kTokenFileBytes, .large_integers = true});
}

std::int64_t id_of_key(const JsonReader& list, const std::string& key) {
  std::int64_t id = -1;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (error != std::errc{} || end != key.data() + key.size() || id < 0 || id > kMaxTokenId) {
    list.fail(key, "the id of a token", key);
  }
  return id;
}

}  // namespace

std::vector<NamedToken> named_tokens(const std::filesystem::path& folder) {
  std::vector<NamedToken> out;
  const std::filesystem::path config = folder / "tokenizer_config.json";
  if (const std::optional<Json> json = read_list(config)) {
    const JsonReader reader(*json, config.string());
    if (reader.has("added_tokens_decoder")) {
      const JsonReader list = reader.object("added_tokens_decoder");
      for (const auto& [key, value] : reader.raw("added_tokens_decoder").items()) {
        out.push_back({.file = config.string(),
                       .key = list.path_of(key),
                       .content = list.object(key).string("content"),
                       .id = id_of_key(list, key)});
      }
    }
  }
  const std::filesystem::path added = folder / "added_tokens.json";
  if (const std::optional<Json> json = read_list(added)) {
    const JsonReader list(*json, added.string());
    for (const auto& [key, value] : json->items()) {
      out.push_back({.file = added.string(),
                     .key = key,
                     .content = key,
                     .id = list.integer(key, 0, kMaxTokenId)});
    }
  }
  return out;
}

}  // namespace tessera
