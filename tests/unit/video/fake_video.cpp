// A process that lies: it speaks the words of the wire and breaks one rule, the one that its second
// argument (seconds of processor time, for the real one) tells.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/unit/video/fake_video.h"
#include "video/video_wire.h"

namespace {

using namespace tessera;
namespace vw = video_wire;
using vw::Kind;

void put(const void* data, std::size_t count) {
  const auto* at = static_cast<const char*>(data);
  while (count > 0) {
    const ssize_t done = ::write(0, at, count);
    if (done <= 0) std::_Exit(0);
    at += done;
    count -= static_cast<std::size_t>(done);
  }
}

void get(void* data, std::size_t count) {
  auto* at = static_cast<char*>(data);
  while (count > 0) {
    const ssize_t done = ::read(0, at, count);
    if (done <= 0) std::_Exit(0);
    at += done;
    count -= static_cast<std::size_t>(done);
  }
}

void say(Kind kind, std::uint64_t a = 0, std::uint64_t b = 0, const std::string& payload = {},
         std::uint64_t extra = 0) {
  const vw::Message message = {vw::kMagic, kind, a, b, payload.size() + extra};
  put(&message, sizeof message);
  put(payload.data(), payload.size());
}

vw::Message hear() {
  vw::Message message = {};
  get(&message, sizeof message);
  std::string payload(message.bytes, '\0');
  get(payload.data(), payload.size());
  return message;
}

std::uint64_t sides(std::uint64_t width, std::uint64_t height) { return width << 32 | height; }

void describe(Lie lie) {
  vw::Info info = {64, 48, 0, 1, 25, 25, 1};
  std::string container = "mp4";
  if (lie == Lie::kHugeInfo) info.width = 1 << 30;
  if (lie == Lie::kNoSize) info.height = 0;
  if (lie == Lie::kFastInfo) info.rate_num = 1 << 30;
  if (lie == Lie::kNoTick) info.tick_den = 0;
  if (lie == Lie::kOddTurn) info.turned = 45;
  if (lie == Lie::kOtherContainer) container = "\x1b[31mmp4";
  std::string payload(reinterpret_cast<const char*>(&info), sizeof info);
  payload += container + std::string(1, '\0') + "h264" + std::string(1, '\0');
  say(Kind::kInfo, 0, 0, payload, lie == Lie::kLongInfo ? std::uint64_t{1} << 40 : 0);
}

[[noreturn]] void endless_needs() {
  for (;;) {
    say(Kind::kNeed, 0, 1);
    hear();
  }
}

void give_frame(Lie lie, std::uint64_t number) {
  const std::string rgb(64 * 48 * 3, 'x');
  if (lie == Lie::kEndlessNeeds) endless_needs();
  if (lie == Lie::kSilence) ::sleep(1000);
  if (lie == Lie::kTrickle) {
    for (;; ::usleep(50'000)) put("x", 1);
  }
  if (lie == Lie::kOtherSize) return say(Kind::kFrame, number, sides(48, 64), rgb);
  if (lie == Lie::kHugeFrame)
    return say(Kind::kFrame, number, sides(1 << 20, 1 << 20), rgb, std::uint64_t{1} << 41);
  if (lie == Lie::kShortFrame) return say(Kind::kFrame, number, sides(64, 48), rgb.substr(1));
  if (lie == Lie::kSameTime) return say(Kind::kFrame, 7, sides(64, 48), rgb);
  if (lie == Lie::kOtherAnswer) return say(Kind::kDone);
  if (lie == Lie::kHugeNeed) return say(Kind::kNeed, 0, std::uint64_t{1} << 40);
  if (lie == Lie::kHugeError) return say(Kind::kError, 0, 0, "", std::uint64_t{1} << 40);
  if (lie == Lie::kOtherError) return say(Kind::kError, 0, 0, std::string("rm -rf\0\0\0\0", 10));
  say(Kind::kFrame, number, sides(64, 48), rgb);
  if (lie == Lie::kUnasked) say(Kind::kFrame, number + 1, sides(64, 48), rgb);
}

void give_times(Lie lie) {
  std::vector<std::int64_t> times = {0, 1, 2};
  if (lie == Lie::kTimesBack) times = {0, 2, 1};
  const std::string payload(reinterpret_cast<const char*>(times.data()), times.size() * 8);
  say(Kind::kTimes, 0, 0, payload, lie == Lie::kManyTimes ? std::uint64_t{1} << 40 : 0);
}

void take_frame(Lie lie) {
  const std::string piece(1 << 20, 'x');
  if (lie == Lie::kEndlessPieces) {
    for (std::uint64_t at = 0;; at += piece.size()) say(Kind::kWrite, at, 0, piece);
  }
  if (lie == Lie::kEndlessSamePiece) {
    for (;;) say(Kind::kWrite, 0, 0, piece);
  }
  if (lie == Lie::kEmptyPieces) {
    for (;;) say(Kind::kWrite, 0);
  }
  if (lie == Lie::kFarPiece) say(Kind::kWrite, std::uint64_t{1} << 41, 0, piece);
  if (lie == Lie::kPieceOverTheEnd) say(Kind::kWrite, UINT64_MAX - 10, 0, piece);
  if (lie == Lie::kLongPiece) say(Kind::kWrite, 0, 0, piece, 1);
  if (lie == Lie::kSilence) ::sleep(1000);
  say(Kind::kDone);
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) return 2;
  const auto lie = static_cast<Lie>(std::atoi(words[2]));
  say(Kind::kHello, lie == Lie::kOtherHello ? 255 : 3);
  for (std::uint64_t number = 0;;) {
    switch (hear().kind) {
      case Kind::kOpen:
        describe(lie);
        break;
      case Kind::kNext:
      case Kind::kFrameAt:
        give_frame(lie, number++);
        break;
      case Kind::kScan:
        give_times(lie);
        break;
      case Kind::kCreate:
        say(Kind::kDone, lie == Lie::kOtherCodec ? 5 : 1);
        break;
      case Kind::kPut:
        take_frame(lie);
        break;
      case Kind::kCodecs:
        say(Kind::kDone, lie == Lie::kManyCodecs ? UINT64_MAX : 2);
        break;
      default:
        say(Kind::kDone);
    }
  }
}
