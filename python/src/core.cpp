#include "python/src/core.h"

#include <algorithm>

#include <unistd.h>

namespace tessera_python {

void refuse(std::string code, std::string where, std::string expected, std::string found,
            std::string hint) {
  throw tessera::Error({.kind = tessera::ErrorKind::kUsage,
                        .code = std::move(code),
                        .where = std::move(where),
                        .expected = std::move(expected),
                        .found = std::move(found),
                        .hint = std::move(hint)});
}

Core::Core(const std::string& prefix)
    : runtime_(std::make_unique<tessera::Runtime>(tessera::RuntimeOptions{.prefix = prefix})),
      thread_(std::this_thread::get_id()),
      process_(::getpid()) {}

// A child of fork() has none of the threads that an end waits for.
Core::~Core() {
  if (::getpid() != process_) static_cast<void>(runtime_.release());
}

bool Core::owned() const { return std::this_thread::get_id() == thread_ && ::getpid() == process_; }

tessera::Runtime& Core::runtime() {
  if (!owned()) {
    const bool forked = ::getpid() != process_;
    refuse("E_RUNTIME_THREAD", "runtime", "the thread that made the runtime",
           forked ? "a child of fork()" : "another thread",
           forked ? "make a runtime in each process" : "tessera.aio has a thread of its own");
  }
  if (runtime_ == nullptr)
    refuse("E_RUNTIME_CLOSED", "runtime", "a runtime that is open", "a closed one");
  return *runtime_;
}

void Core::close() {
  if (runtime_ == nullptr) return;
  runtime();  // may refuse
  for (const auto& request : requests_) request->over = true;
  requests_.clear();
  runtime_.reset();
}

void Core::keep(std::shared_ptr<RequestState> request) { requests_.push_back(std::move(request)); }

void Core::drop(const std::shared_ptr<RequestState>& request) {
  if (!owned()) {
    const std::lock_guard lock(mutex_);
    dropped_.push_back(request);
    return;
  }
  request->over = true;
  request->events.clear();
  if (runtime_ != nullptr) runtime_->cancel(request->ticket);
  std::erase(requests_, request);
}

void Core::drop_pending() {
  std::vector<std::shared_ptr<RequestState>> dropped;
  {
    const std::lock_guard lock(mutex_);
    dropped.swap(dropped_);
  }
  for (const auto& request : dropped) drop(request);
}

// Notes which requests are over. `why`: what ended those that nothing was said of.
void Core::sweep(const tessera::Error* why) {
  std::erase_if(requests_, [&](const std::shared_ptr<RequestState>& request) {
    if (!runtime_->over(request->ticket)) return false;
    request->over = true;
    if (why != nullptr) request->events.push_back({0, Failure{*why}});
    return true;
  });
}

void Core::run(const std::vector<std::shared_ptr<RequestState>>& awaited, double seconds) {
  tessera::Runtime& runtime = this->runtime();
  drop_pending();
  const auto news = [&] {
    return std::any_of(awaited.begin(), awaited.end(), [&](const auto& request) {
      return !request->events.empty() || request->progress || request->over ||
             runtime.over(request->ticket);
    });
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  bool more = true;
  while (more && !news() && std::chrono::steady_clock::now() < end) {
    try {
      more = runtime.step();
    } catch (const tessera::Error& error) {
      const std::size_t before = requests_.size();
      sweep(&error);
      if (requests_.size() == before) throw;  // no request was to blame
    }
  }
  sweep(nullptr);
}

}  // namespace tessera_python
