// Failures of the I/O layer that a test plans: the n-th call of a kind fails with a chosen errno,
// or moves a part. Each is an IoWatcher, installed while it lives over the one that was there, which
// goes on seeing calls and changes.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/core/io_watch.h"

namespace tessera {

struct FaultPlan {
  enum class Mode : std::uint8_t {
    kOnce,    // the n-th call only
    kSticky,  // the n-th call and all after it
    kShort,   // the n-th read or write moves half of what was asked; other calls are untouched
  };
  IoOp op = IoOp::kAny;
  std::uint64_t nth = 1;  // counts calls of `op` from 1
  int error = 0;          // errno
  Mode mode = Mode::kOnce;
};

class WatcherOverAnother : public IoWatcher {
 public:
  WatcherOverAnother() : below_(installed_watcher().exchange(this)) {}
  ~WatcherOverAnother() override { installed_watcher().store(below_); }
  WatcherOverAnother(const WatcherOverAnother&) = delete;
  WatcherOverAnother& operator=(const WatcherOverAnother&) = delete;

  IoAnswer answer(IoOp op) override { return below_ == nullptr ? IoAnswer{} : below_->answer(op); }
  void before(const IoChange& change) override {
    if (below_ != nullptr) below_->before(change);
  }
  void after(const IoChange& change) override {
    if (below_ != nullptr) below_->after(change);
  }

 private:
  IoWatcher* below_;
};

class FaultScope final : public WatcherOverAnother {
 public:
  explicit FaultScope(const FaultPlan& plan) : plan_(plan) {}

  IoAnswer answer(IoOp op) override {
    const IoAnswer fault = planned(op);
    return fault.error != 0 || fault.cut_short ? fault : WatcherOverAnother::answer(op);
  }

  // Calls that were made to fail so far.
  std::uint64_t hits() const { return hits_.load(); }

 private:
  IoAnswer planned(IoOp op) {
    if (plan_.op != IoOp::kAny && plan_.op != op) return {};
    const std::uint64_t count = seen_.fetch_add(1) + 1;
    const bool due =
        plan_.mode == FaultPlan::Mode::kSticky ? count >= plan_.nth : count == plan_.nth;
    if (!due) return {};
    const bool part = plan_.mode == FaultPlan::Mode::kShort;
    if (part && op != IoOp::kRead && op != IoOp::kWrite) return {};
    hits_.fetch_add(1);
    return part ? IoAnswer{.cut_short = true} : IoAnswer{.error = plan_.error};
  }

  FaultPlan plan_;
  std::atomic<std::uint64_t> seen_{0}, hits_{0};
};

// Counts calls and lets them pass.
class CallCounter final : public WatcherOverAnother {
 public:
  IoAnswer answer(IoOp op) override {
    count_.fetch_add(1);
    return WatcherOverAnother::answer(op);
  }
  std::uint64_t count() const { return count_.load(); }

 private:
  std::atomic<std::uint64_t> count_{0};
};

}  // namespace tessera
