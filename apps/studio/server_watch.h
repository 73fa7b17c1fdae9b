// Looks now and then whether the server is there; when it is, and came or comes back, its models
// become the viewer's.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "apps/studio/event_queue.h"
#include "apps/studio/server_link.h"

namespace tessera {

class ServerWatch {
 public:
  // Both are borrowed; the queue must be closed before this ends.
  ServerWatch(ServerLink& server, EventQueue& events);
  ~ServerWatch();
  // Does not wait.
  void end();
  ServerWatch(const ServerWatch&) = delete;

 private:
  void work();
  void look();

  ServerLink& server_;
  EventQueue& events_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  // Of the thread alone.
  bool known_ = false, there_ = false;
  std::string last_problem_;
  std::thread thread_;
};

}  // namespace tessera
