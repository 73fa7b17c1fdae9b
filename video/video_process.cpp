#include "video/video_process.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/io.h"
#include "vision/image/image_reader.h"
#include "vision/image/image_wire.h"

namespace tessera {

namespace vw = video_wire;

namespace {

constexpr double kGraceSeconds = 1.0;  // for a process that closed its socket to end by itself

bool is_video_code(std::string_view code) {
  return code.starts_with("E_VIDEO_") && code.size() <= 32 &&
         std::ranges::all_of(code, [](char c) { return c == '_' || (c >= 'A' && c <= 'Z'); });
}

}  // namespace

void VideoInterrupt::fire() {
  const std::lock_guard lock(mutex_);
  fired_ = true;
  for (const ReaderProcess* process : running_) process->kill();
}

void VideoInterrupt::watch(const ReaderProcess* process) {
  const std::lock_guard lock(mutex_);
  running_.push_back(process);
  if (fired_) process->kill();
}

void VideoInterrupt::leave(const ReaderProcess* process) {
  const std::lock_guard lock(mutex_);
  std::erase(running_, process);
}

VideoProcess::VideoProcess(VideoProcessOptions options, std::string name)
    : options_(std::move(options)), name_(std::move(name)) {
  if (options_.program.empty()) {
    options_.program = helper_next_to_program().parent_path() / "tessera-video";
  }
  seconds_ = options_.deadline_seconds;
  deadline_ = monotonic_seconds() + seconds_;
  start();
  const vw::Message hello = receive();
  constexpr std::uint64_t kWalls = wire::kResourceLimits | wire::kSystemCallFilter;
  if (hello.kind != vw::Kind::kHello || hello.bytes != 0 || (hello.a & ~kWalls) != 0) {
    fail_nonsense("greeting");
  }
  confined_ = hello.a;
  end_answer();
}

void VideoProcess::start() {
  try {
    process_ = std::unique_ptr<ReaderProcess, Ender>(
        new ReaderProcess(options_.program, options_.memory_bytes, options_.cpu_seconds),
        Ender{options_.interrupt});
  } catch (const Error& error) {
    ErrorInfo info = error.info();
    info.code = "E_VIDEO_HELPER";
    info.expected = "the process that reads and writes videos, next to the program";
    throw Error(std::move(info));
  }
  if (options_.interrupt) options_.interrupt->watch(process_.get());
}

void VideoProcess::fail(const char* code, std::string expected, std::string found) {
  process_.reset();
  ended_ = {.kind = ErrorKind::kGeneral,
            .code = code,
            .file = name_,
            .expected = std::move(expected),
            .found = std::move(found)};
  throw Error(*ended_);
}

void VideoProcess::fail_transfer(ReaderProcess::Transfer how) {
  process_.get_deleter().leave(process_.get());
  const std::string end =
      process_->end(how == ReaderProcess::Transfer::kClosed ? kGraceSeconds : 0);
  if (how == ReaderProcess::Transfer::kLate) {
    fail("E_VIDEO_LATE", "an answer within " + std::to_string(std::lround(seconds_)) + " s",
         "none");
  }
  fail("E_VIDEO_HELPER", "an answer of the process that reads and writes videos", end);
}

void VideoProcess::fail_nonsense(const char* what) {
  fail("E_VIDEO_HELPER",
       std::string("a sound ") + what + " of the process that reads and writes videos", "another");
}

void VideoProcess::give_up(const ErrorInfo& error) {
  if (!answering_ || !process_) return;
  process_.reset();
  ended_ = error;
}

void VideoProcess::ask(vw::Kind kind, std::uint64_t a, const void* data, std::size_t bytes,
                      double more_seconds) {
  if (!process_) throw Error(*ended_);
  expects(!answering_, "a question after an answer");
  seconds_ = options_.deadline_seconds + more_seconds;
  deadline_ = monotonic_seconds() + seconds_;
  answering_ = true;
  if (!process_->is_idle()) {  // it ended, or says what nobody asked
    char unasked = 0;
    const auto how = process_->receive(&unasked, 1, deadline_);
    if (how != ReaderProcess::Transfer::kDone) fail_transfer(how);
    fail_nonsense("silence");
  }
  send(kind, a, data, bytes);
}

void VideoProcess::supply(const void* data, std::size_t bytes) {
  send(vw::Kind::kBytes, 0, data, bytes);
}

void VideoProcess::send(vw::Kind kind, std::uint64_t a, const void* data, std::size_t bytes) {
  const vw::Message message = {vw::kMagic, kind, a, 0, bytes};
  auto how = process_->send(&message, sizeof message, deadline_);
  if (how == ReaderProcess::Transfer::kDone) how = process_->send(data, bytes, deadline_);
  if (how != ReaderProcess::Transfer::kDone) fail_transfer(how);
}

vw::Message VideoProcess::receive() {
  // A process that always has something more to say is late too.
  if (monotonic_seconds() >= deadline_) fail_transfer(ReaderProcess::Transfer::kLate);
  vw::Message message = {};
  const auto how = process_->receive(&message, sizeof message, deadline_);
  if (how != ReaderProcess::Transfer::kDone) fail_transfer(how);
  if (message.magic != vw::kMagic) fail_nonsense("answer");
  if (message.kind == vw::Kind::kError) raise(message.bytes);
  return message;
}

void VideoProcess::receive_payload(void* data, std::size_t bytes) {
  const auto how = process_->receive(data, bytes, deadline_);
  if (how != ReaderProcess::Transfer::kDone) fail_transfer(how);
}

void VideoProcess::raise(std::uint64_t bytes) {
  if (bytes > vw::kMaxText) fail_nonsense("error");
  std::string text(bytes, '\0');
  receive_payload(text.data(), text.size());
  const std::vector<std::string> texts = wire::split_texts(text);
  if (texts.size() != 4 || !is_video_code(texts[0])) fail_nonsense("error");
  end_answer();
  throw Error({.kind = ErrorKind::kGeneral,
               .code = texts[0],
               .file = name_,
               .where = escape_for_terminal(texts[1], 256),
               .expected = escape_for_terminal(texts[2], 256),
               .found = escape_for_terminal(texts[3], 256)});
}

std::string VideoProcess::confinement() const {
  const bool limits = (confined_ & wire::kResourceLimits) != 0;
  const bool calls = (confined_ & wire::kSystemCallFilter) != 0;
  if (limits && calls) return "limits and system calls";
  return limits ? "limits" : calls ? "system calls" : "nothing";
}

}  // namespace tessera
