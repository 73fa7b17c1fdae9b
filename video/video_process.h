// The process that reads or writes one video, as its parent talks to it: every answer checked,
// every wait bounded. Internal to video.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "video/video_wire.h"
#include "vision/image/reader_process.h"

namespace tessera {

// Ends from another thread what one waits for: from fire() on the processes that it was given to
// are killed, those that start later too, and their answers are errors, E_VIDEO_HELPER. All calls
// from any thread.
class VideoInterrupt {
 public:
  void fire();

 private:
  friend class VideoProcess;
  void watch(const ReaderProcess* process);
  void leave(const ReaderProcess* process);

  std::mutex mutex_;
  bool fired_ = false;
  std::vector<const ReaderProcess*> running_;
};

struct VideoProcessOptions {
  std::filesystem::path program;                        // `tessera-video`; empty: next to this one
  double deadline_seconds = 60;                         // for one answer, by the wall clock
  std::uint64_t memory_bytes = std::uint64_t{4} << 30;  // address space of the process
  std::uint64_t cpu_seconds = 3600;                     // of its life
  std::shared_ptr<VideoInterrupt> interrupt = {};        // null: nobody ends it from outside
};

// One question, one answer: ask(), then receive() and receive_payload() until the answer is there,
// then end_answer(). What comes unasked, late or not as announced ends the process; then every
// later question fails with the same error.
class VideoProcess {
 public:
  // Starts it. `name` stands for the video in messages. Errors of all functions, kind kGeneral:
  // E_VIDEO_HELPER (it died, spoke nonsense, could not be started), E_VIDEO_LATE (no answer in
  // time), and what it answers as an error.
  VideoProcess(VideoProcessOptions options, std::string name);

  // `more_seconds`: for an answer that goes through a whole file.
  void ask(video_wire::Kind kind, std::uint64_t a, const void* data, std::size_t bytes,
           double more_seconds = 0);
  // Bytes of the file, while it works on its answer: the time for that goes on.
  void supply(const void* data, std::size_t bytes);
  // The next message; kError is thrown as the Error it tells, and ends the answer.
  video_wire::Message receive();
  void receive_payload(void* data, std::size_t bytes);
  void end_answer() { answering_ = false; }
  [[noreturn]] void fail_nonsense(const char* what);
  // For an error on this side in the middle of an answer: ends the process, which can no longer be
  // understood. Nothing happens between answers.
  void give_up(const ErrorInfo& error);
  bool is_there() const { return process_ != nullptr; }
  const std::string& name() const { return name_; }
  // "limits and system calls", "limits", "system calls", "nothing".
  std::string confinement() const;

 private:
  // What is ended is not killed any more.
  struct Ender {
    std::shared_ptr<VideoInterrupt> interrupt;
    void leave(const ReaderProcess* process) const {
      if (interrupt) interrupt->leave(process);
    }
    void operator()(ReaderProcess* process) const {
      leave(process);
      delete process;
    }
  };

  void start();
  void send(video_wire::Kind kind, std::uint64_t a, const void* data, std::size_t bytes);
  [[noreturn]] void fail(const char* code, std::string expected, std::string found);
  [[noreturn]] void fail_transfer(ReaderProcess::Transfer how);
  [[noreturn]] void raise(std::uint64_t bytes);

  VideoProcessOptions options_;
  std::string name_;
  double deadline_ = 0, seconds_ = 0;
  bool answering_ = true;  // the greeting is one
  std::unique_ptr<ReaderProcess, Ender> process_;
  std::optional<ErrorInfo> ended_;  // why there is no process
  std::uint64_t confined_ = 0;
};

}  // namespace tessera
