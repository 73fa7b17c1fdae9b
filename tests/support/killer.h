// Ends the process at a chosen change to the disk, as a kill from outside would.
#pragma once

#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <map>

#include "engine/core/io_watch.h"

namespace tessera {

// Ends this process at the `nth` change (from 1): before it, after `bytes` bytes of it, or after
// it.
class Killer final : public IoWatcher {
 public:
  enum class When : std::uint8_t { kBefore, kWithin, kAfter };
  Killer(std::uint64_t nth, When when, std::size_t bytes) : nth_(nth), when_(when), bytes_(bytes) {
    installed_watcher().store(this);
  }
  ~Killer() override { installed_watcher().store(nullptr); }

  void before(const IoChange& change) override {
    if (++count_ != nth_ || when_ == When::kAfter) return;
    if (when_ == When::kWithin) {
      const ssize_t written = ::write(change.fd, change.data.data(), bytes_);
      if (written != static_cast<ssize_t>(bytes_)) ::_exit(97);
    }
    ::kill(::getpid(), SIGKILL);
  }
  void after(const IoChange&) override {
    if (count_ == nth_ && when_ == When::kAfter) ::kill(::getpid(), SIGKILL);
  }

 private:
  std::uint64_t nth_, count_ = 0;
  When when_;
  std::size_t bytes_;
};

// Counts changes and writes down how long each write to a journal is.
class ChangeCounter final : public IoWatcher {
 public:
  ChangeCounter() { installed_watcher().store(this); }
  ~ChangeCounter() override { installed_watcher().store(nullptr); }
  void before(const IoChange& change) override {
    ++count;
    if (change.op == IoOp::kWrite && change.cut_to < 0) writes[count] = change.data.size();
  }
  std::uint64_t count = 0;
  std::map<std::uint64_t, std::size_t> writes;
};

}  // namespace tessera
