// The seam for what verifies the passes of a loop: where rows of logits are read, tokens drawn and
// drafts tested. The decisions are the same wherever that is, bit for bit.
//
// A pass: complete() when drafts are there, begin(), add() for each stream that has logits in it,
// read(), then settle() for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "engine/decoding/model_pass.h"
#include "engine/decoding/sequence_parts.h"
#include "engine/sampling/randomness.h"

namespace tessera {

using LoopParts = SequenceParts<float, KeyedRandom>;
using LoopSequence = TokenSequence<float, KeyedRandom>;

// Where the logits of a stream are in a pass: `rows` rows from `first` on, under guidance as many
// of the other branch after them.
struct StreamRows {
  LoopSequence* sequence = nullptr;
  std::int64_t first = 0;
  std::size_t rows = 0;
};

// A logit that no distribution can be made of.
struct BrokenLogit {
  std::size_t row = 0;  // of the stream's in the pass
  std::int64_t id = 0;
  float value = 0;
};

class Verifier {
 public:
  virtual ~Verifier() = default;
  // The sequence of a stream in a slot, to be verified here.
  virtual std::unique_ptr<LoopSequence> make_sequence(const DistributionSettings& dist,
                                                      const VocabularyGrammar& grammar,
                                                      KeyedRandom random, std::size_t slot) = 0;
  // When the drafter is through, and again whenever trees were answered: brings what the next pass
  // of these sequences lacks and only the verifier has.
  virtual void complete(std::span<LoopSequence* const> sequences) = 0;
  // The next pass has no streams yet.
  virtual void begin() = 0;
  // The next stream of the pass; numbers go from 0.
  virtual void add(const StreamRows& rows) = 0;
  // Reads the logits of one token space of the pass, which ran; waits.
  virtual void read(ModelPass& pass, std::size_t space) = 0;
  // Hands the outcome of the pass to stream `number` of it; or, if it fails by it, what is broken.
  // Different streams at once, from any threads.
  virtual std::optional<BrokenLogit> settle(std::size_t number) = 0;
};

// Writes down the log probabilities of the tokens after the first `before`, where they are asked
// for: those that a pass with these rows committed.
void record_committed(const LoopSequence& sequence, std::size_t before, RawRows<float> rows);

// For passes of at most `items` streams with `window` rows each: on the device where that can, else
// on the host. Parts are borrowed. Error kMemory.
std::unique_ptr<Verifier> make_verifier(Backend& backend, const LoopParts& parts,
                                        const VocabularyGrammar& grammar, std::int64_t items,
                                        std::int64_t window);

}  // namespace tessera
