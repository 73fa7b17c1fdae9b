// Which prompts the sequences of a cache begin with, also those whose stream is over: a stream that
// begins as one of them does not run those rows again. Their keys and values would be the same, as
// a row's result depends on its own sequence up to itself alone (engine/model/transformer.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/cache/kv_cache.h"
#include "engine/decoding/stream.h"

namespace tessera {

class PromptPrefixes {
 public:
  // Of a cache that outlives it.
  explicit PromptPrefixes(KvCache& cache);

  // Rows at the beginning of the prompt that the sequence has cached; never the whole prompt, as
  // its last row is read anew.
  std::int64_t shared(std::int64_t sequence, const StreamPrompt& prompt) const;
  // The sequence begins with as much of the prompt as any sequence has, and is noted as its place.
  // Returns the rows that it has then.
  std::int64_t begin(std::int64_t sequence, const StreamPrompt& prompt);
  // The sequence keeps the rows of its prompt that are cached.
  void end(std::int64_t sequence);
  // Rows that a sequence keeps of its prompt.
  std::int64_t kept(std::int64_t sequence) const;
  // The sequence is empty, and none of its rows are used again.
  void forget(std::int64_t sequence);
  void forget_all();

 private:
  struct Held {
    std::vector<RowKey> keys;
    std::vector<std::array<std::int64_t, 3>> places;  // none: those of ids
  };
  KvCache* cache_;
  std::vector<Held> held_;  // by sequence
};

}  // namespace tessera
