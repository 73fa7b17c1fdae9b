// Memory of a long job: two thousand images through the whole program, its image helper
// included, with the resident set and the open descriptors read while it runs. What the second
// thousand takes must be what the first took. The program as it is sold, a made-up model.
#include <array>
#include <chrono>
#include <thread>

#include "tests/integration/caption/caption_program.h"

namespace tessera::caption_memory_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kImages = 2000;
constexpr double kFlat = 0.02;

struct Sample {
  std::int64_t items = 0;        // described so far
  std::int64_t bytes = 0;        // resident, of the program
  std::int64_t helper = 0;       // resident, of its helper
  std::int64_t descriptors = 0;  // open, of the program
};

// A field of /proc/PID/status in KiB, 0 when the process is gone.
std::int64_t status_field(pid_t pid, const std::string& field) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(field)) return std::atoll(line.c_str() + field.size());
  }
  return 0;
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> out;
  std::error_code gone;
  for (const auto& task : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone)) {
    std::ifstream in(task.path() / "children");
    for (pid_t child = 0; in >> child;) out.push_back(child);
  }
  return out;
}

std::int64_t descriptors_of(pid_t pid) {
  std::error_code gone;
  std::int64_t count = 0;
  const fs::directory_iterator begin("/proc/" + std::to_string(pid) + "/fd", gone);
  if (!gone) count = std::distance(begin, fs::directory_iterator());
  return count;
}

bool ended(pid_t pid) {
  siginfo_t info = {};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         info.si_pid == pid;
}

std::int64_t lines_of(const fs::path& file) {
  const std::string text = get_file(file);
  return std::count(text.begin(), text.end(), '\n');
}

std::vector<Sample> second_half(const std::vector<Sample>& series) {
  std::vector<Sample> out;
  for (const Sample& sample : series) {
    if (sample.items >= kImages / 2) out.push_back(sample);
  }
  return out;
}

// How far the resident set rises or falls over the second half: the second half in five parts, the
// smallest sample of each, the largest of those against the smallest. A buffer that lives for one
// image is seen or not by chance; the smallest sample is what stays.
double drift(const std::vector<Sample>& series, std::int64_t Sample::*part) {
  std::array<std::int64_t, 5> floors;
  floors.fill(INT64_MAX);
  for (const Sample& sample : second_half(series)) {
    const auto at = (sample.items - kImages / 2) * 5 / (kImages / 2 + 1);
    std::int64_t& floor = floors[static_cast<std::size_t>(at)];
    floor = std::min(floor, sample.*part);
  }
  const auto [least, most] = std::minmax_element(floors.begin(), floors.end());
  return static_cast<double>(*most) / static_cast<double>(*least) - 1;
}

// The verifier is worth what it sees: a leak of 800 bytes an image in 20 MiB.
TEST(MemorySeries, ASmallLeakIsSeen) {
  std::vector<Sample> flat, leaking;
  for (std::int64_t items = 0; items <= kImages; items += 50) {
    flat.push_back({items, (20 << 20) + (items % 100) * 20000, 3 << 20, 9});
    leaking.push_back({items, (20 << 20) + items * 800, 3 << 20, 9});
  }
  EXPECT_LT(drift(flat, &Sample::bytes), kFlat);
  EXPECT_GT(drift(leaking, &Sample::bytes), kFlat);
}

class CaptionMemoryTest : public CaptionTest {
 protected:
  void SetUp() override {}  // no bundled model needed

  std::vector<Sample> watch(pid_t pid) const {
    std::vector<Sample> series;
    while (!ended(pid)) {
      Sample now{lines_of(logs_ / "stdout"), status_field(pid, "VmRSS:") * 1024, 0,
                 descriptors_of(pid)};
      for (const pid_t child : children_of(pid)) now.helper += status_field(child, "VmRSS:") * 1024;
      // The end of the process takes its memory and its helper apart.
      if (now.items >= 1 && now.items < kImages - 32 && now.helper > 0) series.push_back(now);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return series;
  }
};

TEST_F(CaptionMemoryTest, TwoThousandImagesTakeWhatOneThousandTake) {
  for (int i = 0; i < kImages; ++i) put("in/" + std::to_string(i) + ".png", image(i));
  std::vector<Sample> series;
  const ProgramResult result =
      run({"caption", "-m", "test:tiny", "--max-tokens", "8", "in", "-o", "out.jsonl"},
          kHonestMalloc, [&](pid_t pid) { series = watch(pid); });
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(by_path(content("out.jsonl")).size(), static_cast<std::size_t>(kImages));
  const std::vector<Sample> late = second_half(series);
  ASSERT_GE(late.size(), 20u) << "of " << series.size();
  std::int64_t early_descriptors = 0;
  for (const Sample& sample : series) {
    if (sample.items < kImages / 2) {
      early_descriptors = std::max(early_descriptors, sample.descriptors);
    }
  }
  for (const Sample& sample : late) EXPECT_LE(sample.descriptors, early_descriptors);
  EXPECT_LT(drift(series, &Sample::bytes), kFlat);
  EXPECT_LT(drift(series, &Sample::helper), kFlat);
  std::printf("drift %.4f, of the helper %.4f, %zu samples\n", drift(series, &Sample::bytes),
              drift(series, &Sample::helper), late.size());
  std::printf("items,resident,helper,descriptors\n");
  for (std::size_t i = 0; i < series.size(); i += std::max<std::size_t>(series.size() / 20, 1)) {
    std::printf("%lld,%lld,%lld,%lld\n", static_cast<long long>(series[i].items),
                static_cast<long long>(series[i].bytes), static_cast<long long>(series[i].helper),
                static_cast<long long>(series[i].descriptors));
  }
}

}  // namespace
}  // namespace tessera::caption_memory_test
