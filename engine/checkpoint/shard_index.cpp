// Reader of the index: a fixed grammar; keys next to weight_map (sizes, notes) are stepped over.
#include "engine/checkpoint/shard_index.h"

#include <unordered_map>
#include <utility>

#include "engine/checkpoint/container.h"
#include "engine/core/index.h"
#include "engine/core/json_scan.h"

namespace tessera {

namespace {

constexpr std::size_t kMaxShards = 10'000;
constexpr std::size_t kMaxIndexTensors = 2 * kMaxTensors;
constexpr std::size_t kMaxShardName = 255;

class IndexReader {
 public:
  IndexReader(std::string_view text, const std::string& file)
      : scanner_(text, file, {.max_bytes = kMaxIndexBytes, .max_depth = 16}) {}

  ShardIndex read() {
    want(scanner_.next(), JsonKind::kObjectBegin);
    bool found = false;
    JsonToken key = scanner_.next();
    for (; key.kind == JsonKind::kKey; key = scanner_.next()) {
      if (key.text != "weight_map") {
        scanner_.skip(scanner_.next());
        continue;
      }
      if (found) scanner_.fail("E_IDX_DUPLICATE", key.offset, "one weight_map", "a second one");
      found = true;
      read_map();
    }
    want(scanner_.next(), JsonKind::kEnd);
    if (!found) scanner_.fail("E_IDX_GRAMMAR", 0, "the key weight_map", "no such key");
    if (out_.shard_of.empty()) scanner_.fail("E_IDX_EMPTY", 0, "at least one tensor", "none");
    return std::move(out_);
  }

 private:
  void want(const JsonToken& token, JsonKind kind) const {
    if (token.kind == kind) return;
    scanner_.fail("E_IDX_GRAMMAR", token.offset, std::string(json_kind_name(kind)),
                  std::string(json_kind_name(token.kind)));
  }

  void read_map() {
    want(scanner_.next(), JsonKind::kObjectBegin);
    for (JsonToken key = scanner_.next(); key.kind == JsonKind::kKey; key = scanner_.next()) {
      const std::string tensor(key.text);
      const std::size_t offset = key.offset;
      if (!is_tensor_name(tensor)) {
        scanner_.fail("E_IDX_TENSOR_NAME", offset, "a tensor name without control characters",
                      std::to_string(tensor.size()) + " bytes");
      }
      if (out_.shard_of.size() >= kMaxIndexTensors) {
        scanner_.fail("E_IDX_COUNT", offset,
                      "at most " + std::to_string(kMaxIndexTensors) + " tensors", "one more");
      }
      const JsonToken value = scanner_.next();
      want(value, JsonKind::kString);
      if (!out_.shard_of.emplace(tensor, shard_number(value)).second) {
        scanner_.fail("E_IDX_DUPLICATE", offset, "each tensor once",
                      tensor_place(tensor) + " again");
      }
    }
  }

  // The name must not lead out of the folder, nor to a hidden file.
  static bool is_plain_name(std::string_view name) {
    if (name.empty() || name.size() > kMaxShardName || name.front() == '.') return false;
    return is_tensor_name(name) && name.find_first_of("/\\") == std::string_view::npos;
  }

  std::uint32_t shard_number(const JsonToken& token) {
    std::string name(token.text);
    if (const auto known = numbers_.find(name); known != numbers_.end()) return known->second;
    if (!is_plain_name(name)) {
      scanner_.fail("E_IDX_SHARD_NAME", token.offset, "a plain file name in the same folder",
                    "\"" + name.substr(0, 200) + "\"");
    }
    if (out_.shards.size() >= kMaxShards) {
      scanner_.fail("E_IDX_SHARDS", token.offset,
                    "at most " + std::to_string(kMaxShards) + " files", "one more");
    }
    const auto number = narrow<std::uint32_t>(out_.shards.size());
    out_.shards.push_back(name);
    numbers_.emplace(std::move(name), number);
    return numbers_.at(out_.shards.back());
  }

  JsonScanner scanner_;
  ShardIndex out_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

}  // namespace

ShardIndex parse_shard_index(std::string_view text, const std::string& file) {
  return IndexReader(text, file).read();
}

}  // namespace tessera
