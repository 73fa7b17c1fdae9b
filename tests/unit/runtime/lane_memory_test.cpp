// Where memory does not last for a lane's slots: fewer of them, and who fails.
#include <gtest/gtest.h>

#include "tests/unit/runtime/lane_run.h"

namespace tessera::lane_memory_test {
namespace {

// Memory for so many bytes and no more.
struct TightHost final : LaneHost {
  RoomAnswer make_room(std::size_t bytes, const Backend&, const Lane&) override {
    return {bytes <= free ? Room::kYes : missing, free};
  }
  std::uint64_t free = 0;
  Room missing = Room::kNo;
};

class LaneMemory : public StreamLanes {};

TEST_F(LaneMemory, WhereMemoryDoesNotLastFewerSlotsAreMade) {
  make({.slots = 8});
  model_.refused = [](const StreamLimits& limits) { return limits.items > 2; };
  Heard a, b;
  submit(1, numbers(0, 8), a).takes_fewer = true;
  submit(2, numbers(0, 4), b);
  run();
  EXPECT_EQ(a.fewer, (std::vector<std::pair<std::int64_t, std::int64_t>>{{8, 2}}));
  EXPECT_EQ(lane_->slots(), 2);
  expect_written(model_, numbers(0, 8), a);
  expect_written(model_, numbers(0, 4), b);
  // They stay fewer until more are asked for.
  Heard later;
  submit(3, numbers(0, 8), later).takes_fewer = true;
  run();
  EXPECT_TRUE(later.fewer.empty());
  lane_->set_slots(8);
  lane_->release();
  Heard again;
  submit(4, numbers(0, 8), again).takes_fewer = true;
  run();
  EXPECT_EQ(again.fewer.size(), 1u);
}

TEST_F(LaneMemory, WhereFewerAreNotTakenMissingMemoryEndsTheSubmission) {
  model_.refused = [](const StreamLimits& limits) { return limits.items > 1; };
  Heard a, b;
  submit(1, numbers(0, 3), a);
  submit(2, {4}, b);
  try {
    run();
    FAIL() << "nothing was missing";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().kind, ErrorKind::kMemory);
    EXPECT_EQ(error.info().code, "E_MEMORY");
  }
  EXPECT_FALSE(lane_->has({1}));
  EXPECT_EQ(a.over, 1);
  EXPECT_TRUE(a.done.empty());
  run();
  expect_written(model_, {4}, b);
}

TEST_F(LaneMemory, AStreamThatFitsNowhereFailsAlone) {
  model_.refused = [](const StreamLimits& limits) { return limits.prompt_rows > 5; };
  Heard heard;
  // Their prompts have 3, 6, 3 and 7 rows.
  ListSubmission& submission = submit(1, {5, 3, 0, 4}, heard);
  submission.takes_fewer = true;
  submission.knows_needs = false;
  run();
  EXPECT_EQ(heard.no_room, (std::vector<std::size_t>{1, 3}));
  EXPECT_EQ(heard.codes, (std::vector<std::string>{"E_TEST_ROOM", "E_TEST_ROOM"}));
  EXPECT_EQ(heard.over, 1);
  ASSERT_EQ(heard.done.size(), 2u);
  EXPECT_EQ(heard.done.at(0), model_.alone(5));
  EXPECT_EQ(heard.done.at(2), model_.alone(0));
}

// What is known of all of them is more than there is room for; what the next one needs is not.
TEST_F(LaneMemory, NoMoreThanTheNextStreamNeedsIsTriedBeforeFewerSlots) {
  model_.refused = [](const StreamLimits& limits) { return limits.prompt_rows > 5; };
  Heard heard;
  submit(1, {5, 0, 3}, heard).takes_fewer = true;
  run();
  EXPECT_EQ(heard.no_room, (std::vector<std::size_t>{2}));
  EXPECT_EQ(heard.done.size(), 2u);
}

// Slots for streams to come are tried for, and cost nobody anything where there is no room.
TEST_F(LaneMemory, SlotsForStreamsToComeAreNotInsistedOn) {
  TightHost host;
  for (const Room missing : {Room::kNo, Room::kLater}) {
    host.missing = missing;
    host.free = 2 * model_.bytes_a_slot;
    StreamLane lane(model_, host, {.slots = 8, .all_slots = true});
    Heard heard;
    lane.submit({1}, std::make_unique<ListSubmission>(tiny(), std::vector<int>{0}, heard));
    lane.step(Wait::kNo);
    EXPECT_EQ(lane.stats().slots, 2);
    EXPECT_EQ(lane.slots(), 8) << "they are tried again";
    while (!lane.idle()) lane.step(Wait::kYes);
    EXPECT_TRUE(heard.fewer.empty());
    expect_written(model_, {0}, heard);
  }
}

TEST_F(LaneMemory, SlotsThatOthersWantFailNobody) {
  TightHost host;
  host.free = 2 * model_.bytes_a_slot;
  StreamLane lane(model_, host, {.slots = 8});
  std::vector<Heard> heard(8);
  for (int i = 0; i < 8; ++i) {
    lane.submit({static_cast<std::uint64_t>(i) + 1},
                std::make_unique<ListSubmission>(tiny(), std::vector<int>{i},
                                                 heard[static_cast<std::size_t>(i)]));
  }
  while (!lane.idle()) EXPECT_NO_THROW(lane.step(Wait::kYes));
  EXPECT_EQ(lane.slots(), 2);
  for (int i = 0; i < 8; ++i) expect_written(model_, {i}, heard[static_cast<std::size_t>(i)]);
  // Its own request still ends a submission that takes no fewer.
  Heard own;
  lane.set_slots(8);
  lane.submit({9}, std::make_unique<ListSubmission>(tiny(), numbers(0, 4), own));
  EXPECT_THROW(while (!lane.idle()) lane.step(Wait::kYes), Error);
  EXPECT_TRUE(own.done.empty());
}

}  // namespace
}  // namespace tessera::lane_memory_test
