// Submissions through the slots of one loop: what is filled, in whose turn, what is dropped, and
// what becomes of listeners that throw and of memory that does not last. What a stream writes is
// what it writes alone, whatever happens to others.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/unit/runtime/lane_run.h"

namespace tessera::lane_test {
namespace {

std::vector<int> numbers(int first, int count) {
  std::vector<int> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

// Memory for so many bytes and no more.
struct TightHost final : LaneHost {
  RoomAnswer make_room(std::size_t bytes, const Backend&, const Lane&) override {
    return {bytes <= free ? Room::kYes : missing, free};
  }
  std::uint64_t free = 0;
  Room missing = Room::kNo;
};

class StreamLanes : public ::testing::Test {
 protected:
  static const TinyRun& tiny() {
    static const TinyRun run(1);
    return run;
  }
  void SetUp() override { make({.slots = 3}); }
  void make(const LaneOptions& options) {
    lane_.reset();
    lane_ = std::make_unique<StreamLane>(model_, host_, options);
  }
  // The submission stays readable until it is over.
  ListSubmission& submit(std::uint64_t ticket, std::vector<int> streams, Heard& heard,
                         ListSubmission::Spoil spoil = nullptr) {
    auto made = std::make_unique<ListSubmission>(tiny(), std::move(streams), heard, spoil);
    ListSubmission& out = *made;
    lane_->submit({ticket}, std::move(made));
    return out;
  }
  void run() {
    for (int steps = 0; !lane_->idle(); ++steps) {
      ASSERT_LT(steps, 5000) << "it does not end";
      lane_->step(Wait::kYes);
    }
    EXPECT_EQ(lane_->stats().slots_taken, 0);
    EXPECT_TRUE(lane_->loop() == nullptr || lane_->loop()->idle());
  }

  TinyLaneModel model_{tiny()};
  RoomyHost host_;
  std::unique_ptr<StreamLane> lane_;
};

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

TEST_F(StreamLanes, CancelBetweenStepsFreesSlotsAtOnce) {
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

TEST_F(StreamLanes, ListenersCancelThemselvesAndOthers) {
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

TEST_F(StreamLanes, AListenerStopsItsSubmissionAfterAPass) {
  Heard a, b;
  submit(1, numbers(0, 5), a).stop_at = 4;
  submit(2, numbers(2, 2), b);
  run();
  EXPECT_EQ(a.passes, 4);
  EXPECT_EQ(a.done.size() + a.stopped.size(), a.begun.size());
  EXPECT_FALSE(a.stopped.empty());
  expect_written(model_, numbers(2, 2), b);
}

TEST_F(StreamLanes, AListenerThatThrowsCostsItsSubmissionAlone) {
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
TEST_F(StreamLanes, ListenersSubmitMore) {
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

TEST_F(StreamLanes, WhereMemoryDoesNotLastFewerSlotsAreMade) {
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

TEST_F(StreamLanes, WhereFewerAreNotTakenMissingMemoryEndsTheSubmission) {
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

TEST_F(StreamLanes, AStreamThatFitsNowhereFailsAlone) {
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
TEST_F(StreamLanes, NoMoreThanTheNextStreamNeedsIsTriedBeforeFewerSlots) {
  model_.refused = [](const StreamLimits& limits) { return limits.prompt_rows > 5; };
  Heard heard;
  submit(1, {5, 0, 3}, heard).takes_fewer = true;
  run();
  EXPECT_EQ(heard.no_room, (std::vector<std::size_t>{2}));
  EXPECT_EQ(heard.done.size(), 2u);
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

TEST_F(StreamLanes, QueuedSubmissionsAreNotifiedAndStopToo) {
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

TEST_F(StreamLanes, AnErrorOfTheModelIsHeardByAll) {
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

TEST_F(StreamLanes, EndIsAtOnceAndLeavesOthersAlone) {
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

// Slots for streams to come are tried for, and cost nobody anything where there is no room.
TEST_F(StreamLanes, SlotsForStreamsToComeAreNotInsistedOn) {
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

// --- several lanes
// ---------------------------------------------------------------------------------

struct TwoLanes {
  explicit TwoLanes(const TinyRun& tiny) : first_model(tiny), second_model(tiny) {
    runtime.attach(first);
    runtime.attach(second);
  }
  ~TwoLanes() {
    runtime.detach(first);
    runtime.detach(second);
  }
  Ticket submit(StreamLane& lane, const TinyRun& tiny, std::vector<int> streams, Heard& heard,
                ListSubmission::Spoil spoil = nullptr) {
    const Ticket ticket = runtime.next_ticket();
    lane.submit(ticket, std::make_unique<ListSubmission>(tiny, std::move(streams), heard, spoil));
    return ticket;
  }
  // Bytes that the second lane finds free while the first one has a loop, and while it has none.
  std::uint64_t free_next_to = std::uint64_t{1} << 62, free_alone = std::uint64_t{1} << 62;

  TinyLaneModel first_model, second_model;
  Runtime runtime{[this]() -> std::optional<std::uint64_t> {
    return first.loop() != nullptr ? free_next_to : free_alone;
  }};
  StreamLane first{first_model, runtime, {.slots = 2}}, second{second_model, runtime, {.slots = 2}};
};

TEST_F(StreamLanes, SlotsThatOthersWantFailNobody) {
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
  // Its own wish still ends a submission that takes no fewer.
  Heard own;
  lane.set_slots(8);
  lane.submit({9}, std::make_unique<ListSubmission>(tiny(), numbers(0, 4), own));
  EXPECT_THROW(while (!lane.idle()) lane.step(Wait::kYes), Error);
  EXPECT_TRUE(own.done.empty());
}

TEST_F(StreamLanes, ARuntimeStepsItsLanesInTurns) {
  TwoLanes both(tiny());
  Heard a, b;
  std::string order;
  const auto noting = [&](char who) {
    return [&order, who](const char* call, std::size_t) {
      if (std::string(call) == "on_pass") order += who;
    };
  };
  const Ticket first = both.submit(both.first, tiny(), numbers(0, 4), a, noting('a'));
  const Ticket second = both.submit(both.second, tiny(), numbers(2, 4), b, noting('b'));
  EXPECT_TRUE(first);
  EXPECT_FALSE(first == second);
  both.runtime.finish(first);
  EXPECT_TRUE(both.runtime.over(first));
  EXPECT_EQ(order.find("aa"), std::string::npos);
  EXPECT_EQ(order.find("bb"), std::string::npos);
  while (both.runtime.step()) {
  }
  EXPECT_TRUE(both.runtime.over(second));
  expect_written(both.first_model, numbers(0, 4), a);
  expect_written(both.second_model, numbers(2, 4), b);
  const RuntimeStats stats = both.runtime.stats();
  EXPECT_EQ(stats.lanes, 2);
  EXPECT_EQ(stats.submitted, 2);
  EXPECT_EQ(stats.over, 2);
  EXPECT_EQ(stats.passes, both.first.stats().passes + both.second.stats().passes);
  EXPECT_EQ(stats.slot_passes, 2 * static_cast<std::uint64_t>(stats.passes));
  EXPECT_GT(stats.slots_at_work, stats.slot_passes / 2);
}

TEST_F(StreamLanes, ARuntimeCancelsByTicket) {
  TwoLanes both(tiny());
  Heard a, b;
  both.submit(both.first, tiny(), numbers(0, 4), a);
  const Ticket second = both.submit(both.second, tiny(), numbers(2, 4), b);
  both.runtime.step();
  both.runtime.step();
  both.runtime.cancel(second);
  while (both.runtime.step()) {
  }
  expect_written(both.first_model, numbers(0, 4), a);
  EXPECT_EQ(b.over, 1);
  EXPECT_TRUE(b.done.empty());
  both.runtime.cancel(second);  // it is over
}

// More than any machine has: the lane that is idle gives its loop back, the one at work is waited
// for, and alone it is tried.
TEST_F(StreamLanes, RoomIsMadeByIdleLanesAndWaitedForWhereOthersWork) {
  TwoLanes both(tiny());
  Heard a, b, c;
  both.submit(both.first, tiny(), {0}, a);
  while (both.runtime.step()) {
  }
  ASSERT_NE(both.first.loop(), nullptr);
  both.second_model.bytes_a_slot = std::size_t{1} << 30;
  both.free_next_to = std::uint64_t{1} << 29;
  both.submit(both.second, tiny(), {1}, b);
  while (both.runtime.step()) {
  }
  EXPECT_EQ(both.first.loop(), nullptr);
  expect_written(both.second_model, {1}, b);
  both.second.release();
  Heard waiting;
  both.submit(both.first, tiny(), numbers(0, 3), c);
  both.runtime.step();
  both.submit(both.second, tiny(), {1}, waiting, [&](const char* call, std::size_t) {
    EXPECT_TRUE(std::string(call) != "on_slot" || c.over == 1) << "the other one's loop is there";
  });
  while (both.runtime.step()) {
  }
  expect_written(both.first_model, numbers(0, 3), c);
  expect_written(both.second_model, {1}, waiting);
}

// Another device, which is only asked who it is.
class FarDevice final : public Backend {
 public:
  std::string name() const override { return "far:0"; }
  Device device() const override { return {DeviceKind::kCuda, 3}; }
  std::optional<DeviceMemory> memory() const override { return DeviceMemory{1, 1}; }
  ThreadPool& threads() override { return no<ThreadPool&>(); }
  Tensor allocate(DType, Shape) override { return no<Tensor>(); }
  void upload(ConstTensorView, TensorView) override { no<void>(); }
  void download(ConstTensorView, TensorView) override { no<void>(); }
  void copy(ConstTensorView, TensorView) override { no<void>(); }
  void synchronize() override { no<void>(); }
  LinearWeight pack_linear(std::span<const ConstTensorView>, DType) override {
    return no<LinearWeight>();
  }
  ConvWeight pack_conv(ConstTensorView, DType) override { return no<ConvWeight>(); }
  std::size_t packed_linear_bytes(std::int64_t, std::int64_t, DType) const override {
    return no<std::size_t>();
  }
  std::size_t packed_conv_bytes(const Shape&, DType) const override { return no<std::size_t>(); }
  void reserve_scratch(std::size_t) override { no<void>(); }
  std::size_t conv_scratch_bytes(const Conv2dArgs&) const override { return no<std::size_t>(); }
  std::size_t attention_scratch_bytes(std::int64_t, std::int64_t, std::int64_t) const override {
    return no<std::size_t>();
  }

 private:
  template <typename Result>
  static Result no() {
    throw std::logic_error("nothing is computed here");
  }
};

// What a lane on another device writes gives nothing back that is missing here.
TEST_F(StreamLanes, LanesOnOtherDevicesAreNotWaitedFor) {
  const FarDevice far;
  TwoLanes both(tiny());
  both.first_model.device = &far;
  both.free_next_to = both.free_alone = 1;
  both.second_model.bytes_a_slot = 2;
  both.first_model.bytes_a_slot = 0;
  Heard a, b;
  both.submit(both.first, tiny(), numbers(0, 3), a);
  both.runtime.step();
  ASSERT_TRUE(both.first.writing());
  const Ticket second = both.submit(both.second, tiny(), {1}, b);
  try {
    both.runtime.finish(second);
    ADD_FAILURE() << "there is no room";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_TEST_ROOM");
  }
  EXPECT_TRUE(both.first.writing()) << "it was not waited for";
  EXPECT_EQ(b.codes, (std::vector<std::string>{"E_TEST_ROOM"}));
  while (both.runtime.step()) {
  }
  expect_written(both.first_model, numbers(0, 3), a);
  EXPECT_NE(both.first.loop(), nullptr);
  Heard c;
  const Ticket third = both.submit(both.second, tiny(), {1}, c);
  EXPECT_THROW(both.runtime.finish(third), Error);
  EXPECT_NE(both.first.loop(), nullptr) << "an idle lane elsewhere keeps what it has";
}

// Whoever finishes one and hears another's error has nothing left in the runtime.
TEST_F(StreamLanes, FinishEndsItsOwnWhereAnotherFails) {
  TwoLanes both(tiny());
  Heard a, b, c;
  int calls = 0;
  both.submit(both.first, tiny(), numbers(0, 4), a, [&](const char* call, std::size_t) {
    if (std::string(call) == "on_pass" && ++calls == 2) throw std::runtime_error("a full disk");
  });
  const Ticket other = both.submit(both.second, tiny(), {2}, c);
  const Ticket own = both.submit(both.second, tiny(), numbers(0, 4), b);
  EXPECT_THROW(both.runtime.finish(own), std::runtime_error);
  EXPECT_TRUE(both.runtime.over(own));
  EXPECT_EQ(b.over, 1);
  EXPECT_FALSE(both.runtime.over(other)) << "the third one goes on";
  while (both.runtime.step()) {
  }
  EXPECT_EQ(b.called_when_over, 0);
  expect_written(both.second_model, {2}, c);
}

}  // namespace
}  // namespace tessera::lane_test
