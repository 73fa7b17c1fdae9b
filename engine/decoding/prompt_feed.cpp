#include "engine/decoding/prompt_feed.h"

#include <algorithm>

namespace tessera {

PromptFeed::PromptFeed(const Stream& stream, std::int32_t sequence, bool slid)
    : sequence_(sequence) {
  if (slid) given_fed_ = static_cast<std::int64_t>(stream.given.size()) - 1;
  prompts_done_ = slid || (stream.prompt.length() == 0 && stream.unconditional.length() == 0);
}

std::int64_t PromptFeed::left(const Stream& stream, int branch) const {
  const StreamPrompt& prompt = stream.branch(branch);
  if (prompt.cuts != nullptr) return 0;
  return prompt.length() - fed_[static_cast<std::size_t>(branch)];
}

std::int64_t PromptFeed::add(const Stream& stream, ModelPass& pass, std::int64_t room,
                             bool may_cut) {
  return prompts_done_ ? add_given(stream, pass, room) : add_prompts(stream, pass, room, may_cut);
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
  // Where logits are read behind the prompts, the last rows wait for one another.
  const std::int64_t held_back = !whole && stream.given.empty() ? 1 : 0;
  std::int64_t added = 0;
  for (int branch = 0; branch < stream.branches(); ++branch) {
    const auto b = static_cast<std::size_t>(branch);
    const StreamPrompt& prompt = stream.branch(branch);
    const std::int64_t count = std::min(room - added, left(stream, branch) - held_back);
    if (count <= 0) continue;
    const auto first = static_cast<std::size_t>(fed_[b]), rows = static_cast<std::size_t>(count);
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
  done_ = whole && stream.given.empty();
  return added;
}

std::int64_t PromptFeed::add_given(const Stream& stream, ModelPass& pass, std::int64_t room) {
  const auto all = static_cast<std::int64_t>(stream.given.size());
  const std::int64_t count = std::min(all - given_fed_, room / stream.branches());
  if (count <= 0) return 0;
  const auto part =
      std::span(stream.given)
          .subspan(static_cast<std::size_t>(given_fed_), static_cast<std::size_t>(count));
  for (int branch = 0; branch < stream.branches(); ++branch) {
    const std::int32_t sequence = sequence_ + branch;
    pass.add_line(sequence, {stream.branch(branch).first_position() + given_fed_,
                             pass.cache().length(sequence),
                             {},
                             part});
    last_row_[static_cast<std::size_t>(branch)] = pass.rows() - 1;
  }
  given_fed_ += count;
  done_ = given_fed_ == all;
  return count * stream.branches();
}

}  // namespace tessera
