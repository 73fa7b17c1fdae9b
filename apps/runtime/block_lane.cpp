#include "apps/runtime/block_lane.h"

#include <algorithm>
#include <utility>

#include "engine/core/io.h"

namespace tessera {

void BlockLane::submit(Ticket ticket, std::unique_ptr<Submission> submission) {
  auto entry = std::make_unique<Entry>();
  entry->ticket = ticket;
  entry->submission = std::move(submission);
  submissions_.push_back(std::move(entry));
}

bool BlockLane::has(Ticket ticket) const {
  return std::any_of(submissions_.begin(), submissions_.end(),
                     [&](const auto& entry) { return entry->ticket == ticket; });
}

void BlockLane::cancel(Ticket ticket) {
  for (const auto& entry : submissions_) {
    if (entry->ticket == ticket) entry->ending = true;
  }
}

void BlockLane::release() {
  expects(idle(), "nothing is at work");
  loop_.reset();
  prompt_rows_ = 0;
}

LaneStats BlockLane::stats() const {
  LaneStats out = stats_;
  out.submissions = static_cast<std::int64_t>(submissions_.size());
  out.slots = loop_ == nullptr ? 0 : 1;
  return out;
}

StreamResult BlockLane::run(Entry& entry, const NextStream& next) {
  if (next.on_slot) next.on_slot(0);
  model_.load();
  if (loop_ == nullptr || prompt_rows_ < next.needs.prompt_rows) {
    loop_.reset();  // before the new one: both together may not fit
    loop_ = std::make_unique<BlockLoop>(model_.blocks(), model_.grammar(),
                                        model_.block_limits(next.needs));
    prompt_rows_ = next.needs.prompt_rows;
  }
  double began = monotonic_seconds();
  return loop_->run(next.stream, [&](const BlockPass& pass) {
    ++stats_.passes;
    ++stats_.slot_passes;
    ++stats_.slots_at_work;
    const SubmissionStream own{next.number, &pass.result};
    const double now = monotonic_seconds();
    SubmissionPass shown{.seconds = now - std::exchange(began, now),
                         .streams_of_all = 1,
                         .times = pass.times,
                         .streams = {&own, 1}};
    entry.ending = entry.submission->on_pass(shown) == Flow::kStop || entry.ending;
    return entry.ending || entry.submission->drops(next.number) ? Flow::kStop : Flow::kContinue;
  });
}

// The next stream of this submission. False: there was none.
bool BlockLane::write_stream(Entry& entry, Wait wait) {
  Submission& submission = *entry.submission;
  if (entry.ending || !submission.more()) return false;
  const std::optional<NextStream> next = submission.next(wait);
  if (!next) return false;
  StreamResult result = run(entry, *next);
  if (result.status == StreamStatus::kStopped) {
    submission.on_stopped(next->number, std::move(result));
  } else {
    expects(!submission.on_done(next->number, std::move(result)), "blocks do not slide");
  }
  return true;
}

bool BlockLane::step(Wait wait) {
  const std::size_t count = submissions_.size();
  bool done = false;
  for (std::size_t i = 0; i < count && !done; ++i) {
    Entry& entry = *submissions_[(turn_ + i) % count];
    try {
      done = write_stream(entry, wait);
    } catch (...) {
      const std::unique_ptr<Submission> failed = std::move(entry.submission);
      std::erase_if(submissions_, [&](const auto& each) { return each.get() == &entry; });
      failed->on_over();
      throw;
    }
  }
  ++turn_;
  for (std::size_t i = 0; i < submissions_.size();) {
    Entry& entry = *submissions_[i];
    if (!entry.ending && entry.submission->more()) {
      ++i;
      continue;
    }
    const std::unique_ptr<Submission> over = std::move(entry.submission);
    submissions_.erase(submissions_.begin() + static_cast<std::ptrdiff_t>(i));
    done = true;
    over->on_over();
  }
  return done;
}

}  // namespace tessera
