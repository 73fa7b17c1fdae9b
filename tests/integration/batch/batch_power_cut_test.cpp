// Power cuts on a real file system: while a job writes to an ext4 image after a loop device, the
// image is copied; the copy is what a disk would hold had the power gone then. It is mounted, its
// journal is replayed by the kernel, and the job goes on there: whatever was notified is there whole.
// Needs root and loop devices. The mounts are seen by this process and its children alone.
#include <sched.h>
#include <sys/mount.h>

#include <chrono>
#include <set>
#include <thread>

#include "engine/core/philox.h"
#include "tests/integration/batch/batch_program.h"

namespace tessera::batch_power_cut_test {
namespace {

namespace fs = std::filesystem;

constexpr int kRounds = 4, kCuts = 8;  // cuts of a round
constexpr std::size_t kItems = 16;

bool shell(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

// An image mounted over a loop device while the object lives.
class LoopMount {
 public:
  LoopMount(const fs::path& image, fs::path place) : place_(std::move(place)) {
    fs::create_directories(place_);
    mounted_ = shell("mount -o loop '" + image.string() + "' '" + place_.string() + "'");
  }
  ~LoopMount() { unmount(); }
  LoopMount(const LoopMount&) = delete;
  LoopMount& operator=(const LoopMount&) = delete;
  bool mounted() const { return mounted_; }
  void unmount() {
    if (std::exchange(mounted_, false)) shell("umount '" + place_.string() + "'");
  }

 private:
  fs::path place_;
  bool mounted_ = false;
};

class BatchPowerCut : public BatchTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "mounting needs root";
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr)) {
      GTEST_SKIP() << "no mount namespace may be made here";
    }
    const fs::path empty = folder_ / "empty.img";
    if (!shell("truncate -s 8M '" + empty.string() + "'") ||
        !shell("mkfs.ext4 -q -F '" + empty.string() + "'")) {
      GTEST_SKIP() << "no mkfs.ext4 here";
    }
    const LoopMount probe(empty, folder_ / "probe");
    if (!probe.mounted()) GTEST_SKIP() << "no loop device may be mounted here";
  }
  // The job's own flags; `more` after them.
  static std::vector<std::string> flags(const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = {"--json", "--batch-size", "2", "--sidecar"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::set<std::string> ids_in(const std::string& out) {
    std::set<std::string> ids;
    std::istringstream in(out.substr(0, out.rfind('\n') + 1));
    for (std::string line; std::getline(in, line);) {
      ids.insert(nlohmann::ordered_json::parse(line)["id"].get<std::string>());
    }
    return ids;
  }
  std::map<std::string, std::string> tree(const std::string& out) const {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::directory_iterator(folder_ / out)) {
      const std::string name = entry.path().filename().string();
      if (entry.is_regular_file()) all[name] = get_file(entry.path());
    }
    return all;
  }
  // The letter of proc(5); empty: there is no such process.
  static std::string state_of(pid_t child) {
    std::string state;
    std::ifstream in("/proc/" + std::to_string(child) + "/stat");
    in >> state >> state >> state;
    return state;
  }
  static bool ended(const std::string& state) { return state == "Z" || state.empty(); }
  static void wait_until_stopped(pid_t child) {
    for (int i = 0; i < 10000; ++i) {
      const std::string state = state_of(child);
      if (state == "T" || ended(state)) return;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
};

struct Cut {
  fs::path image;
  std::set<std::string> heard;
};

struct CutCounts {
  int cuts = 0;
  int in_work = 0;  // some items were notified, not all
  int again = 0;    // told items that were generated again
  int damaged = 0;  // cuts after which a recorded file was not whole
  int trees = 0;    // cuts after which the job ended with the files of the undisturbed one
  std::map<int, int> codes;  // how often the job after a cut ended with each exit code
};

class BatchPowerCuts : public BatchPowerCut {
 protected:
  // The image as it is at one moment: the kernel may write after the program's back, so two
  // copies in a row must be equal.
  fs::path copy_of(const fs::path& image) {
    std::string copy = get_file(image);
    for (std::string now = get_file(image); now != copy; now = get_file(image)) {
      copy = std::move(now);
      ++moved_;
    }
    const fs::path path = folder_ / ("cut" + std::to_string(++images_) + ".img");
    put_file(path, copy);
    return path;
  }

  // Until the program has told `items` items or ends: a sleep misses the work on a busy machine.
  void wait_until_told(std::size_t items, pid_t child) {
    const fs::path out = logs_ / "stdout";
    for (int i = 0; i < 100000 && ids_in(get_file(out)).size() < items; ++i) {
      if (ended(state_of(child))) return;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  // Runs the job on a new disk with `more` flags; what the disk held at moments random. Each cut
  // waits for its share of the items first, so that the cuts of a run spread over it.
  std::vector<Cut> cut_run(const std::string& job, std::vector<std::string> more, int round) {
    // A file of its own each time: a loop device that still holds a file keeps old blocks of it.
    const fs::path image = folder_ / ("disk" + std::to_string(++images_) + ".img");
    fs::copy_file(folder_ / "empty.img", image);
    const LoopMount disk(image, folder_ / "disk");
    EXPECT_TRUE(disk.mounted());
    std::vector<Cut> taken;
    put_file(logs_ / "stdout", "");  // a child that is stopped early has not cleared it
    // Between two system calls of the program nothing moves: its syncs are over when it stops.
    const ProgramResult result = run(words(job, "disk/out", std::move(more)), {}, [&](pid_t child) {
      for (int i = 0; i < kCuts; ++i) {
        const auto lot = philox4x32({static_cast<std::uint32_t>(i), 0, 0, 0},
                                    {static_cast<std::uint32_t>(round), 5})[0];
        wait_until_told(kItems * static_cast<std::size_t>(i) / kCuts, child);
        std::this_thread::sleep_for(std::chrono::microseconds(lot % pause_));
        kill(child, SIGSTOP);
        wait_until_stopped(child);
        const std::set<std::string> heard = ids_in(get_file(logs_ / "stdout"));
        taken.push_back({copy_of(image), heard});
        kill(child, SIGCONT);
      }
    });
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return taken;
  }

  // `common`: flags of every run; `more`: of those whose power is cut alone.
  CutCounts cut_power(int rounds, const std::vector<std::string>& common,
                      const std::vector<std::string>& more = {}) {
    const std::string job = put_job(kItems);
    const auto started = std::chrono::steady_clock::now();
    EXPECT_EQ(batch(job, "truth", flags(common)).exit_code, 0);
    // Random within what two items take, whatever the job writes and however fast.
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::steady_clock::now() - started);
    pause_ = 1 + static_cast<std::uint32_t>(took.count() / kCuts);
    const auto truth = tree("truth");
    std::vector<std::string> verify = flags(common);
    verify.insert(verify.begin(), "--verify");
    CutCounts counts;
    for (int round = 0; round < rounds; ++round) {
      std::vector<std::string> given = flags(common);
      given.insert(given.begin(), more.begin(), more.end());
      for (const Cut& cut : cut_run(job, given, round)) {
        const LoopMount disk(cut.image, folder_ / "after");
        EXPECT_TRUE(disk.mounted()) << "a torn file system";
        const ProgramResult rest = batch(job, "after/out", verify);
        ++counts.codes[rest.exit_code];
        if (rest.exit_code != 0) {
          EXPECT_NE(rest.err.find("--overwrite"), std::string::npos) << rest.err;
        }
        if (more.empty()) {
          EXPECT_EQ(rest.exit_code, 0) << rest.err;
        }
        const std::set<std::string> generated = ids_in(rest.out);
        for (const std::string& id : cut.heard) counts.again += generated.contains(id) ? 1 : 0;
        if (rest.err.find("generated again") != std::string::npos) ++counts.damaged;
        if (rest.exit_code == 0 && tree("after/out") == truth) ++counts.trees;
        ++counts.cuts;
        if (!cut.heard.empty() && cut.heard.size() < kItems) ++counts.in_work;
        fs::remove(cut.image);
      }
    }
    std::printf(
        "%d cuts, %d of them in mid-work: %d told items generated again, %d damaged, %d "
        "trees equal\n",
        counts.cuts, counts.in_work, counts.again, counts.damaged, counts.trees);
    for (const auto& [code, times] : counts.codes) std::printf("exit code %d: %d\n", code, times);
    return counts;
  }

  std::uint32_t pause_ = 1;  // random microseconds before a cut: fewer than these
  int images_ = 0;
  int moved_ = 0;  // copies that were begun again
};

TEST_F(BatchPowerCuts, WhateverWasHeardIsThere) {
  const CutCounts counts = cut_power(kRounds, {});
  EXPECT_EQ(counts.cuts, kRounds * kCuts);
  EXPECT_GT(counts.in_work, 0);
  EXPECT_EQ(counts.again, 0);
  EXPECT_EQ(counts.damaged, 0);
  EXPECT_EQ(counts.trees, counts.cuts);
}

// Texts, facts and images of an item stay together.
TEST_F(BatchPowerCuts, WhateverWasHeardIsThereWithItsTexts) {
  const CutCounts counts =
      cut_power(1, {"--captioner", "test:tiny", "--captions", "none", "uniform"});
  EXPECT_EQ(counts.cuts, kCuts);
  EXPECT_GT(counts.in_work, 0);
  EXPECT_EQ(counts.again, 0);
  EXPECT_EQ(counts.damaged, 0);
  EXPECT_EQ(counts.trees, counts.cuts);
}

// The same without syncs loses what was notified: or the test above would prove nothing.
TEST_F(BatchPowerCuts, WithoutSyncsItWouldShow) {
  const CutCounts counts = cut_power(1, {}, {"--fsync", "off"});
  EXPECT_GT(counts.again + counts.damaged, 0);
  // The job goes on all the same: a torn file without a record is known as its own and generated
  // again.
  const auto clean = counts.codes.find(0);
  ASSERT_NE(clean, counts.codes.end());
  EXPECT_EQ(clean->second, counts.cuts);
  EXPECT_EQ(counts.trees, counts.cuts);
}

}  // namespace
}  // namespace tessera::batch_power_cut_test
