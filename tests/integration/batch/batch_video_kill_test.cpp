// A job of videos on the real pipeline, killed before every change that it makes to the disk, and
// within every write of its journal; and every call of the I/O layer that fails. The next run ends
// as if nothing had happened. Every pass of the model is counted, over the killed run and the next:
// no kill costs more than the passes of one segment.
#include <fcntl.h>
#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/jobs/video_job.h"
#include "tests/support/fault_scope.h"
#include "tests/support/killer.h"
#include "tests/unit/jobs/store_job.h"

namespace tessera::batch_video_kill_test {
namespace {

constexpr int kVideos = 2;
constexpr std::int64_t kFrames = 8, kGrids = 2, kGridPasses = 24;

// What a run tells, a line each: passes as they are made, segments and videos when they are durable.
class Teller final : public VideoJobListener {
 public:
  explicit Teller(int to) : to_(to) {}
  // Also called for passes that read a part of a prompt: these bring nothing and do not count.
  void on_progress(const VideoJobProgress& progress) override {
    if (std::exchange(passes_, progress.common.passes) != progress.common.passes) say("pass");
  }
  void on_segment(const SettledItem& item, std::int64_t grids, std::int64_t) override {
    say("segment " + item.item.id + " " + std::to_string(grids));
  }
  void on_done(const SettledItem& item, const ItemRecord&, const JobVideo& video) override {
    say("done " + item.item.id + " " + std::to_string(video.facts.passes));
  }
  void on_failed(const SettledItem& item, const ErrorInfo& error) override {
    say("failed " + item.item.id + " " + error.code);
  }

 private:
  void say(const std::string& line) const {
    const std::string text = line + "\n";
    if (::write(to_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) ::_exit(96);
  }
  int to_;
  std::int64_t passes_ = 0;  // of the video at work
};

struct Heard {
  std::vector<std::string> durable;  // "segment ..." and "done ...", in order
  std::int64_t passes = 0;
  int status = 0;
};

class BatchVideoKill : public ::testing::Test {
 protected:
  static std::vector<SettledItem> job() {
    std::vector<JobItem> items;
    for (const SettledItem& item : small_job(kVideos)) {
      items.push_back(item.item);
      items.back().kind = kVideoKind;
      items.back().frames = kFrames;
    }
    return settle_items(items, {}, OutputTemplate("{id}.mkv"), "job");
  }

  void generate(int heard) {
    GenerateOptions options;
    options.model = "test:clip";
    options.threads = 1;
    options.method = decode_method("plain");
    Runtime runtime;
    VideoTask task(runtime, options);
    BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel,
                     {.next_to = {".json", ".xmp"}});
    VideoJobOptions how;
    how.files.sidecar = true;
    how.files.process.program = VIDEO_HELPER;
    Teller teller(heard);
    generate_videos(task, items_, store.wanted(false), store, how, teller);
  }

  // In a process of its own, under what `before` puts there.
  template <typename Watch>
  Heard run(Watch watch) {
    int pipe_ends[2];
    if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return {};
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        [[maybe_unused]] const auto watching = watch();
        generate(pipe_ends[1]);
      } catch (const Error& error) {
        ::_exit(error.exit_code());
      }
      ::_exit(0);
    }
    ::close(pipe_ends[1]);
    std::string text;
    char buffer[4096];
    for (ssize_t got = 0; (got = ::read(pipe_ends[0], buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(got));
    }
    ::close(pipe_ends[0]);
    Heard heard;
    ::waitpid(child, &heard.status, 0);
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      if (line == "pass") {
        ++heard.passes;
      } else {
        heard.durable.push_back(line);
      }
    }
    return heard;
  }
  Heard run() {
    return run([] { return 0; });
  }
  Heard killed(std::uint64_t nth, Killer::When when, std::size_t bytes = 0) {
    Heard heard = run([&] { return std::make_unique<Killer>(nth, when, bytes); });
    EXPECT_TRUE(WIFSIGNALED(heard.status)) << nth;
    return heard;
  }

  // The whole job, undisturbed, once.
  void make_truth() {
    const Heard heard = run();
    ASSERT_EQ(heard.status, 0);
    ASSERT_EQ(heard.passes, kVideos * kGrids * kGridPasses);
    ASSERT_EQ(heard.durable.size(), static_cast<std::size_t>(kVideos * (kGrids + 1)));
    truth_ = folder_.outputs();
    ASSERT_EQ(truth_.size(), static_cast<std::size_t>(3 * kVideos));
    folder_.clear();
  }

  // The next run: the bytes of the undisturbed one, nothing twice that was notified, and no more passes
  // in the two together than the undisturbed run and one segment.
  void expect_resumed(const Heard& before) {
    const Heard rest = run();
    ASSERT_EQ(rest.status, 0);
    for (const std::string& line : rest.durable) {
      ASSERT_EQ(std::count(before.durable.begin(), before.durable.end(), line), 0)
          << line << " twice";
    }
    // A pass is notified when what it brought is put down: the last one before a kill may not be.
    const std::int64_t most = kVideos * kGrids * kGridPasses;
    const std::int64_t made = before.passes + 1 + rest.passes;
    repeated_ = std::max(repeated_, made - most);
    ASSERT_GE(made, most) << "something was not generated";
    ASSERT_LE(made, most + kGridPasses) << "more than a segment twice";
    ASSERT_EQ(folder_.outputs(), truth_);
    for (const auto& entry : std::filesystem::directory_iterator(folder_.out() / kStateFolder)) {
      const std::string name = entry.path().filename().string();
      ASSERT_EQ(name.find("clip-"), std::string::npos) << name;
      ASSERT_EQ(name.find(".tmp-"), std::string::npos) << name;
    }
  }

  StoreFolder folder_;
  std::vector<SettledItem> items_ = job();
  std::map<std::string, std::string> truth_;
  std::int64_t repeated_ = 0;  // passes, at most, of all kills so far
};

// Changes of a whole run; counted in a process of its own, which says their number by its pipe.
struct Changes {
  std::uint64_t count = 0;
  std::map<std::uint64_t, std::size_t> journal;  // its writes and their lengths
};

class JournalWrites final : public IoWatcher {
 public:
  explicit JournalWrites(const std::filesystem::path& notes) : notes_(notes) {
    installed_watcher().store(this);
  }
  ~JournalWrites() override {
    installed_watcher().store(nullptr);
    std::string text = std::to_string(count_) + "\n";
    for (const auto& [nth, size] : writes_) {
      text += std::to_string(nth) + " " + std::to_string(size) + "\n";
    }
    put_file(notes_, text);
  }
  void before(const IoChange& change) override {
    ++count_;
    // Only records end with a line's end after a checksum.
    const std::string_view data(reinterpret_cast<const char*>(change.data.data()),
                                change.data.size());
    if (change.op == IoOp::kWrite && change.cut_to < 0 && data.ends_with("\"}\n") &&
        data.find("\"crc\":") != std::string_view::npos) {
      writes_[count_] = data.size();
    }
  }

 private:
  std::filesystem::path notes_;
  std::uint64_t count_ = 0;
  std::map<std::uint64_t, std::size_t> writes_;
};

TEST_F(BatchVideoKill, AtEveryChangeAndWithinEveryRecord) {
  ASSERT_NO_FATAL_FAILURE(make_truth());
  const std::filesystem::path notes = folder_.root() / "changes";
  ASSERT_EQ(run([&] { return std::make_unique<JournalWrites>(notes); }).status, 0);
  Changes changes;
  std::istringstream in(get_file(notes));
  in >> changes.count;
  for (std::uint64_t nth = 0, size = 0; in >> nth >> size;) changes.journal[nth] = size;
  // A header; a segment record a grid; an intent and the end of each video.
  ASSERT_EQ(changes.journal.size(), static_cast<std::size_t>(1 + kVideos * (kGrids + 2)));
  int kills = 0, within = 0;
  for (std::uint64_t nth = 1; nth <= changes.count; ++nth) {
    SCOPED_TRACE(nth);
    folder_.clear();
    ASSERT_NO_FATAL_FAILURE(expect_resumed(killed(nth, Killer::When::kBefore)));
    ++kills;
  }
  for (const auto& [nth, size] : changes.journal) {
    for (const std::size_t bytes : {size / 2, size}) {
      SCOPED_TRACE(std::to_string(nth) + " " + std::to_string(bytes));
      folder_.clear();
      ASSERT_NO_FATAL_FAILURE(expect_resumed(killed(nth, Killer::When::kWithin, bytes)));
      ++within;
    }
  }
  std::printf(
      "killed before each of %d changes and %d times within the %zu records: every video equal, at "
      "most %lld passes of %lld again (a segment has %lld)\n",
      kills, within, changes.journal.size(), static_cast<long long>(repeated_),
      static_cast<long long>(kVideos * kGrids * kGridPasses), static_cast<long long>(kGridPasses));
  EXPECT_GT(kills, 60);
  EXPECT_GT(repeated_, 0) << "a kill costs something, or nothing was counted";
}

// A disk that fills up at any call, and stays full: storage's exit code, nothing lost.
TEST_F(BatchVideoKill, TheDiskFillsUpAtAnyCall) {
  ASSERT_NO_FATAL_FAILURE(make_truth());
  int faults = 0;
  for (const auto op : {IoOp::kWrite, IoOp::kSync, IoOp::kRename, IoOp::kOpen}) {
    for (std::uint64_t nth = 1;; nth += op == IoOp::kOpen ? 7 : 3) {
      SCOPED_TRACE(std::to_string(static_cast<int>(op)) + " " + std::to_string(nth));
      folder_.clear();
      const Heard heard = run([&] {
        return std::make_unique<FaultScope>(
            FaultPlan{.op = op, .nth = nth, .error = ENOSPC, .mode = FaultPlan::Mode::kSticky});
      });
      ASSERT_TRUE(WIFEXITED(heard.status));
      if (WEXITSTATUS(heard.status) == 0) break;
      ++faults;
      if (op != IoOp::kOpen) {
        ASSERT_EQ(WEXITSTATUS(heard.status), 6) << "storage";
      }
      ASSERT_NO_FATAL_FAILURE(expect_resumed(heard));
    }
  }
  std::printf("the disk was full from %d calls on: every video equal\n", faults);
  EXPECT_GT(faults, 20);
}

}  // namespace
}  // namespace tessera::batch_video_kill_test
