#include "engine/decoding/prompt_feed.h"

#include <algorithm>
#include <vector>

#include "engine/core/index.h"

namespace tessera {

PromptFeed::PromptFeed(const Stream& stream, std::int32_t sequence, bool slid,
                       const BlockReading& reading, std::array<std::int64_t, kMaxBranches> cached)
    : reading_(reading), sequence_(sequence), fed_(cached), begun_(!reading.begins) {
  if (slid) given_fed_ = std::ssize(stream.given) - 1;
  prompts_done_ = slid || (stream.prompt.length() == 0 && stream.unconditional.length() == 0);
}

std::int64_t PromptFeed::left(const Stream& stream, int branch) const {
  const StreamPrompt& prompt = stream.branch(branch);
  if (prompt.cuts != nullptr) return 0;
  return prompt.length() - nth(fed_, branch);
}

std::int64_t PromptFeed::add(const Stream& stream, ModelPass& pass, std::int64_t room,
                             bool may_cut) {
  if (last_token_) return add_last(stream, pass, room);
  if (!prompts_done_) return add_prompts(stream, pass, room, may_cut);
  return reading_.block > 0 ? add_blocks(stream, pass, room) : add_given(stream, pass, room);
}

std::int64_t PromptFeed::add_prompts(const Stream& stream, ModelPass& pass, std::int64_t room,
                                     bool may_cut) {
  std::int64_t all = 0;
  bool cut = false;
  for (int branch = 0; branch < stream.branches(); ++branch) {
    all += left(stream, branch);
    cut = cut || stream.branch(branch).cuts != nullptr;
  }
  const bool whole = all <= room && (!cut || may_cut);
  if (!whole && reading_.block > 0) return 0;
  // Where logits are read after the prompts, the last rows wait for one another.
  const std::int64_t held_back = !whole && stream.given.empty() ? 1 : 0;
  std::int64_t added = 0;
  for (int branch = 0; branch < stream.branches(); ++branch) {
    const auto b = to_size(branch);
    const StreamPrompt& prompt = stream.branch(branch);
    const std::int64_t count = std::min(room - added, left(stream, branch) - held_back);
    if (count <= 0) continue;
    const auto first = to_size(fed_[b]), rows = to_size(count);
    if (prompt.rows != nullptr) {
      const ConstTensorView of = prompt.rows->view();
      const std::int64_t width = of.shape[1];
      pass.add_prompt_rows(sequence_ + branch,
                           {of.dtype, Shape{count, width}, of.f32() + fed_[b] * width, of.device},
                           std::span(prompt.positions).subspan(first, rows));
    } else {
      pass.add_prompt(sequence_ + branch, std::span(prompt.ids).subspan(first, rows));
    }
    fed_[b] += count;
    added += count;
    last_row_[b] = pass.rows() - 1;
  }
  prompts_done_ = whole;
  done_ = whole && stream.given.empty() && begun_;
  return added;
}

// Of all branches, after what the stream has in the cache; `first` rows of it are.
std::int64_t PromptFeed::add_line(const Stream& stream, ModelPass& pass,
                                  std::span<const std::int32_t> tokens, std::int64_t first) {
  for (int branch = 0; branch < stream.branches(); ++branch) {
    const std::int32_t sequence = sequence_ + branch;
    pass.add_line(sequence, {stream.branch(branch).first_position() + first,
                             pass.cache().length(sequence),
                             {},
                             tokens});
    nth(last_row_, branch) = pass.rows() - 1;
  }
  return std::ssize(tokens) * stream.branches();
}

std::int64_t PromptFeed::add_given(const Stream& stream, ModelPass& pass, std::int64_t room) {
  const auto all = std::ssize(stream.given);
  const std::int64_t count = std::min(all - given_fed_, room / stream.branches());
  if (count <= 0) return 0;
  const auto part = std::span(stream.given).subspan(to_size(given_fed_), to_size(count));
  const std::int64_t added = add_line(stream, pass, part, given_fed_);
  given_fed_ += count;
  done_ = given_fed_ == all;
  return added;
}

std::int64_t PromptFeed::add_last(const Stream& stream, ModelPass& pass, std::int64_t room) {
  if (room < stream.branches()) return 0;
  for (int branch = 0; branch < stream.branches(); ++branch) {
    const auto b = to_size(branch);
    const std::int32_t sequence = sequence_ + branch;
    pass.add_line(sequence, {.position = last_token_->position[b],
                             .shared = pass.cache().length(sequence),
                             .seen = {},
                             .tokens = {&last_token_->token, 1},
                             .space = last_token_->space});
    last_row_[b] = pass.rows() - 1;
  }
  done_ = true;
  return stream.branches();
}

// Line by line, as many as fit: the begin token, then given tokens as the model reads them.
std::int64_t PromptFeed::add_blocks(const Stream& stream, ModelPass& pass, std::int64_t room) {
  const auto all = std::ssize(stream.given);
  std::int64_t added = 0;
  if (!begun_) {
    if (room < 1) return 0;
    added += add_line(stream, pass, {&reading_.begin_id, 1}, 0);
    begun_ = true;
  }
  std::vector<std::int32_t> line;
  while (given_fed_ < all) {
    const std::int64_t count = reading_.step(given_fed_);
    const std::int64_t fillers = reading_.fillers(given_fed_ + count);
    if (added + count + fillers > room) break;
    const auto from = stream.given.begin() + given_fed_;
    line.assign(from, from + count);
    for (std::int64_t i = 1; i <= fillers; ++i) {
      line.push_back(reading_.begin_id + narrow<std::int32_t>(i));
    }
    added += add_line(stream, pass, line, reading_.rows_of(given_fed_));
    given_fed_ += count;
  }
  done_ = given_fed_ == all;
  return added;
}

}  // namespace tessera
