// Listens on the loopback for other programs that show what they generate. Senders are strangers: each
// gets bounded buffers and its patience, what is not understood ends its connection, and there are
// few of them at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "apps/studio/event_queue.h"
#include "apps/studio/preview_desk.h"

namespace tessera {

struct PreviewReceiverOptions {
  std::uint16_t port = 0;     // 0 = any free one
  double frame_seconds = 10;  // for one frame, from its first byte to its last
  double idle_seconds = 120;  // without any frame; a sender that goes on later connects again
};

class PreviewReceiver {
 public:
  static constexpr std::size_t kMaxSenders = 8;
  // Numbers of received images begin here, so that they meet none of this program's own.
  static constexpr std::uint64_t kFirstNumber = std::uint64_t{1} << 32;

  // Binds 127.0.0.1. Error kUsage (E_LISTEN). The queue of events is borrowed and must be closed
  // before the receiver ends.
  PreviewReceiver(const PreviewReceiverOptions& options, EventQueue& events);
  ~PreviewReceiver();
  PreviewReceiver(const PreviewReceiver&) = delete;

  std::uint16_t port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  struct Sender;

  void work();
  void admit();
  bool serve(Sender& sender);
  bool late(const Sender& sender, double now) const;
  void let_go(Sender& sender);

  PreviewReceiverOptions options_;
  EventQueue& events_;
  int listener_ = -1, wake_[2] = {-1, -1};
  std::uint16_t port_ = 0;
  std::uint64_t last_number_ = kFirstNumber;
  std::vector<std::unique_ptr<Sender>> senders_;
  std::thread thread_;
};

}  // namespace tessera
