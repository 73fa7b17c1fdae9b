// The seam between the I/O layer and the system: a watcher may answer a call in the system's place,
// and sees every change of the disk before and after it happens. So a test makes a call fail, ends
// the process at one, or writes down what a power cut could lose. Programs install none.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <span>

namespace tessera {

enum class IoOp : std::uint8_t {
  kOpen,
  kStat,
  kMap,
  kRead,
  kWrite,
  kSync,
  kRename,
  kUnlink,
  kMkdir,
  kList,
  kAny  // of watchers that make no difference; no call is this
};

// What becomes of a call.
struct IoAnswer {
  int error = 0;           // errno that the call fails with; 0 = the system is asked
  bool cut_short = false;  // a read or write moves half of what was asked
};

struct IoChange {
  IoOp op = IoOp::kAny;  // kOpen, kWrite, kSync, kRename, kUnlink, kMkdir
  // kOpen: the file and its descriptor (-1 before the call); kRename: the old name; kUnlink,
  // kMkdir.
  const std::filesystem::path* path = nullptr;
  const std::filesystem::path* to = nullptr;  // kRename: the new name
  int fd = -1;                                // kOpen (after), kWrite, kSync
  std::span<const std::byte> data;            // kWrite: what is (to be) written
  std::int64_t cut_to = -1;                   // kWrite: the file is cut to this length instead
};

class IoWatcher {
 public:
  virtual ~IoWatcher() = default;
  // Asked once a try, by any thread.
  virtual IoAnswer answer(IoOp) { return {}; }
  virtual void before(const IoChange&) {}
  virtual void after(const IoChange&) {}  // only of calls that succeeded
};

// nullptr in every program; borrowed.
std::atomic<IoWatcher*>& installed_watcher();

}  // namespace tessera
