// The bounded queue between workers and the drawing thread. What is on its way (an image that
// grows, a text, the memory's size) takes the place of its own older event, and is left out when
// there is no room: a slow reader costs a worker nothing. What is final waits for room and is never
// lost before the queue is closed. Of a video one event waits at most. Pixels of a server's finished
// images wait as far as kKeptReceivedBytes goes.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <vector>

#include "apps/studio/event.h"

namespace tessera {

class EventQueue {
 public:
  explicit EventQueue(std::size_t most) : most_(most) {}

  // False when the queue is closed, or when it is full and the event need not be notified.
  bool push(Event event);
  // All there are, oldest first. Never waits for anybody.
  std::vector<Event> take();
  // Nothing is notified from now on; whoever waits goes on.
  void close();

  std::size_t size() const;

 private:
  bool has_room(const Event& event) const;

  std::size_t most_;
  mutable std::mutex mutex_;
  std::condition_variable room_;
  std::deque<Event> events_;
  bool closed_ = false;
};

}  // namespace tessera
