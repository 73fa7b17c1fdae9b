// The bounded queue: what is on its way never waits, what is final is never lost.
#include "apps/studio/event_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

namespace tessera::event_queue_test {
namespace {

Event generation(std::uint64_t number, GenerateState state, std::int64_t passes = 0) {
  Generation out;
  out.number = number;
  out.state = state;
  out.facts.passes = passes;
  return GenerationEvent{out};
}
const Generation& of(const Event& event) { return std::get<GenerationEvent>(event).generation; }

TEST(EventQueue, NewerProgressTakesTheOlderOnesPlace) {
  EventQueue queue(4);
  for (int pass = 1; pass <= 100; ++pass) {
    EXPECT_TRUE(queue.push(generation(1, GenerateState::kGeneration, pass)));
  }
  EXPECT_TRUE(queue.push(generation(2, GenerateState::kGeneration, 7)));
  EXPECT_TRUE(queue.push(generation(1, GenerateState::kDone, 101)));
  EXPECT_TRUE(queue.push(generation(1, GenerateState::kGeneration, 102))) << "a final one stays";
  const std::vector<Event> events = queue.take();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(of(events[0]).facts.passes, 101);
  EXPECT_EQ(of(events[0]).state, GenerateState::kDone);
  EXPECT_EQ(of(events[1]).number, 2u);
  EXPECT_EQ(of(events[2]).facts.passes, 102);
  EXPECT_TRUE(queue.take().empty());
}

TEST(EventQueue, ProgressIsLeftOutWhenThereIsNoRoom) {
  EventQueue queue(2);
  EXPECT_TRUE(queue.push(generation(1, GenerateState::kDone)));
  EXPECT_TRUE(queue.push(generation(2, GenerateState::kDone)));
  EXPECT_FALSE(queue.push(generation(3, GenerateState::kGeneration)));  // returns: nobody waits
  EXPECT_EQ(queue.size(), 2u);
}

// A reader that takes its time: all final events arrive, in order, through a queue of two.
TEST(EventQueue, FinalEventsWaitForASlowReader) {
  EventQueue queue(2);
  std::thread worker([&] {
    for (std::uint64_t number = 1; number <= 50; ++number) {
      for (int pass = 0; pass < 5; ++pass) {
        queue.push(generation(number, GenerateState::kGeneration, pass));
      }
      EXPECT_TRUE(queue.push(generation(number, GenerateState::kDone)));
    }
  });
  std::vector<std::uint64_t> done;
  while (done.size() < 50) {
    EXPECT_LE(queue.size(), 2u);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (const Event& event : queue.take()) {
      if (is_final(of(event).state)) done.push_back(of(event).number);
    }
  }
  worker.join();
  for (std::size_t i = 0; i < done.size(); ++i) EXPECT_EQ(done[i], i + 1);
}

TEST(EventQueue, ReceivedEndsWaitForTheirBytes) {
  EventQueue queue(256);
  const auto image = std::make_shared<const Image>(4096, 4096);  // 48 MiB
  std::thread receiver([&] {
    for (std::uint64_t number = 1; number <= 12; ++number) {
      Generation one;
      one.number = number;
      one.state = GenerateState::kDone;
      one.from = "somebody";
      one.image = image;
      queue.push(GenerationEvent{one});
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(queue.size(), 5u) << "of 256 MiB";
  std::size_t ended = 0;
  while (ended < 12) {
    ended += queue.take().size();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  receiver.join();
}

TEST(EventQueue, ClosingSetsWhoeverWaitsFree) {
  EventQueue queue(1);
  EXPECT_TRUE(queue.push(ProblemEvent{}));
  std::atomic<int> result = -1;
  std::thread worker([&] { result = queue.push(ProblemEvent{}) ? 1 : 0; });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(result, -1) << "a final event waits";
  queue.close();
  worker.join();
  EXPECT_EQ(result, 0);
  EXPECT_FALSE(queue.push(generation(1, GenerateState::kGeneration)));
}

}  // namespace
}  // namespace tessera::event_queue_test
