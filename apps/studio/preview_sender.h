// Shows another program on this machine what is being generated. Generating never waits for it: a
// thread of its own sends, what is newer takes the place of what was not sent yet, and a viewer
// that is slow or not there costs images on its screen, nothing else.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "apps/studio/preview_wire.h"
#include "vision/image/image.h"

namespace tessera {

// "127.0.0.1:7861", "localhost:7861": the port. Error kUsage (E_PREVIEW_TO) for anything that is
// not this machine's loopback: images and prompts travel without a key or a check of who listens.
std::uint16_t parse_preview_address(const std::string& text);

struct PreviewProgress {
  std::int64_t rows_done = 0, passes = 0, tokens = 0;
  double seconds = 0;
};

class PreviewSender {
 public:
  // That wait or are open at the viewer. Then older ones that it does not know of are left out,
  // and where it knows of all, the new one.
  static constexpr std::size_t kMaxImages = 16;

  // Connects when there is something to show. `notice` is called once, from the sender's thread,
  // when there is nobody.
  PreviewSender(std::uint16_t port, std::function<void(std::string_view)> notice);
  // Gives a viewer that listens a second to take what is left.
  ~PreviewSender();
  PreviewSender(const PreviewSender&) = delete;

  // Whether a viewer took something, and has not gone since. From any thread.
  bool connected() const { return connected_; }
  // Returns the image's number. Texts beyond the limits of the wire are cut.
  std::uint64_t begin(PreviewBegin begin);
  // `image` null: progress alone.
  void show(std::uint64_t number, const PreviewProgress& progress,
            std::shared_ptr<const Image> image);
  // The whole image, or what there is of it; may be null.
  void end(std::uint64_t number, PreviewState state, const PreviewProgress& progress,
           std::shared_ptr<const Image> image);

 private:
  // What has not been sent of one image.
  struct Pending {
    PreviewBegin begin;
    bool begun = false;  // over this connection: the viewer holds it open
    bool changed = false;
    bool let_go = false;  // only its end is still to be notified
    PreviewProgress progress;
    std::shared_ptr<const Image> image;
    std::optional<PreviewState> state;
  };

  void work();
  bool make_room();
  bool may_send(const Pending& one) const;
  bool take(Pending& out);
  bool send(const Pending& what);
  bool send_image(const Pending& what);
  bool send_bytes(std::string_view bytes);
  bool wait_for(short event, double until);
  bool connect_now();
  void disconnect();
  Pending* find(std::uint64_t number);

  std::uint16_t port_;
  std::function<void(std::string_view)> notice_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Pending> pending_;
  std::uint64_t last_ = 0;
  bool ending_ = false;
  double end_by_ = 0;  // seconds of the monotonic clock, once it ends
  std::atomic<bool> connected_ = false;
  // Of the thread alone.
  int socket_ = -1;
  bool heard_ = false;
  double next_try_ = 0;
  std::thread thread_;
};

}  // namespace tessera
