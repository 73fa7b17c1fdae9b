#include "apps/studio/preview_receiver.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "apps/studio/boundary.h"
#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

constexpr int kLookMilliseconds = 100;  // between two looks at senders' patience
constexpr std::size_t kPieceBytes = std::size_t{64} << 10;

[[noreturn]] void refuse_port(std::uint16_t port, const char* step) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_LISTEN",
               .where = "--listen " + std::to_string(port),
               .expected = "a free port of 127.0.0.1",
               .found = std::string(step) + ": " + std::strerror(errno)});
}

}  // namespace

struct PreviewReceiver::Sender {
  Sender(int fd, std::string name, double now)
      : socket(fd), desk(std::move(name)), heard(now), began(now) {}
  ~Sender() { ::close(socket); }
  Sender(const Sender&) = delete;

  int socket;
  PreviewReader reader;
  PreviewDesk desk;
  double heard, began;  // last whole frame; first byte of the one at work
  bool midway = false;
};

PreviewReceiver::PreviewReceiver(const PreviewReceiverOptions& options, EventQueue& events)
    : options_(options), events_(events) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener_ < 0) refuse_port(options.port, "socket");
  const int yes = 1;
  ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(options.port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound =
      ::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::listen(listener_, narrow<int>(kMaxSenders)) == 0 &&
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
      ::pipe2(wake_, O_CLOEXEC) == 0;
  if (!bound) {
    const int error = errno;
    ::close(listener_);
    errno = error;
    refuse_port(options.port, "bind");
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { work(); });
}

PreviewReceiver::~PreviewReceiver() {
  ::close(wake_[1]);  // which the thread sees at once
  thread_.join();
  ::close(wake_[0]);
  ::close(listener_);
}

void PreviewReceiver::work() {
  events_.push(ListeningEvent{address()});
  while (true) {
    std::vector<pollfd> waits = {{wake_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const auto& sender : senders_) waits.push_back({sender->socket, POLLIN, 0});
    ::poll(waits.data(), waits.size(), senders_.empty() ? -1 : kLookMilliseconds);
    if (waits[0].revents != 0) break;
    const double now = monotonic_seconds();
    std::vector<std::unique_ptr<Sender>> staying;
    for (std::size_t i = 0; i < senders_.size(); ++i) {
      const bool ready = waits[i + 2].revents != 0;
      if ((!ready || serve(*senders_[i])) && !late(*senders_[i], now)) {
        staying.push_back(std::move(senders_[i]));
      } else {
        let_go(*senders_[i]);
      }
    }
    senders_ = std::move(staying);
    if (waits[1].revents != 0) admit();
  }
  for (const auto& sender : senders_) let_go(*sender);
  senders_.clear();
}

void PreviewReceiver::admit() {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  const int socket = ::accept4(listener_, reinterpret_cast<sockaddr*>(&address), &size,
                               SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket < 0) {
    // Out of descriptors the listener stays readable: others get their turn, and the processor
    // rest.
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) ::usleep(100000);
    return;
  }
  if (senders_.size() >= kMaxSenders) {
    ::close(socket);
    return;
  }
  const std::string name = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  senders_.push_back(std::make_unique<Sender>(socket, name, monotonic_seconds()));
}

// One piece of what a sender says, so that nobody keeps the others waiting. False: it has gone, or
// speaks nonsense.
bool PreviewReceiver::serve(Sender& sender) {
  char piece[kPieceBytes];
  const ssize_t got = ::recv(sender.socket, piece, sizeof piece, 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  const double now = monotonic_seconds();
  if (!sender.midway) sender.began = now;
  try {
    sender.reader.feed({piece, to_size(got)});
    while (std::optional<PreviewMessage> message = sender.reader.next()) {
      sender.heard = sender.began = now;
      events_.push(GenerationEvent{sender.desk.take(std::move(*message), ++last_number_)});
    }
  } catch (const std::exception& error) {  // the boundary of one sender
    ErrorInfo info = info_of(error, "preview");
    info.file = "127.0.0.1";
    events_.push(ProblemEvent{info});
    return false;
  }
  sender.midway = sender.reader.midway();
  return true;
}

bool PreviewReceiver::late(const Sender& sender, double now) const {
  if (sender.midway && now - sender.began > options_.frame_seconds) return true;
  return now - sender.heard > options_.idle_seconds;
}

void PreviewReceiver::let_go(Sender& sender) {
  for (Generation& generation : sender.desk.close()) events_.push(GenerationEvent{std::move(generation)});
}

}  // namespace tessera
