#include "apps/studio/server_watch.h"

#include <chrono>

#include "apps/studio/boundary.h"

namespace tessera {

namespace {

constexpr auto kWatchPause = std::chrono::seconds(1);
constexpr double kWatchSeconds = 5;  // seconds for an answer

}  // namespace

ServerWatch::ServerWatch(ServerLink& server, EventQueue& events)
    : server_(server), events_(events), thread_([this] { work(); }) {}

ServerWatch::~ServerWatch() {
  end();
  thread_.join();
}

void ServerWatch::end() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  changed_.notify_all();
}

void ServerWatch::work() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    lock.unlock();
    std::string problem;
    try {
      look();
    } catch (const std::exception& error) {  // the boundary of one look
      there_ = false;
      const ErrorInfo info = info_of(error, "server");
      problem = info.code == "E_SERVER_GONE" ? "not there" : format_error(info);
    }
    if (!known_ || problem != last_problem_) {
      events_.push(ServerStateEvent{server_.url(), problem});
      if (!problem.empty() && !known_) events_.push(ModelsEvent{{}, ""});
    }
    known_ = true;
    last_problem_ = problem;
    lock.lock();
    changed_.wait_for(lock, kWatchPause, [&] { return ending_; });
  }
}

void ServerWatch::look() {
  const auto ends = [this] {
    const std::lock_guard lock(mutex_);
    return ending_;
  };
  if (there_) {
    server_.get("/health", kWatchSeconds, ends);
    return;
  }
  const std::string models = server_.get("/v1/models", kWatchSeconds, ends);
  if (models.empty()) return;  // it ends
  ServedModels served = read_models(models, server_.url());
  events_.push(ModelsEvent{std::move(served.images), std::move(served.first)});
  there_ = true;
}

}  // namespace tessera
