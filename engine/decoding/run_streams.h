// Whole streams through a loop, for callers that have them all at hand.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/function_ref.h"
#include "engine/decoding/stream_loop.h"

namespace tessera {

// What all streams of a run have so far, in their order.
class RunResults {
 public:
  explicit RunResults(std::span<const StreamResult* const> results) : results_(results) {}
  std::size_t size() const { return results_.size(); }
  const StreamResult& operator[](std::size_t i) const { return *results_[i]; }

 private:
  std::span<const StreamResult* const> results_;
};

// After each pass; lives during the call only.
struct RunPass {
  std::int64_t pass = 0;  // of the run, from 1
  RunResults items;
  PassTimes times;
  std::int64_t prompt_rows = 0;  // in it
};

// Writes all streams, each as soon as a slot of the loop is free; nothing else may be in the loop.
// Results in the order of the streams. on_pass may stop the run: streams that are not over then end
// as kStopped with the tokens they have. on_add is notified which stream took which slot.
std::vector<StreamResult> run_streams(
    StreamLoop& loop, std::span<const Stream> streams, FunctionRef<Flow(const RunPass&)> on_pass,
    FunctionRef<void(std::size_t slot, std::size_t number)> on_add);
std::vector<StreamResult> run_streams(StreamLoop& loop, std::span<const Stream> streams,
                                      FunctionRef<Flow(const RunPass&)> on_pass);
std::vector<StreamResult> run_streams(StreamLoop& loop, std::span<const Stream> streams);

}  // namespace tessera
