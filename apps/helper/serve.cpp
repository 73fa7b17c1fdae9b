// Reading of requests, answering, and what is left to do when memory ends.
#include "apps/helper/serve.h"

#include <time.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <new>
#include <string_view>

#include "apps/helper/socket.h"
#include "engine/core/index.h"
#include "vision/image/image_wire.h"

namespace tessera {

namespace {

double cpu_seconds_used() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return to_double(now.tv_sec) + 1e-9 * to_double(now.tv_nsec);
}

struct Answer {
  DecodedImage image;
  std::vector<std::string> error;  // code, place, expected, found; empty for an image
};

Answer out_of_memory() {
  return {{},
          {"E_PICTURE_MEMORY", "", "an image that fits the memory of its reader", "a larger one"}};
}

Answer decode_file(ImageDecoder decode, const std::vector<std::uint8_t>& file,
                   const ImageLimits& limits) {
  try {
    return {decode(file, limits), {}};
  } catch (const Error& error) {
    const ErrorInfo& info = error.info();
    return {{}, {info.code, info.where, info.expected, info.found}};
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

bool send(const Answer& answer, bool retires, std::uint32_t number) {
  const bool failed = !answer.error.empty();
  std::vector<std::string> texts = answer.error;
  if (!failed) {
    texts = answer.image.notes;
    texts.insert(texts.begin(), answer.image.format);
  }
  const std::string text = wire::join_texts(texts);
  const DecodedImage& image = answer.image;
  wire::Reply reply = {};
  reply.magic = wire::kMagic;
  reply.status = failed ? wire::Status::kError : wire::Status::kImage;
  reply.retires = retires ? 1 : 0;
  reply.text_bytes = text.size();
  reply.number = number;
  if (!failed) {
    reply.width = narrow<std::uint64_t>(image.width);
    reply.height = narrow<std::uint64_t>(image.height);
    reply.channels = narrow<std::uint32_t>(image.channels);
    reply.pixel_bytes = image.pixels.size();
  }
  return socket::write_all(&reply, sizeof reply) && socket::write_all(text.data(), text.size()) &&
         socket::write_all(image.pixels.data(), failed ? 0 : image.pixels.size());
}

}  // namespace

int serve_images(ImageDecoder decode, const SandboxLimits& limits) {
  const wire::Hello hello = {wire::kMagic, enter_sandbox(limits)};
  if (!socket::write_all(&hello, sizeof hello)) return 1;
  for (wire::Request request = {}; socket::read_all(&request, sizeof request);) {
    if (request.magic != wire::kMagic) return 1;
    std::vector<std::uint8_t> file;
    Answer answer;
    try {
      file.resize(request.file_bytes);
    } catch (const std::exception&) {
      answer = out_of_memory();
    }
    if (answer.error.empty()) {
      if (!socket::read_all(file.data(), file.size())) return 1;
      answer =
          decode_file(decode, file, {request.file_bytes, request.max_side, request.max_pixels});
    } else if (!socket::skip(request.file_bytes)) {
      return 1;
    }
    const bool retires = cpu_seconds_used() * 2 > to_double(limits.cpu_seconds);
    if (!send(answer, retires, request.number)) return 1;
    if (retires) return 0;
  }
  return 0;
}

bool parse_sandbox_limits(int count, char** words, SandboxLimits& limits) {
  if (count != 3) return false;
  const auto number = [](std::string_view text, std::uint64_t most, std::uint64_t& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc() && end == text.data() + text.size() && out > 0 && out <= most;
  };
  std::uint64_t mebibytes = 0;
  if (!number(words[1], std::uint64_t{1} << 24, mebibytes) ||
      !number(words[2], std::uint64_t{1} << 20, limits.cpu_seconds)) {
    return false;
  }
  limits.address_space = mebibytes << 20;
  return true;
}

}  // namespace tessera
