// What a stream begins with on its way into the cache, a part a pass: the prompts of its branches,
// then the tokens that are given. The last rows of all branches run in one pass, since their logits
// are read together. A model of blocks reads a prompt at once, and given tokens block by block.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/core/index.h"
#include "engine/decoding/model_pass.h"
#include "engine/decoding/stream.h"

namespace tessera {

class PromptFeed {
 public:
  PromptFeed() = default;
  // Of a stream whose branches are cache sequences from `sequence` on. `slid`: all is cached but
  // the last given token. `cached`: rows of each branch's prompt that are, never all of them.
  PromptFeed(const Stream& stream, std::int32_t sequence, bool slid,
             const BlockReading& reading = {},
             std::array<std::int64_t, kMaxBranches> cached = {});

  // Of a stream that goes on under another grammar: its last token is fed, read by the table of its
  // own space, to positions after all that is cached.
  struct LastToken {
    std::int32_t token = 0;
    std::size_t space = 0;
    std::array<std::int64_t, kMaxBranches> position = {};  // of each branch
  };
  PromptFeed(std::int32_t sequence, const LastToken& last)
      : last_token_(last), sequence_(sequence), prompts_done_(true), begun_(true) {}

  // The same from its beginning, of such a stream.
  PromptFeed again() const { return PromptFeed(sequence_, *last_token_); }

  // Whether tokens are next, which stand before prompts in a pass.
  bool gives() const { return prompts_done_ && !done_; }
  bool done() const { return done_; }
  // Adds at most `room` rows to a pass and returns how many. Prompts with cuts run by themselves
  // after the pass in which all else is through; they are through only where `may_cut`.
  std::int64_t add(const Stream& stream, ModelPass& pass, std::int64_t room, bool may_cut);

  // After the part that made it done: the row of the pass that gives the branch's logits; -1 for a
  // prompt with cuts.
  std::int64_t last_row(int branch) const { return nth(last_row_, branch); }
  // Rows that the given tokens took.
  std::int64_t given_rows() const {
    return reading_.block > 0 ? reading_.rows_of(given_fed_) : given_fed_;
  }

 private:
  std::int64_t left(const Stream& stream, int branch) const;
  std::int64_t add_prompts(const Stream& stream, ModelPass& pass, std::int64_t room, bool may_cut);
  std::int64_t add_given(const Stream& stream, ModelPass& pass, std::int64_t room);
  std::int64_t add_blocks(const Stream& stream, ModelPass& pass, std::int64_t room);
  std::int64_t add_line(const Stream& stream, ModelPass& pass, std::span<const std::int32_t> tokens,
                        std::int64_t first);

  std::int64_t add_last(const Stream& stream, ModelPass& pass, std::int64_t room);

  BlockReading reading_;
  std::optional<LastToken> last_token_;
  std::int32_t sequence_ = 0;
  std::array<std::int64_t, kMaxBranches> fed_ = {}, last_row_ = {-1, -1, -1};
  std::int64_t given_fed_ = 0;
  bool prompts_done_ = false, begun_ = false, done_ = false;
};

}  // namespace tessera
