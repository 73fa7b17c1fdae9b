// What a draft model is asked for a stream, and what it has room for.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/core/tensor.h"
#include "engine/decoding/prompt_cuts.h"
#include "engine/sampling/grammar.h"
#include "engine/sampling/law.h"

namespace tessera {

// A prompt as the draft model reads it, in ids or embedded.
struct DraftBranch {
  std::vector<std::int32_t> ids;
  Tensor rows;  // [T, D] f32 on the model's device; then `ids` is empty
  std::vector<std::array<std::int64_t, 3>> places;  // [T] of the rows, in the rotary table
  std::int64_t next_place = 0;  // of the stream's first token after rows; after ids, their number
  PromptCuts* cuts = nullptr;   // of rows; borrowed until the stream is done. Not with trees
};

// What the draft model is asked for one stream.
struct DraftStreamItem {
  std::vector<DraftBranch> branches;  // one; under guidance two, the second without the prompt
  VocabularyGrammar grammar;          // of the stream; an id of a code for each logit of the model
  LawSettings law;                    // that drafts are drawn under
  std::vector<std::int32_t> stops;    // nothing is drafted after these
  // False: when drafts are first wanted the prompt is read to its end, so that drafts depend on the
  // stream alone. True: DraftLimits::chunk rows a call; until then the stream has no drafts, and
  // under the exact rule its tokens depend, within their distribution, on when that is.
  bool in_parts = false;
  // Called once, before the prompt is read: may put fewer rows, their places and next_place.
  std::function<void(DraftStreamItem&)> settle;
};

struct DraftLimits {
  std::int64_t items = 1;        // streams at once
  std::int64_t prompt_rows = 1;  // longest prompt of a branch
  std::int64_t tokens = 1;       // of the longest stream
  std::int64_t window = 1;       // rows of the target in one pass: one more than drafts
  std::int64_t chunk = 256;      // prompt rows in one pass, those of all streams
  bool guided = true;            // room for second branches
  bool trees = false;            // room for nodes of trees
  DType kv = DType::kF32;
};

}  // namespace tessera
