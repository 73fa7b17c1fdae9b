// Orders at a desk, and what their listeners heard.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "apps/serve/desk.h"
#include "tests/support/http_client.h"  // comes()

namespace tessera {

// Of all orders of one test, by a name for each.
struct Heard {
  std::mutex mutex;
  std::vector<std::string> begun;                   // in their order
  std::map<std::string, std::string> images;        // PNG files
  std::map<std::string, api::ErrorFacts> errors;
  std::map<std::string, int> calls;                 // of any kind
  std::atomic<std::size_t> over = 0, listeners = 0;

  std::vector<std::string> begun_now() {
    const std::lock_guard lock(mutex);
    return begun;
  }
  std::string error_of(const std::string& name) {
    const std::lock_guard lock(mutex);
    return errors.contains(name) ? errors.at(name).code : "none";
  }
  std::string image_of(const std::string& name) {
    const std::lock_guard lock(mutex);
    return images.contains(name) ? images.at(name) : "none";
  }
  int calls_of(const std::string& name) {
    const std::lock_guard lock(mutex);
    return calls[name];
  }
};

class Listener : public OrderListener {
 public:
  struct Hooks {
    std::function<void()> on_begin = {}, on_progress = {}, on_image = {};
  };
  Listener(Heard& heard, std::string name, Hooks hooks)
      : heard_(heard), name_(std::move(name)), hooks_(std::move(hooks)) {
    ++heard_.listeners;
  }
  ~Listener() override { --heard_.listeners; }
  void on_begin() override {
    {
      const std::lock_guard lock(heard_.mutex);
      ++heard_.calls[name_];
      heard_.begun.push_back(name_);
    }
    if (hooks_.on_begin) hooks_.on_begin();
  }
  void on_progress(const api::Progress&) override {
    count();
    if (hooks_.on_progress) hooks_.on_progress();
  }
  void on_image(api::GeneratedImage&& made) override {
    count();
    if (hooks_.on_image) hooks_.on_image();
    {
      const std::lock_guard lock(heard_.mutex);
      heard_.images[name_] = made.png();
    }
    ++heard_.over;
  }
  void on_video(const api::GeneratedVideo&) override { ++heard_.over; }
  void on_error(const api::Error& error) override {
    {
      const std::lock_guard lock(heard_.mutex);
      ++heard_.calls[name_];
      EXPECT_FALSE(heard_.errors.contains(name_));
      heard_.errors[name_] = {.kind = error.kind(),
                              .code = error.code(),
                              .file = error.file(),
                              .where = error.where(),
                              .expected = error.expected(),
                              .found = error.found(),
                              .hint = error.hint()};
    }
    ++heard_.over;
  }

 private:
  void count() {
    const std::lock_guard lock(heard_.mutex);
    ++heard_.calls[name_];
  }
  Heard& heard_;
  std::string name_;
  Hooks hooks_;
};

// Holds up whoever waits until it is opened.
class Barrier {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    waits_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void until_waiting() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waits_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool waits_ = false, open_ = false;
};

struct DeskRun {
  static DeskOptions tiny(std::vector<std::string> models = {"test:tiny"}, std::int64_t slots = 4) {
    DeskOptions out;
    out.models = std::move(models);
    out.open.threads = 1;
    out.open.slots = slots;
    return out;
  }
  explicit DeskRun(DeskOptions options = tiny()) : desk(std::make_unique<Desk>(std::move(options))) {}

  Order order(const std::string& name, std::uint64_t seed = 0, Listener::Hooks hooks = {},
              const std::string& model = "test:tiny", const std::string& user = "") {
    return {.asker = {.client = name.substr(0, name.find(' ')), .user = user},
            .model = model,
            .request = api::ImageRequest{.prompt = "a red cube", .seed = seed},
            .listener = std::make_shared<Listener>(heard, name, std::move(hooks))};
  }
  std::uint64_t add(Order order) {
    std::vector<Order> one;
    one.push_back(std::move(order));
    return desk->add(std::move(one)).at(0);
  }
  // An order of the client "0" whose begin stops the desk until the barrier opens.
  void stop_at(Barrier& barrier) {
    add(order("0 stop", 0, {.on_begin = [&barrier] { barrier.wait(); }}));
    barrier.until_waiting();
  }
  bool all_over(std::size_t count) {
    return comes([&] { return heard.over >= count; }) && heard.over == count;
  }
  bool is_idle() {
    return comes([&] {
      const DeskStats stats = desk->stats();
      return stats.waiting + stats.at_work == 0;
    });
  }
  std::string refused(std::vector<Order> orders) {
    try {
      desk->add(std::move(orders));
    } catch (const api::Error& error) {
      return error.code();
    }
    return "none";
  }
  std::vector<Order> some(const std::string& client, int count) {
    std::vector<Order> out;
    for (int i = 0; i < count; ++i) out.push_back(order(client + " " + std::to_string(i)));
    return out;
  }

  Heard heard;  // outlives the desk
  std::unique_ptr<Desk> desk;
};

// The PNG file of a request alone.
inline std::string image_alone(std::uint64_t seed, const std::string& model = "test:tiny") {
  api::Runtime runtime;
  api::OpenOptions options;
  options.threads = 1;
  return runtime.generate(runtime.open({model}, options), {.prompt = "a red cube", .seed = seed}).png();
}

}  // namespace tessera
