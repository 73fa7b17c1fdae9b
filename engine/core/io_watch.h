// Every change that the I/O layer makes to the disk, shown to a test before and after it happens:
// so a test can end the process there, or write down what a power cut could lose. No production
// code installs a watcher.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <span>

#include "engine/core/fault.h"

namespace tessera {

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
  virtual void before(const IoChange&) {}
  virtual void after(const IoChange&) {}  // only of calls that succeeded
};

// nullptr in every production run; borrowed.
std::atomic<IoWatcher*>& installed_watcher();

}  // namespace tessera
