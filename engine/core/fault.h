// Planned failures. The I/O layer asks here before every system call; a plan makes the n-th call of
// a kind fail with a chosen errno, or transfer only a part. No production code installs a plan:
// test objects do (tests/support/fault_scope.h), and builds with TESSERA_FAULTS read the
// environment (TESSERA_FAULT=op:n:errno[:once|sticky|short], TESSERA_PLANT=name).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

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
  kAny
};

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

// A plan at work: how many matching calls were seen, how many were made to fail.
struct FaultState {
  FaultPlan plan;
  std::atomic<std::uint64_t> seen{0};
  std::atomic<std::uint64_t> hits{0};
};

// "write:3:ENOSPC:sticky"; nullopt if the text is no plan.
std::optional<FaultPlan> parse_fault_plan(std::string_view text);

// The plan in force; nullptr in every production run. The state is borrowed.
std::atomic<FaultState*>& installed_fault();

// What the layer must do with the call it is about to make.
struct FaultVerdict {
  int error = 0;  // errno to fail with, 0 for none
  bool cut_short = false;
};
FaultVerdict consult_faults(IoOp op);

// True when the named defect (an off-by-one in an input check) is switched on. Fuzzing must find
// each; every other build compiles the defect out.
#ifdef TESSERA_FAULTS
bool plant(std::string_view name);
#else
constexpr bool plant(std::string_view) { return false; }
#endif

}  // namespace tessera
