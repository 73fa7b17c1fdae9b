// Real kills: the process ends before or after every change it makes to the disk, and after every
// byte of every record of its journal. And every call that fails, in every way. The next run ends
// as if nothing had happened: nothing lost, nothing generated that was recorded, no temporary left.
#include <fcntl.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>

#include "tests/support/fault_scope.h"
#include "tests/support/killer.h"
#include "tests/unit/jobs/store_job.h"

namespace tessera::store_kill_test {
namespace {

constexpr int kItems = 3;

class StoreKill : public ::testing::Test {
 protected:
  // Runs in a process of its own that is killed there; the items it called done, in order.
  std::string killed_run(std::uint64_t nth, Killer::When when, std::size_t bytes = 0) {
    int heard[2];
    if (::pipe(heard) != 0) return "no pipe";
    const pid_t child = ::fork();
    if (child == 0) {
      const Killer killer(nth, when, bytes);
      run_store(folder_.out(), items_, [&](const std::string& id) {
        if (::write(heard[1], id.data(), id.size()) < 0) ::_exit(96);
      });
      ::_exit(0);
    }
    ::close(heard[1]);
    std::string ids;
    char byte = 0;
    while (::read(heard[0], &byte, 1) == 1) ids += byte;
    ::close(heard[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << nth;
    return ids;
  }

  // The next run: what was called done is not generated again, at most one item was in work.
  void expect_resumed(const std::string& heard) {
    std::string again;
    run_store(folder_.out(), items_, [&](const std::string& id) { again += id; });
    for (const char id : heard) ASSERT_EQ(again.find(id), std::string::npos) << "generated twice";
    ASSERT_GE(heard.size() + again.size() + 1, items_.size()) << "recorded, and told to nobody";
    ASSERT_EQ(folder_.outputs(), whole_);
    ASSERT_EQ(run_store(folder_.out(), items_), 0);
  }

  StoreFolder folder_;
  std::vector<SettledItem> items_ = small_job(kItems);
  std::map<std::string, std::string> whole_ = whole_outputs(items_);
};

TEST_F(StoreKill, AtEveryChange) {
  ChangeCounter counter;
  run_store(folder_.out(), items_);
  const std::uint64_t changes = counter.count;
  int kills = 0;
  for (const auto when : {Killer::When::kBefore, Killer::When::kAfter}) {
    for (std::uint64_t nth = 1; nth <= changes; ++nth) {
      SCOPED_TRACE(nth);
      folder_.clear();
      ASSERT_NO_FATAL_FAILURE(expect_resumed(killed_run(nth, when)));
      ++kills;
    }
  }
  std::printf("killed %d times around %llu changes\n", kills,
              static_cast<unsigned long long>(changes));
  EXPECT_GT(kills, 90);
}

TEST_F(StoreKill, AfterEveryByteOfEveryWrite) {
  std::map<std::uint64_t, std::size_t> writes;
  {
    ChangeCounter counter;
    run_store(folder_.out(), items_);
    writes = counter.writes;
  }
  int kills = 0;
  for (const auto& [nth, size] : writes) {
    for (std::size_t bytes = 0; bytes <= size; ++bytes) {
      SCOPED_TRACE(std::to_string(nth) + " " + std::to_string(bytes));
      folder_.clear();
      ASSERT_NO_FATAL_FAILURE(expect_resumed(killed_run(nth, Killer::When::kWithin, bytes)));
      ++kills;
    }
  }
  std::printf("killed within %zu writes, %d times\n", writes.size(), kills);
  EXPECT_GT(kills, 1000);
}

// Killed, and killed again while it goes on.
TEST_F(StoreKill, AgainWhileResuming) {
  int kills = 0;
  for (std::uint64_t first = 8; first < 54; first += 6) {
    for (std::uint64_t second = 1; second < 24; ++second) {
      SCOPED_TRACE(std::to_string(first) + " " + std::to_string(second));
      folder_.clear();
      const std::string heard = killed_run(first, Killer::When::kAfter);
      const pid_t child = ::fork();
      if (child == 0) {
        const Killer killer(second, Killer::When::kAfter, 0);
        run_store(folder_.out(), items_);
        ::_exit(0);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
      if (WIFSIGNALED(status)) ++kills;
      std::string again;
      run_store(folder_.out(), items_, [&](const std::string& id) { again += id; });
      for (const char id : heard) ASSERT_EQ(again.find(id), std::string::npos);
      ASSERT_EQ(folder_.outputs(), whole_);
    }
  }
  std::printf("killed twice %d times\n", kills);
  EXPECT_GT(kills, 90);
}

// Full disks, read-only ones, failing ones: every call once, and all calls from there on.
TEST_F(StoreKill, EveryCallFails) {
  int faults = 0;
  for (const int error : {ENOSPC, EIO, EROFS}) {
    for (const auto mode :
         {FaultPlan::Mode::kOnce, FaultPlan::Mode::kSticky, FaultPlan::Mode::kShort}) {
      for (std::uint64_t nth = 1;; ++nth) {
        SCOPED_TRACE(std::to_string(error) + " " + std::to_string(static_cast<int>(mode)) + " " +
                     std::to_string(nth));
        folder_.clear();
        std::string heard;
        bool hit = false;
        {
          const FaultScope fault({.op = IoOp::kAny, .nth = nth, .error = error, .mode = mode});
          try {
            run_store(folder_.out(), items_, [&](const std::string& id) { heard += id; });
          } catch (const Error& failure) {
            ASSERT_FALSE(failure.info().file.empty()) << failure.what();
          }
          hit = fault.hits() > 0;
        }
        if (hit) ++faults;
        if (!hit && (mode != FaultPlan::Mode::kShort || nth > 150)) break;
        ASSERT_NO_FATAL_FAILURE(expect_resumed(heard));
      }
    }
  }
  std::printf("%d calls failed\n", faults);
  EXPECT_GT(faults, 300);
}

}  // namespace
}  // namespace tessera::store_kill_test
