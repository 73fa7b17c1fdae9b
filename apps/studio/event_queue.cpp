#include "apps/studio/event_queue.h"

#include <algorithm>

namespace tessera {

namespace {

// Whether a newer event of its kind says all that this one does, and one is sure to come.
bool passes_by(const Event& event) {
  if (const auto* generate = std::get_if<GenerationEvent>(&event)) {
    return !is_final(generate->generation.state);
  }
  if (const auto* text = std::get_if<CaptionEvent>(&event)) return !is_final(text->entry.state);
  if (const auto* film = std::get_if<FilmEvent>(&event)) {
    return film->film.state == FilmState::kPlaying;
  }
  return std::holds_alternative<MemoryEvent>(event);
}

// Whether a newer event of its subject may take its place.
bool gives_way(const Event& event) {
  return passes_by(event) || std::holds_alternative<FilmEvent>(event);
}

bool same_subject(const Event& a, const Event& b) {
  if (a.index() != b.index()) return false;
  if (const auto* generate = std::get_if<GenerationEvent>(&a)) {
    return generate->generation.number == std::get<GenerationEvent>(b).generation.number;
  }
  if (const auto* text = std::get_if<CaptionEvent>(&a)) {
    return text->entry.path == std::get<CaptionEvent>(b).entry.path;
  }
  if (const auto* film = std::get_if<FilmEvent>(&a)) {
    return film->film.number == std::get<FilmEvent>(b).film.number;
  }
  return std::holds_alternative<MemoryEvent>(a);
}

std::size_t received(const Event& event) {
  const auto* const generate = std::get_if<GenerationEvent>(&event);
  return generate == nullptr ? 0 : received_bytes(generate->generation);
}

}  // namespace

bool EventQueue::has_room(const Event& event) const {
  if (events_.size() >= most_) return false;
  const std::size_t own = received(event);
  if (own == 0) return true;
  std::size_t others = 0;
  for (const Event& other : events_) others += received(other);
  return others == 0 || others + own <= kKeptReceivedBytes;
}

bool EventQueue::push(Event event) {
  std::unique_lock lock(mutex_);
  if (closed_) return false;
  const auto older = std::find_if(events_.begin(), events_.end(), [&](const Event& one) {
    return gives_way(one) && same_subject(one, event);
  });
  if (older != events_.end()) {
    *older = std::move(event);
    return true;
  }
  if (events_.size() >= most_ && passes_by(event)) return false;
  room_.wait(lock, [&] { return closed_ || has_room(event); });
  if (closed_) return false;
  events_.push_back(std::move(event));
  return true;
}

std::vector<Event> EventQueue::take() {
  std::deque<Event> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(events_);
    room_.notify_all();
  }
  return {std::make_move_iterator(taken.begin()), std::make_move_iterator(taken.end())};
}

void EventQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  room_.notify_all();
}

std::size_t EventQueue::size() const {
  const std::lock_guard lock(mutex_);
  return events_.size();
}

}  // namespace tessera
