// The merges of a BPE model as files list them, the first one first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizers/text/bpe.h"

namespace tessera {

class MergeBuilder {
 public:
  struct Fault {
    const char* code;
    std::string expected, found;
  };
  // `tokens` by id outlive the builder. `prefix_bytes` are taken off the right token before the two
  // are joined.
  MergeBuilder(const std::vector<std::string>& tokens, std::size_t count,
               std::size_t prefix_bytes = 0);

  // The next merge, or what is wrong with it: E_TOK_MERGE_UNKNOWN, E_TOK_MERGE_RESULT.
  std::optional<Fault> add(std::string_view left, std::string_view right);
  MergeTable take() { return std::move(table_); }

 private:
  std::optional<std::int32_t> id_of(std::string_view token) const;
  std::unordered_map<std::string_view, std::int32_t> ids_;
  std::size_t prefix_bytes_;
  MergeTable table_;
  std::uint32_t rank_ = 0;
};

}  // namespace tessera
