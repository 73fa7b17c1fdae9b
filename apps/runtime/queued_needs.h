// Room that submissions in a queue need in all, kept as they come and go.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

#include "apps/runtime/submission.h"

namespace tessera {

class QueuedNeeds {
 public:
  void add(const LoopNeeds& needs) { count(needs, 1); }
  void remove(const LoopNeeds& needs) { count(needs, -1); }
  // Room for each of them; slots for all at once.
  LoopNeeds all() const {
    return {.slots = slots_,
            .prompt_rows = longest(prompt_rows_),
            .guided = guided_ > 0,
            .images_apart = images_apart_ > 0,
            .draft_prompt_rows = longest(draft_prompt_rows_),
            .draft_guided = draft_guided_ > 0};
  }

 private:
  using Lengths = std::map<std::int64_t, std::int64_t>;  // how many there are of each

  static std::int64_t longest(const Lengths& lengths) {
    return lengths.empty() ? 1 : std::max<std::int64_t>(1, lengths.rbegin()->first);
  }
  static void count(Lengths& lengths, std::int64_t length, std::int64_t more) {
    const auto at = lengths.try_emplace(length, 0).first;
    at->second += more;
    if (at->second == 0) lengths.erase(at);
  }
  void count(const LoopNeeds& needs, std::int64_t more) {
    slots_ += more * needs.slots;
    guided_ += needs.guided ? more : 0;
    images_apart_ += needs.images_apart ? more : 0;
    draft_guided_ += needs.draft_guided ? more : 0;
    count(prompt_rows_, needs.prompt_rows, more);
    count(draft_prompt_rows_, needs.draft_prompt_rows, more);
  }

  Lengths prompt_rows_, draft_prompt_rows_;
  std::int64_t slots_ = 0, guided_ = 0, images_apart_ = 0, draft_guided_ = 0;
};

}  // namespace tessera
