// The pool emits every chunk exactly once, job after job, with more threads than cores too.
#include "engine/core/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tessera::thread_pool_test {
namespace {

TEST(ThreadPool, EveryIndexOnceInEveryJob) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    std::vector<int> seen(257);
    for (int job = 0; job < 4000; ++job) {
      const std::int64_t count = 1 + job % 257;
      const std::int64_t grain = 1 + job % 5;
      std::fill(seen.begin(), seen.end(), 0);
      pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
        if (worker < 0 || worker >= threads || end - begin > grain) seen[0] += 1000;
        for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
      });
      for (std::int64_t i = 0; i < 257; ++i) {
        ASSERT_EQ(seen[static_cast<std::size_t>(i)], i < count ? 1 : 0) << "job " << job;
      }
    }
  }
}

// Chunks write plain memory that the caller reads after the call, with pauses that let the workers
// fall asleep and with chunks of unequal length.
TEST(ThreadPool, ResultsAreThereWhenTheCallReturns) {
  ThreadPool pool(3);
  std::int64_t sums[64];
  for (int job = 0; job < 300; ++job) {
    if (job % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pool.parallel_for(64, 1, [&](std::int64_t begin, std::int64_t, int) {
      std::int64_t sum = 0;
      for (std::int64_t i = 0; i < begin * 20; ++i) sum += i ^ job;
      sums[begin] = sum + job;
    });
    for (std::int64_t i = 0; i < 64; ++i) {
      std::int64_t sum = 0;
      for (std::int64_t j = 0; j < i * 20; ++j) sum += j ^ job;
      ASSERT_EQ(sums[i], sum + job);
    }
  }
}

TEST(ThreadPool, AnExceptionArrivesAfterAllChunksEnded) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (int job = 0; job < 50; ++job) {
      std::atomic<int> ended{0};
      EXPECT_THROW(pool.parallel_for(20, 1,
                                     [&](std::int64_t begin, std::int64_t, int) {
                                       if (begin == 19) throw std::runtime_error("planted");
                                       ended.fetch_add(1);
                                     }),
                   std::runtime_error);
      EXPECT_EQ(ended.load(), 19);
    }
    int after = 0;
    pool.parallel_for(1, 1, [&](std::int64_t, std::int64_t, int) { ++after; });
    EXPECT_EQ(after, 1);
  }
}

TEST(ThreadPool, ManyPoolsComeAndGo) {
  for (int i = 0; i < 200; ++i) {
    ThreadPool pool(4);
    std::atomic<int> calls{0};
    if (i % 2 == 0) pool.parallel_for(9, 2, [&](std::int64_t, std::int64_t, int) { ++calls; });
    EXPECT_EQ(calls.load(), i % 2 == 0 ? 5 : 0);
  }
}

}  // namespace
}  // namespace tessera::thread_pool_test
