// Several lanes in one runtime: turns, tickets, room that lanes make for one another.
#include <gtest/gtest.h>

#include "tests/unit/runtime/lane_run.h"

namespace tessera::runtime_lanes_test {
namespace {

class RuntimeLanes : public StreamLanes {};

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

TEST_F(RuntimeLanes, ARuntimeStepsItsLanesInTurns) {
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

TEST_F(RuntimeLanes, ARuntimeCancelsByTicket) {
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
TEST_F(RuntimeLanes, RoomIsMadeByIdleLanesAndWaitedForWhereOthersWork) {
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
TEST_F(RuntimeLanes, LanesOnOtherDevicesAreNotWaitedFor) {
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
TEST_F(RuntimeLanes, FinishEndsItsOwnWhereAnotherFails) {
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
}  // namespace tessera::runtime_lanes_test
