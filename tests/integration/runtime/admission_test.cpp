// Who gets memory in a runtime that has little: what never fits is refused with the figures, what
// fits later waits, lanes that write nothing release what they hold.
#include <gtest/gtest.h>

#include "apps/runtime/describe_task.h"
#include "tests/support/list_lane.h"

namespace tessera::admission_test {
namespace {

// So many bytes in all, less what the loops of its lanes hold.
class Memory {
 public:
  Memory() : runtime_([this] { return free(); }) {}
  std::optional<std::uint64_t> free() const {
    std::size_t held = 0;
    for (const ListLane* lane : lanes_) held += lane->held();
    EXPECT_LE(held, total_) << "no more than there is";
    return total_ - std::min(held, total_);
  }
  void watch(const ListLane& lane) { lanes_.push_back(&lane); }
  void set_total(std::size_t bytes) { total_ = bytes; }
  Runtime& runtime() { return runtime_; }

 private:
  std::size_t total_ = std::size_t{1} << 40;
  std::vector<const ListLane*> lanes_;
  Runtime runtime_;
};

// Of one stream alone.
std::size_t bytes_of(const ListLane& lane, int number, std::int64_t slots = 1) {
  LoopNeeds needs = ListModel::needs_of(lane.model().stream(number));
  needs.slots = slots;
  return lane.model().bytes(needs);
}

std::vector<std::int32_t> alone(int number) {
  Runtime runtime;
  ListLane lane(runtime, 1);
  ListOutcome outcome;
  runtime.finish(lane.submit({number}, outcome));
  return outcome.done.at(number).tokens;
}

// Both write as if alone.
void expect_written(const ListOutcome& outcome, const std::vector<int>& numbers) {
  EXPECT_TRUE(outcome.over);
  ASSERT_EQ(outcome.done.size(), numbers.size());
  for (const int number : numbers) EXPECT_EQ(outcome.done.at(number).tokens, alone(number));
}

TEST(Admission, WhatNeverFitsIsRefusedWithTheFigures) {
  Memory memory;
  ListLane lane(memory.runtime(), 4);
  memory.watch(lane);
  const std::size_t needed = bytes_of(lane, 4);
  memory.set_total(needed - 1);
  ListOutcome refused;
  const Ticket ticket = lane.submit({4}, refused);
  try {
    memory.runtime().finish(ticket);
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().kind, ErrorKind::kMemory);
    EXPECT_EQ(error.info().code, "E_LIST_MEMORY");
    EXPECT_EQ(error.info().expected, std::to_string(needed) + " bytes");
    EXPECT_EQ(error.info().found, std::to_string(needed - 1) + " bytes free");
  }
  EXPECT_TRUE(refused.over);
  EXPECT_TRUE(memory.runtime().over(ticket));
  EXPECT_EQ(refused.done.size(), 0u);
  // The runtime goes on: with a byte more it fits.
  memory.set_total(needed);
  ListOutcome written;
  memory.runtime().finish(lane.submit({4}, written));
  expect_written(written, {4});
}

TEST(Admission, FewerSlotsAreTakenWhereTheSubmissionWants) {
  Memory memory;
  ListLane lane(memory.runtime(), 8);
  memory.watch(lane);
  memory.set_total(bytes_of(lane, 4, 3));
  const std::vector<int> numbers = {4, 7, 13, 22, 31, 1, 2, 5};
  ListOutcome outcome;
  memory.runtime().finish(lane.submit(numbers, outcome, true));
  expect_written(outcome, numbers);
  ASSERT_EQ(outcome.fewer.size(), 1u);
  EXPECT_EQ(outcome.fewer[0], (std::pair<std::int64_t, std::int64_t>{8, 2}));
  // Down to one, and no further: each stream fails alone, with the figures.
  lane.lane().release();
  lane.lane().set_slots(8);
  memory.set_total(10);
  ListOutcome none;
  memory.runtime().finish(lane.submit(numbers, none, true));
  EXPECT_TRUE(none.over);
  EXPECT_EQ(none.done.size(), 0u);
  ASSERT_EQ(none.no_room.size(), numbers.size());
  for (const ErrorInfo& error : none.no_room) {
    EXPECT_EQ(error.where, "1 streams");
    EXPECT_EQ(error.found, "10 bytes free");
  }
}

TEST(Admission, WhatFitsLaterWaitsAndIsWritten) {
  Memory memory;
  ListLane first(memory.runtime(), 1), second(memory.runtime(), 1);
  memory.watch(first);
  memory.watch(second);
  memory.set_total(bytes_of(first, 4) + bytes_of(second, 7) - 1);
  ListOutcome early, late;
  const Ticket a = first.submit({4}, early);
  ASSERT_TRUE(memory.runtime().step());
  const Ticket b = second.submit({7}, late);
  std::int64_t waited = 0;
  while (!memory.runtime().over(a)) {
    EXPECT_EQ(second.held(), 0u) << "there is no room for both";
    EXPECT_FALSE(memory.runtime().over(b));
    EXPECT_TRUE(memory.runtime().step());
    ++waited;
  }
  EXPECT_GE(waited, 10);
  EXPECT_EQ(late.done.size(), 0u);
  memory.runtime().finish(b);
  EXPECT_EQ(first.held(), 0u) << "it was idle, and had to release its loop";
  expect_written(early, {4});
  expect_written(late, {7});
}

// Between two streams nothing is written: a long list does not keep others out.
TEST(Admission, WhoWaitsIsWrittenBetweenTwoStreamsOfOthers) {
  Memory memory;
  ListLane first(memory.runtime(), 1), second(memory.runtime(), 1);
  memory.watch(first);
  memory.watch(second);
  memory.set_total(bytes_of(first, 4) + bytes_of(second, 7) - 1);
  const std::vector<int> list = {4, 7, 13, 22, 31, 1};
  ListOutcome many, one;
  const Ticket a = first.submit(list, many);
  ASSERT_TRUE(memory.runtime().step());
  memory.runtime().finish(second.submit({7}, one));
  EXPECT_LE(many.done.size(), 2u);
  EXPECT_FALSE(memory.runtime().over(a));
  memory.runtime().finish(a);
  expect_written(many, list);
  expect_written(one, {7});
}

TEST(Admission, IdleLanesReleaseOnlyWhereThatIsNeeded) {
  for (const bool plenty : {true, false}) {
    Memory memory;
    ListLane first(memory.runtime(), 1), second(memory.runtime(), 1);
    memory.watch(first);
    memory.watch(second);
    memory.set_total(bytes_of(first, 4) + bytes_of(second, 7) - (plenty ? 0 : 1));
    ListOutcome one, two;
    memory.runtime().finish(first.submit({4}, one));
    EXPECT_GT(first.held(), 0u) << "the next submission may use it";
    memory.runtime().finish(second.submit({7}, two));
    EXPECT_EQ(first.held() > 0, plenty);
    expect_written(one, {4});
    expect_written(two, {7});
  }
}

// Of a submission that waits for what it is given: nothing of it is written.
TEST(Admission, ALaneThatWaitsForItsSourceReleasesToo) {
  Memory memory;
  ListLane first(memory.runtime(), 1), second(memory.runtime(), 1);
  memory.watch(first);
  memory.watch(second);
  memory.set_total(bytes_of(first, 4) + bytes_of(second, 7) - 1);
  ListOutcome waits, other;
  // Its second stream comes when the other lane is through: nobody else could end its wait.
  const Ticket a =
      first.submit({4, 9}, waits, false, [&] { return waits.done.size() == 1 && !other.over; });
  while (waits.done.empty()) ASSERT_TRUE(memory.runtime().step());
  EXPECT_GT(first.held(), 0u);
  memory.runtime().finish(second.submit({7}, other));
  EXPECT_EQ(first.held(), 0u);
  EXPECT_FALSE(memory.runtime().over(a));
  memory.runtime().finish(a);
  expect_written(waits, {4, 9});
  expect_written(other, {7});
}

// Where the system tells nothing, all is tried.
TEST(Admission, WithoutAWordOnMemoryNobodyWaits) {
  Runtime runtime([]() -> std::optional<std::uint64_t> { return std::nullopt; });
  ListLane first(runtime, 2), second(runtime, 2);
  ListOutcome one, two;
  const Ticket a = first.submit({4, 9}, one), b = second.submit({7, 8}, two);
  ASSERT_TRUE(runtime.step());
  ASSERT_TRUE(runtime.step());
  EXPECT_GT(first.held(), 0u);
  EXPECT_GT(second.held(), 0u);
  runtime.finish(a);
  runtime.finish(b);
  expect_written(one, {4, 9});
  expect_written(two, {7, 8});
}

// A text that has no room is a failed caption with the figures; the task goes on.
TEST(Admission, ATextWithoutRoomFailsAloneWithTheFigures) {
  std::uint64_t free = 1000;
  Runtime runtime([&]() -> std::optional<std::uint64_t> { return free; });
  DescribeOptions options;
  options.model = "test:tiny";
  options.device = "cpu";
  options.threads = 1;
  options.max_tokens = 4;
  DescribeTask task(runtime, options);
  struct Heard final : DescribeListener {
    std::vector<Caption> captions;
    void on_caption(Caption&& caption) override { captions.push_back(std::move(caption)); }
  };
  const auto ask = [&] {
    Heard heard;
    DescribeRequest request;
    request.id = "a";
    request.prompt = "what is this";
    request.images.emplace_back().image = std::make_shared<Image>(24, 20);
    runtime.finish(task.submit({request}, heard));
    EXPECT_EQ(heard.captions.size(), 1u);
    return std::move(heard.captions.at(0));
  };
  const Caption refused = ask();
  EXPECT_TRUE(refused.failed);
  EXPECT_EQ(refused.error.kind, ErrorKind::kMemory);
  EXPECT_EQ(refused.error.code, "E_TEXT_MEMORY");
  EXPECT_EQ(refused.error.found, "1000 bytes free");
  free = std::stoull(refused.error.expected);
  EXPECT_GT(free, 1000u);
  EXPECT_FALSE(ask().failed);
}

}  // namespace
}  // namespace tessera::admission_test
