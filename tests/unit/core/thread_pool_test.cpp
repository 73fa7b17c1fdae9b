// The pool: every index once, exceptions come out, the pool lives on after them.
#include "engine/core/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace tessera::thread_pool_test {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 7));

TEST_P(ThreadPoolTest, EveryIndexOnceWithAWorkerInRange) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (const std::int64_t count : {0, 1, 2, 7, 64, 1000}) {
    for (const std::int64_t grain : {1, 3, 64, 5000}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
      std::atomic<bool> in_range{true};
      pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
        if (worker < 0 || worker >= GetParam() || end - begin > grain || begin >= end) {
          in_range = false;
        }
        for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
      });
      EXPECT_TRUE(in_range);
      for (const auto& visit : visits) ASSERT_EQ(visit, 1) << count << " by " << grain;
    }
  }
}

// A worker number stands for scratch memory: two bodies must never run under one at a time.
TEST_P(ThreadPoolTest, OneBodyPerWorkerAtATime) {
  ThreadPool pool(GetParam());
  std::vector<std::atomic<int>> inside(static_cast<std::size_t>(GetParam()));
  std::atomic<bool> shared{false};
  for (int job = 0; job < 200; ++job) {
    pool.parallel_for(50, 1, [&](std::int64_t, std::int64_t, int worker) {
      auto& mine = inside[static_cast<std::size_t>(worker)];
      if (++mine != 1) shared = true;
      --mine;
    });
  }
  EXPECT_FALSE(shared);
}

TEST_P(ThreadPoolTest, AnExceptionComesOutAndThePoolGoesOn) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(pool.parallel_for(100, 1,
                                   [&](std::int64_t begin, std::int64_t, int) {
                                     if (begin == 37) throw std::runtime_error("37");
                                   }),
                 std::runtime_error);
    std::atomic<std::int64_t> sum{0};
    pool.parallel_for(100, 7, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) sum += i;
    });
    EXPECT_EQ(sum, 4950);
  }
}

TEST_P(ThreadPoolTest, ManySmallJobsInARow) {
  ThreadPool pool(GetParam());
  std::vector<std::int64_t> out(16);
  for (std::int64_t job = 0; job < 20000; ++job) {
    pool.parallel_for(16, 1, [&](std::int64_t begin, std::int64_t, int) {
      out[static_cast<std::size_t>(begin)] = job + begin;
    });
    ASSERT_EQ(out[15], job + 15);
    ASSERT_EQ(out[0], job);
  }
}

}  // namespace
}  // namespace tessera::thread_pool_test
