// Byte-pair encoding (Sennrich et al. 2016) as tokenizer.json files define it: vocabulary, ranked
// merges, byte fallback, unknown token. Merging uses a heap: n log n in the length of a word.
#pragma once

#include "tokenizers/text/word_model.h"

namespace tessera {

// Merges by pair of ids: open addressing, at most half full.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank;
    std::int32_t result;
  };
  explicit MergeTable(std::size_t count = 0);
  void set(std::int32_t left, std::int32_t right, Merge merge);  // replaces
  const Merge* find(std::int32_t left, std::int32_t right) const;

  struct Pair {
    std::int32_t left, right;
    Merge merge;
  };
  std::vector<Pair> pairs() const;  // by rank

 private:
  struct Slot {
    std::uint64_t key = ~std::uint64_t{0};
    Merge merge{};
  };
  std::size_t slot_of(std::uint64_t key) const;
  std::vector<Slot> slots_;
};

struct BpeOptions {
  std::optional<std::int32_t> unknown;  // id for characters that are not in the vocabulary
  bool fuse_unknown = false;            // a run of them gives one id
  bool byte_fallback = false;           // "<0xNN>" tokens for them, if all are there
  bool ignore_merges = false;           // a word that is a token is that token
  std::string prefix;                   // of each character but the first of a word
  std::string suffix;                   // of the last character of a word
};

class BpeModel final : public WordModel {
 public:
  BpeModel(std::vector<std::string> tokens, MergeTable merges, BpeOptions options);

  void encode(std::string_view word, RegexScratch& scratch,
              std::vector<std::int32_t>& out) const override;
  const MergeTable& merges() const { return merges_; }
  const BpeOptions& options() const { return options_; }

 private:
  // The ids of the characters of a word before any merge.
  std::vector<std::int32_t> characters(std::string_view word) const;

  MergeTable merges_;
  BpeOptions options_;
  std::vector<std::int32_t> byte_ids_;  // of "<0xNN>", or -1
};

}  // namespace tessera
