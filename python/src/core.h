// A runtime as Python has it, and the requests in it. Callbacks of the library put events into the
// request that they are of; nothing of Python is called within a step.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include <sys/types.h>

#include <tessera/tessera.h>

namespace tessera_python {

struct Text {
  std::string utf8;
};
struct Notice {
  std::string utf8;
};
// What ended the whole submission.
struct Failure {
  tessera::Error error;
};
struct Frame {
  std::int64_t index = 0;
  tessera::Image image;
};
// An image on its way.
struct Partial {
  tessera::Image image;
};

using Payload = std::variant<Text, Notice, Failure, Frame, Partial, tessera::Progress,
                             tessera::Error, tessera::GeneratedImage, tessera::GeneratedVideo,
                             tessera::Description, tessera::Completion, tessera::Answer>;

struct Event {
  std::size_t place = 0;  // among the requests of one submission
  Payload payload;
};

// What callbacks write and Python takes. Only the thread of the runtime touches it, `stop` apart.
struct RequestState {
  std::deque<Event> events;
  std::optional<tessera::Progress> progress;  // the latest one that nobody took
  bool wants_progress = false;
  std::atomic<bool> stop = false;
  bool over = false;
  tessera::Ticket ticket;
};

// One thread of one process owns it; drop() alone may come from others.
class Core {
 public:
  explicit Core(const std::string& prefix);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Error kUsage: E_RUNTIME_THREAD for a thread that does not own it, E_RUNTIME_CLOSED after
  // close().
  tessera::Runtime& runtime();
  bool open() const { return runtime_ != nullptr; }
  void close();

  void keep(std::shared_ptr<RequestState> request);
  // Steps until one of these has an event or is over, or so many seconds are gone.
  void run(const std::vector<std::shared_ptr<RequestState>>& awaited, double seconds);
  // At once by the thread that owns the runtime, else before the next step.
  void drop(const std::shared_ptr<RequestState>& request);

 private:
  bool owned() const;
  void drop_pending();
  void sweep(const tessera::Error* why);

  std::unique_ptr<tessera::Runtime> runtime_;
  std::thread::id thread_;
  pid_t process_;
  std::vector<std::shared_ptr<RequestState>> requests_;  // that are not over
  std::mutex mutex_;
  std::vector<std::shared_ptr<RequestState>> dropped_;  // by other threads
};

// A request in the hands of Python: it ends with its handle.
class Request {
 public:
  Request(std::shared_ptr<Core> core, std::shared_ptr<RequestState> state)
      : core_(std::move(core)), state_(std::move(state)) {}
  ~Request() { cancel(); }
  Request(Request&&) = default;
  Request& operator=(Request&&) = delete;

  void cancel() {
    if (state_ != nullptr && !state_->over) core_->drop(state_);
  }
  void stop() { state_->stop = true; }
  const std::shared_ptr<RequestState>& state() const { return state_; }

 private:
  std::shared_ptr<Core> core_;
  std::shared_ptr<RequestState> state_;
};

[[noreturn]] void refuse(std::string code, std::string where, std::string expected,
                         std::string found, std::string hint = {});

}  // namespace tessera_python
