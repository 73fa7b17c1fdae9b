// The loop of a job.
#include "apps/jobs/runner.h"

#include <algorithm>
#include <utility>

#include "apps/runtime/memory_attempt.h"
#include "engine/core/index.h"

namespace tessera {

JobRun::JobRun(JobSource& source, Task& task, JobRecords& records, JobListener& listener,
               const RunOptions& options)
    : source_(source),
      task_(task),
      records_(records),
      listener_(listener),
      options_(options),
      at_once_(to_size(options.at_once)) {}

JobEnd JobRun::run() {
  while (has_more()) {
    if (stopping()) return JobEnd::kDrained;
    work();
    if (open_.empty()) continue;
    expects(stopped_, "items are left open when the run is stopping");
    return JobEnd::kDrained;
  }
  return JobEnd::kOver;
}

bool JobRun::has_more() { return !again_.empty() || !back_.empty() || source_.more(); }

void JobRun::work() {
  together_ = 0;
  alone_ = false;
  if (at_once_ == 0) return task_.work(*this);
  auto missing = memory_failure([&] { task_.work(*this); }, "generating");
  // Before settle() records others: shrink() could not tell any more that one is half recorded.
  if (missing && committing_) throw Error(*missing);
  // Also items whose results were there before memory ended.
  const auto missed = memory_failure([&] { task_.settle(*this); }, "writing");
  if (!missing) missing = missed;
  if (missing) shrink(*missing);
}

bool JobRun::stopping() {
  const std::lock_guard lock(mutex_);
  stopped_ = stopped_ || listener_.stop_requested();
  return stopped_;
}

std::optional<std::size_t> JobRun::take(std::optional<std::size_t> at_work) {
  if (stopping()) return std::nullopt;
  if (at_once_ == 0) return next();
  const bool full = at_work.value_or(open_.size()) >= at_once_;
  if (!open_.empty() && (full || alone_ || !again_.empty())) return std::nullopt;
  const bool alone = !again_.empty();
  const std::optional<std::size_t> item = next();
  alone_ = alone;
  // Finished items that wait for their turn are open too; no more than these were at work.
  together_ = std::max(together_, std::min(open_.size(), at_once_));
  return item;
}

std::optional<std::size_t> JobRun::next() {
  std::optional<std::size_t> item;
  {
    const std::lock_guard lock(mutex_);
    for (std::deque<std::size_t>* from : {&again_, &back_}) {
      if (item || from->empty()) continue;
      item = from->front();
      from->pop_front();
    }
  }
  if (!item) item = source_.next();
  if (!item) return std::nullopt;
  const std::lock_guard lock(mutex_);
  open_.push_back(*item);
  return item;
}

bool JobRun::done(std::size_t item, FunctionRef<void()> commit) {
  try {
    put_part(commit);
  } catch (const Error& error) {  // the boundary of one item
    if (error.info().kind != ErrorKind::kGeneral) throw;
    committing_ = false;
    fail(item, error.info());
    return false;
  }
  close(item);
  failures_.clear();
  return true;
}

void JobRun::put_part(FunctionRef<void()> commit) {
  committing_ = true;
  commit();
  committing_ = false;
}

// A stranger's file stays where it is, however often it is met.
void JobRun::fail(std::size_t item, const ErrorInfo& error) {
  if (error.code != "E_OUTPUT_EXISTS" && tries_[item] < options_.max_retries) {
    ++tries_[item];
    {
      const std::lock_guard lock(mutex_);
      std::erase(open_, item);
      again_.push_back(item);
    }
    records_.note_try(item);
    return listener_.on_retry(item, error);
  }
  put_part([&] { records_.fail(item, error); });
  close(item);
  listener_.on_failed(item, error);
  if (options_.ends_when_alike) failures_.add(error);
}

void JobRun::close(std::size_t item) {
  const std::lock_guard lock(mutex_);
  ++over_;
  std::erase(open_, item);
}

// What can be released is, then half as many at once for what is left of the batch and all that
// follows, the item's failure when it was alone. An item that was being put down may be half
// recorded: that ends the run.
void JobRun::shrink(const ErrorInfo& missing) {
  if (committing_) throw Error(missing);
  task_.release();
  if (open_.empty()) return;
  const bool less = task_.hold_less();
  if (together_ == 1 && !less) return fail(open_.front(), missing);
  std::deque<std::size_t>& to = together_ == 1 ? again_ : back_;
  to.insert(to.begin(), open_.begin(), open_.end());
  open_.clear();
  if (less) return;
  lasts_for(to_index(together_ / 2));
}

void JobRun::lasts_for(std::int64_t items) {
  at_once_ = to_size(items);
  records_.note_at_once(items);
  listener_.on_fewer(items);
}

}  // namespace tessera
