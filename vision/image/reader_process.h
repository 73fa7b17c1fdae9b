// The reader process as its parent sees it: start, bytes to and fro before a deadline, end.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace tessera {

class ReaderProcess {
 public:
  // Starts `program MEBIBYTES CPU-SECONDS` with a socket as its standard input and nothing else
  // open. Error kGeneral, E_PICTURE_HELPER, when that fails.
  ReaderProcess(const std::filesystem::path& program, std::uint64_t memory_bytes,
                std::uint64_t cpu_seconds);
  ~ReaderProcess();
  ReaderProcess(const ReaderProcess&) = delete;
  ReaderProcess& operator=(const ReaderProcess&) = delete;

  enum class Transfer { kDone, kClosed, kLate };
  // `deadline` in seconds of monotonic_seconds().
  Transfer send(const void* data, std::size_t count, double deadline);
  Transfer receive(void* data, std::size_t count, double deadline);

  // True when nothing waits to be read and the other side is there: it may be asked.
  bool is_idle() const;
  // Ends the process and says how it ended: "it was killed by SIGSEGV", "it ended with status 1".
  // `grace` seconds are left to it to end by itself.
  std::string end(double grace);
  // Kills the process and waits for nothing; a wait for its bytes ends at once. From any thread, but
  // not while another one is in end() or the destructor.
  void kill() const;

 private:
  Transfer wait_for(short events, double deadline) const;

  int socket_ = -1;
  pid_t pid_ = -1;
};

}  // namespace tessera
