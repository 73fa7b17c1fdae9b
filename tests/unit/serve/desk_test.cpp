// The queue: turns, slots, ends of every kind, models that come and go.
#include "apps/serve/desk.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>

namespace tessera::desk_test {
namespace {

using namespace std::chrono_literals;

// Results by the name of their order, in the order in which they end.
class Log {
 public:
  void add(const std::string& name, std::string result) {
    const std::lock_guard lock(mutex_);
    ended_.push_back(name);
    results_[name] = std::move(result);
    changed_.notify_all();
  }
  bool wait(std::size_t count, double seconds = 60) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                             [&] { return ended_.size() >= count; });
  }
  std::vector<std::string> ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  std::string result(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return results_[name];
  }
  std::atomic<int> begun = 0, at_once = 0, most = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> ended_;
  std::map<std::string, std::string> results_;
};

class Listener final : public OrderListener {
 public:
  Listener(Log& log, std::string name) : log_(log), name_(std::move(name)) {}
  void on_begin() override {
    ++log_.begun;
    log_.most = std::max<int>(log_.most, ++log_.at_once);
  }
  void on_image(api::GeneratedImage&& made) override {
    --log_.at_once;
    log_.add(name_, made.png());
  }
  void on_error(const api::Error& error) override { log_.add(name_, error.code()); }

 private:
  Log& log_;
  std::string name_;
};

Order order_of(Log& log, const std::string& client, std::uint64_t seed, api::Settings open = {},
               const std::string& model = "test:tiny") {
  return {.client = client,
          .model = model,
          .task = api::Task::kImage,
          .open = std::move(open),
          .request = api::ImageRequest{.prompt = "a cube", .seed = seed},
          .listener = std::make_shared<Listener>(log, client + std::to_string(seed))};
}

std::vector<std::uint64_t> add(Desk& desk, Order order) {
  std::vector<Order> orders;
  orders.push_back(std::move(order));
  return desk.add(std::move(orders));
}

DeskOptions options(std::int64_t slots = 1) {
  return {.models = {"test:tiny"}, .open = {.threads = 1, .slots = slots}};
}

std::string alone(std::uint64_t seed) {
  api::Runtime runtime;
  return runtime.generate(runtime.open({"test:tiny"}), {.prompt = "a cube", .seed = seed}).png();
}

template <typename Condition>
bool soon(const Condition& condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return condition();
}

bool empty(const Desk& desk) {
  const DeskStats stats = desk.stats();
  return stats.waiting + stats.at_work == 0;
}

TEST(Desk, ClientsTakeTurns) {
  Log log;
  Desk desk(options());
  std::vector<Order> orders;
  for (std::uint64_t seed = 0; seed < 30; ++seed) orders.push_back(order_of(log, "a", seed));
  desk.add(std::move(orders));
  ASSERT_TRUE(log.wait(1));
  for (std::uint64_t seed = 0; seed < 4; ++seed) add(desk, order_of(log, "b", seed));
  ASSERT_TRUE(log.wait(34));
  const auto ended = log.ended();
  std::size_t last_b = 0, of_a = 0;
  for (std::size_t i = 0; i < ended.size(); ++i) {
    if (ended[i][0] == 'b') last_b = i;
  }
  for (std::size_t i = 0; i < last_b; ++i) of_a += ended[i][0] == 'a' ? 1 : 0;
  EXPECT_LE(of_a, 15u) << "whoever came later waits for turns, not for the whole line";
  // Each client's own are in order.
  std::vector<std::string> a;
  for (const std::string& name : ended) {
    if (name[0] == 'a') a.push_back(name);
  }
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i], "a" + std::to_string(i));
  EXPECT_EQ(log.most, 1);
}

TEST(Desk, OrdersFillTheSlotsAndAreWhatTheyAreAlone) {
  Log log;
  Desk desk(options(4));
  for (std::uint64_t seed = 0; seed < 12; ++seed) add(desk, order_of(log, "a", seed));
  ASSERT_TRUE(log.wait(12));
  EXPECT_EQ(log.most, 4);
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    EXPECT_TRUE(log.result("a" + std::to_string(seed)) == alone(seed)) << seed;
  }
  EXPECT_TRUE(soon([&] { return empty(desk); }));
  EXPECT_EQ(desk.stats().done, 12u);
}

TEST(Desk, AFullQueueRefusesAllOfARequest) {
  Log log;
  DeskOptions few = options();
  few.max_waiting = 3;
  Desk desk(few);
  std::vector<Order> orders;
  for (std::uint64_t seed = 0; seed < 4; ++seed) orders.push_back(order_of(log, "a", seed));
  try {
    desk.add(std::move(orders));
    FAIL() << "taken";
  } catch (const api::Error& error) {
    EXPECT_EQ(error.code(), "E_QUEUE_FULL");
  }
  add(desk, order_of(log, "a", 9));
  ASSERT_TRUE(log.wait(1));
  EXPECT_EQ(log.ended(), std::vector<std::string>{"a9"});
  EXPECT_EQ(desk.stats().refused, 1u);
}

TEST(Desk, CancelledOrdersGiveTheirSlotsBack) {
  Log log;
  Desk desk(options(2));
  std::mt19937 random(3);
  std::set<std::string> kept;
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const auto number = add(desk, order_of(log, "a", seed)).front();
    if (random() % 3 == 0) {
      kept.insert("a" + std::to_string(seed));
    } else {
      numbers.push_back(number);
    }
    // Some of them wait, some are at work, some are over.
    if (random() % 4 == 0) std::this_thread::sleep_for(2ms);
    if (numbers.size() > 5 && random() % 2 == 0) {
      desk.cancel(numbers[random() % numbers.size()]);
    }
  }
  for (const std::uint64_t number : numbers) desk.cancel(number);
  ASSERT_TRUE(soon([&] { return empty(desk); }));
  const auto ended = log.ended();
  EXPECT_EQ(std::set(ended.begin(), ended.end()).size(), ended.size()) << "each ends once";
  for (const std::string& name : kept) {
    EXPECT_TRUE(log.result(name) == alone(std::stoull(name.substr(1)))) << name;
  }
  const DeskStats stats = desk.stats();
  EXPECT_EQ(stats.done + stats.cancelled, 120u);
  EXPECT_EQ(stats.failed, 0u);
}

TEST(Desk, OrdersThatTakeTooLongFail) {
  Log log;
  DeskOptions short_time = options();
  short_time.seconds = 0.02;
  Desk desk(short_time);
  for (std::uint64_t seed = 0; seed < 40; ++seed) add(desk, order_of(log, "a", seed));
  ASSERT_TRUE(log.wait(40));
  EXPECT_EQ(log.result("a39"), "E_TIMEOUT");
  EXPECT_TRUE(soon([&] { return empty(desk); }));
}

TEST(Desk, AnOrderThatCannotBeFailsAlone) {
  Log log;
  Desk desk(options());
  Order bad = order_of(log, "bad", 1);
  bad.request = api::ImageRequest{.prompt = ""};
  add(desk, std::move(bad));
  add(desk, order_of(log, "open", 1, {{"decode", "nothing"}}));
  add(desk, order_of(log, "task", 1));
  add(desk, order_of(log, "a", 1));
  ASSERT_TRUE(log.wait(4));
  EXPECT_EQ(log.result("bad1"), "E_PROMPT_EMPTY");
  EXPECT_EQ(log.result("open1"), "E_DECODE");
  EXPECT_TRUE(log.result("a1") == alone(1));
}

TEST(Desk, ModelsThatAreIdleMakeRoom) {
  Log log;
  DeskOptions small = options();
  small.models = {"test:tiny", "test:clip"};
  {
    api::Runtime runtime;
    const api::Model tiny = runtime.open({"test:tiny"}, {.threads = 1});
    small.memory = runtime.plan(tiny, api::ImageRequest{.prompt = "a cube"}).on_host + 4096;
  }
  Desk desk(small);
  for (std::uint64_t i = 0; i < 6; ++i) {
    add(desk, order_of(log, "a", i, i % 2 == 0 ? api::Settings{} : api::Settings{{"window", 1}}));
  }
  ASSERT_TRUE(log.wait(6));
  for (std::uint64_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(log.result("a" + std::to_string(i)) == alone(i)) << log.result("a" + std::to_string(i)).substr(0, 40);
  }
  EXPECT_EQ(desk.stats().open.size(), 1u);
  // What never fits is said.
  DeskOptions none = options();
  none.memory = 1000;
  Desk tight(none);
  add(tight, order_of(log, "never", 1));
  ASSERT_TRUE(log.wait(7));
  EXPECT_EQ(log.result("never1"), "E_SERVE_MEMORY");
}

TEST(Desk, MethodsOfClientsDoNotPileUp) {
  Log log;
  Desk desk(options());
  for (std::uint64_t i = 1; i <= 24; ++i) {
    add(desk, order_of(log, "a", i, {{"decode", "gumbel"}, {"window", static_cast<int>(i)}}));
  }
  ASSERT_TRUE(log.wait(24));
  EXPECT_LE(desk.stats().open.size(), 16u);
  for (std::uint64_t i = 1; i <= 24; ++i) {
    EXPECT_GT(log.result("a" + std::to_string(i)).size(), 100u);
  }
}

TEST(Desk, DrainingFinishesWhatThereIs) {
  Log log;
  Desk desk(options());
  for (std::uint64_t seed = 0; seed < 5; ++seed) add(desk, order_of(log, "a", seed));
  EXPECT_TRUE(desk.drain(60));
  EXPECT_EQ(log.ended().size(), 5u);
  try {
    add(desk, order_of(log, "a", 6));
    FAIL() << "taken";
  } catch (const api::Error& error) {
    EXPECT_EQ(error.code(), "E_DRAINING");
  }
  Desk busy(options());
  for (std::uint64_t seed = 0; seed < 250; ++seed) add(busy, order_of(log, "b", seed));
  EXPECT_FALSE(busy.drain(0.001));
}

TEST(Desk, TwoModelsOfOneNameAreRefused) {
  DeskOptions twice = options();
  twice.models = {"test:tiny", "test:tiny"};
  EXPECT_THROW(Desk desk(twice), api::Error);
}

}  // namespace
}  // namespace tessera::desk_test
