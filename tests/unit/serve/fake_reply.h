// Where an answer goes in tests: waited for, looked at.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/serve/http/message.h"
#include "engine/core/json.h"

namespace tessera::testing {

class FakeReply final : public HttpReply {
 public:
  struct Event {
    std::string name, data;
  };

  void send(HttpAnswer answer) override {
    const std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
    over_ = true;
    changed_.notify_all();
  }
  void begin_events(HttpFields) override {}
  void event(std::string_view name, std::string_view data) override {
    const std::lock_guard lock(mutex_);
    events_.push_back({std::string(name), std::string(data)});
    changed_.notify_all();
  }
  void end() override {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  void on_gone(std::function<void()> call) override {
    const std::lock_guard lock(mutex_);
    call_ = std::move(call);
  }
  bool gone() const override { return false; }

  // The client goes.
  void leave() {
    std::function<void()> call;
    {
      const std::lock_guard lock(mutex_);
      call = call_;
    }
    if (call) call();
  }
  bool wait(double seconds = 60) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return over_; });
  }
  bool wait_for_event(double seconds = 60) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                             [&] { return over_ || !events_.empty(); });
  }
  bool over() const {
    const std::lock_guard lock(mutex_);
    return over_;
  }
  int status() const { return answer_.status; }
  const HttpAnswer& answer() const { return answer_; }
  Json json() const { return Json::parse(answer_.body, nullptr, false); }
  std::vector<Event> events() const {
    const std::lock_guard lock(mutex_);
    return events_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  HttpAnswer answer_;
  std::vector<Event> events_;
  std::function<void()> call_;
  bool over_ = false;
};

}  // namespace tessera::testing
