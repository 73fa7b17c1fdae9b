// Makes one planned failure of the I/O layer last for a scope: the seam of engine/core/fault.h that
// only test programs use.
#pragma once

#include "engine/core/error.h"
#include "engine/core/fault.h"

namespace tessera {

class FaultScope {
 public:
  explicit FaultScope(const FaultPlan& plan) {
    state_.plan = plan;
    expects(installed_fault().exchange(&state_) == nullptr, "one fault at a time");
  }
  ~FaultScope() { installed_fault().store(nullptr); }
  FaultScope(const FaultScope&) = delete;
  FaultScope& operator=(const FaultScope&) = delete;

  // Calls that were made to fail so far.
  std::uint64_t hits() const { return state_.hits.load(); }

 private:
  FaultState state_;
};

}  // namespace tessera
