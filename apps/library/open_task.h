// A model that is open for one of the tasks, as the public headers see it.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include <tessera/runtime.h>

#include "apps/library/guard.h"
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
  virtual api::MemoryPlan plan(const api::ImageRequest&) const { refuse(api::Task::kImage); }
  virtual api::MemoryPlan plan(const api::VideoRequest&) const { refuse(api::Task::kVideo); }
  virtual api::MemoryPlan plan(const api::DescribeRequest&) const { refuse(api::Task::kDescribe); }
  virtual api::MemoryPlan plan(const api::CompleteRequest&) const { refuse(api::Task::kComplete); }
  virtual api::MemoryPlan plan(const api::AnswerRequest&) const { refuse(api::Task::kAnswer); }
  virtual Ticket submit(const api::ImageRequest&, api::ImageCallbacks) {
    refuse(api::Task::kImage);
  }
  virtual Ticket submit(const api::VideoRequest&, api::VideoCallbacks) {
    refuse(api::Task::kVideo);
  }
  virtual Ticket submit(const api::DescribeRequest&, api::DescribeCallbacks) {
    refuse(api::Task::kDescribe);
  }
  virtual Ticket submit(std::vector<api::DescribeRequest>, api::DescribeAllCallbacks) {
    refuse(api::Task::kDescribe);
  }
  virtual Ticket submit(const api::CompleteRequest&, api::CompleteCallbacks) {
    refuse(api::Task::kComplete);
  }
  virtual Ticket submit(const api::AnswerRequest&, api::AnswerCallbacks) {
    refuse(api::Task::kAnswer);
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
  [[noreturn]] void refuse(api::Task wanted) const;

  Runtime& runtime_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Forwarder>> kept_;  // by ticket
  std::vector<std::uint64_t> overs_;                                    // tickets of this step
};

}  // namespace tessera
