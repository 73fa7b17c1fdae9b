// The streams that a draft model was notified of, and the reading of their prompts: in parts next to the
// tokens of its passes, those that are cut between layers by themselves.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/core/index.h"
#include "engine/decoding/drafters/draft_stream_item.h"
#include "engine/decoding/model_pass.h"
#include "engine/model/token_model.h"

namespace tessera {

class DraftPrompts {
 public:
  // Model and pass must outlive it. Branch b of slot s is sequence s x branches + b of the pass.
  DraftPrompts(const TokenModel& model, const DraftLimits& limits, ModelPass& pass);

  void tell(std::size_t slot, DraftStreamItem item);
  void forget(std::size_t slot);

  bool heard(std::size_t slot) const { return slots_[slot].item.has_value(); }
  bool begun(std::size_t slot) const { return slots_[slot].begun; }
  bool ready(std::size_t slot) const { return heard(slot) && slots_[slot].whole(); }
  const DraftStreamItem& item(std::size_t slot) const { return *slots_[slot].item; }
  std::size_t branches(std::size_t slot) const { return slots_[slot].item->branches.size(); }
  std::int32_t sequence(std::size_t slot, std::size_t branch) const {
    return narrow<std::int32_t>(slot * branches_ + branch);
  }
  // Of a branch's prompt: its rows, and the place of the first token after it.
  std::int64_t rows(std::size_t slot, std::size_t branch) const {
    return slots_[slot].read[branch].rows;
  }
  std::int64_t next_place(std::size_t slot, std::size_t branch) const {
    return slots_[slot].read[branch].next_place;
  }

  // Begins a call of the drafter; the slots that want drafts follow.
  void begin() { wanted_.clear(); }
  void want(std::size_t slot);
  // When all of them are known: runs prompts that are cut; of those in parts one a call.
  void read_cut();
  // Rows of prompts for a pass: of those that are read to their end in this call; in its first pass
  // then of those that are read in parts.
  void add(bool first);
  // After the pass: embedded rows that nobody reads again are freed.
  void release();

 private:
  struct Read {
    std::int64_t rows = 0, done = 0, next_place = 0;
  };
  struct Slot {
    std::optional<DraftStreamItem> item;
    std::array<Read, 2> read;
    std::uint64_t arrival = 0;
    bool begun = false;
    bool whole() const { return read[0].done == read[0].rows && read[1].done == read[1].rows; }
  };

  void settle(Slot& slot) const;
  void note_rows(Slot& slot) const;
  void add_part(std::size_t slot, std::size_t branch, std::int64_t& room);

  const TokenModel& model_;
  ModelPass& pass_;
  DraftLimits limits_;
  std::size_t branches_;
  Tensor last_hidden_;  // [1, D] of a prompt with cuts; nothing reads it
  std::vector<Slot> slots_;
  std::vector<std::size_t> wanted_;  // slots whose prompt is to be read
  std::uint64_t arrivals_ = 0;
};

}  // namespace tessera
