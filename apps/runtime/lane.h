// One model with one method, written by one loop: takes submissions, fills the slots of the loop
// from them between two passes, in turns, and makes a loop with more room when a stream needs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "apps/runtime/queued_needs.h"
#include "engine/decoding/stream_loop.h"

namespace tessera {

struct LaneStats {
  std::int64_t passes = 0;                           // of its loops
  std::int64_t submissions = 0;                      // that are not over
  std::int64_t slots = 0, slots_taken = 0;           // of the loop at hand
  std::uint64_t slot_passes = 0, slots_at_work = 0;  // slots of all passes; those with a stream
};

// Something that a runtime gives turns to.
class Lane {
 public:
  virtual ~Lane() = default;
  // Writes on for a pass, if there is something to write. False: nothing was to be done, or kNo and
  // it would have to wait for what next() gives. What a listener or a file threw is thrown here,
  // after the pass; it has ended its submission alone.
  virtual bool step(Wait wait) = 0;
  // No submission is at work.
  virtual bool idle() const = 0;
  // Streams are being written. Else what is held besides weights can be released.
  virtual bool writing() const { return !idle(); }
  virtual bool has(Ticket ticket) const = 0;
  // Between two steps, or by a listener: then after the pass. No effect on one that is over.
  virtual void cancel(Ticket ticket) = 0;
  // Cancels it without a pass, between two steps alone: it is over on return. What its listener
  // throws is dropped. No effect on one that is over.
  virtual void end(Ticket ticket) = 0;
  // Where it writes.
  virtual const Backend& backend() const = 0;
  // Releases what is held besides weights: cache and buffers; they are made again when needed. Only
  // where nothing is written.
  virtual void release() = 0;
  virtual LaneStats stats() const = 0;
};

// What a lane of streams asks of its model, method and draft model.
class LaneModel {
 public:
  virtual ~LaneModel() = default;
  // Reads the weights; once. Error kModel, kMemory.
  virtual void load() = 0;
  virtual const Backend& backend() const = 0;
  // After load().
  virtual const PassModel& tokens() const = 0;
  // Limits of a loop with room for these needs; needs.slots are the slots.
  virtual StreamLimits limits(const LoopNeeds& needs) const = 0;
  // The drafter of a draft model, in place of the last one; before the loop is made.
  virtual void make_drafter(const StreamLimits& /*limits*/, const LoopNeeds& /*needs*/) {}
  virtual void drop_drafter() {}
  virtual LoopParts parts() const = 0;
  virtual WindowController* controller() { return nullptr; }
  // Further token spaces of a loop that was just made, for streams that name them.
  virtual void add_spaces(StreamLoop& /*loop*/) {}
  // Bytes of such a loop with its drafter.
  virtual std::size_t loop_bytes(const StreamLimits& limits, const LoopNeeds& needs) const = 0;
  // What is said when there are not so many: code, place and hint.
  virtual ErrorInfo no_room(const LoopNeeds& needs) const = 0;
};

struct LaneOptions {
  std::int64_t slots = 1;        // streams at once at most
  std::int64_t prompt_rows = 0;  // room for a prompt from the start; 0 = as prompts need it
  // A loop has all slots that memory lasts for, also where fewer streams are known of: for lanes
  // whose submissions come one by one, as a loop at work keeps its slots until it is idle.
  bool all_slots = false;
  // Prompts come again with more after them, as those of conversations: a loop has room for such
  // from the start, since a new loop has nothing of them cached.
  bool prompts_go_on = false;
};

// A quarter more rows than a prompt has.
inline std::int64_t with_room_to_go_on(std::int64_t rows) { return rows + rows / 4; }

enum class Room : std::uint8_t {
  kYes,
  kLater,  // other lanes write on the same device, and hold what is missing
  kNo,     // nobody else holds anything
};

struct RoomAnswer {
  Room room = Room::kYes;
  std::optional<std::uint64_t> free = {};  // bytes; none where nobody tells
};

// Whether there is memory for a loop: asked before one is made.
class LaneHost {
 public:
  virtual ~LaneHost() = default;
  // Of the backend's device. Lanes there that write nothing release theirs first.
  virtual RoomAnswer make_room(std::size_t bytes, const Backend& backend, const Lane& lane) = 0;
};

// Of its submissions those that came first are open: asked for streams in turns, notified of each
// pass. The others are queued and notified now and then, so that a pass costs the same however many
// there are.
class StreamLane final : public Lane, private StreamListener {
 public:
  // All are borrowed.
  StreamLane(LaneModel& model, LaneHost& host, const LaneOptions& options);
  ~StreamLane() override;
  StreamLane(const StreamLane&) = delete;
  StreamLane& operator=(const StreamLane&) = delete;

  // What needs() throws is thrown.
  void submit(Ticket ticket, std::unique_ptr<Submission> submission);

  bool step(Wait wait) override;
  bool idle() const override { return open_.empty() && queued_.empty(); }
  bool writing() const override { return loop_ != nullptr && !loop_->idle(); }
  bool has(Ticket ticket) const override { return find(ticket) != nullptr; }
  void cancel(Ticket ticket) override;
  void end(Ticket ticket) override;
  const Backend& backend() const override { return model_.backend(); }
  void release() override;
  LaneStats stats() const override;

  // From the next loop on.
  void set_slots(std::int64_t slots);
  // Slots as asked for, or what memory lasted for since set_slots().
  std::int64_t slots() const { return slots_; }
  // Of all loops since reset_times().
  StreamTimes times() const;
  void reset_times();
  const StreamLoop* loop() const { return loop_.get(); }

 private:
  struct Entry;
  using Queue = std::list<std::unique_ptr<Entry>>;
  struct Entry {
    Ticket ticket;
    std::unique_ptr<Submission> submission;
    LoopNeeds needs;        // while it is queued
    Queue::iterator place;  // in the queue
    bool queued = true;
    std::size_t at_work = 0;  // its streams in slots
    bool ending = false;      // stopped, cancelled or failed
    std::exception_ptr error;
  };
  struct Held {
    Entry* entry = nullptr;
    NextStream next;
  };
  // Whose stream a slot holds.
  struct SlotUse {
    Entry* entry = nullptr;  // null = the slot is free
    std::size_t number = 0;
  };

  template <typename Call>
  void call(Entry& entry, const Call& what);
  template <typename Visit>
  void for_each_open(const Visit& visit);
  Entry* find(Ticket ticket) const;
  void open(Entry& entry);
  void open_until(std::size_t count);
  bool fill(Wait wait);
  bool ask(Wait wait);
  bool fits(const LoopNeeds& needs) const;
  LoopNeeds known_needs();
  bool fit_loop();
  bool find_room(LoopNeeds needs, const LoopNeeds& exact);
  bool shrink(LoopNeeds& needs) const;
  void refuse_held(const LoopNeeds& needs, std::size_t bytes, const RoomAnswer& answer,
                   const std::exception_ptr& why);
  bool make_loop(const StreamLimits& limits, const LoopNeeds& needs, std::exception_ptr& why);
  void start();
  void fail_held(const ErrorInfo& error);
  void drop_loop();
  void notify_pass(Entry& entry, const SubmissionPass& pass);
  void notify_waiting(SubmissionPass pass);
  void drop_streams();
  void settle();
  void close(Entry& entry);
  void remove(std::size_t at);
  void abandon(const ErrorInfo& error);
  void on_pass(const StreamPass& pass) override;
  void on_logprobs(std::size_t slot, std::span<const TokenLogprobs> of_tokens) override;
  void on_tokens(std::size_t slot, std::span<const std::int32_t> tokens) override;
  void on_done(std::size_t slot, StreamResult&& result) override;

  LaneModel& model_;
  LaneHost& host_;
  LaneOptions options_;
  std::int64_t slots_;
  std::unique_ptr<StreamLoop> loop_;
  LoopNeeds room_;  // of the loop
  std::unordered_map<std::uint64_t, Entry*> by_ticket_;
  std::vector<std::unique_ptr<Entry>> open_;
  Queue queued_;
  QueuedNeeds queued_needs_;
  Queue::iterator next_notified_ = queued_.end();
  std::size_t turn_ = 0;       // whose is asked first, of those that are open
  std::optional<Held> held_;   // no slot is free for it, or the loop has no room
  std::vector<SlotUse> uses_;  // by slot
  std::vector<SubmissionStream> views_;
  StreamTimes past_;  // of loops that were replaced
  LaneStats stats_;
  double step_began_ = 0;
};

}  // namespace tessera
