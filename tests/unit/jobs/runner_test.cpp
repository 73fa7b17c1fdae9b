// The run of a job over items that are numbers: it does not know what they are. Batches that end in
// any order, streams that end later than they were taken, failures, memory that does not last.
#include "apps/jobs/runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <new>
#include <numeric>
#include <set>

#include "engine/core/philox.h"

namespace tessera::runner_test {
namespace {

ErrorInfo failure(const std::string& code) { return {.code = code, .expected = "luck"}; }

// What the job is notified, in its order.
class Log final : public JobRecords, public JobListener {
 public:
  void fail(std::size_t item, const ErrorInfo&) override { recorded.push_back(item); }
  void note_try(std::size_t) override { ++tries; }
  void note_at_once(std::int64_t items) override { levels.push_back(items); }
  bool stop_requested() override { return stop && stop(); }
  void on_failed(std::size_t item, const ErrorInfo& error) override {
    failed.push_back(item);
    codes.push_back(error.code);
  }
  void on_retry(std::size_t item, const ErrorInfo&) override { retried.push_back(item); }
  void on_fewer(std::int64_t items) override { fewer.push_back(items); }

  std::function<bool()> stop;
  std::vector<std::size_t> recorded, failed, retried;
  std::vector<std::string> codes;
  std::vector<std::int64_t> levels, fewer;
  int tries = 0;
};

// As many as go together.
std::vector<std::size_t> take_batch(JobRun& run) {
  std::vector<std::size_t> out;
  while (const auto item = run.take()) out.push_back(*item);
  return out;
}

// Ends each item of a batch as `end` says: by its code, "" for done.
class Batches : public Task {
 public:
  void work(JobRun& run) override {
    const auto batch = take_batch(run);
    sizes.push_back(batch.size());
    if (before) before(batch);
    std::vector<std::size_t> order(batch.begin(), batch.end());
    if (shuffle) shuffle(order);
    for (const std::size_t item : order) {
      const std::string code = end ? end(item) : "";
      if (!code.empty()) {
        run.fail(item, failure(code));
      } else if (run.done(item, [&] { committed.push_back(item); })) {
        done.push_back(item);
      }
    }
  }
  void release() override { ++released; }
  bool hold_less() override { return less-- > 0; }

  std::function<void(std::span<const std::size_t>)> before;
  std::function<void(std::vector<std::size_t>&)> shuffle;
  std::function<std::string(std::size_t)> end;
  std::vector<std::size_t> sizes, committed, done;
  int released = 0, less = 0;
};

std::vector<std::size_t> numbers(std::size_t count) {
  std::vector<std::size_t> out(count);
  std::iota(out.begin(), out.end(), std::size_t{0});
  return out;
}

JobEnd run_over(const std::vector<std::size_t>& wanted, Task& task, Log& log,
                const RunOptions& options) {
  ListedItems source(wanted);
  return JobRun(source, task, log, log, options).run();
}

[[noreturn]] void run_out_of_memory() {
  throw Error({.kind = ErrorKind::kMemory, .code = "E_TEST_MEMORY"});
}

TEST(JobRun, EveryItemEndsOnceInAnyOrder) {
  Batches task;
  task.shuffle = [](auto& order) { std::reverse(order.begin(), order.end()); };
  Log log;
  EXPECT_EQ(run_over(numbers(7), task, log, {.at_once = 3}), JobEnd::kOver);
  EXPECT_EQ(task.sizes, (std::vector<std::size_t>{3, 3, 1}));
  EXPECT_EQ(task.done, (std::vector<std::size_t>{2, 1, 0, 5, 4, 3, 6}));
  EXPECT_TRUE(log.failed.empty());
}

TEST(JobRun, AnItemThatFailsIsTriedAgainAlone) {
  Batches task;
  std::map<std::size_t, int> met;
  task.end = [&](std::size_t item) { return item == 1 && met[item]++ < 2 ? "E_BAD" : ""; };
  Log log;
  run_over(numbers(4), task, log, {.at_once = 4, .max_retries = 2});
  EXPECT_EQ(task.sizes, (std::vector<std::size_t>{4, 1, 1}));
  EXPECT_EQ(log.retried, (std::vector<std::size_t>{1, 1}));
  EXPECT_EQ(log.tries, 2);
  EXPECT_EQ(task.done.size(), 4u);
  Log once;
  met.clear();
  run_over(numbers(4), task, once, {.at_once = 4, .max_retries = 1});
  EXPECT_EQ(once.failed, (std::vector<std::size_t>{1}));
  EXPECT_EQ(once.recorded, once.failed) << "recorded before anybody is notified";
}

// Takes items one by one while the run gives some, and ends the oldest; `before` each end.
class Flowing final : public Task {
 public:
  void work(JobRun& run) override {
    std::deque<std::size_t> at_work;
    while (true) {
      while (const auto item = run.take()) at_work.push_back(*item);
      if (at_work.empty()) return;
      sizes.push_back(at_work.size());
      if (before) before(run, at_work);
      const std::size_t item = at_work.front();
      at_work.pop_front();
      if (fails.contains(item) && fails[item]-- > 0) {
        run.fail(item, failure("E_BAD"));
      } else {
        run.done(item, [&] { done.push_back(item); });
      }
    }
  }

  std::function<void(JobRun&, const std::deque<std::size_t>&)> before;
  std::map<std::size_t, int> fails;
  std::vector<std::size_t> sizes, done;
};

TEST(JobRun, ItemsThatFlowKeepTheirNumber) {
  Flowing task;
  Log log;
  EXPECT_EQ(run_over(numbers(6), task, log, {.at_once = 3}), JobEnd::kOver);
  EXPECT_EQ(task.done, numbers(6));
  EXPECT_EQ(task.sizes, (std::vector<std::size_t>{3, 3, 3, 3, 2, 1}));
}

// Items that only wait to be put down make room for others, but for one that goes alone.
TEST(JobRun, ItemsThatWaitToBePutDownMakeRoom) {
  class Ordered final : public Task {
   public:
    void work(JobRun& run) override {
      std::vector<std::size_t> taken = take_batch(run);
      sizes.push_back(taken.size());
      while (taken.size() < 5) {
        const auto item = run.take(1);
        if (!item) break;
        taken.push_back(*item);
      }
      sizes.push_back(taken.size());
      EXPECT_EQ(run.take(2), std::nullopt);
      EXPECT_FALSE(run.ended());
      for (const std::size_t item : taken) {
        if (item == 1 && !std::exchange(failed, true)) {
          run.fail(item, failure("E_BAD"));
          EXPECT_EQ(run.take(1), std::nullopt) << "one is to be tried alone";
        } else {
          run.done(item, [&] { done.push_back(item); });
        }
      }
    }
    bool failed = false;
    std::vector<std::size_t> sizes, done;
  };
  Ordered task;
  Log log;
  EXPECT_EQ(run_over(numbers(7), task, log, {.at_once = 2, .max_retries = 1}), JobEnd::kOver);
  EXPECT_EQ(task.sizes, (std::vector<std::size_t>{2, 5, 1, 1, 2, 2}));
  EXPECT_EQ(task.done, (std::vector<std::size_t>{0, 2, 3, 4, 1, 5, 6}));
}

TEST(JobRun, OneThatFailedFlowsAlone) {
  Flowing task;
  task.fails = {{1, 2}};
  Log log;
  EXPECT_EQ(run_over(numbers(5), task, log, {.at_once = 3, .max_retries = 2}), JobEnd::kOver);
  EXPECT_EQ(task.done, (std::vector<std::size_t>{0, 2, 3, 1, 4}));
  EXPECT_EQ(task.sizes, (std::vector<std::size_t>{3, 3, 2, 1, 1, 1, 1}));
  EXPECT_EQ(log.retried, (std::vector<std::size_t>{1, 1}));
}

TEST(JobRun, FewerFlowWhereMemoryDoesNotLast) {
  Flowing task;
  task.before = [](JobRun&, const auto& at_work) {
    if (at_work.size() > 1) run_out_of_memory();
  };
  Log log;
  EXPECT_EQ(run_over(numbers(5), task, log, {.at_once = 4}), JobEnd::kOver);
  EXPECT_EQ(task.done, numbers(5));
  EXPECT_EQ(log.fewer, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(log.levels, log.fewer);
  Flowing found_out;
  found_out.before = [heard = false](JobRun& run, const auto&) mutable {
    if (!std::exchange(heard, true)) run.lasts_for(2);
  };
  Log own;
  EXPECT_EQ(run_over(numbers(5), found_out, own, {.at_once = 4}), JobEnd::kOver);
  EXPECT_EQ(found_out.sizes, (std::vector<std::size_t>{4, 3, 2, 2, 1})) << "those at work stay";
  EXPECT_EQ(own.fewer, (std::vector<std::int64_t>{2}));
}

TEST(JobRun, AStrangersFileIsNotTriedAgain) {
  Batches task;
  task.end = [](std::size_t) { return "E_OUTPUT_EXISTS"; };
  Log log;
  EXPECT_EQ(run_over(numbers(9), task, log, {.at_once = 2, .max_retries = 5}), JobEnd::kOver);
  EXPECT_TRUE(log.retried.empty());
  EXPECT_EQ(log.failed.size(), 9u) << "nor do they make a row";
}

TEST(JobRun, FiveAlikeEndTheRunWhereThatIsAsked) {
  Batches task;
  task.end = [](std::size_t item) { return item == 2 ? "" : "E_BAD"; };
  Log log;
  EXPECT_THROW(run_over(numbers(20), task, log, {.at_once = 4}), Error);
  EXPECT_EQ(log.failed, (std::vector<std::size_t>{0, 1, 3, 4, 5, 6, 7}));
  Log all;
  EXPECT_EQ(run_over(numbers(20), task, all, {.at_once = 4, .ends_when_alike = false}),
            JobEnd::kOver);
  EXPECT_EQ(all.failed.size(), 19u);
}

// Storage that fails one item is its failure; a broken disk is the run's.
TEST(JobRun, WhatCannotBePutDownFails) {
  class Commits final : public Task {
   public:
    void work(JobRun& run) override {
      for (const std::size_t item : take_batch(run)) {
        run.done(item, [&] {
          throw Error({.kind = item == 0 ? ErrorKind::kGeneral : ErrorKind::kStorage, .code = "E"});
        });
      }
    }
  };
  Commits task;
  Log log;
  EXPECT_THROW(run_over(numbers(3), task, log, {.at_once = 3}), Error);
  EXPECT_EQ(log.failed, (std::vector<std::size_t>{0}));
}

TEST(JobRun, WhereMemoryDoesNotLastHalfIsTried) {
  Batches task;
  task.before = [](auto batch) {
    if (batch.size() > 2) throw std::bad_alloc();
  };
  Log log;
  run_over(numbers(10), task, log, {.at_once = 8});
  EXPECT_EQ(task.sizes, (std::vector<std::size_t>{8, 4, 2, 2, 2, 2, 2}));
  EXPECT_EQ(log.fewer, (std::vector<std::int64_t>{4, 2}));
  EXPECT_EQ(log.levels, log.fewer);
  EXPECT_EQ(task.released, 2);
  EXPECT_EQ(task.done, numbers(10));
}

// Items that are finished and wait for the first one are none of those that memory did not last for.
TEST(JobRun, MemoryThatEndsWhileFinishedItemsWaitHalvesWhatWasAtWork) {
  class Ordered final : public Task {
   public:
    void work(JobRun& run) override {
      std::vector<std::size_t> taken = take_batch(run);
      while (!ended && taken.size() < 9) {
        const auto item = run.take(1);
        if (!item) break;
        taken.push_back(*item);
      }
      if (!std::exchange(ended, true)) run_out_of_memory();
      for (const std::size_t item : taken) run.done(item, [&] { done.push_back(item); });
    }
    bool ended = false;
    std::vector<std::size_t> done;
  };
  Ordered task;
  Log log;
  EXPECT_EQ(run_over(numbers(12), task, log, {.at_once = 4}), JobEnd::kOver);
  EXPECT_EQ(log.fewer, (std::vector<std::int64_t>{2})) << "nine were open, four at work";
  EXPECT_EQ(task.done, numbers(12));
}

TEST(JobRun, ATaskThatHoldsLessIsAskedForAsMany) {
  Batches task;
  task.less = 1;
  int fails = 2;
  task.before = [&](auto) {
    if (fails-- > 0) run_out_of_memory();
  };
  Log log;
  run_over(numbers(4), task, log, {.at_once = 4});
  EXPECT_EQ(task.sizes, (std::vector<std::size_t>{4, 4, 2, 2}));
  EXPECT_EQ(log.fewer, (std::vector<std::int64_t>{2}));
}

TEST(JobRun, MemoryThatEndsWhileAnItemIsPutDownEndsTheRun) {
  class Commits final : public Task {
   public:
    void work(JobRun& run) override {
      take_batch(run);
      run.put_part([] { run_out_of_memory(); });
    }
  };
  Commits task;
  Log log;
  EXPECT_THROW(run_over(numbers(3), task, log, {.at_once = 3}), Error);
  EXPECT_TRUE(log.failed.empty()) << "it may be half recorded";
}

TEST(JobRun, AStoppedRunTakesNoMoreAndSaysWhetherItemsAreLeft) {
  Batches task;
  Log log;
  log.stop = [&] { return task.done.size() >= 4; };
  EXPECT_EQ(run_over(numbers(9), task, log, {.at_once = 2}), JobEnd::kDrained);
  EXPECT_EQ(task.done, numbers(4));
  Batches last;
  Log at_end;
  at_end.stop = [&] { return last.done.size() >= 4; };
  EXPECT_EQ(run_over(numbers(4), last, at_end, {.at_once = 2}), JobEnd::kOver) << "none is left";
}

// Items that come one by one while others are at work, and end in whatever order. Some of them can
// be asked for only when another has ended.
class Stream final : public JobSource {
 public:
  explicit Stream(std::size_t count) : count_(count) {}
  std::optional<std::size_t> next() override {
    if (!ready_.empty()) {
      const std::size_t item = ready_.back();
      ready_.pop_back();
      return item;
    }
    while (at_ < count_) {
      const std::size_t item = at_++;
      if (item % 5 != 3) return item;
      later_.push_back(item);
    }
    return std::nullopt;
  }
  bool more() override {
    ready_.insert(ready_.end(), later_.begin(), later_.end());
    later_.clear();
    return !ready_.empty() || at_ < count_;
  }

 private:
  std::size_t count_, at_ = 0;
  std::vector<std::size_t> later_, ready_;
};

class Slots final : public Task {
 public:
  Slots(std::uint32_t seed, std::size_t slots) : seed_(seed), slots_(slots) {}
  void work(JobRun& run) override {
    bool more = true;
    while (more || !held_.empty()) {
      while (more && held_.size() < slots_) {
        const auto item = run.take();
        more = item.has_value();
        if (item) held_.push_back(*item);
      }
      if (held_.empty()) return;
      const std::uint32_t lot = philox4x32({seed_, count_++, 0, 0}, {5, 5})[0];
      const auto at = static_cast<std::ptrdiff_t>(lot % held_.size());
      const std::size_t item = held_[static_cast<std::size_t>(at)];
      held_.erase(held_.begin() + at);
      if (lot / 64 % 7 == 0) {
        run.fail(item, failure("E_LOT"));
      } else {
        run.done(item, [&] { ++ended[item]; });
      }
    }
  }
  std::map<std::size_t, int> ended;

 private:
  std::uint32_t seed_, count_ = 0;
  std::size_t slots_;
  std::vector<std::size_t> held_;
};

TEST(JobRun, RandomStreamsEndEveryItemOnce) {
  std::uint64_t retried = 0;
  for (std::uint32_t seed = 0; seed < 1000; ++seed) {
    const std::size_t count = 1 + seed % 37;
    Stream source(count);
    Slots task(seed, 1 + seed % 16);
    Log log;
    JobRun run(source, task, log, log,
               {.at_once = 0, .max_retries = static_cast<int>(seed % 3), .ends_when_alike = false});
    ASSERT_EQ(run.run(), JobEnd::kOver);
    for (const std::size_t item : log.failed) ++task.ended[item];
    ASSERT_EQ(task.ended.size(), count);
    for (const auto& [item, times] : task.ended) ASSERT_EQ(times, 1) << item;
    ASSERT_EQ(run.over(), count);
    retried += log.retried.size();
  }
  EXPECT_GT(retried, 1000u);
}

// Batches of which any item fails, any batch runs out of memory, in any order.
TEST(JobRun, RandomBatchesEndEveryItemOnce) {
  for (std::uint32_t seed = 0; seed < 1000; ++seed) {
    std::uint32_t count = 0;
    const auto lot = [&](std::uint32_t of) {
      return philox4x32({seed, count++, 1, 0}, {6, 6})[0] % of;
    };
    Batches task;
    task.less = static_cast<int>(seed % 2);
    task.before = [&](auto) {
      if (lot(5) == 0) run_out_of_memory();
    };
    task.shuffle = [&](auto& order) {
      for (std::size_t i = order.size(); i > 1; --i) {
        std::swap(order[i - 1], order[lot(static_cast<std::uint32_t>(i))]);
      }
    };
    task.end = [&](std::size_t) { return lot(6) == 0 ? "E_LOT" : ""; };
    Log log;
    const std::size_t items = 1 + seed % 41;
    ASSERT_EQ(run_over(numbers(items), task, log,
                       {.at_once = 1 + seed % 16,
                        .max_retries = static_cast<int>(seed % 3),
                        .ends_when_alike = false}),
              JobEnd::kOver);
    std::multiset<std::size_t> ended(task.done.begin(), task.done.end());
    ended.insert(log.failed.begin(), log.failed.end());
    ASSERT_EQ(std::vector<std::size_t>(ended.begin(), ended.end()), numbers(items)) << seed;
    ASSERT_EQ(task.committed, task.done);
    ASSERT_EQ(log.recorded, log.failed);
  }
}

}  // namespace
}  // namespace tessera::runner_test
