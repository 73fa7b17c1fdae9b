// A lane of requests that a pipeline writes one after the other, each in one turn.
#pragma once

#include <deque>
#include <functional>

#include "apps/runtime/lane.h"
#include "apps/runtime/runtime.h"

namespace tessera {

class QueueLane final : public Lane {
 public:
  // Writes a request; `cancelled` becomes true while it is at work.
  using Run = std::function<void(const bool& cancelled)>;

  void submit(Ticket ticket, Run run) { queue_.push_back({ticket, std::move(run)}); }

  bool step(Wait) override {
    if (queue_.empty()) return false;
    struct Pop {
      std::deque<Entry>* queue;
      ~Pop() { queue->pop_front(); }
    } pop{&queue_};
    Entry& entry = queue_.front();  // stays where it is while others are added
    if (!entry.cancelled) entry.run(entry.cancelled);
    return true;
  }
  bool idle() const override { return queue_.empty(); }
  bool has(Ticket ticket) const override {
    for (const Entry& entry : queue_) {
      if (entry.ticket == ticket) return true;
    }
    return false;
  }
  void cancel(Ticket ticket) override {
    for (Entry& entry : queue_) {
      if (entry.ticket == ticket) entry.cancelled = true;
    }
  }
  void release() override {}
  LaneStats stats() const override {
    return {.submissions = static_cast<std::int64_t>(queue_.size())};
  }

 private:
  struct Entry {
    Ticket ticket;
    Run run;
    bool cancelled = false;
  };
  std::deque<Entry> queue_;
};

// A lane that takes part in a runtime for as long as it lives.
struct AttachedLane {
  explicit AttachedLane(Runtime& with) : runtime(with) { runtime.attach(lane); }
  ~AttachedLane() { runtime.detach(lane); }
  AttachedLane(const AttachedLane&) = delete;
  AttachedLane& operator=(const AttachedLane&) = delete;

  Ticket submit(QueueLane::Run run) {
    const Ticket ticket = runtime.next_ticket();
    lane.submit(ticket, std::move(run));
    return ticket;
  }

  Runtime& runtime;
  QueueLane lane;
};

}  // namespace tessera
