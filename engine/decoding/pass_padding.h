// Decode passes of few shapes, for devices that record a pass and repeat it: the rows of every
// sequence are padded to one of a few counts. The rows that are added stand after the real ones of
// their sequence, so that none of those sees them, and leave the cache after the pass.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/cache/kv_cache.h"

namespace tessera {

// The smallest of 1, 2, 4, 8, 16, 32, 48, 64, 96, 128 that `rows` fit into; more stay as many.
std::int64_t row_bucket(std::int64_t rows);
inline constexpr std::int64_t kMaxBucketRows = 128;
// The most rows that are added to any count from 1 to `rows`.
std::int64_t max_padding(std::int64_t rows);

// Rows of a pass of tokens; those of a sequence stand together.
struct TokenRows {
  std::span<const std::int32_t> tokens, sequences;
  std::span<const std::int64_t> positions;
  std::span<const std::array<std::int64_t, 3>> places;

  std::size_t count() const { return tokens.size(); }
};

class PaddedRows {
 public:
  // Room for `rows` rows, the added ones included; pad() allocates nothing.
  void reserve(std::int64_t rows);

  // Whether no sequence has more rows than the widest bucket.
  static bool fits(std::span<const std::int32_t> sequences);
  // Added rows repeat the last token of their sequence at its place.
  void pad(const TokenRows& rows);
  TokenRows rows() const { return {tokens_, sequences_, positions_, places_}; }
  std::int64_t count() const { return std::ssize(tokens_); }
  // Whether a sequence has room for more than one row: then real rows are gathered after the pass,
  // whether any was added or not, so that passes of one shape are alike.
  bool gathers() const { return gathers_; }
  // [count()]: where the rows that were padded stand, in order; then any.
  std::span<const std::int32_t> real() const { return real_; }
  // Cuts the added rows off the ends of their sequences.
  void drop_added(KvCache& cache) const;

 private:
  struct Added {
    std::int32_t sequence = 0;
    std::int64_t rows = 0;
  };

  std::vector<std::int32_t> tokens_, sequences_, real_;
  std::vector<std::int64_t> positions_;
  std::vector<std::array<std::int64_t, 3>> places_;
  std::vector<Added> added_;
  bool gathers_ = false;
};

}  // namespace tessera
