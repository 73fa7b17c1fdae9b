// What listeners may do in their calls: cancel, stop, submit more, throw; and what an error of the
// model is to all of them.
#include <gtest/gtest.h>

#include "tests/unit/runtime/lane_run.h"

namespace tessera::lane_listeners_test {
namespace {

class LaneListeners : public StreamLanes {};

TEST_F(LaneListeners, CancelBetweenStepsFreesSlotsAtOnce) {
  Heard a, b;
  submit(1, numbers(0, 4), a);
  submit(2, numbers(4, 3), b);
  for (int i = 0; i < 3; ++i) lane_->step(Wait::kNo);
  EXPECT_TRUE(lane_->has({1}));
  lane_->cancel({1});
  lane_->cancel({7});  // nobody
  const Heard before = a;
  lane_->step(Wait::kNo);
  EXPECT_FALSE(lane_->has({1}));
  EXPECT_EQ(a.over, 1);
  EXPECT_EQ(a.stopped, (std::vector<std::size_t>{0, 1})) << "those at work, in their order";
  EXPECT_EQ(a.written, before.written) << "no pass more";
  EXPECT_EQ(lane_->stats().slots_taken, 3) << "the other one's";
  lane_->cancel({1});
  run();
  EXPECT_EQ(a.over, 1);
  EXPECT_EQ(a.called_when_over, 0);
  EXPECT_EQ(a.done.size(), 0u);
  expect_written(model_, numbers(4, 3), b);
}

TEST_F(LaneListeners, ListenersCancelThemselvesAndOthers) {
  for (const char* where : {"next", "on_slot", "on_pass", "on_tokens", "on_done"}) {
    for (const std::uint64_t whom : {1, 2}) {
      SCOPED_TRACE(std::string(where) + " cancels " + std::to_string(whom));
      Heard heard[2];
      int calls = 0;
      submit(1, numbers(0, 6), heard[0], [&, where](const char* call, std::size_t) {
        if (std::string(call) == where && ++calls == 2) lane_->cancel({whom});
      });
      submit(2, numbers(4, 6), heard[1]);
      run();
      const std::size_t other = whom == 1 ? 1 : 0;
      expect_written(model_, numbers(other == 1 ? 4 : 0, 6), heard[other]);
      const Heard& cancelled = heard[whom - 1];
      EXPECT_EQ(cancelled.over, 1);
      EXPECT_EQ(cancelled.called_when_over, 0);
      EXPECT_LT(cancelled.done.size(), 6u);
      EXPECT_LE(cancelled.done.size() + cancelled.stopped.size(), cancelled.begun.size());
    }
  }
}

TEST_F(LaneListeners, AListenerStopsItsSubmissionAfterAPass) {
  Heard a, b;
  submit(1, numbers(0, 5), a).stop_at = 4;
  submit(2, numbers(2, 2), b);
  run();
  EXPECT_EQ(a.passes, 4);
  EXPECT_EQ(a.done.size() + a.stopped.size(), a.begun.size());
  EXPECT_FALSE(a.stopped.empty());
  expect_written(model_, numbers(2, 2), b);
}

TEST_F(LaneListeners, AListenerThatThrowsCostsItsSubmissionAlone) {
  for (const char* where :
       {"next", "on_slot", "on_pass", "on_tokens", "on_done", "on_over", "on_stopped"}) {
    SCOPED_TRACE(where);
    Heard a, b;
    int thrown = 0, calls = 0;
    const bool stops = std::string(where) == "on_stopped";
    submit(1, numbers(0, 5), a, [&, where](const char* call, std::size_t) {
      const int most = std::string(where) == "on_over" || stops ? 1 : 3;
      if (std::string(call) == where && ++calls == most) throw std::runtime_error(where);
    }).stop_at = stops ? 3 : 0;
    submit(2, numbers(3, 5), b);
    for (int steps = 0; !lane_->idle(); ++steps) {
      ASSERT_LT(steps, 1000);
      try {
        lane_->step(Wait::kYes);
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), where);
        ++thrown;
        EXPECT_FALSE(lane_->has({1})) << "it is over when its error is thrown";
      }
    }
    EXPECT_EQ(thrown, 1);
    EXPECT_EQ(a.over, 1);
    EXPECT_EQ(a.called_when_over, 0);
    EXPECT_TRUE(stops || a.stopped.empty()) << "its own error is thrown";
    expect_written(model_, numbers(3, 5), b);
  }
}

// A submission may begin in any call of another one.
TEST_F(LaneListeners, ListenersSubmitMore) {
  for (const char* where : {"next", "on_slot", "on_pass", "on_tokens", "on_done", "on_over"}) {
    SCOPED_TRACE(where);
    std::deque<Heard> more;
    Heard a;
    submit(1, numbers(0, 4), a, [&, where](const char* call, std::size_t) {
      if (std::string(call) != where || more.size() == 20) return;
      submit(10 + more.size(), {3, 6}, more.emplace_back());
    });
    run();
    expect_written(model_, numbers(0, 4), a);
    EXPECT_FALSE(more.empty());
    for (const Heard& one : more) expect_written(model_, {3, 6}, one);
  }
}

TEST_F(LaneListeners, QueuedSubmissionsAreNotifiedAndStopToo) {
  make({.slots = 1});
  std::deque<Heard> heard(60);
  int stopped = -1;
  for (int i = 0; i < 60; ++i) {
    submit(static_cast<std::uint64_t>(i) + 1, {0, 1}, heard[static_cast<std::size_t>(i)],
           [&stopped, i](const char* call, std::size_t) {
             if (i == 59 && std::string(call) == "on_pass") throw std::runtime_error("enough");
             if (i == 59 && std::string(call) == "next") stopped = i;
           });
  }
  int thrown = 0;
  for (int steps = 0; !lane_->idle(); ++steps) {
    ASSERT_LT(steps, 5000);
    try {
      lane_->step(Wait::kYes);
    } catch (const std::runtime_error&) {
      ++thrown;
      EXPECT_LT(steps, 20) << "while it was queued";
    }
  }
  EXPECT_EQ(thrown, 1);
  EXPECT_EQ(stopped, -1) << "it was never asked";
  EXPECT_EQ(heard[59].over, 1);
  for (std::size_t i = 0; i < 59; ++i) expect_written(model_, {0, 1}, heard[i]);
}

TEST_F(LaneListeners, AnErrorOfTheModelIsHeardByAll) {
  Heard a, b;
  submit(1, {0, 1}, a);
  submit(2, {2}, b);
  model_.broken = true;
  EXPECT_THROW(lane_->step(Wait::kNo), Error);
  EXPECT_TRUE(lane_->idle());
  for (const Heard* heard : {&a, &b}) {
    EXPECT_EQ(heard->over, 1);
    EXPECT_EQ(heard->codes, (std::vector<std::string>{"E_TEST_BROKEN"}));
  }
  EXPECT_FALSE(lane_->has({1}));
}

TEST_F(LaneListeners, EndIsAtOnceAndLeavesOthersAlone) {
  Heard a, b, queued;
  submit(1, numbers(0, 4), a, [](const char* call, std::size_t) {
    if (std::string(call) == "on_stopped") throw std::runtime_error("nobody hears it");
  });
  submit(2, numbers(4, 3), b);
  for (int i = 0; i < 3; ++i) lane_->step(Wait::kNo);
  const std::int64_t passes = lane_->stats().passes;
  submit(3, {0}, queued);
  for (const std::uint64_t ticket : {1, 3, 7}) lane_->end({ticket});
  EXPECT_EQ(lane_->stats().passes, passes);
  EXPECT_EQ(a.over, 1);
  EXPECT_EQ(queued.over, 1);
  EXPECT_FALSE(lane_->has({1}));
  EXPECT_FALSE(lane_->has({3}));
  EXPECT_EQ(lane_->stats().slots_taken, 1);
  run();
  EXPECT_EQ(a.called_when_over, 0);
  expect_written(model_, numbers(4, 3), b);
}

}  // namespace
}  // namespace tessera::lane_listeners_test
