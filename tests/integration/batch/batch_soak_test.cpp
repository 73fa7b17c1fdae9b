// A thousand images: memory and descriptors stay where they were, the journal stays small.
#include <chrono>
#include <thread>

#include "tests/integration/batch/batch_program.h"

namespace tessera::batch_soak_test {
namespace {

using BatchSoak = BatchTest;

TEST_F(BatchSoak, MemoryAndDescriptorsStayFlat) {
  constexpr std::size_t kImages = 1000;
  const std::string journal = "out/.tessera/shard-00001-of-00001.jnl";
  const std::string job = put_job(kImages);
  struct Sample {
    std::size_t records;
    std::int64_t pages, descriptors;
  };
  std::vector<Sample> samples;
  const ProgramResult result = run(words(job, "out", {"--batch-size", "4"}), {}, [&](pid_t child) {
    const std::filesystem::path process = "/proc/" + std::to_string(child);
    while (true) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::int64_t whole = 0, resident = 0;
      std::ifstream(process / "statm") >> whole >> resident;
      if (resident == 0) return;  // it is over
      std::error_code gone;
      std::int64_t descriptors = 0;
      for (std::filesystem::directory_iterator at(process / "fd", gone), end; at != end;
           at.increment(gone)) {
        ++descriptors;
      }
      const std::size_t lines = lines_of(journal);
      if (lines > 1) samples.push_back({lines - 1, resident, descriptors});
    }
  });
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(images("out").size(), kImages);
  EXPECT_LT(content(journal).size(), 400 * kImages);
  // What is held between images: the least of each quarter of the last half.
  constexpr std::size_t kParts = 4;
  std::vector<std::int64_t> floors(kParts, INT64_MAX);
  std::int64_t descriptors = 0;
  for (const Sample& sample : samples) {
    descriptors = std::max(descriptors, sample.descriptors);
    if (sample.records < kImages / 2) continue;
    std::int64_t& floor =
        floors[std::min((sample.records - kImages / 2) * 2 * kParts / kImages, kParts - 1)];
    floor = std::min(floor, sample.pages);
  }
  const auto [least, most] = std::minmax_element(floors.begin(), floors.end());
  ASSERT_LT(*most, INT64_MAX) << samples.size() << " samples";
  std::printf("%zu samples; held in the last half %lld to %lld KiB, at most %lld descriptors\n",
              samples.size(), static_cast<long long>(*least * 4), static_cast<long long>(*most * 4),
              static_cast<long long>(descriptors));
  EXPECT_LE(static_cast<double>(*most - *least), 0.02 * static_cast<double>(*least));
  EXPECT_LE(descriptors, 16);
}

}  // namespace
}  // namespace tessera::batch_soak_test
