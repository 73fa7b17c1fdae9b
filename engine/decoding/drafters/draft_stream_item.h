// What a draft model is asked for a stream, and what it has room for.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/decoding/stream.h"
#include "engine/sampling/grammar.h"
#include "engine/sampling/dist.h"

namespace tessera {

// What the draft model is asked for one stream.
struct DraftStreamItem {
  std::vector<StreamPrompt> branches;  // one; under guidance two, the second without the prompt.
                                       // Cuts are borrowed until the stream is done; not with trees
  VocabularyGrammar grammar;          // of the stream; an id of a code for each logit of the model
  DistributionSettings dist;                    // that drafts are drawn under
  std::vector<std::int32_t> stops;    // nothing is drafted after these
  std::vector<std::int32_t> processed = {};  // as Stream::processed
  // False: when drafts are first wanted the prompt is read to its end, so that drafts depend on the
  // stream alone. True: DraftLimits::chunk rows a call; until then the stream has no drafts, and
  // under the exact rule its tokens depend, within their distribution, on when that is.
  bool in_parts = false;
  // Called once, before the prompt is read: may put fewer rows with their positions.
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
