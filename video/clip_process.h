// The process that reads or writes one clip, as its parent talks to it: every answer checked,
// every wait bounded. Internal to video.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "video/video_wire.h"
#include "vision/image/reader_process.h"

namespace tessera {

struct ClipProcessOptions {
  std::filesystem::path program;                        // `tessera-video`; empty: beside this one
  double deadline_seconds = 60;                         // for one answer, by the wall clock
  std::uint64_t memory_bytes = std::uint64_t{4} << 30;  // address space of the process
  std::uint64_t cpu_seconds = 3600;                     // of its life
};

class ClipProcess {
 public:
  // Starts it. `name` stands for the clip in messages. Errors of all functions, kind kGeneral:
  // E_VIDEO_HELPER (it died, spoke nonsense, could not be started), E_VIDEO_TIME (no answer), and
  // what it answers as an error.
  ClipProcess(ClipProcessOptions options, std::string name);

  void send(video_wire::Kind kind, std::uint64_t a, const void* data, std::size_t bytes);
  // The next message; kError is thrown as the Error it tells.
  video_wire::Message receive();
  void receive_payload(void* data, std::size_t bytes);
  [[noreturn]] void fail_nonsense(const char* what);
  const std::string& name() const { return name_; }
  // "limits and system calls", "limits", "system calls", "nothing".
  std::string confinement() const;

 private:
  [[noreturn]] void fail_transfer(ReaderProcess::Transfer how);
  [[noreturn]] void raise(std::uint64_t bytes);

  ClipProcessOptions options_;
  std::string name_;
  double deadline_ = 0;
  std::optional<ReaderProcess> process_;
  std::uint64_t confined_ = 0;
};

}  // namespace tessera
