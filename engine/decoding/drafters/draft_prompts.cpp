#include "engine/decoding/drafters/draft_prompts.h"

#include <algorithm>
#include <utility>

#include "engine/core/index.h"

namespace tessera {

DraftPrompts::DraftPrompts(const TokenModel& model, const DraftLimits& limits, ModelPass& pass)
    : model_(model),
      pass_(pass),
      limits_(limits),
      branches_(limits.guided ? 2 : 1),
      last_hidden_(model.backend().allocate(DType::kF32, Shape{1, model.width()})),
      slots_(to_size(limits.items)) {
  wanted_.reserve(slots_.size());
}

void DraftPrompts::tell(std::size_t number, DraftStreamItem item) {
  Slot& slot = slots_[number];
  slot = {};
  slot.arrival = arrivals_++;
  slot.item = std::move(item);
  note_rows(slot);
}

void DraftPrompts::forget(std::size_t number) {
  slots_[number] = {};
  for (std::size_t branch = 0; branch < branches_; ++branch) {
    pass_.cache().truncate(sequence(number, branch), 0);
  }
}

void DraftPrompts::note_rows(Slot& slot) const {
  for (std::size_t i = 0; i < slot.item->branches.size(); ++i) {
    const StreamPrompt& prompt = slot.item->branches[i];
    const std::int64_t rows = prompt.length();
    const bool embedded = prompt.rows != nullptr;
    // None where the stream's first tokens are given.
    expects(rows <= limits_.prompt_rows, "the prompt fits the drafter's limits");
    expects(!embedded || std::ssize(prompt.positions) == rows, "a position a row");
    expects(prompt.cuts == nullptr || (embedded && !limits_.trees),
            "embedded prompts are cut, drafts after them stand in a line");
    slot.read[i] = {.rows = rows, .next_place = prompt.first_position()};
  }
}

void DraftPrompts::want(std::size_t number) {
  Slot& slot = slots_[number];
  if (!slot.item || slot.whole()) return;
  wanted_.push_back(number);
  if (!std::exchange(slot.begun, true)) settle(slot);
}

void DraftPrompts::settle(Slot& slot) const {
  if (!slot.item->settle) return;
  std::exchange(slot.item->settle, nullptr)(*slot.item);
  const std::array<Read, 2> heard = slot.read;
  note_rows(slot);
  for (std::size_t i = 0; i < heard.size(); ++i) {
    expects(slot.read[i].rows <= heard[i].rows, "no more rows than were notified");
  }
}

void DraftPrompts::read_cut() {
  std::sort(wanted_.begin(), wanted_.end(),
            [&](std::size_t a, std::size_t b) { return slots_[a].arrival < slots_[b].arrival; });
  bool one = false;
  for (const std::size_t number : wanted_) {
    Slot& slot = slots_[number];
    for (std::size_t branch = 0; branch < slot.item->branches.size(); ++branch) {
      const StreamPrompt& prompt = slot.item->branches[branch];
      Read& read = slot.read[branch];
      if (prompt.cuts == nullptr || read.done == read.rows) continue;
      if (slot.item->in_parts && std::exchange(one, true)) continue;
      pass_.begin();
      run_prompt_in_parts(model_.transformer(), sequence(number, branch), prompt.rows->view(),
                          prompt.positions, *prompt.cuts, pass_.cache(), pass_.arena(),
                          last_hidden_.view());
      read.done = read.rows;
    }
  }
  release();
}

void DraftPrompts::add(bool first) {
  std::int64_t room = limits_.chunk;
  for (const bool in_parts : {false, true}) {
    if (in_parts && !first) break;
    for (const std::size_t number : wanted_) {
      const DraftStreamItem& item = *slots_[number].item;
      if (item.in_parts != in_parts) continue;
      for (std::size_t branch = 0; branch < item.branches.size(); ++branch) {
        add_part(number, branch, room);
      }
    }
  }
}

void DraftPrompts::add_part(std::size_t number, std::size_t branch, std::int64_t& room) {
  const StreamPrompt& prompt = slots_[number].item->branches[branch];
  Read& read = slots_[number].read[branch];
  const std::int64_t first = read.done, count = std::min(room, read.rows - first);
  if (count == 0 || prompt.cuts != nullptr) return;
  const auto from = to_size(first), size = to_size(count);
  if (prompt.rows == nullptr) {
    pass_.add_prompt(sequence(number, branch), std::span(prompt.ids).subspan(from, size));
  } else {
    const ConstTensorView all = prompt.rows->view();
    pass_.add_prompt_rows(
        sequence(number, branch),
        {all.dtype, Shape{count, model_.width()}, all.f32() + first * model_.width(), all.device},
        std::span(prompt.positions).subspan(from, size));
  }
  read.done += count;
  room -= count;
}

void DraftPrompts::release() {
  for (const std::size_t number : wanted_) {
    Slot& slot = slots_[number];
    for (std::size_t branch = 0; branch < slot.item->branches.size(); ++branch) {
      StreamPrompt& prompt = slot.item->branches[branch];
      if (slot.read[branch].done < slot.read[branch].rows || prompt.rows == nullptr) continue;
      model_.backend().synchronize();  // what is under way reads them
      prompt.rows = nullptr;
      prompt.positions = {};
    }
  }
}

}  // namespace tessera
