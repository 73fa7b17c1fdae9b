// The index of a checkpoint cut into several files: {"weight_map": {tensor: file name}}.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

inline constexpr std::size_t kMaxIndexBytes = std::size_t{64} << 20;

struct ShardIndex {
  std::vector<std::string> shards;  // plain base names, in order of first mention
  std::map<std::string, std::uint32_t, std::less<>> shard_of;  // tensor -> place in `shards`
};

// Errors (kModel): E_IDX_GRAMMAR, E_IDX_DUPLICATE, E_IDX_TENSOR_NAME, E_IDX_COUNT,
// E_IDX_SHARD_NAME (not a plain base name in the same folder), E_IDX_SHARDS, E_IDX_EMPTY, and the
// E_JSON ones.
ShardIndex parse_shard_index(std::string_view text, const std::string& file);

}  // namespace tessera
