#include "apps/studio/preview_sender.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace {

constexpr double kRetrySeconds = 1;
constexpr double kStallSeconds = 2;   // a viewer that takes nothing for so long is let go
constexpr double kLookSeconds = 0.1;  // between two looks at whether the program ends
constexpr double kLastSeconds = 1;    // for what is left when the program ends

[[noreturn]] void refuse_address(const std::string& text, std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_PREVIEW_TO",
               .where = "--preview-to",
               .expected = "127.0.0.1:PORT or localhost:PORT; images and prompts travel in the "
                           "clear, so they stay on this machine",
               .found = escape_for_terminal(text) + " (" + std::move(found) + ")"});
}

// A piece of valid UTF-8 of at most `most` bytes.
std::string cut(const std::string& text, std::size_t most) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (out.size() + std::max<std::size_t>(c.length, 3) > most) break;
    if (c.valid) {
      out += text.substr(at, c.length);
    } else {
      append_utf8(out, U'\ufffd');
    }
    at += c.length;
  }
  return out;
}

std::uint32_t clamped(std::int64_t value, std::int64_t most) {
  return narrow<std::uint32_t>(std::clamp<std::int64_t>(value, 0, most));
}

}  // namespace

std::uint16_t parse_preview_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) refuse_address(text, "no port");
  const std::string host = text.substr(0, colon), number = text.substr(colon + 1);
  unsigned port = 0;
  const auto [end, status] = std::from_chars(number.data(), number.data() + number.size(), port);
  if (status != std::errc{} || end != number.data() + number.size() || port < 1 || port > 65535) {
    refuse_address(text, "no port from 1 to 65535");
  }
  // No name is looked up: a resolver may say anything.
  if (host != "localhost" && host != "127.0.0.1") refuse_address(text, "another machine");
  return narrow<std::uint16_t>(port);
}

PreviewSender::PreviewSender(std::uint16_t port, std::function<void(std::string_view)> notice)
    : port_(port), notice_(std::move(notice)), thread_([this] { work(); }) {}

PreviewSender::~PreviewSender() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    end_by_ = monotonic_seconds() + kLastSeconds;
    changed_.notify_all();
  }
  thread_.join();
  disconnect();
}

PreviewSender::Pending* PreviewSender::find(std::uint64_t number) {
  for (Pending& one : pending_) {
    if (one.begin.image == number) return &one;
  }
  return nullptr;
}

// A viewer lets go of a sender that never ends what it began: such images keep their end, without
// the image. False: there is no room, all are at work before its eyes.
bool PreviewSender::make_room() {
  const auto count = std::count_if(pending_.begin(), pending_.end(),
                                   [](const Pending& one) { return !one.let_go; });
  if (count < to_index(kMaxImages)) return true;
  const auto oldest = [&](auto is) { return std::find_if(pending_.begin(), pending_.end(), is); };
  auto unknown = oldest([](const Pending& one) { return !one.begun && one.state.has_value(); });
  if (unknown == pending_.end()) unknown = oldest([](const Pending& one) { return !one.begun; });
  if (unknown != pending_.end()) {
    pending_.erase(unknown);
    return true;
  }
  const auto over = oldest([](const Pending& one) { return one.state.has_value() && !one.let_go; });
  if (over == pending_.end()) return false;
  over->image = nullptr;
  over->let_go = true;
  return true;
}

// Whether a viewer takes it now: what it knows of already, and as many others as it holds open.
bool PreviewSender::may_send(const Pending& one) const {
  if (!one.changed || one.begun) return one.changed;
  const auto pixels_of = [](const Pending& of) {
    return std::uint64_t{of.begin.width} * of.begin.height;
  };
  std::size_t open = 1;
  std::uint64_t pixels = pixels_of(one);
  for (const Pending& other : pending_) {
    if (!other.begun) continue;
    ++open;
    pixels += pixels_of(other);
  }
  return open <= kMaxImages && pixels <= kPreviewPixels;
}

std::uint64_t PreviewSender::begin(PreviewBegin begin) {
  const std::lock_guard lock(mutex_);
  begin.image = ++last_;
  const std::uint64_t pixels = std::uint64_t{begin.width} * begin.height;
  const bool fits = std::max(begin.width, begin.height) <= kPreviewSide && pixels <= kPreviewPixels;
  if (!fits) return last_;  // more than a viewer takes
  begin.model = cut(begin.model, kPreviewNameBytes);
  begin.prompt = cut(begin.prompt, kPreviewTextBytes);
  if (!make_room()) return last_;
  Pending& one = pending_.emplace_back();
  one.begin = std::move(begin);
  one.changed = true;
  changed_.notify_all();
  return last_;
}

void PreviewSender::show(std::uint64_t number, const PreviewProgress& progress,
                         std::shared_ptr<const Image> image) {
  const std::lock_guard lock(mutex_);
  Pending* one = find(number);
  if (one == nullptr) return;
  one->progress = progress;
  if (image) one->image = std::move(image);
  one->changed = true;
  changed_.notify_all();
}

void PreviewSender::end(std::uint64_t number, PreviewState state, const PreviewProgress& progress,
                        std::shared_ptr<const Image> image) {
  const std::lock_guard lock(mutex_);
  Pending* one = find(number);
  if (one == nullptr) return;
  one->progress = progress;
  if (image) one->image = std::move(image);
  one->state = state;
  one->changed = true;
  changed_.notify_all();
}

// The next image of which there is something to say; false at the end. Waits between tries to
// reach a viewer.
bool PreviewSender::take(Pending& out) {
  std::unique_lock lock(mutex_);
  while (true) {
    const double now = monotonic_seconds();
    const auto next = std::find_if(pending_.begin(), pending_.end(),
                                   [&](const Pending& one) { return may_send(one); });
    const bool may_try = socket_ >= 0 || now >= next_try_;
    if (ending_ && (next == pending_.end() || now >= end_by_ || !may_try)) return false;
    if (next != pending_.end() && may_try) {
      out = *next;
      next->begun = true;
      next->changed = false;
      next->image = nullptr;
      return true;
    }
    const double wait = next == pending_.end() ? 3600 : std::max(next_try_ - now, 0.001);
    changed_.wait_for(lock, std::chrono::duration<double>(wait));
  }
}

void PreviewSender::work() {
  for (Pending what; take(what);) {
    bool sent = false;
    try {
      sent = (socket_ >= 0 || connect_now()) && send(what);
    } catch (const std::exception&) {  // no memory for a frame: as a viewer that has gone
    }
    const std::lock_guard lock(mutex_);
    if (sent) {
      if (what.state) {
        std::erase_if(pending_, [&](const Pending& other) {
          return other.begin.image == what.begin.image;
        });
      }
      continue;
    }
    disconnect();
    next_try_ = monotonic_seconds() + kRetrySeconds;
    // Images begin anew over the next connection, with what is known of them by then.
    std::erase_if(pending_, [](const Pending& other) { return other.let_go; });
    for (Pending& other : pending_) other.begun = false;
    if (Pending* one = find(what.begin.image)) {
      if (!one->image) one->image = what.image;
      one->changed = true;
    }
  }
}

bool PreviewSender::send(const Pending& what) {
  if (!what.begun && !send_bytes(encode_preview(what.begin))) return false;
  if (!send_image(what)) return false;
  if (!what.state) return true;
  return send_bytes(encode_preview(PreviewEnd{what.begin.image, *what.state}));
}

bool PreviewSender::send_image(const Pending& what) {
  PreviewRows rows;
  rows.image = what.begin.image;
  rows.rows_done = clamped(what.progress.rows_done, kPreviewGridSide);
  rows.passes = clamped(what.progress.passes, UINT32_MAX);
  rows.tokens = clamped(what.progress.tokens, UINT32_MAX);
  rows.seconds = what.progress.seconds;
  if (!what.image) return send_bytes(encode_preview(rows));
  const Image& image = *what.image;
  const std::int64_t row_bytes = image.width * 3;
  const std::int64_t most = to_index(kPreviewFrameBytes - 64) / row_bytes;
  for (std::int64_t first = 0; first < image.height; first += most) {
    const std::int64_t count = std::min(most, image.height - first);
    rows.first = narrow<std::uint32_t>(first);
    rows.rows = narrow<std::uint32_t>(count);
    rows.last = first + count == image.height;
    rows.rgb.assign(image.at(0, first), image.at(0, first) + count * row_bytes);
    if (!send_bytes(encode_preview(rows))) return false;
  }
  return true;
}

// Never waits long: a listener that accepts nobody would keep a blocking call for minutes.
bool PreviewSender::connect_now() {
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port_);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (socket_ >= 0) {
    int error = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    if (error != 0 && errno == EINPROGRESS) {
      socklen_t size = sizeof error;
      if (wait_for(POLLOUT, monotonic_seconds() + kStallSeconds)) {
        ::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
      }
    }
    connected_ = error == 0;
    if (error == 0) return true;
  }
  if (!heard_) {
    notice_("--preview-to: nobody listens at 127.0.0.1:" + std::to_string(port_) +
            "; generating goes on");
  }
  heard_ = true;
  return false;
}

// False: it is `until`, or the time that is left at the end is over.
bool PreviewSender::wait_for(short event, double until) {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (ending_) until = std::min(until, end_by_);
    }
    const double left = until - monotonic_seconds();
    if (left <= 0) return false;
    pollfd wait{socket_, event, 0};
    if (::poll(&wait, 1, truncate<int>(std::min(left, kLookSeconds) * 1000) + 1) <= 0) continue;
    return (event & POLLRDHUP) == 0 || (wait.revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0;
  }
}

// One message, all of which must be taken in time: a viewer that takes a byte now and then keeps
// nobody.
bool PreviewSender::send_bytes(std::string_view bytes) {
  const double until = monotonic_seconds() + kStallSeconds;
  while (!bytes.empty()) {
    if (!wait_for(POLLOUT | POLLRDHUP, until)) return false;  // or it has gone
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (sent > 0) bytes.remove_prefix(to_size(sent));
  }
  return true;
}

void PreviewSender::disconnect() {
  connected_ = false;
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

}  // namespace tessera
