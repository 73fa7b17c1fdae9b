// A reader process whose "decoder" does what the bytes of a file tell it, inside the real sandbox:
// it stands in for a decoder that was taken over. A file is a word and, for some, a number.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "apps/helper/serve.h"
#include "vision/image/image_wire.h"

namespace tessera {
namespace {

DecodedImage one_pixel(const char* format) {
  DecodedImage out(1, 1, 3, format);
  return out;
}

[[noreturn]] void hang() {
  volatile bool forever = true;
  while (forever) {
  }
  std::abort();
}

void take_memory(std::size_t mebibytes) {
  std::vector<std::vector<char>> held;
  for (std::size_t i = 0; i < mebibytes; ++i) held.emplace_back(std::size_t{1} << 20, 'x');
}

void flood() {
  const std::string junk(1 << 16, 'j');
  while (::write(0, junk.data(), junk.size()) > 0) {
  }
}

std::uint64_t requests = 0;  // so far

void answer(wire::Reply reply, const std::string& text) {
  reply.number = requests;
  reply.magic = reply.magic == 0 ? wire::kMagic : reply.magic;
  reply.text_bytes = reply.text_bytes == 0 ? text.size() : reply.text_bytes;
  if (::write(0, &reply, sizeof reply) < 0 || ::write(0, text.data(), text.size()) < 0)
    std::abort();
}

// Answers that no sound process gives, before the sound one.
void lie(const std::string& how) {
  using wire::Status;
  if (how == "magic") answer({.magic = 1}, "");
  if (how == "huge")
    answer({.width = 1u << 20, .height = 1u << 20, .channels = 4, .pixel_bytes = 4ull << 40},
           "PNG");
  if (how == "wrap")
    answer({.width = 1ull << 63, .height = 2, .channels = 4, .pixel_bytes = 0}, "PNG");
  if (how == "channels") answer({.width = 1, .height = 1, .channels = 1, .pixel_bytes = 1}, "PNG");
  if (how == "size") answer({.width = 2, .height = 2, .channels = 3, .pixel_bytes = 11}, "PNG");
  if (how == "zero") answer({.width = 0, .height = 1, .channels = 3, .pixel_bytes = 0}, "PNG");
  if (how == "text") answer({.text_bytes = ~std::uint64_t{0}}, "");
  if (how == "status") answer({.status = static_cast<Status>(7)}, "x");
  if (how == "code")
    answer({.status = Status::kError}, wire::join_texts({"E_OTHER", "", "a", "b"}));
  if (how == "parts") answer({.status = Status::kError}, wire::join_texts({"E_PICTURE_DATA"}));
  if (how == "escape") {
    answer({.status = Status::kError},
           wire::join_texts({"E_PICTURE_DATA", "", "\x1b]0;owned\x07", "\xe2\x80\xae"}));
  }
}

DecodedImage obey(std::span<const std::uint8_t> file, const ImageLimits&) {
  ++requests;
  const std::string text(file.begin(), file.end());
  const std::size_t space = text.find(' ');
  const std::string word = text.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : text.substr(space + 1);
  if (word == "crash") *reinterpret_cast<volatile char*>(file.size()) = 1;
  if (word == "trap") __builtin_trap();
  if (word == "hang") hang();
  if (word == "exit") _exit(std::stoi(rest));
  if (word == "memory") take_memory(static_cast<std::size_t>(std::stoul(rest)));
  if (word == "flood") flood();
  if (word == "lie") lie(rest);
  if (word == "surplus" && ::write(0, "surplus", 7) < 0) std::abort();
  if (word == "open" && ::open("/etc/passwd", O_RDONLY) >= 0) return one_pixel("ESCAPED");
  if (word == "create" && ::open("escaped", O_CREAT | O_WRONLY, 0600) >= 0)
    return one_pixel("ESCAPED");
  if (word == "connect" && ::socket(AF_INET, SOCK_STREAM, 0) >= 0) return one_pixel("ESCAPED");
  if (word == "fork" && ::fork() >= 0) return one_pixel("ESCAPED");
  if (word == "exec") ::execl("/bin/true", "true", nullptr);
  if (word == "kill" && ::kill(::getppid(), 0) == 0) return one_pixel("ESCAPED");
  if (word == "stdout" && ::write(1, "x", 1) == 1) return one_pixel("ESCAPED");
  if (word == "executable" && ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {
    return one_pixel("ESCAPED");
  }
  return one_pixel("OBEYED");
}

}  // namespace
}  // namespace tessera

int main(int count, char** words) {
  tessera::SandboxLimits limits;
  if (!tessera::parse_sandbox_limits(count, words, limits)) return 2;
  return tessera::serve_images(&tessera::obey, limits);
}
