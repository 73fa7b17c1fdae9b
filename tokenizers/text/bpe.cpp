// Words are merged lowest rank first, leftmost first among equals. A heap holds rank and position
// of the candidate pairs; an entry whose pair has changed since is dropped when it surfaces.
#include "tokenizers/text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace {

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return (std::uint64_t{low_bits<std::uint32_t>(left)} << 32) | low_bits<std::uint32_t>(right);
}

std::uint64_t mix(std::uint64_t key) {
  key ^= key >> 31;
  key *= 0x9e3779b97f4a7c15ULL;
  key ^= key >> 29;
  key *= 0xbf58476d1ce4e5b9ULL;
  return key ^ (key >> 32);
}

// Doubly linked symbols of one word; a symbol that was merged into its left neighbour has id -1.
struct Symbol {
  std::int32_t id;
  std::int32_t before, after;  // -1 at the ends
};

// rank << 32 | position: the order in which candidates are taken.
using Candidate = std::uint64_t;

void merge_symbols(std::vector<Symbol>& symbols, const MergeTable& merges) {
  std::vector<Candidate> heap;
  heap.reserve(symbols.size());
  const auto candidate = [&](std::int32_t left) -> std::optional<Candidate> {
    const Symbol& symbol = nth(symbols, left);
    if (symbol.after < 0) return std::nullopt;
    const auto* merge = merges.find(symbol.id, nth(symbols, symbol.after).id);
    if (merge == nullptr) return std::nullopt;
    return (Candidate{merge->rank} << 32) | low_bits<std::uint32_t>(left);
  };
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
    if (const auto entry = candidate(narrow<std::int32_t>(i))) heap.push_back(*entry);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](std::int32_t left) {
    if (left < 0) return;
    if (const auto entry = candidate(left)) {
      heap.push_back(*entry);
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const Candidate top = heap.back();
    heap.pop_back();
    const auto position = narrow<std::int32_t>(top & 0xffffffffU);
    Symbol& left = nth(symbols, position);
    if (left.id < 0 || left.after < 0) continue;
    Symbol& right = nth(symbols, left.after);
    const auto* merge = merges.find(left.id, right.id);
    if (merge == nullptr || merge->rank != top >> 32) continue;
    left.id = merge->result;
    left.after = right.after;
    right.id = -1;
    if (left.after >= 0) nth(symbols, left.after).before = position;
    push(left.before);
    push(position);
  }
}

}  // namespace

MergeTable::MergeTable(std::size_t count) : slots_(std::bit_ceil(2 * count + 2)) {}

std::size_t MergeTable::slot_of(std::uint64_t key) const {
  std::size_t at = mix(key) & (slots_.size() - 1);
  while (slots_[at].key != key && slots_[at].key != ~std::uint64_t{0})
    at = (at + 1) & (slots_.size() - 1);
  return at;
}

void MergeTable::set(std::int32_t left, std::int32_t right, Merge merge) {
  const std::uint64_t key = pair_key(left, right);
  slots_[slot_of(key)] = {key, merge};
}

const MergeTable::Merge* MergeTable::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t key = pair_key(left, right);
  const Slot& slot = slots_[slot_of(key)];
  return slot.key == key ? &slot.merge : nullptr;
}

std::vector<MergeTable::Pair> MergeTable::pairs() const {
  std::vector<Pair> out;
  for (const Slot& slot : slots_) {
    if (slot.key == ~std::uint64_t{0}) continue;
    out.push_back({narrow<std::int32_t>(slot.key >> 32),
                   narrow<std::int32_t>(slot.key & 0xffffffffU), slot.merge});
  }
  std::sort(out.begin(), out.end(),
            [](const Pair& a, const Pair& b) { return a.merge.rank < b.merge.rank; });
  return out;
}

BpeModel::BpeModel(std::vector<std::string> tokens, MergeTable merges, BpeOptions options)
    : WordModel(std::move(tokens)),
      merges_(std::move(merges)),
      options_(std::move(options)),
      byte_ids_(byte_token_ids(*this)) {}

std::vector<std::int32_t> BpeModel::characters(std::string_view word) const {
  std::vector<std::int32_t> out;
  out.reserve(word.size());
  const bool affixes = !options_.prefix.empty() || !options_.suffix.empty();
  std::string with_affixes;
  bool unknown_waits = false;  // an unknown id that is not written yet, because it may grow
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t length = decode_utf8(word, at).length;
    std::string_view character = word.substr(at, length);
    if (affixes) {
      with_affixes = at > 0 ? options_.prefix : std::string();
      with_affixes += character;
      if (at + length == word.size()) with_affixes += options_.suffix;
      character = with_affixes;
    }
    at += length;
    if (const auto id = id_of(character)) {
      if (unknown_waits) out.push_back(*options_.unknown);
      unknown_waits = false;
      out.push_back(*id);
      continue;
    }
    const auto byte_id = [&](char c) { return byte_ids_[byte_of(c)]; };
    if (options_.byte_fallback &&
        std::all_of(character.begin(), character.end(), [&](char c) { return byte_id(c) >= 0; })) {
      for (char c : character) out.push_back(byte_id(c));
      continue;
    }
    if (!options_.unknown) continue;  // as the reference: such a character leaves no trace
    if (unknown_waits && !options_.fuse_unknown) out.push_back(*options_.unknown);
    unknown_waits = true;
  }
  if (unknown_waits) out.push_back(*options_.unknown);
  return out;
}

void BpeModel::encode(std::string_view word, RegexScratch& /*scratch*/,
                      std::vector<std::int32_t>& out) const {
  if (options_.ignore_merges) {
    if (const auto id = id_of(word)) {
      out.push_back(*id);
      return;
    }
  }
  const std::vector<std::int32_t> ids = characters(word);
  if (ids.size() < 2) {
    out.insert(out.end(), ids.begin(), ids.end());
    return;
  }
  expects(ids.size() < (std::size_t{1} << 30), "a word fits 32-bit positions");
  std::vector<Symbol> symbols(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto here = narrow<std::int32_t>(i);
    symbols[i] = {ids[i], here - 1, i + 1 < ids.size() ? here + 1 : -1};
  }
  merge_symbols(symbols, merges_);
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) out.push_back(symbol.id);
  }
}

}  // namespace tessera
