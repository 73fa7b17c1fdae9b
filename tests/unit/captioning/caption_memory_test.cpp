// A run whose memory does not last for as many texts at once as were asked for: fewer at once, the
// same texts, no item lost, one notice; a prompt too large for one text alone fails by itself.
#include <gtest/gtest.h>

#include <map>

#include "apps/runtime/describe_task.h"
#include "tests/support/scarce_memory.h"

namespace tessera::caption_memory_test {
namespace {

constexpr int kItems = 9;

DescribeOptions options_of(std::int64_t batch) {
  DescribeOptions options;
  options.model = "test:tiny";
  options.device = "cpu";
  options.threads = 1;
  options.batch_size = batch;
  options.max_tokens = 8;
  return options;
}

DescribeRequest request_of(int number, const std::string& prompt) {
  auto image = std::make_shared<Image>(24 + number, 20);
  for (std::size_t i = 0; i < image->rgb.size(); ++i) {
    image->rgb[i] = static_cast<std::uint8_t>(i * 7 + static_cast<std::size_t>(number) * 31);
  }
  DescribeRequest request;
  request.id = std::to_string(number);
  request.images.push_back({.image = std::move(image)});
  request.prompt = prompt;
  return request;
}

struct Heard final : DescribeListener {
  std::map<std::string, Caption> captions;
  std::vector<std::string> notices;
  void on_caption(Caption&& caption) override {
    const std::string id = caption.id;
    EXPECT_TRUE(captions.emplace(id, std::move(caption)).second) << id << " twice";
  }
  void on_notice(std::string_view text) override { notices.emplace_back(text); }
  void on_over(bool all) override { finished = all; }
  bool finished = false;
};

struct Task {
  explicit Task(std::int64_t batch) : describe(runtime, options_of(batch)) { describe.load(); }
  Runtime runtime;
  DescribeTask describe;
};

// Items of the same question, about as many rows as it has letters; `long_one` asks another one.
// No loop is left from an earlier run.
Heard run(Task& task, std::size_t letters, int long_one = -1) {
  Heard heard;
  int number = 0;
  task.describe.release();
  task.runtime.finish(task.describe.submit(
      [&]() -> std::optional<DescribeRequest> {
        if (number == kItems) return std::nullopt;
        const DescribeRequest request =
            request_of(number, std::string(number == long_one ? 6000 : letters, 'a'));
        ++number;
        return request;
      },
      heard));
  EXPECT_TRUE(heard.finished);
  return heard;
}

std::map<std::string, std::string> texts(const Heard& heard) {
  std::map<std::string, std::string> out;
  for (const auto& [id, caption] : heard.captions) {
    EXPECT_FALSE(caption.failed) << id << ": " << caption.error.code;
    out[id] = caption.text;
  }
  return out;
}

TEST(ScarceMemory, HalvesTheBatchAndLosesNothing) {
  if (!ScarceMemory::kWorks) GTEST_SKIP() << "sanitizers bring a malloc of their own";
  Task task(8);
  const Heard plenty = run(task, 1200);
  ASSERT_EQ(plenty.captions.size(), static_cast<std::size_t>(kItems));
  EXPECT_TRUE(plenty.notices.empty());
  // One layer's keys take about 1,450 rows x 64 x 4 bytes a text: two fit below 1.2 MB, four do
  // not.
  const ScarceMemory scarce(1'200'000);
  const Heard little = run(task, 1200);
  EXPECT_GE(scarce.refused(), 2);
  EXPECT_EQ(texts(little), texts(plenty));
  ASSERT_EQ(little.notices.size(), 1u);
  EXPECT_NE(little.notices[0].find("8 texts at once: 2 from here on"), std::string::npos)
      << little.notices[0];
}

TEST(ScarceMemory, APromptThatFitsNowhereFailsAlone) {
  if (!ScarceMemory::kWorks) GTEST_SKIP() << "sanitizers bring a malloc of their own";
  Task task(4);
  const ScarceMemory scarce(1'300'000);  // six thousand rows of one text's keys are 1.5 MB
  const Heard heard = run(task, 13, 4);
  ASSERT_EQ(heard.captions.size(), static_cast<std::size_t>(kItems));
  for (const auto& [id, caption] : heard.captions) {
    EXPECT_EQ(caption.failed, id == "4") << id << " " << caption.error.code;
  }
  const ErrorInfo& error = heard.captions.at("4").error;
  EXPECT_EQ(error.kind, ErrorKind::kMemory);
  EXPECT_GT(scarce.refused(), 0);
  // It took no text's company away: the others went on as many at once as before.
  EXPECT_TRUE(heard.notices.empty()) << heard.notices[0];
}

// Nothing fits: every item fails by itself, and the program lives.
TEST(ScarceMemory, WithoutAnyRoomEveryItemFails) {
  if (!ScarceMemory::kWorks) GTEST_SKIP() << "sanitizers bring a malloc of their own";
  Task task(4);
  const ScarceMemory scarce(20'000);
  const Heard heard = run(task, 13);
  ASSERT_EQ(heard.captions.size(), static_cast<std::size_t>(kItems));
  for (const auto& [id, caption] : heard.captions) {
    EXPECT_TRUE(caption.failed) << id;
    EXPECT_EQ(caption.error.kind, ErrorKind::kMemory) << caption.error.code;
  }
}

}  // namespace
}  // namespace tessera::caption_memory_test
