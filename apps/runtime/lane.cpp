// Streams of submissions through the slots of a loop.
#include "apps/runtime/lane.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "apps/runtime/memory_attempt.h"
#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

LoopNeeds both(const LoopNeeds& a, const LoopNeeds& b) {
  return {.slots = std::max(a.slots, b.slots),
          .prompt_rows = std::max(a.prompt_rows, b.prompt_rows),
          .guided = a.guided || b.guided,
          .images_apart = a.images_apart || b.images_apart,
          .draft_prompt_rows = std::max(a.draft_prompt_rows, b.draft_prompt_rows),
          .draft_guided = a.draft_guided || b.draft_guided};
}

namespace {

// Submissions besides twice the slots that are open: so many may wait for something without holding
// up a slot. Where all of them wait, so many more are opened.
constexpr std::size_t kOpen = 16;
// Queued submissions that are notified after a pass.
constexpr std::size_t kNotified = 8;

ErrorInfo info_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return error.info();
  } catch (const std::bad_alloc&) {
    return {
        .kind = ErrorKind::kMemory, .code = "E_MEMORY", .expected = "memory", .found = "none left"};
  } catch (const std::exception& error) {
    return {.code = "E_SUBMISSION", .found = error.what()};
  } catch (...) {
    return {.code = "E_SUBMISSION", .found = "something that is no error"};
  }
}

StreamTimes sum_of(StreamTimes sum, const StreamTimes& more) {
  sum.tokens += more.tokens;
  sum.prompts += more.prompts;
  sum.verify += more.verify;
  sum.token_passes += more.token_passes;
  sum.prompt_passes += more.prompt_passes;
  sum.tokens_written += more.tokens_written;
  return sum;
}

// More than is needed where it grows again, so that prompts of rising lengths do not each make a
// loop of their own.
std::int64_t grown(std::int64_t had, std::int64_t needed) {
  return had == 0 || had >= needed ? std::max(had, needed) : with_room_to_go_on(needed);
}

}  // namespace

StreamLane::StreamLane(LaneModel& model, LaneHost& host, const LaneOptions& options)
    : model_(model), host_(host), options_(options), slots_(options.slots) {
  expects(slots_ >= 1, "a lane has slots");
}

StreamLane::~StreamLane() { drop_loop(); }

void StreamLane::submit(Ticket ticket, std::unique_ptr<Submission> submission) {
  auto made = std::make_unique<Entry>();
  Entry& entry = *made;
  entry.ticket = ticket;
  entry.submission = std::move(submission);
  entry.needs = entry.submission->needs();
  queued_needs_.add(entry.needs);
  entry.place = queued_.insert(queued_.end(), std::move(made));
  by_ticket_[ticket.number] = &entry;
}

StreamLane::Entry* StreamLane::find(Ticket ticket) const {
  const auto at = by_ticket_.find(ticket.number);
  return at == by_ticket_.end() ? nullptr : at->second;
}

// From the queue to those that are asked, as the last of them.
void StreamLane::open(Entry& entry) {
  if (!entry.queued) return;
  entry.queued = false;
  queued_needs_.remove(entry.needs);
  if (next_notified_ == entry.place) ++next_notified_;
  open_.push_back(std::move(*entry.place));
  queued_.erase(entry.place);
}

void StreamLane::open_until(std::size_t count) {
  while (!queued_.empty() && open_.size() < count) open(*queued_.front());
}

void StreamLane::cancel(Ticket ticket) {
  Entry* entry = find(ticket);
  if (entry == nullptr) return;
  entry->ending = true;
  open(*entry);
}

void StreamLane::end(Ticket ticket) {
  cancel(ticket);
  const auto is = [&](const auto& entry) { return entry->ticket == ticket; };
  const auto at = std::find_if(open_.begin(), open_.end(), is);
  if (at == open_.end()) return;
  const auto index = to_size(at - open_.begin());
  close(**at);  // whose listener may open others
  remove(index);
}

void StreamLane::set_slots(std::int64_t slots) {
  expects(slots >= 1, "a lane has slots");
  slots_ = options_.slots = slots;
  if (loop_ == nullptr || !loop_->idle() || room_.slots <= slots) return;
  drop_loop();
  room_ = {};
}

StreamTimes StreamLane::times() const {
  return loop_ == nullptr ? past_ : sum_of(past_, loop_->times());
}

void StreamLane::reset_times() {
  past_ = {};
  if (loop_ == nullptr) return;
  // The loop counts on from where it is.
  const StreamTimes now = loop_->times();
  past_ = {.tokens = -now.tokens,
           .prompts = -now.prompts,
           .verify = -now.verify,
           .token_passes = -now.token_passes,
           .prompt_passes = -now.prompt_passes,
           .tokens_written = -now.tokens_written};
}

LaneStats StreamLane::stats() const {
  LaneStats out = stats_;
  out.submissions = std::ssize(by_ticket_);
  out.slots = loop_ == nullptr ? 0 : loop_->limits().items;
  out.slots_taken = std::count_if(uses_.begin(), uses_.end(),
                                  [](const SlotUse& use) { return use.entry != nullptr; });
  return out;
}

// What a submission throws ends that one alone; it is thrown on when the pass is over.
template <typename Call>
void StreamLane::call(Entry& entry, const Call& what) {
  try {
    what(*entry.submission);
  } catch (...) {
    entry.ending = true;
    if (entry.error == nullptr) entry.error = std::current_exception();
  }
}

// Listeners may submit more meanwhile: those are not visited, and none goes away.
template <typename Visit>
void StreamLane::for_each_open(const Visit& visit) {
  const std::size_t count = open_.size();
  for (std::size_t i = 0; i < count; ++i) visit(*open_[i]);
}

void StreamLane::drop_loop() {
  if (loop_ != nullptr) past_ = sum_of(past_, loop_->times());
  loop_.reset();
  uses_.clear();
  model_.drop_drafter();
}

void StreamLane::release() {
  expects(!writing(), "nothing is written");
  drop_loop();
  room_ = {};
}

// --- filling slots
// ---------------------------------------------------------------------------------

// Holds the next stream of a submission, in turns. Where none has one and nothing else is to be
// done, more submissions are opened for the next time.
bool StreamLane::ask(Wait wait) {
  open_until(2 * to_size(slots_) + kOpen);
  const std::size_t count = open_.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = (turn_ + i) % count;
    Entry& entry = *open_[at];
    std::optional<NextStream> next;
    call(entry, [&](Submission& submission) {
      if (!entry.ending && submission.more()) next = submission.next(wait);
    });
    if (!next) continue;
    held_.emplace(Held{&entry, std::move(*next)});
    turn_ = at + 1;
    return true;
  }
  if (loop_ == nullptr || loop_->idle()) open_until(open_.size() + kOpen);
  return false;
}

bool StreamLane::fits(const LoopNeeds& needs) const {
  return loop_ != nullptr && needs.prompt_rows <= room_.prompt_rows &&
         needs.draft_prompt_rows <= room_.draft_prompt_rows && (room_.guided || !needs.guided) &&
         (room_.images_apart || !needs.images_apart) &&
         (room_.draft_guided || !needs.draft_guided);
}

bool StreamLane::make_loop(const StreamLimits& limits, const LoopNeeds& needs,
                           std::exception_ptr& why) {
  const auto attempt = [&] {
    model_.make_drafter(limits, needs);
    loop_ =
        std::make_unique<StreamLoop>(model_.tokens(), limits, model_.parts(), model_.controller());
    model_.add_spaces(*loop_);
  };
  const std::optional<ErrorInfo> missing = memory_failure(attempt, "streams at once");
  if (!missing) {
    room_ = needs;
    room_.slots = limits.items;
    uses_.assign(to_size(limits.items), {});
    return true;
  }
  why = std::make_exception_ptr(Error(*missing));
  drop_loop();
  room_ = {};
  return false;
}

// Of all submissions; slots for all at once.
LoopNeeds StreamLane::known_needs() {
  LoopNeeds out = queued_needs_.all();
  for_each_open([&](Entry& each) {
    if (each.ending) return;
    call(each, [&](Submission& submission) {
      const LoopNeeds own = submission.needs();
      const std::int64_t slots = out.slots + own.slots;
      out = both(out, own);
      out.slots = slots;
    });
  });
  return out;
}

// A loop with room for the stream that is held, the old one is idle. False: not now.
bool StreamLane::fit_loop() {
  const bool idle = loop_ == nullptr || loop_->idle(), holds = fits(held_->next.needs);
  if (!idle) return holds;
  LoopNeeds exact = known_needs();
  exact.slots = std::clamp<std::int64_t>(exact.slots, 1, slots_);
  if (holds && exact.slots <= room_.slots) return true;
  const std::int64_t slots = exact.slots;
  exact = both(exact, held_->next.needs);
  exact.slots = slots;
  LoopNeeds needs = exact;
  if (options_.all_slots) needs.slots = slots_;
  needs.prompt_rows = std::max(grown(loop_ == nullptr ? 0 : room_.prompt_rows, exact.prompt_rows),
                               options_.prompt_rows);
  if (options_.prompts_go_on && loop_ == nullptr) {
    needs.prompt_rows = std::max(needs.prompt_rows, with_room_to_go_on(exact.prompt_rows));
  }
  needs.draft_prompt_rows =
      grown(loop_ == nullptr ? 0 : room_.draft_prompt_rows, exact.draft_prompt_rows);
  model_.load();
  return find_room(needs, exact);
}

// Where memory does not last, fewer slots for streams to come are tried, then no more rows than
// needed, then half as many slots, down to one; fewer slots than are wanted now are for the rest of
// the run. False: others hold what is missing.
bool StreamLane::find_room(LoopNeeds needs, const LoopNeeds& exact) {
  drop_loop();  // before the new one: both together may not fit
  room_ = {};
  while (true) {
    const StreamLimits limits = model_.limits(needs);
    const std::size_t bytes = model_.loop_bytes(limits, needs);
    const RoomAnswer answer = host_.make_room(bytes, model_.backend(), *this);
    std::exception_ptr why;
    if (answer.room == Room::kYes && make_loop(limits, needs, why)) break;
    if (needs.slots > exact.slots) {
      needs.slots = std::max(exact.slots, needs.slots / 2);
      continue;
    }
    if (answer.room == Room::kLater) return false;
    if (shrink(needs)) continue;
    refuse_held(needs, bytes, answer, why);
    return true;
  }
  if (needs.slots < exact.slots) {
    const std::int64_t had = std::exchange(slots_, needs.slots);
    call(*held_->entry,
         [&](Submission& submission) { submission.on_fewer_slots(had, needs.slots); });
  }
  return true;
}

// Room for less, which the stream that is held still fits. False: there is none.
bool StreamLane::shrink(LoopNeeds& needs) const {
  const LoopNeeds& own = held_->next.needs;
  if (needs.prompt_rows > own.prompt_rows || needs.draft_prompt_rows > own.draft_prompt_rows) {
    needs.prompt_rows = own.prompt_rows;
    needs.draft_prompt_rows = own.draft_prompt_rows;
    return true;
  }
  if ((needs.guided && !own.guided) || (needs.images_apart && !own.images_apart) ||
      (needs.draft_guided && !own.draft_guided)) {
    needs.guided = own.guided;
    needs.images_apart = own.images_apart;
    needs.draft_guided = own.draft_guided;
    return true;
  }
  // Slots that other submissions want are no reason to fail this one.
  const Submission& submission = *held_->entry->submission;
  const std::int64_t fewest =
      submission.takes_fewer_slots() ? 1 : std::max<std::int64_t>(1, submission.needs().slots);
  if (needs.slots <= fewest) return false;
  needs.slots = std::max(fewest, needs.slots / 2);
  return true;
}

// The stream that is held fits nowhere: it fails alone, or its submission ends.
void StreamLane::refuse_held(const LoopNeeds& needs, std::size_t bytes, const RoomAnswer& answer,
                             const std::exception_ptr& why) {
  ErrorInfo error = model_.no_room(needs);
  error.expected = std::to_string(bytes) + " bytes";
  error.found =
      why != nullptr ? "allocation refused" : std::to_string(*answer.free) + " bytes free";
  if (held_->entry->submission->takes_fewer_slots()) return fail_held(error);
  held_->entry->ending = true;
  held_->entry->error = why != nullptr ? why : std::make_exception_ptr(Error(error));
  held_.reset();
}

void StreamLane::fail_held(const ErrorInfo& error) {
  const Held held = std::move(*held_);
  held_.reset();
  call(*held.entry,
       [&](Submission& submission) { submission.on_no_room(held.next.number, error); });
}

void StreamLane::start() {
  Held held = std::move(*held_);
  held_.reset();
  Entry& entry = *held.entry;
  call(entry, [&](Submission&) {
    const std::size_t slot = loop_->add(std::move(held.next.stream));
    uses_[slot] = {&entry, held.next.number};
    ++entry.at_work;
    if (held.next.on_slot) held.next.on_slot(slot);
  });
}

// Whether anything was taken in.
bool StreamLane::fill(Wait wait) {
  bool any = false;
  while (true) {
    if (held_ && held_->entry->ending) held_.reset();
    if (!held_) {
      if (loop_ != nullptr && loop_->full()) return any;
      const bool nothing_else = loop_ == nullptr || loop_->idle();
      if (!ask(nothing_else && !any ? wait : Wait::kNo)) return any;
    }
    any = true;
    if (!fit_loop()) return any && loop_ != nullptr && !loop_->idle();
    if (!held_ || held_->entry->ending) continue;
    if (loop_->full()) return any;
    start();
  }
}

// --- a pass
// ----------------------------------------------------------------------------------------

void StreamLane::on_pass(const StreamPass& pass) {
  ++stats_.passes;
  stats_.slot_passes += narrow<std::uint64_t>(loop_->limits().items);
  stats_.slots_at_work += pass.streams.size();
  SubmissionPass own{.seconds = monotonic_seconds() - step_began_,
                     .streams_of_all = pass.streams.size(),
                     .decode_rows = pass.decode_rows,
                     .prompt_rows = pass.prompt_rows,
                     .times = pass.times,
                     .streams = {}};
  for_each_open([&](Entry& entry) {
    if (entry.ending) return;
    views_.clear();
    for (const StreamView& view : pass.streams) {
      const SlotUse& use = uses_[view.slot];
      if (use.entry == &entry) views_.push_back({use.number, view.result});
    }
    std::sort(views_.begin(), views_.end(),
              [](const auto& a, const auto& b) { return a.number < b.number; });
    own.streams = views_;
    notify_pass(entry, own);
  });
  notify_waiting(own);
}

// Some of the queued submissions, in turns: they may stop as well.
void StreamLane::notify_waiting(SubmissionPass pass) {
  pass.streams = {};
  for (std::size_t left = std::min(kNotified, queued_.size()); left > 0 && !queued_.empty();
       --left) {
    if (next_notified_ == queued_.end()) next_notified_ = queued_.begin();
    Entry& entry = **next_notified_++;
    notify_pass(entry, pass);
    if (entry.ending) open(entry);
  }
}

void StreamLane::notify_pass(Entry& entry, const SubmissionPass& pass) {
  call(entry, [&](Submission& submission) {
    if (submission.on_pass(pass) == Flow::kStop) entry.ending = true;
  });
}

void StreamLane::on_logprobs(std::size_t slot, std::span<const TokenLogprobs> of_tokens) {
  const SlotUse& use = uses_[slot];
  if (use.entry->ending && use.entry->error != nullptr) return;
  call(*use.entry, [&](Submission& submission) { submission.on_logprobs(use.number, of_tokens); });
}

void StreamLane::on_tokens(std::size_t slot, std::span<const std::int32_t> tokens) {
  const SlotUse& use = uses_[slot];
  if (use.entry->ending && use.entry->error != nullptr) return;
  call(*use.entry, [&](Submission& submission) { submission.on_tokens(use.number, tokens); });
}

void StreamLane::on_done(std::size_t slot, StreamResult&& result) {
  const SlotUse use = std::exchange(uses_[slot], {});
  Entry& entry = *use.entry;
  --entry.at_work;
  std::optional<SlidingStream> slides;
  if (entry.error == nullptr) {
    call(entry, [&](Submission& submission) {
      slides = submission.on_done(use.number, std::move(result));
      if (!slides || entry.ending) return;
      NextStream& next = slides->next;
      loop_->slide(slot, slides->first, slides->end, std::move(next.stream));
      uses_[slot] = {&entry, next.number};
      ++entry.at_work;
      if (next.on_slot) next.on_slot(slot);
    });
  }
  if (uses_[slot].entry == nullptr && loop_->taken(slot)) loop_->drop(slot);  // held, and done with
}

// Those that their submissions want no more of.
void StreamLane::drop_streams() {
  for (std::size_t slot = 0; slot < uses_.size(); ++slot) {
    const SlotUse use = uses_[slot];
    if (use.entry == nullptr || use.entry->ending) continue;
    call(*use.entry, [&](Submission& submission) {
      if (!submission.drops(use.number)) return;
      uses_[slot] = {};
      --use.entry->at_work;
      submission.on_stopped(use.number, loop_->drop(slot));
    });
  }
}

// Drops its streams, and notifies it for the last time.
void StreamLane::close(Entry& entry) {
  std::vector<std::pair<std::size_t, std::size_t>> slots;  // number, slot
  for (std::size_t slot = 0; slot < uses_.size(); ++slot) {
    if (uses_[slot].entry == &entry) slots.emplace_back(uses_[slot].number, slot);
  }
  std::sort(slots.begin(), slots.end());
  for (const auto& [number, slot] : slots) {
    uses_[slot] = {};
    StreamResult result = loop_->drop(slot);
    if (entry.error != nullptr) continue;
    call(entry, [&, number = number](Submission& submission) {
      submission.on_stopped(number, std::move(result));
    });
  }
  if (held_ && held_->entry == &entry) held_.reset();
  std::optional<ErrorInfo> error;
  if (entry.error != nullptr) error = info_of(entry.error);
  call(entry, [&](Submission& submission) { submission.on_over(error ? &*error : nullptr); });
}

void StreamLane::remove(std::size_t at) {
  by_ticket_.erase(open_[at]->ticket.number);
  open_.erase(open_.begin() + to_index(at));
  if (at < turn_) --turn_;
}

// Ends submissions that are over; throws the first error of those that failed.
void StreamLane::settle() {
  std::exception_ptr error;
  for (std::size_t i = 0; i < open_.size();) {
    Entry& entry = *open_[i];
    bool over = entry.ending;
    const bool holds = held_ && held_->entry == &entry;
    if (!over && entry.at_work == 0 && !holds) {
      call(entry, [&](Submission& submission) { over = !submission.more(); });
      over = over || entry.ending;
    }
    if (!over) {
      ++i;
      continue;
    }
    close(entry);
    if (error == nullptr) error = entry.error;
    remove(i);
  }
  if (error != nullptr) std::rethrow_exception(error);
}

// An error of the model or the device: what it leaves in loop and drafter is nobody's, and all
// submissions are over.
void StreamLane::abandon(const ErrorInfo& error) {
  held_.reset();
  drop_loop();
  room_ = {};
  while (!queued_.empty()) open(*queued_.front());
  const auto ended = std::move(open_);
  open_.clear();
  by_ticket_.clear();
  for (const std::unique_ptr<Entry>& entry : ended) {
    call(*entry, [&](Submission& submission) { submission.on_over(&error); });
  }
}

bool StreamLane::step(Wait wait) {
  bool done = false;
  // Cancelled since the last step: their slots are for others.
  const bool cancelled =
      std::any_of(open_.begin(), open_.end(), [](const auto& entry) { return entry->ending; });
  if (cancelled) settle();
  done = cancelled;
  try {
    done = fill(wait) || done;
    if (loop_ != nullptr && !loop_->idle()) {
      step_began_ = monotonic_seconds();
      loop_->step(*this);
      drop_streams();
      done = true;
    } else {
      for_each_open([&](Entry& entry) {
        if (!entry.ending) notify_pass(entry, {});
      });
      notify_waiting({});
    }
  } catch (...) {
    abandon(info_of(std::current_exception()));
    throw;
  }
  const std::size_t had = by_ticket_.size();
  settle();
  return done || by_ticket_.size() < had;
}

}  // namespace tessera
