// One run over the items of a job that are not done yet, whatever they are. The runner hands items
// to a task and settles how each of them ends: done, tried again, failed. It sees to signals, to
// failures in a row and to memory that does not last; what an item is, only its task knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "apps/jobs/equal_failures.h"
#include "engine/core/error.h"
#include "engine/core/function_ref.h"
#include "engine/core/index.h"

namespace tessera {

// What is to be worked on. Items are numbers that the source, the records and the task agree on.
class JobSource {
 public:
  virtual ~JobSource() = default;
  // The next item; nullopt when there is none now. Calls come one at a time, on any thread.
  virtual std::optional<std::size_t> next() = 0;
  // Whether next() may give more. Asked when all that it gave are over.
  virtual bool more() = 0;
};

// Items by their numbers, in that order.
class ListedItems final : public JobSource {
 public:
  explicit ListedItems(std::span<const std::size_t> items) : items_(items) {}
  std::optional<std::size_t> next() override {
    if (!more()) return std::nullopt;
    return items_[at_++];
  }
  bool more() override { return at_ < items_.size(); }

 private:
  std::span<const std::size_t> items_;
  std::size_t at_ = 0;
};

// What a run writes down next to the results, which tasks put into a store of theirs.
class JobRecords {
 public:
  virtual ~JobRecords() = default;
  virtual void fail(std::size_t item, const ErrorInfo& error) = 0;
  // The item failed and is about to be tried again.
  virtual void note_try(std::size_t /*item*/) {}
  // So many at once from here on, because memory did not last.
  virtual void note_at_once(std::int64_t /*items*/) {}
};

class JobListener {
 public:
  virtual ~JobListener() = default;
  // Asked before items are taken, and by tasks where an item can be left half done.
  virtual bool stop_requested() { return false; }
  virtual void on_failed(std::size_t /*item*/, const ErrorInfo&) {}
  virtual void on_retry(std::size_t /*item*/, const ErrorInfo&) {}
  // Memory did not last: so many items at once from here on. Once a level.
  virtual void on_fewer(std::int64_t /*items*/) {}
};

class JobRun;

class Task {
 public:
  virtual ~Task() = default;
  // Takes items from the run, some or all, and ends each of them in any order. An item may be left
  // open when the run is stopping, or when memory did not last: that is thrown.
  virtual void work(JobRun& run) = 0;
  // After work(), also when memory did not last for it: ends items whose results were held back.
  virtual void settle(JobRun& /*run*/) {}
  // Gives back what is held in memory for speed alone.
  virtual void release() {}
  // True if the task holds less from now on than it did: as many items are tried again.
  virtual bool hold_less() { return false; }
};

struct RunOptions {
  // Items of a batch at first, at work at once; halved when memory does not last, down to one,
  // which then fails alone. 0: the task takes items as it has room, and memory that does not last
  // ends the run.
  std::int64_t at_once = 1;
  int max_retries = 0;          // more tries of an item, in a batch of its own
  bool ends_when_alike = true;  // five failures alike in a row end the run: E_BATCH_FAILING
};

enum class JobEnd : std::uint8_t { kOver, kDrained };

class JobRun {
 public:
  // All are borrowed.
  JobRun(JobSource& source, Task& task, JobRecords& records, JobListener& listener,
         const RunOptions& options);

  // Errors of single items become failed items, but see RunOptions::ends_when_alike. Storage and
  // model errors are thrown, and so is missing memory while an item is put down; all of them leave
  // everything resumable. kDrained when the run was stopped and items are left.
  JobEnd run();

  // --- what tasks call, on the thread of run() but for take() and stopping() ---

  // One more item to work on; nullopt when there is none now and when the run is stopping. Where
  // items go together it is also none while as many of them are at work, and while one is open that
  // failed before and goes alone. `at_work`: of those that are open, where the others only wait to
  // be put down; else all of them.
  std::optional<std::size_t> take(std::optional<std::size_t> at_work = {});
  // Whether take() gives no more once all that are open have ended, as far as is known: asked when
  // it gave none.
  bool ended() { return open_.empty() || stopping(); }
  bool stopping();
  // `commit` puts the item down; its Error kGeneral fails the item. True if the item is done.
  bool done(std::size_t item, FunctionRef<void()> commit);
  void fail(std::size_t item, const ErrorInfo& error);
  // `commit` puts down a part of an item at work: an end of memory within it ends the run.
  void put_part(FunctionRef<void()> commit);
  // Memory lasted for so many at once: no more go together from here on.
  void lasts_for(std::int64_t items);
  // How many go together now; 0 = as the task has room.
  std::int64_t at_once() const { return to_index(at_once_); }
  // Items that are taken and not ended, and those that are done or failed in this run.
  std::size_t open() const { return open_.size(); }
  std::size_t over() const { return over_; }

 private:
  bool has_more();
  std::optional<std::size_t> next();
  void work();
  void shrink(const ErrorInfo& missing);
  void close(std::size_t item);

  JobSource& source_;
  Task& task_;
  JobRecords& records_;
  JobListener& listener_;
  RunOptions options_;
  std::size_t at_once_;
  EqualFailures failures_;
  std::mutex mutex_;               // take() may be called on another thread
  std::deque<std::size_t> back_;   // were taken, not ended, and come before the source's
  std::deque<std::size_t> again_;  // failed, to be tried again alone
  std::vector<std::size_t> open_;  // taken, not ended
  std::size_t together_ = 0;       // most of them at once in this work()
  bool alone_ = false;             // the last that was taken failed before and goes alone
  std::unordered_map<std::size_t, int> tries_;  // that failed
  std::size_t over_ = 0;
  bool committing_ = false, stopped_ = false;
};

}  // namespace tessera
