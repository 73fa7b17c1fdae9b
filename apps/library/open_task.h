// A model that is open for one of the tasks, as the public headers see it.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include <tessera/runtime.h>

#include "apps/library/guard.h"
#include "apps/library/installation.h"
#include "apps/runtime/runtime.h"

namespace tessera {

// Passes on what the runtime says of a request. Kept until the request is over.
class Forwarder {
 public:
  virtual ~Forwarder() = default;
  // Nothing is passed on from here on.
  void silence() { silent_ = true; }

 protected:
  bool silent() const { return silent_; }
  // The last call: it goes when the step is done.
  void end() { overs_->push_back(ticket_); }

 private:
  friend class OpenTask;
  bool silent_ = false;
  std::uint64_t ticket_ = 0;
  std::vector<std::uint64_t>* overs_ = nullptr;  // of its task
};

class OpenTask {
 public:
  explicit OpenTask(Runtime& runtime) : runtime_(runtime) {}
  virtual ~OpenTask() = default;
  OpenTask(const OpenTask&) = delete;
  OpenTask& operator=(const OpenTask&) = delete;

  virtual api::ModelInfo info() const = 0;
  // Those that the model was not opened for: Error kUsage (E_TASK).
  virtual api::MemoryPlan plan(const api::ImageRequest&) const { refuse("generates images"); }
  virtual api::MemoryPlan plan(const api::VideoRequest&) const { refuse("generates videos"); }
  virtual api::MemoryPlan plan(const api::DescribeRequest&) const { refuse("describes"); }
  virtual Ticket submit(const api::ImageRequest&, api::ImageCallbacks) {
    refuse("generates images");
  }
  virtual Ticket submit(const api::VideoRequest&, api::VideoCallbacks) {
    refuse("generates videos");
  }
  virtual Ticket submit(const api::DescribeRequest&, api::DescribeCallbacks) {
    refuse("describes");
  }

  // Ends a request, of which nothing more is heard. False: it is none of this task's.
  bool cancel(Ticket ticket);
  // Between two steps: forgets requests that are over; after an error also those that it ended.
  void sweep(bool after_error);

 protected:
  // `submit` gives the runtime the request with this listener.
  template <typename Kind, typename Submit>
  Ticket keep(std::unique_ptr<Kind> forwarder, const Submit& submit) {
    Kind& listener = *forwarder;
    const Ticket ticket = submit(listener);
    forwarder->ticket_ = ticket.number;
    forwarder->overs_ = &overs_;
    kept_[ticket.number] = std::move(forwarder);
    return ticket;
  }
  Runtime& runtime() const { return runtime_; }

 private:
  [[noreturn]] void refuse(const char* wanted) const;

  Runtime& runtime_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Forwarder>> kept_;  // by ticket
  std::vector<std::uint64_t> overs_;                                    // tickets of this step
};

// The runtime outlives the task. Errors of opening.
std::unique_ptr<OpenTask> open_image_task(Runtime& runtime, const Installation& place,
                                          const std::string& model,
                                          const api::OpenOptions& options);
std::unique_ptr<OpenTask> open_video_task(Runtime& runtime, const Installation& place,
                                          const std::string& model,
                                          const api::OpenOptions& options);
std::unique_ptr<OpenTask> open_describe_task(Runtime& runtime, const Installation& place,
                                             const std::string& model,
                                             const api::OpenOptions& options);

}  // namespace tessera
