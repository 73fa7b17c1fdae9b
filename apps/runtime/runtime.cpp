// Turns, tickets and room.
#include "apps/runtime/runtime.h"

#include <algorithm>
#include <utility>

#include "apps/runtime/memory.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

// Whether both take theirs from the same memory: a device's own, or the process's.
bool same_memory(const Backend& a, const Backend& b) {
  const bool own = a.memory().has_value();
  if (own != b.memory().has_value()) return false;
  return !own || a.device() == b.device();
}

}  // namespace

Runtime::Runtime() : Runtime(available_memory) {}
Runtime::Runtime(Available available) : available_(std::move(available)) {}
Runtime::~Runtime() { expects(lanes_.empty(), "tasks end before their runtime"); }

void Runtime::attach(Lane& lane) { lanes_.push_back(&lane); }

void Runtime::detach(Lane& lane) {
  const LaneStats stats = lane.stats();
  past_.passes += stats.passes;
  past_.slot_passes += stats.slot_passes;
  past_.slots_at_work += stats.slots_at_work;
  std::erase(lanes_, &lane);
}

bool Runtime::step() {
  for (const Wait wait : {Wait::kNo, Wait::kYes}) {
    for (std::size_t tried = 0; tried < lanes_.size(); ++tried) {
      Lane& lane = *lanes_[turn_++ % lanes_.size()];
      if (!lane.idle() && lane.step(wait)) return true;
    }
  }
  return std::any_of(lanes_.begin(), lanes_.end(), [](const Lane* lane) { return !lane->idle(); });
}

bool Runtime::over(Ticket ticket) const {
  return std::none_of(lanes_.begin(), lanes_.end(),
                      [&](const Lane* lane) { return lane->has(ticket); });
}

void Runtime::finish(Ticket ticket) {
  try {
    while (!over(ticket)) step();
  } catch (...) {
    end(ticket);
    throw;
  }
}

void Runtime::end(Ticket ticket) {
  for (Lane* lane : lanes_) lane->end(ticket);
}

void Runtime::cancel(Ticket ticket) {
  for (Lane* lane : lanes_) lane->cancel(ticket);
}

RuntimeStats Runtime::stats() const {
  RuntimeStats out = past_;
  out.lanes = std::ssize(lanes_);
  out.submitted = to_index(last_ticket_);
  out.over = out.submitted;
  for (const Lane* lane : lanes_) {
    const LaneStats stats = lane->stats();
    out.passes += stats.passes;
    out.slot_passes += stats.slot_passes;
    out.slots_at_work += stats.slots_at_work;
    out.over -= stats.submissions;
  }
  return out;
}

RoomAnswer Runtime::make_room(std::size_t bytes, const Backend& backend, const Lane& asking) {
  // A device's own memory, or the process's.
  const auto free = [&]() -> std::optional<std::uint64_t> {
    if (const std::optional<DeviceMemory> memory = backend.memory()) return memory->free;
    return available_();
  };
  RoomAnswer out{Room::kYes, free()};
  const auto enough = [&] { return !out.free || *out.free >= bytes; };
  bool others_write = false;
  for (Lane* lane : lanes_) {
    if (enough()) return out;
    if (lane == &asking || !same_memory(backend, lane->backend())) continue;
    if (lane->writing()) {
      others_write = true;
      continue;
    }
    lane->release();
    out.free = free();
  }
  if (!enough()) out.room = others_write ? Room::kLater : Room::kNo;
  return out;
}

}  // namespace tessera
