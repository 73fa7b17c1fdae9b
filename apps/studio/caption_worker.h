// The thread that describes images, one text after the other, each told of as it grows. It works
// next to the generation thread: the two share the cores.
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "apps/studio/describer.h"
#include "apps/studio/event_queue.h"

namespace tessera {

class CaptionWorker {
 public:
  static constexpr std::size_t kMaxQueued = 1000;  // each is looked up among all

  // `model`: where a command names none. The queue of events is borrowed and must be closed before
  // the worker ends.
  CaptionWorker(std::unique_ptr<Describer> describer, std::string model, EventQueue& events);
  // Leaves the text at work after its pass; queued images are gone.
  ~CaptionWorker();
  // The same without waiting.
  void end();
  CaptionWorker(const CaptionWorker&) = delete;

  // All images or, when there is no room, none.
  bool queue(const CaptionCommand& command);
  // The text at work is finished; all other images are gone, also those read ahead.
  void stop();

 private:
  using Setup = CaptionSetup;
  struct Job {
    std::uint64_t number = 0;  // the same image may be asked for twice
    std::filesystem::path image;
    std::string prompt;
    Setup setup;
  };
  class Listener;

  void work();
  bool run(const Setup& setup);
  void drop_begun();
  void fail_all(const Setup& setup, const ErrorInfo& error);
  std::optional<Job> take(const Setup& setup);
  std::optional<DescribeRequest> next(const Setup& setup);
  void tell(const CaptionEntry& entry) { events_.push(CaptionEvent{entry}); }

  std::string model_;
  EventQueue& events_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool ending_ = false, stopping_ = false;
  std::uint64_t last_number_ = 0;
  std::map<std::string, CaptionEntry> begun_;  // by number, of images that are read or written
  std::unique_ptr<Describer> describer_;  // of the thread alone
  std::thread thread_;
};

}  // namespace tessera
