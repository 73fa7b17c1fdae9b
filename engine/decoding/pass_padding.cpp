#include "engine/decoding/pass_padding.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::array<std::int64_t, 10> kBuckets = {1, 2, 4, 8, 16, 32, 48, 64, 96, kMaxBucketRows};

// The end of the run of equal numbers that begins at `first`.
std::size_t run_end(std::span<const std::int32_t> sequences, std::size_t first) {
  std::size_t end = first + 1;
  while (end < sequences.size() && sequences[end] == sequences[first]) ++end;
  return end;
}

}  // namespace

std::int64_t row_bucket(std::int64_t rows) {
  expects(rows >= 1, "a sequence of a pass has rows");
  const auto found = std::lower_bound(kBuckets.begin(), kBuckets.end(), rows);
  return found == kBuckets.end() ? rows : *found;
}

std::int64_t max_padding(std::int64_t rows) {
  std::int64_t most = 0;
  for (std::int64_t n = 1; n <= std::min(rows, kMaxBucketRows); ++n) {
    most = std::max(most, row_bucket(n) - n);
  }
  return most;
}

void PaddedRows::reserve(std::int64_t rows) {
  const auto count = to_size(rows);
  tokens_.reserve(count);
  sequences_.reserve(count);
  real_.reserve(count);
  positions_.reserve(count);
  places_.reserve(count);
  added_.reserve(count);
}

bool PaddedRows::fits(std::span<const std::int32_t> sequences) {
  for (std::size_t first = 0; first < sequences.size();) {
    const std::size_t end = run_end(sequences, first);
    if (to_index(end - first) > kMaxBucketRows) return false;
    first = end;
  }
  return true;
}

void PaddedRows::pad(const TokenRows& rows) {
  tokens_.clear();
  sequences_.clear();
  positions_.clear();
  places_.clear();
  real_.clear();
  added_.clear();
  gathers_ = false;
  for (std::size_t first = 0; first < rows.count();) {
    const std::size_t end = run_end(rows.sequences, first);
    const auto own = to_index(end - first);
    const std::int64_t wide = row_bucket(own);
    expects(tokens_.size() + to_size(wide) <= tokens_.capacity(), "padded rows fit the pass");
    for (std::int64_t i = 0; i < wide; ++i) {
      const std::size_t from = first + to_size(std::min(i, own - 1));
      if (i < own) real_.push_back(narrow<std::int32_t>(tokens_.size()));
      tokens_.push_back(rows.tokens[from]);
      sequences_.push_back(rows.sequences[from]);
      positions_.push_back(rows.positions[from]);
      places_.push_back(rows.places[from]);
    }
    gathers_ = gathers_ || wide > 1;
    if (wide > own) added_.push_back({rows.sequences[first], wide - own});
    first = end;
  }
  real_.resize(tokens_.size(), 0);
}

void PaddedRows::drop_added(KvCache& cache) const {
  for (const Added& added : added_) {
    cache.truncate(added.sequence, cache.length(added.sequence) - added.rows);
  }
}

}  // namespace tessera
