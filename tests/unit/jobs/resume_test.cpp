// A captioning run that ends at any byte, at any failing call, by a real kill: the next run makes
// the very output of a run that was never disturbed. Nothing is lost, nothing is there twice.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/jobs/streamed_output.h"
#include "engine/core/philox.h"
#include "tests/support/fault_scope.h"
#include "tests/support/temp_folder.h"

namespace tessera::resume_test {
namespace {

namespace fs = std::filesystem;

constexpr int kItems = 6;
constexpr int kFailing = 3;  // fails in the first round, succeeds when tried again
const Json kJob = {{"options", {{"prompt", "describe"}}}};

// Syncs cost nothing on a file system in memory, and thousands of runs follow.
class ResumeFolder {
 public:
  ResumeFolder() {
    if (::access("/dev/shm", W_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 1);
    folder_ = std::make_unique<TempFolder>();
  }
  fs::path operator/(const char* name) const { return *folder_ / name; }
  void clear() const {
    for (const char* name : {"o", "o.part", "o.journal"}) fs::remove(*folder_ / name);
  }

 private:
  std::unique_ptr<TempFolder> folder_;
};

StreamOptions options_of(OutputForm form) {
  return {.form = form, .columns = {"path", "caption"}, .group_items = 2, .group_seconds = 1e9};
}

// One run over all items. Throws when a planned fault strikes.
void run(const fs::path& path, OutputForm form, bool retry_failed = false, int pause_us = 0) {
  StreamedOutput output(path, kJob, options_of(form));
  for (int i = 0; i < kItems; ++i) {
    CaptionResult item;
    item.id = "item " + std::to_string(i);
    if (!output.wants(item.id, retry_failed)) continue;
    if (pause_us > 0) ::usleep(static_cast<useconds_t>(pause_us));
    if (i == kFailing && !retry_failed) {
      output.fail(item.id, item.id, {.code = "E_BAD", .expected = "an image", .found = "none"});
      continue;
    }
    item.key = std::to_string(i);
    item.image = {"jpg", std::string(static_cast<std::size_t>(i * 200), 'p')};
    const std::string caption = "caption " + std::string(static_cast<std::size_t>(i * 3), 'c');
    output.add(item, {{"path", item.id}, {"caption", caption}});
  }
  output.finish();
}

// What the records of a journal up to `size` bytes say: bytes of output that are whole.
std::uint64_t whole_output(std::string_view journal) {
  std::uint64_t end = 0;
  for (std::size_t at = 0; journal.find('\n', at) != std::string_view::npos;) {
    const std::size_t line_end = journal.find('\n', at);
    const Json record = Json::parse(journal.substr(at, line_end - at));
    end = record.value("end", end);
    at = line_end + 1;
  }
  return end;
}

void expect_once_each(const std::string& journal, bool retried) {
  std::map<std::string, std::string> states;
  for (std::size_t at = 0; at < journal.size(); at = journal.find('\n', at) + 1) {
    const Json record = Json::parse(journal.substr(at, journal.find('\n', at) - at));
    if (record.contains("id")) states[record["id"]] += record["st"].get<std::string>() + " ";
  }
  ASSERT_EQ(states.size(), static_cast<std::size_t>(kItems));
  for (const auto& [id, state] : states) {
    const bool failing = id == "item " + std::to_string(kFailing);
    ASSERT_EQ(state, !failing ? "done " : retried ? "failed done " : "failed ") << id;
  }
}

class Resume : public ::testing::TestWithParam<OutputForm> {
 protected:
  void SetUp() override {
    run(folder_ / "o", GetParam());
    first_ = get_file(folder_ / "o");
    first_journal_ = get_file(folder_ / "o.journal");
    run(folder_ / "o", GetParam(), true);
    second_ = get_file(folder_ / "o");
    second_journal_ = get_file(folder_ / "o.journal");
    ASSERT_NE(first_, second_);
    expect_once_each(first_journal_, false);
    expect_once_each(second_journal_, true);
    folder_.clear();
  }
  // Puts a killed state there and runs again.
  void resume_from(std::string_view journal, std::string_view part, bool retry) {
    folder_.clear();
    put_file(folder_ / "o.journal", journal);
    put_file(folder_ / "o.part", part);
    run(folder_ / "o", GetParam(), retry);
    expect_result(retry);
  }
  void expect_result(bool retried) {
    ASSERT_TRUE(get_file(folder_ / "o") == (retried ? second_ : first_));
    ASSERT_FALSE(fs::exists(folder_ / "o.part"));
    expect_once_each(get_file(folder_ / "o.journal"), retried);
  }
  // Journal without its last line, which says that the output is closed.
  static std::string without_last_line(const std::string& journal) {
    return journal.substr(0, journal.rfind('\n', journal.size() - 2) + 1);
  }

  ResumeFolder folder_;
  std::string first_, second_, first_journal_, second_journal_;
};

TEST_P(Resume, JournalCutAtEveryByte) {
  const std::string journal = without_last_line(first_journal_);
  for (std::size_t cut = 0; cut <= journal.size(); ++cut) {
    const std::string_view left = std::string_view(journal).substr(0, cut);
    const std::uint64_t whole = whole_output(left);
    for (const std::uint64_t more :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{30}, std::uint64_t{first_.size()}}) {
      const std::uint64_t size = std::min<std::uint64_t>(whole + more, first_.size());
      SCOPED_TRACE(std::to_string(cut) + " " + std::to_string(size));
      // A part is begun after the header is durable: one next to half a header is not ours.
      if (size > 0 && cut < journal.find('\n') + 1) continue;
      ASSERT_NO_FATAL_FAILURE(resume_from(left, std::string_view(first_).substr(0, size), false));
    }
  }
}

TEST_P(Resume, OutputCutAtEveryByte) {
  const std::string journal = without_last_line(first_journal_);
  const std::size_t step = GetParam() == OutputForm::kTar ? 97 : 1;
  for (std::size_t line = journal.find('\n'); line != std::string::npos;
       line = journal.find('\n', line + 1)) {
    const std::string_view left = std::string_view(journal).substr(0, line + 1);
    for (std::uint64_t size = whole_output(left); size <= first_.size(); size += step) {
      SCOPED_TRACE(std::to_string(line) + " " + std::to_string(size));
      // What lies after the last record may be anything: blocks that never reached the disk.
      std::string part = first_.substr(0, size);
      if (size > whole_output(left) + 3) part.replace(size - 3, 3, std::string(3, '\0'));
      ASSERT_NO_FATAL_FAILURE(resume_from(left, part, false));
    }
  }
}

// The end: "closed" is recorded before the rename, so both sides of it are seen; then the same for
// "open" when the failed item is tried again.
TEST_P(Resume, CutsAroundTheRenames) {
  for (std::size_t cut = without_last_line(first_journal_).size(); cut <= first_journal_.size();
       ++cut) {
    ASSERT_NO_FATAL_FAILURE(
        resume_from(std::string_view(first_journal_).substr(0, cut), first_, false));
  }
  for (std::size_t cut = first_journal_.size(); cut <= second_journal_.size(); ++cut) {
    SCOPED_TRACE(cut);
    const std::string_view left = std::string_view(second_journal_).substr(0, cut);
    const std::string redraft_policy(left.substr(first_journal_.size()));
    const auto records = std::count(redraft_policy.begin(), redraft_policy.end(), '\n');
    // Before the first record after "closed" the finished output still has its name; until the next
    // one it may or may not have.
    if (records >= 1) {
      ASSERT_NO_FATAL_FAILURE(resume_from(left, second_, true));
    }
    if (records <= 1) {
      folder_.clear();
      put_file(folder_ / "o.journal", left);
      put_file(folder_ / "o", first_);
      run(folder_ / "o", GetParam(), true);
      ASSERT_NO_FATAL_FAILURE(expect_result(true));
    }
  }
}

// Every call of the I/O layer fails once, or all fail from there on.
TEST_P(Resume, EveryCallFails) {
  int faults = 0;
  for (const auto mode :
       {FaultPlan::Mode::kOnce, FaultPlan::Mode::kSticky, FaultPlan::Mode::kShort}) {
    for (std::uint64_t nth = 1;; ++nth) {
      folder_.clear();
      bool hit = false, failed = false;
      {
        const FaultScope fault({.op = IoOp::kAny, .nth = nth, .error = ENOSPC, .mode = mode});
        try {
          run(folder_ / "o", GetParam());
          run(folder_ / "o", GetParam(), true);
        } catch (const Error&) {
          failed = true;
        }
        hit = fault.hits() > 0;
      }
      if (!hit && mode != FaultPlan::Mode::kShort) break;
      if (!hit && nth > 200) break;
      if (hit) ++faults;
      SCOPED_TRACE(std::to_string(static_cast<int>(mode)) + " " + std::to_string(nth));
      if (failed) run(folder_ / "o", GetParam());
      run(folder_ / "o", GetParam(), true);
      ASSERT_NO_FATAL_FAILURE(expect_once_each(get_file(folder_ / "o.journal"), true));
      ASSERT_TRUE(get_file(folder_ / "o") == second_);
    }
  }
  EXPECT_GT(faults, 60);
}

// A process that is killed at some moment, again and again, until one gets through.
TEST_P(Resume, RealKills) {
  int kills = 0;
  for (std::uint32_t round = 0; round < 12; ++round) {
    folder_.clear();
    for (std::uint32_t attempt = 0;; ++attempt) {
      const pid_t child = ::fork();
      if (child == 0) {
        run(folder_ / "o", GetParam(), false, 300);
        ::_exit(0);
      }
      const auto draw = philox4x32({round, attempt, 0, 0}, {9, 9})[0];
      ::usleep(draw % (800 + 400 * attempt));
      ::kill(child, SIGKILL);
      int status = 0;
      ::waitpid(child, &status, 0);
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
      ASSERT_TRUE(WIFSIGNALED(status));
      ++kills;
    }
    ASSERT_NO_FATAL_FAILURE(expect_result(false));
  }
  EXPECT_GT(kills, 12);
}

// A line changed in the middle: what it and the lines after it say is not believed.
TEST_P(Resume, EveryFlippedByteOfTheJournalIsNoticed) {
  const std::string journal = without_last_line(first_journal_);
  const std::size_t header = journal.find('\n') + 1;
  for (std::size_t at = header; at < journal.size(); ++at) {
    std::string damaged = journal;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    ASSERT_NO_FATAL_FAILURE(resume_from(damaged, first_, false)) << at;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Resume,
                         ::testing::Values(OutputForm::kJsonLines, OutputForm::kCsv,
                                           OutputForm::kTar),
                         [](const auto& form) {
                           return form.param == OutputForm::kTar   ? "Tar"
                                  : form.param == OutputForm::kCsv ? "Csv"
                                                                   : "JsonLines";
                         });

}  // namespace
}  // namespace tessera::resume_test
