// One queue over all models that are open: what is submitted is written pass by pass, the lanes in
// turns, within the memory that there is. Tasks (generate, video, describe) open their lane here.
// One thread owns a runtime and all that is opened in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "apps/runtime/lane.h"
#include "apps/runtime/shared_model.h"

namespace tessera {

struct RuntimeStats {
  std::int64_t lanes = 0;
  std::int64_t submitted = 0, over = 0;  // submissions since the runtime was made
  std::int64_t passes = 0;
  // Slots of all passes, and those that had a stream at work.
  std::uint64_t slot_passes = 0, slots_at_work = 0;
};

class Runtime final : public LaneHost {
 public:
  // Bytes that the process may still take; none where the system tells none.
  using Available = std::function<std::optional<std::uint64_t>()>;

  Runtime();
  explicit Runtime(Available available);
  ~Runtime() override;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Tasks call these: a lane takes part from attach() to detach(). It is borrowed.
  void attach(Lane& lane);
  void detach(Lane& lane);
  Ticket next_ticket() { return {++last_ticket_}; }
  // Models of the tasks that are open: weights that two of them need are read once.
  SharedModels& models() { return models_; }

  // One pass of one lane, in turns. False: nothing is left to be done. Waits where all that is left
  // waits for something. What a listener threw, and errors of models and devices, are thrown.
  bool step();
  bool over(Ticket ticket) const;
  // Steps until it is over. Whatever is thrown meanwhile, also an error of another submission, ends
  // it before it is thrown on: its listener may go.
  void finish(Ticket ticket);
  // After the pass at hand; may be called by listeners.
  void cancel(Ticket ticket);
  // At once, between two steps: what its listener throws is dropped.
  void end(Ticket ticket);
  RuntimeStats stats() const;

  RoomAnswer make_room(std::size_t bytes, const Backend& backend, const Lane& lane) override;

 private:
  Available available_;
  SharedModels models_;
  std::vector<Lane*> lanes_;
  std::size_t turn_ = 0;
  std::uint64_t last_ticket_ = 0;
  RuntimeStats past_;  // of lanes that were detached
};

}  // namespace tessera
