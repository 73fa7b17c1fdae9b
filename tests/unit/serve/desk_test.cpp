// The queue: whose turn it is, what is refused, cancelled and late, and that results depend on
// their orders alone.
#include <chrono>
#include <random>
#include <set>
#include <thread>

#include "tests/unit/serve/desk_run.h"

namespace tessera::desk_test {
namespace {

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

TEST(Desk, ModelsAreFoundByNameAndTask) {
  const DeskRun run(DeskRun::tiny({"test:none", "test:tiny", "test:clip"}));
  const Desk& desk = *run.desk;
  ASSERT_EQ(desk.models().size(), 3u);
  EXPECT_TRUE(desk.models()[0].tasks.empty());
  EXPECT_EQ(desk.models()[0].refusals.at(api::Task::kImage).kind, api::ErrorKind::kModel);
  EXPECT_EQ(desk.find("", api::Task::kImage)->name, "test:tiny");
  EXPECT_EQ(desk.find("", api::Task::kVideo)->name, "test:clip");
  EXPECT_EQ(desk.find("test:none", api::Task::kImage)->name, "test:none");
  EXPECT_EQ(desk.find("other", api::Task::kImage), nullptr);
  EXPECT_EQ(desk.find("", api::Task::kComplete), nullptr);
  EXPECT_EQ(desk.models()[1].tasks.at(api::Task::kImage).width, 32);
  EXPECT_FALSE(desk.models()[1].serves(api::Task::kVideo));
}

TEST(Desk, AliasesAreFurtherNames) {
  DeskOptions options = DeskRun::tiny({"test:tiny", "test:null"});
  options.aliases = {{"gpt-image-1", "test:null"}};
  const Desk desk(options);
  EXPECT_EQ(desk.find("gpt-image-1", api::Task::kImage), desk.find("test:null", api::Task::kImage));
  EXPECT_EQ(desk.find("gpt-image-2", api::Task::kImage), nullptr);
  for (const auto& [alias, name] : {std::pair{"", "test:tiny"}, {"a", "b"}, {"test:tiny", "test:null"}}) {
    options.aliases = {{alias, name}};
    EXPECT_THROW(Desk{options}, api::Error) << alias;
  }
}

TEST(Desk, TurnsGoRoundClients) {
  DeskRun run(DeskRun::tiny({"test:tiny"}, 1));
  Barrier barrier;
  run.stop_at(barrier);
  run.desk->add(run.some("a", 30));
  run.desk->add(run.some("b", 4));
  run.desk->add(run.some("c", 2));
  barrier.open();
  ASSERT_TRUE(run.all_over(37));
  const std::vector<std::string> begun = run.heard.begun_now();
  const std::vector<std::string> first = {"0 stop", "a 0", "b 0", "c 0", "a 1", "b 1",
                                          "c 1",    "a 2", "b 2", "a 3", "b 3", "a 4"};
  EXPECT_EQ(std::vector<std::string>(begun.begin(), begun.begin() + 12), first);
}

// One that names many users waits no shorter for it; its users take turns among themselves.
TEST(Desk, UsersOfAClientShareItsTurns) {
  DeskRun run(DeskRun::tiny({"test:tiny"}, 1));
  Barrier barrier;
  run.stop_at(barrier);
  run.desk->add(run.some("a", 3));
  const std::pair<const char*, const char*> orders[] = {
      {"b u0", "u"}, {"b u1", "u"}, {"b v0", "v"}, {"b w0", "w"}, {"b x0", "x"}};
  for (const auto& [name, user] : orders) run.add(run.order(name, 0, {}, "test:tiny", user));
  barrier.open();
  ASSERT_TRUE(run.all_over(9));
  const std::vector<std::string> begun = run.heard.begun_now();
  const std::vector<std::string> want = {"0 stop", "a 0", "b u0", "a 1", "b v0",
                                         "a 2",    "b w0", "b x0", "b u1"};
  EXPECT_EQ(begun, want);
}

// An order that no slot is free for holds up no other model's.
TEST(Desk, AFullModelHoldsUpNoOther) {
  DeskRun run(DeskRun::tiny({"test:tiny", "test:null"}, 1));
  Barrier barrier;
  run.stop_at(barrier);
  run.desk->add(run.some("a", 3));
  run.add(run.order("a other", 0, {}, "test:null"));
  barrier.open();
  ASSERT_TRUE(run.all_over(5));
  EXPECT_EQ(run.heard.begun_now()[1], "a other");
}

TEST(Desk, AFullQueueTakesAllOrNone) {
  DeskOptions options = DeskRun::tiny();
  options.max_waiting = 4;
  DeskRun run(options);
  Barrier barrier;
  run.stop_at(barrier);
  EXPECT_EQ(run.refused(run.some("a", 5)), "E_QUEUE_FULL");
  run.desk->add(run.some("a", 3));
  EXPECT_EQ(run.refused(run.some("b", 2)), "E_QUEUE_FULL");
  EXPECT_EQ(run.desk->stats().waiting, 3u);
  run.desk->add(run.some("c", 1));
  EXPECT_EQ(run.refused(run.some("b", 1)), "E_QUEUE_FULL");
  EXPECT_EQ(run.desk->stats().refused, 3u);
  EXPECT_GT(run.desk->wait_seconds(), 0);
  barrier.open();
  ASSERT_TRUE(run.all_over(5));
  ASSERT_TRUE(run.is_idle());
  EXPECT_EQ(run.desk->stats().done, 5u);
  EXPECT_EQ(run.desk->stats().taken, 5u);
  EXPECT_EQ(run.refused(run.some("b", 4)), "none");
  ASSERT_TRUE(run.all_over(9));
}

// One client leaves room in the queue for others, whatever users it names.
TEST(Desk, OneClientDoesNotFillTheQueue) {
  DeskOptions options = DeskRun::tiny();
  options.max_waiting = 4;
  options.max_waiting_each = 2;
  DeskRun run(options);
  Barrier barrier;
  run.stop_at(barrier);
  EXPECT_EQ(run.refused(run.some("a", 3)), "E_QUEUE_FULL");
  const std::uint64_t first = run.add(run.order("a 0", 0, {}, "test:tiny", "u"));
  run.add(run.order("a 1", 0, {}, "test:tiny", "v"));
  EXPECT_EQ(run.refused(run.some("a", 1)), "E_QUEUE_FULL");
  run.desk->add(run.some("b", 2));
  EXPECT_EQ(run.refused(run.some("c", 1)), "E_QUEUE_FULL");
  // One that leaves its line makes room, as one that begins does.
  run.desk->cancel(first);
  barrier.open();
  ASSERT_TRUE(run.is_idle());
  EXPECT_EQ(run.refused(run.some("a", 3)), "E_QUEUE_FULL");
  EXPECT_EQ(run.refused(run.some("a", 2)), "none");
  ASSERT_TRUE(run.is_idle());
  EXPECT_EQ(run.desk->stats().refused, 4u);
}

TEST(Desk, CancelledOrdersHearNothingMore) {
  DeskRun run;
  Barrier barrier, second;
  run.stop_at(barrier);
  const std::uint64_t waiting = run.add(run.order("a waiting"));
  run.desk->cancel(waiting);
  run.desk->cancel(waiting);
  run.desk->cancel(1000000);  // nobody's
  const std::uint64_t works = run.add(run.order("a works", 0, {.on_begin = [&] { second.wait(); }}));
  barrier.open();
  second.until_waiting();
  run.desk->cancel(works);
  second.open();
  ASSERT_TRUE(run.is_idle());
  EXPECT_EQ(run.heard.calls_of("a waiting"), 0);
  // The desk sees it after the step that it is at.
  EXPECT_LE(run.heard.calls_of("a works"), 3);
  EXPECT_EQ(run.heard.image_of("a works"), "none");
  EXPECT_EQ(run.desk->stats().cancelled, 2u);
  EXPECT_EQ(run.desk->stats().done, 1u);
  run.desk->cancel(works);  // over: no effect
  run.add(run.order("b", 3));
  ASSERT_TRUE(run.all_over(2));
  EXPECT_TRUE(run.heard.image_of("b") == image_alone(3));
  EXPECT_EQ(run.desk->stats().cancelled, 2u);
  EXPECT_TRUE(comes([&] { return run.heard.listeners == 0; }));
}

TEST(Desk, LateOrdersFailWhereverTheyAre) {
  DeskOptions options = DeskRun::tiny({"test:tiny"}, 1);
  options.seconds = 0.3;
  DeskRun run(options);
  std::vector<Order> both;  // of one deadline
  both.push_back(run.order("a slow", 0, {.on_progress = [] { sleep_for(0.02); }}));  // 1.3 s in all
  both.push_back(run.order("b waits"));
  run.desk->add(std::move(both));
  ASSERT_TRUE(run.all_over(2));
  EXPECT_EQ(run.heard.error_of("a slow"), "E_TIMEOUT");
  EXPECT_EQ(run.heard.error_of("b waits"), "E_TIMEOUT");
  EXPECT_LT(run.heard.calls_of("a slow"), 40);
  EXPECT_EQ(run.heard.calls_of("b waits"), 1);
  run.add(run.order("c"));
  ASSERT_TRUE(run.all_over(3));
  EXPECT_TRUE(run.heard.image_of("c") == image_alone(0));
  EXPECT_EQ(run.desk->stats().failed, 2u);
}

std::uint64_t plan_of(const std::string& model, const api::ImageRequest& request = {.prompt = "a red cube"}) {
  api::Runtime runtime;
  api::OpenOptions options;
  options.threads = 1;
  options.slots = 4;
  return runtime.plan(runtime.open({model}, options), request).on_host;
}

std::set<std::string> open_models(const Desk& desk) {
  std::set<std::string> out;
  for (const std::string& key : desk.stats().open) out.insert(key.substr(0, key.find('\n')));
  return out;
}

TEST(Desk, TheModelThatWasIdleLongestIsClosed) {
  const std::vector<std::string> models = {"test:tiny", "test:rows", "test:null"};
  std::uint64_t most = 0;  // of two of them, not of three
  for (const auto& [a, b] : {std::pair{0, 1}, {0, 2}, {1, 2}}) {
    most = std::max(most, plan_of(models[static_cast<std::size_t>(a)]) +
                              plan_of(models[static_cast<std::size_t>(b)]));
  }
  DeskOptions options = DeskRun::tiny(models);
  options.memory = most;
  DeskRun run(options);
  std::size_t count = 0;
  const auto use = [&](const std::string& model) {
    run.add(run.order("a " + std::to_string(count), count, {}, model));
    EXPECT_TRUE(run.all_over(++count));
    EXPECT_TRUE(run.heard.image_of("a " + std::to_string(count - 1)) == image_alone(count - 1, model));
  };
  use("test:tiny");
  use("test:rows");
  EXPECT_EQ(open_models(*run.desk), (std::set<std::string>{"test:tiny", "test:rows"}));
  use("test:tiny");
  use("test:null");
  EXPECT_EQ(open_models(*run.desk), (std::set<std::string>{"test:tiny", "test:null"}));
  use("test:rows");
  EXPECT_EQ(open_models(*run.desk), (std::set<std::string>{"test:null", "test:rows"}));
}

// One that is at work is not closed: who needs its memory waits.
TEST(Desk, AModelAtWorkIsNotClosed) {
  DeskOptions options = DeskRun::tiny({"test:tiny", "test:rows"});
  options.memory = std::max(plan_of("test:tiny"), plan_of("test:rows"));
  DeskRun run(options);
  Barrier barrier;
  run.stop_at(barrier);
  run.add(run.order("a", 1, {}, "test:rows"));
  run.add(run.order("b", 2));
  barrier.open();
  ASSERT_TRUE(run.all_over(3));
  EXPECT_EQ(run.heard.begun_now(), (std::vector<std::string>{"0 stop", "a", "b"}));
  EXPECT_TRUE(run.heard.image_of("a") == image_alone(1, "test:rows"));
}

// A model at work is not kept at work for ever by who comes later: those wait for who waits for memory.
TEST(Desk, WhoWaitsForMemoryIsNotPassedBy) {
  DeskOptions options = DeskRun::tiny({"test:tiny", "test:rows"});
  options.memory = std::max(plan_of("test:tiny"), plan_of("test:rows"));
  DeskRun run(options);
  Barrier barrier;
  run.stop_at(barrier);
  run.add(run.order("a 0", 1));
  run.add(run.order("b rows", 2, {}, "test:rows"));
  for (int i = 1; i < 8; ++i) run.add(run.order("a " + std::to_string(i), 1));
  barrier.open();
  ASSERT_TRUE(run.all_over(10));
  const std::vector<std::string> begun = run.heard.begun_now();
  EXPECT_LE(std::find(begun.begin(), begun.end(), "b rows") - begun.begin(), 3);
  EXPECT_EQ(run.heard.error_of("b rows"), "none");
}

// A request that is too large for the budget costs others nothing.
TEST(Desk, ATooLargeRequestFailsAlone) {
  const api::ImageRequest large = {.prompt = std::string(400, 'a')};
  DeskOptions options = DeskRun::tiny();
  options.memory = plan_of("test:tiny");
  ASSERT_GT(plan_of("test:tiny", large), options.memory);
  DeskRun run(options);
  Order order = run.order("a large");
  order.request = large;
  run.add(std::move(order));
  ASSERT_TRUE(run.all_over(1));
  EXPECT_EQ(run.heard.error_of("a large"), "E_SERVE_MEMORY");
  run.add(run.order("b", 4));
  ASSERT_TRUE(run.all_over(2));
  EXPECT_EQ(run.heard.error_of("b"), "none");
  EXPECT_TRUE(run.heard.image_of("b") == image_alone(4));
}

TEST(Desk, DrainFinishesWhatWasTaken) {
  DeskRun run;
  Barrier barrier;
  run.stop_at(barrier);
  run.desk->add(run.some("a", 6));
  std::thread opens([&] {
    EXPECT_TRUE(comes([&] { return run.refused(run.some("b", 1)) == "E_DRAINING"; }));
    barrier.open();
  });
  EXPECT_TRUE(run.desk->drain(60));
  opens.join();
  const DeskStats stats = run.desk->stats();
  EXPECT_GE(stats.done, 7u);
  EXPECT_EQ(stats.done, stats.taken);
  EXPECT_EQ(run.heard.images.size(), run.heard.over);
}

TEST(Desk, DrainEndsWhatTakesTooLong) {
  DeskRun run(DeskRun::tiny({"test:tiny"}, 1));
  run.add(run.order("a slow", 0, {.on_progress = [] { sleep_for(0.05); }}));  // 3 s in all
  run.add(run.order("b waits"));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(run.desk->drain(0.2));
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 2);
  EXPECT_EQ(run.heard.error_of("a slow"), "E_DRAINING");
  EXPECT_EQ(run.heard.error_of("b waits"), "E_DRAINING");
  EXPECT_EQ(run.refused(run.some("c", 1)), "E_DRAINING");
  EXPECT_EQ(run.desk->stats().waiting + run.desk->stats().at_work, 0u);
}

TEST(Desk, ADeskThatEndsLetsGoOfItsOrders) {
  DeskRun run;
  Barrier barrier;
  run.stop_at(barrier);
  run.desk->add(run.some("a", 6));
  std::thread opens([&] {
    sleep_for(0.1);
    barrier.open();
  });
  run.desk.reset();
  opens.join();
  EXPECT_EQ(run.heard.listeners, 0u);
  EXPECT_TRUE(run.heard.images.empty());
}

TEST(Desk, AListenerThatThrowsEndsItsOwnOrder) {
  DeskRun run;
  const auto throws = [] { throw std::runtime_error("secret"); };
  run.add(run.order("a begin", 0, {.on_begin = throws}));
  run.add(run.order("a progress", 0, {.on_progress = throws}));
  run.add(run.order("a image", 0, {.on_image = throws}));
  for (int i = 0; i < 4; ++i) {
    run.add(run.order("b " + std::to_string(i), static_cast<std::uint64_t>(i)));
  }
  ASSERT_TRUE(run.all_over(7));
  for (const char* name : {"a begin", "a progress", "a image"}) {
    EXPECT_EQ(run.heard.error_of(name), "E_INTERNAL") << name;
    EXPECT_TRUE(run.heard.image_of(name) == "none") << name;
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(run.heard.image_of("b " + std::to_string(i)) == image_alone(static_cast<std::uint64_t>(i)));
  }
  ASSERT_TRUE(run.is_idle());
  EXPECT_EQ(run.desk->stats().failed, 3u);
}

TEST(Desk, WrongRequestsFailAlone) {
  DeskRun run(DeskRun::tiny({"test:none", "test:tiny"}));
  Order setting = run.order("a setting");
  setting.open = {{"decode", "nonsense"}};
  Order value = run.order("a value");
  std::get<api::ImageRequest>(value.request).settings = {{"top-p", 7}};
  run.add(std::move(setting));
  run.add(std::move(value));
  run.add(run.order("a model", 0, {}, "test:none"));
  run.add(run.order("b", 5));
  ASSERT_TRUE(run.all_over(4));
  EXPECT_TRUE(run.heard.image_of("b") == image_alone(5));
  for (const char* name : {"a setting", "a value", "a model"}) {
    EXPECT_NE(run.heard.error_of(name), "none") << name;
  }
  EXPECT_EQ(open_models(*run.desk), (std::set<std::string>{"test:tiny"}));
  EXPECT_EQ(run.heard.begun_now(), (std::vector<std::string>{"b"}));
}

// Many threads add and cancel: whatever is answered is what the order alone gives.
TEST(Desk, ResultsUnderLoadAreThoseOfEachOrderAlone) {
  constexpr std::uint64_t kSeeds = 5;
  std::vector<std::string> alone;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) alone.push_back(image_alone(seed));
  DeskOptions options = DeskRun::tiny({"test:tiny", "test:null"}, 3);
  options.max_waiting = 1000;
  DeskRun run(options);
  std::vector<std::thread> clients;
  std::atomic<std::uint64_t> cancels = 0;
  for (unsigned number = 0; number < 4; ++number) {
    clients.emplace_back([&, number] {
      std::mt19937 random(number);
      for (int i = 0; i < 60; ++i) {
        const std::uint64_t seed = random() % kSeeds;
        const std::string name = std::to_string(number) + " " + std::to_string(i) + " " + std::to_string(seed);
        Order order = run.order(name, seed, {}, i % 5 == 4 ? "test:null" : "test:tiny");
        if (i % 7 == 3) order.open = {{"decode", "gumbel"}};  // identical: the same image
        const std::uint64_t ticket = run.add(std::move(order));
        if (random() % 3 > 0) continue;
        sleep_for(0.001 * static_cast<double>(random() % 20));
        run.desk->cancel(ticket);
        ++cancels;
      }
    });
  }
  for (std::thread& one : clients) one.join();
  ASSERT_TRUE(run.is_idle());
  const DeskStats stats = run.desk->stats();
  EXPECT_EQ(stats.taken, 240u);
  EXPECT_EQ(stats.done + stats.cancelled, 240u);
  EXPECT_LE(stats.cancelled, cancels);
  EXPECT_GT(stats.cancelled, 0u);
  EXPECT_EQ(run.heard.images.size(), stats.done);
  EXPECT_TRUE(run.heard.errors.empty());
  for (const auto& [name, png] : run.heard.images) {
    const std::uint64_t seed = std::stoul(name.substr(name.rfind(' ') + 1));
    const int i = std::stoi(name.substr(2));
    if (i % 5 == 4 || i % 7 == 3) continue;  // other models, other records
    EXPECT_TRUE(png == alone[seed]) << name;
  }
  EXPECT_TRUE(comes([&] { return run.heard.listeners == 0; }));
}

TEST(Desk, MethodsOfClientsDoNotPileUp) {
  DeskRun run(DeskRun::tiny({"test:tiny"}, 1));
  for (int i = 1; i <= 24; ++i) {
    Order order = run.order("a " + std::to_string(i), 1);
    order.open = {{"decode", "gumbel"}, {"window", i}};
    run.add(std::move(order));
  }
  ASSERT_TRUE(run.all_over(24));
  EXPECT_LE(run.desk->stats().open.size(), 16u);
  for (int i = 1; i <= 24; ++i) EXPECT_GT(run.heard.image_of("a " + std::to_string(i)).size(), 100u);
}

TEST(Desk, OneModelTwiceIsRefused) {
  EXPECT_THROW(Desk desk(DeskRun::tiny({"test:tiny", "test:tiny"})), api::Error);
}

}  // namespace
}  // namespace tessera::desk_test
