// Submissions through the slots of one loop: what is filled, in whose turn, and what a loop is made
// for. What a stream writes is what it writes alone, whatever happens to others.
#include <gtest/gtest.h>

#include "tests/unit/runtime/lane_run.h"

namespace tessera::lane_test {
namespace {

TEST_F(StreamLanes, SlotsAreFilledAgainOverSubmissions) {
  for (const char* method : {"plain", "gumbel", "tree"}) {
    TinyLaneModel model(tiny(), decode_method(method));
    StreamLane lane(model, host_, {.slots = 3});
    Heard heard[3];
    const std::vector<std::vector<int>> lists = {numbers(0, 7), {8}, numbers(3, 4)};
    for (std::size_t i = 0; i < lists.size(); ++i) {
      lane.submit({i + 1}, std::make_unique<ListSubmission>(tiny(), lists[i], heard[i]));
    }
    EXPECT_FALSE(lane.idle());
    while (!lane.idle()) {
      EXPECT_TRUE(lane.step(Wait::kNo));
      // A slot is free only where nothing is left to be begun.
      std::size_t begun = 0;
      for (const Heard& one : heard) begun += one.begun.size();
      const LaneStats now = lane.stats();
      EXPECT_TRUE(begun == 12 || now.slots_at_work == now.slot_passes) << method;
    }
    for (std::size_t i = 0; i < lists.size(); ++i) expect_written(model, lists[i], heard[i]);
    const LaneStats stats = lane.stats();
    EXPECT_EQ(stats.submissions, 0);
    EXPECT_EQ(stats.slots, 3);
    EXPECT_EQ(stats.slots_taken, 0);
    EXPECT_EQ(stats.slot_passes, 3 * static_cast<std::uint64_t>(stats.passes));
    EXPECT_LT(stats.slots_at_work, stats.slot_passes) << "the last ones end alone";
    EXPECT_EQ(model.loads, 1);
    EXPECT_EQ(model.loops.size(), 1u);
  }
}

TEST_F(StreamLanes, SubmissionsTakeTurns) {
  Heard a, b;
  std::string order;
  const auto noting = [&](char who) {
    return [&order, who](const char* call, std::size_t) {
      if (std::string(call) == "on_slot") order += who;
    };
  };
  submit(1, {0, 0, 0, 0, 0, 0}, a, noting('a'));
  submit(2, {0, 0, 0}, b, noting('b'));
  run();
  EXPECT_EQ(order, "abababaaa");
  expect_written(model_, {0, 0, 0, 0, 0, 0}, a);
  expect_written(model_, {0, 0, 0}, b);
}

TEST_F(StreamLanes, TurnsGoOnWhereOneIsOver) {
  Heard a, b, c;
  std::string order;
  const auto noting = [&](char who) {
    return [&order, who](const char* call, std::size_t) {
      if (std::string(call) == "on_slot") order += who;
    };
  };
  make({.slots = 1});
  submit(1, {0}, a, noting('a'));
  submit(2, {0, 0, 0}, b, noting('b'));
  submit(3, {0, 0, 0}, c, noting('c'));
  run();
  EXPECT_EQ(order, "abcbcbc");
}

// A longer prompt or a second branch needs another loop, which is made when the old one is idle.
TEST_F(StreamLanes, ALoopGrowsWithWhatStreamsNeed) {
  Heard heard;
  const std::vector<int> list = {5, 5, 5, 1, 7, 4, 3, 8};  // 3 rows, 4, 5, 7 and guidance ...
  submit(1, list, heard).knows_needs = false;
  run();
  expect_written(model_, list, heard);
  ASSERT_GE(model_.loops.size(), 3u);
  EXPECT_FALSE(model_.loops.front().guided);
  EXPECT_TRUE(model_.loops.back().guided);
  for (std::size_t i = 1; i < model_.loops.size(); ++i) {
    EXPECT_GE(model_.loops[i].prompt_rows, model_.loops[i - 1].prompt_rows);
  }
  // Known before, all of it is in the first one.
  model_.loops.clear();
  lane_->release();
  Heard again;
  submit(2, list, again);
  run();
  expect_written(model_, list, again);
  EXPECT_EQ(model_.loops.size(), 1u);
}

TEST_F(StreamLanes, ALoopHasNoMoreSlotsThanStreams) {
  Heard one, many;
  submit(1, {0}, one);
  run();
  EXPECT_EQ(model_.loops.back().items, 1);
  submit(2, numbers(0, 5), many);
  run();
  EXPECT_EQ(model_.loops.back().items, 3);
  EXPECT_EQ(model_.loops.size(), 2u);
  expect_written(model_, numbers(0, 5), many);
  make({.slots = 3, .prompt_rows = 40, .all_slots = true});
  Heard alone;
  submit(3, {0}, alone);
  run();
  EXPECT_EQ(model_.loops.back().items, 3);
  EXPECT_EQ(model_.loops.back().prompt_rows, 40);
}

// A loop at work keeps its slots: those that come meanwhile find room where it had all from the
// first stream on.
TEST_F(StreamLanes, StreamsThatComeLaterFindAllSlots) {
  for (const bool all : {false, true}) {
    make({.slots = 3, .all_slots = all});
    model_.loops.clear();
    Heard first, later;
    submit(1, std::vector<int>{0, 0}, first);
    lane_->step(Wait::kNo);
    submit(2, std::vector<int>{0, 0, 0}, later);
    lane_->step(Wait::kNo);
    EXPECT_EQ(lane_->stats().slots_taken, all ? 3 : 2);
    run();
    EXPECT_EQ(model_.loops.front().items, all ? 3 : 2);
    expect_written(model_, std::vector<int>{0, 0}, first);
    expect_written(model_, std::vector<int>{0, 0, 0}, later);
  }
}

TEST_F(StreamLanes, AStreamThatIsNotReadyHoldsNobodyUp) {
  Heard slow, quick;
  int asked = 0;
  ListSubmission& waiting = submit(1, numbers(0, 2), slow);
  waiting.ready = [&](std::size_t number, Wait) { return number == 0 || ++asked > 40; };
  submit(2, numbers(2, 6), quick);
  run();
  expect_written(model_, numbers(0, 2), slow);
  expect_written(model_, numbers(2, 6), quick);
  EXPECT_LT(quick.passes, slow.all_passes);
}

TEST_F(StreamLanes, ItMayWaitOnlyWhereNothingElseIsToBeDone) {
  Heard heard;
  std::vector<std::pair<bool, Wait>> asked;  // whether streams were at work
  ListSubmission& submission = submit(1, numbers(0, 3), heard);
  submission.ready = [&](std::size_t number, Wait wait) {
    asked.emplace_back(lane_->stats().slots_taken > 0, wait);
    return number != 2 || wait == Wait::kYes;
  };
  EXPECT_FALSE(lane_->idle());
  run();
  expect_written(model_, numbers(0, 3), heard);
  for (const auto& [at_work, wait] : asked) EXPECT_TRUE(!at_work || wait == Wait::kNo);
  // Told not to wait it does not, and says that nothing was done.
  Heard other;
  submit(2, {0}, other).ready = [](std::size_t, Wait wait) { return wait == Wait::kYes; };
  EXPECT_FALSE(lane_->step(Wait::kNo));
  EXPECT_GE(other.all_passes, 1) << "so that it can be stopped";
  run();
  expect_written(model_, {0}, other);
}

// However many wait for something, those after them get their turn.
TEST_F(StreamLanes, SubmissionsThatAreNotReadyHoldNobodyUp) {
  std::deque<Heard> waiting(100);
  Heard last;
  bool ready = false;
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    submit(i + 1, {0}, waiting[i]).ready = [&](std::size_t, Wait) { return ready; };
  }
  submit(101, {3, 4}, last);
  for (int steps = 0; last.over == 0; ++steps) {
    ASSERT_LT(steps, 200);
    lane_->step(Wait::kNo);
  }
  expect_written(model_, {3, 4}, last);
  ready = true;
  run();
  for (const Heard& one : waiting) expect_written(model_, {0}, one);
}

TEST_F(StreamLanes, ASubmissionWithoutStreamsIsOverAtOnce) {
  Heard none;
  submit(1, {}, none);
  EXPECT_TRUE(lane_->step(Wait::kNo));
  EXPECT_TRUE(lane_->idle());
  EXPECT_EQ(none.over, 1);
  EXPECT_EQ(model_.loads, 0);
}

// Counts what it is asked; one stream.
class CountedSubmission final : public Submission {
 public:
  CountedSubmission(const TinyRun& tiny, std::int64_t& calls, int& over)
      : tiny_(tiny), calls_(calls), over_(over) {}
  LoopNeeds needs() const override {
    ++calls_;
    return needs_of_stream(small_stream(tiny_, 0));
  }
  std::optional<NextStream> next(Wait) override {
    ++calls_;
    given_ = true;
    return NextStream{0, small_stream(tiny_, 0), needs(), {}};
  }
  bool more() const override {
    ++calls_;
    return !given_;
  }
  Flow on_pass(const SubmissionPass&) override {
    ++calls_;
    return Flow::kContinue;
  }
  std::optional<SlidingStream> on_done(std::size_t, StreamResult&&) override {
    return std::nullopt;
  }
  void on_over(const ErrorInfo*) override { ++over_; }

 private:
  const TinyRun& tiny_;
  std::int64_t& calls_;
  int& over_;
  bool given_ = false;
};

TEST_F(StreamLanes, AStepCostsTheSameHoweverManyAreQueued) {
  std::int64_t max_calls[2] = {};
  for (const int count : {200, 10'000}) {
    make({.slots = 3});
    std::int64_t calls = 0;
    int over = 0;
    for (int i = 0; i < count; ++i) {
      lane_->submit({static_cast<std::uint64_t>(i) + 1},
                    std::make_unique<CountedSubmission>(tiny(), calls, over));
    }
    EXPECT_EQ(lane_->stats().submissions, count);
    std::int64_t& most = max_calls[count == 200 ? 0 : 1];
    for (int step = 0; step < 60; ++step) {
      calls = 0;
      lane_->step(Wait::kNo);
      most = std::max(most, calls);
    }
    EXPECT_GT(over, 3);
    for (int i = 0; i < count; ++i) {
      lane_->cancel({static_cast<std::uint64_t>(i) + 1});
    }
    lane_->step(Wait::kNo);
    EXPECT_TRUE(lane_->idle());
    EXPECT_EQ(over, count);
  }
  EXPECT_EQ(max_calls[0], max_calls[1]);
}

}  // namespace
}  // namespace tessera::lane_test
