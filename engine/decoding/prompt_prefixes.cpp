#include "engine/decoding/prompt_prefixes.h"

#include <algorithm>

#include "engine/core/index.h"

namespace tessera {

namespace {

RowKey key_of_row(const StreamPrompt& prompt, std::int64_t row) {
  if (prompt.rows != nullptr) return nth(prompt.keys, row);
  return key_of_id(nth(prompt.ids, row));
}

// Rows whose keys are known.
std::int64_t known_rows(const StreamPrompt& prompt) {
  if (prompt.cuts != nullptr) return 0;
  return prompt.rows != nullptr ? std::ssize(prompt.keys) : std::ssize(prompt.ids);
}

}  // namespace

PromptPrefixes::PromptPrefixes(KvCache& cache)
    : cache_(&cache), held_(to_size(cache.shape().sequences)) {}

std::int64_t PromptPrefixes::kept(std::int64_t sequence) const {
  return std::min(std::ssize(nth(held_, sequence).keys), cache_->length(sequence));
}

std::int64_t PromptPrefixes::shared(std::int64_t sequence, const StreamPrompt& prompt) const {
  const Held& held = nth(held_, sequence);
  if (held.places.empty() != (prompt.rows == nullptr)) return 0;
  const std::int64_t most = std::min({kept(sequence), known_rows(prompt), prompt.length() - 1});
  std::int64_t rows = 0;
  while (rows < most && nth(held.keys, rows) == key_of_row(prompt, rows) &&
         (held.places.empty() || nth(held.places, rows) == nth(prompt.positions, rows))) {
    ++rows;
  }
  return rows;
}

std::int64_t PromptPrefixes::begin(std::int64_t sequence, const StreamPrompt& prompt) {
  std::int64_t from = sequence, rows = shared(sequence, prompt);
  for (std::int64_t other = 0; other < std::ssize(held_); ++other) {
    const std::int64_t more = shared(other, prompt);
    if (more <= rows) continue;
    from = other;
    rows = more;
  }
  if (from == sequence) {
    cache_->truncate(sequence, rows);
  } else {
    cache_->fork(from, sequence, rows);
  }
  Held& held = nth(held_, sequence);
  held.keys.clear();
  for (std::int64_t row = 0; row < known_rows(prompt); ++row) {
    held.keys.push_back(key_of_row(prompt, row));
  }
  held.places.clear();
  if (!held.keys.empty() && prompt.rows != nullptr) held.places = prompt.positions;
  return rows;
}

void PromptPrefixes::end(std::int64_t sequence) {
  cache_->truncate(sequence, kept(sequence));
}

void PromptPrefixes::forget(std::int64_t sequence) {
  nth(held_, sequence) = {};
  cache_->truncate(sequence, 0);
}

void PromptPrefixes::forget_all() {
  for (Held& held : held_) held = {};
}

}  // namespace tessera
