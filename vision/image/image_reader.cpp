// One question, one answer; every field of the answer is checked, because a decoder that was taken
// over writes what it likes.
#include "vision/image/image_reader.h"

#include <algorithm>
#include <optional>

#include "engine/core/installed.h"
#include "engine/core/io.h"
#include "vision/image/image_wire.h"
#include "vision/image/reader_process.h"

namespace tessera {

namespace {

constexpr double kGraceSeconds = 1.0;  // for a process that closed its socket to end by itself
constexpr std::size_t kMaxNotes = 16;

[[noreturn]] void fail(const std::string& name, const char* code, std::string expected,
                       std::string found) {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = code,
               .file = name,
               .expected = std::move(expected),
               .found = std::move(found)});
}

bool is_image_code(std::string_view code) {
  return code.starts_with("E_PICTURE_") && code.size() <= 32 &&
         std::ranges::all_of(code, [](char c) { return c == '_' || (c >= 'A' && c <= 'Z'); });
}

}  // namespace

struct ImageReader::State {
  using Transfer = ReaderProcess::Transfer;

  ImageReaderOptions options;
  std::optional<ReaderProcess> process;
  std::uint64_t started = 0;
  std::optional<std::uint32_t> confined;
  std::uint32_t asked = 0;  // of the process that runs, or ran last
  bool nonsense = false;    // came back from it

  [[noreturn]] void fail_transfer(Transfer how, const std::string& name) {
    const std::string end = process->end(how == Transfer::kClosed ? kGraceSeconds : 0);
    process.reset();
    if (how == Transfer::kLate) {
      fail(name, "E_PICTURE_TIME",
           "pixels within " + std::to_string(options.deadline_seconds) + " s", "none");
    }
    fail(name, "E_PICTURE_HELPER", "an answer of the process that reads images", end);
  }
  [[noreturn]] void fail_nonsense(const std::string& name, const char* what) {
    process.reset();
    nonsense = true;
    fail(name, "E_PICTURE_HELPER",
         std::string("a sound ") + what + " of the process that reads images", "another");
  }
  void send(const void* data, std::size_t count, double deadline, const std::string& name) {
    const Transfer how = process->send(data, count, deadline);
    if (how != Transfer::kDone) fail_transfer(how, name);
  }
  void receive(void* data, std::size_t count, double deadline, const std::string& name) {
    const Transfer how = process->receive(data, count, deadline);
    if (how != Transfer::kDone) fail_transfer(how, name);
  }

  void start_if_needed(double deadline, const std::string& name) {
    if (process && process->is_idle()) return;
    process.reset();
    process.emplace(options.helper, options.memory_bytes, options.cpu_seconds);
    ++started;
    asked = 0;
    wire::Hello hello = {};
    receive(&hello, sizeof hello, deadline, name);
    if (hello.magic != wire::kMagic) fail_nonsense(name, "greeting");
    confined = hello.confined;
  }

  void check(const wire::Reply& reply, const std::string& name) {
    if (reply.magic != wire::kMagic || reply.number != asked ||
        reply.text_bytes > wire::kMaxTextBytes) {
      fail_nonsense(name, "answer");
    }
    if (reply.status == wire::Status::kError) {
      if (reply.pixel_bytes != 0) fail_nonsense(name, "error");
      return;
    }
    const ImageLimits& limits = options.limits;
    const bool sound = reply.status == wire::Status::kImage && reply.width >= 1 &&
                       reply.height >= 1 && reply.width <= limits.side &&
                       reply.height <= limits.side && reply.width * reply.height <= limits.pixels &&
                       (reply.channels == 3 || reply.channels == 4) &&
                       reply.pixel_bytes == reply.width * reply.height * reply.channels;
    if (!sound) fail_nonsense(name, "picture");
  }

  [[noreturn]] void raise(const std::vector<std::string>& texts, const std::string& name) {
    if (texts.size() != 4 || !is_image_code(texts[0])) fail_nonsense(name, "error");
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = texts[0],
                 .file = name,
                 .where = texts[1],
                 .expected = texts[2],
                 .found = texts[3]});
  }

  // What an earlier image left in a process must not cost this one: nonsense from a process that
  // served others is asked for again, of a new one.
  DecodedImage ask(std::span<const std::uint8_t> bytes, const std::string& name) {
    nonsense = false;
    try {
      return ask_once(bytes, name);
    } catch (const Error&) {
      if (!nonsense || asked <= 1) throw;
    }
    return ask_once(bytes, name);
  }
  DecodedImage ask_once(std::span<const std::uint8_t> bytes, const std::string& name) {
    const double deadline = monotonic_seconds() + options.deadline_seconds;
    start_if_needed(deadline, name);
    const wire::Request request = {wire::kMagic, ++asked, bytes.size(), options.limits.side,
                                   options.limits.pixels};
    send(&request, sizeof request, deadline, name);
    send(bytes.data(), bytes.size(), deadline, name);
    wire::Reply reply = {};
    receive(&reply, sizeof reply, deadline, name);
    check(reply, name);
    std::string text(reply.text_bytes, '\0');
    receive(text.data(), text.size(), deadline, name);
    std::vector<std::string> texts = wire::split_texts(text);
    if (reply.status == wire::Status::kError) {
      if (reply.retires != 0) process.reset();
      raise(texts, name);
    }
    if (texts.empty()) fail_nonsense(name, "picture");
    DecodedImage image(static_cast<std::int64_t>(reply.width), static_cast<std::int64_t>(reply.height),
                    reply.channels, "");
    receive(image.pixels.data(), image.pixels.size(), deadline, name);
    image.format = escape_for_terminal(texts[0], 16);
    for (std::size_t i = 1; i < texts.size() && i <= kMaxNotes; ++i) {
      image.notes.push_back(escape_for_terminal(texts[i], 256));
    }
    if (reply.retires != 0) process.reset();
    return image;
  }
};

ImageReader::ImageReader(ImageReaderOptions options) : state_(std::make_unique<State>()) {
  expects(options.deadline_seconds > 0 && options.cpu_seconds > 0 && options.memory_bytes > 0,
          "a reader has time and memory");
  expects(options.limits.side <= (1u << 20) && options.limits.pixels <= (std::uint64_t{1} << 40),
          "limits whose products fit 64 bits");
  if (options.helper.empty()) options.helper = helper_next_to_program();
  state_->options = std::move(options);
}

ImageReader::~ImageReader() = default;
ImageReader::ImageReader(ImageReader&&) noexcept = default;
ImageReader& ImageReader::operator=(ImageReader&&) noexcept = default;

DecodedImage ImageReader::decode(std::span<const std::uint8_t> bytes, const std::string& name) {
  if (bytes.size() > state_->options.limits.file_bytes) {
    fail(name, "E_PICTURE_FILE",
         "at most " + std::to_string(state_->options.limits.file_bytes) + " bytes",
         std::to_string(bytes.size()) + " bytes");
  }
  return state_->ask(bytes, name);
}

DecodedImage ImageReader::read(const std::filesystem::path& file) {
  const std::string bytes = read_file(file, state_->options.limits.file_bytes, ErrorKind::kGeneral);
  return decode({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, file.string());
}

void ImageReader::start() {
  const double deadline = monotonic_seconds() + state_->options.deadline_seconds;
  state_->start_if_needed(deadline, state_->options.helper.string());
}

std::uint64_t ImageReader::processes_started() const { return state_->started; }

std::string ImageReader::confinement() const {
  if (!state_->confined) return "";
  const bool limits = (*state_->confined & wire::kResourceLimits) != 0;
  const bool calls = (*state_->confined & wire::kSystemCallFilter) != 0;
  if (limits && calls) return "limits and system calls";
  return limits ? "limits" : calls ? "system calls" : "nothing";
}

std::filesystem::path helper_next_to_program() {
  return companion_file("tessera-helper");
}

}  // namespace tessera
