// Passes that were enqueued once and are repeated as a CUDA graph. A pass goes through the same ops
// every time; what changes, the contents of host arrays, stands in the pass's own staging block.
// The first times a key is seen its ops are enqueued one by one; then they are captured; from there
// on staging fills the block again, kernels are not launched, and the end of the pass sends the
// block and launches the graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

#include "engine/backend/cuda/runtime.h"
#include "engine/backend/cuda/staging.h"

namespace tessera::cuda {

struct RecorderLimits {
  std::size_t passes = 48;                        // graphs kept, the longest unused one goes
  std::int64_t plain_runs = 1;                    // of a key before it is captured
  std::size_t pass_bytes = std::size_t{8} << 20;  // of host arrays in a pass that is recorded
  // Of those outside passes, between two waits; more where one array is larger.
  std::size_t loose_bytes = std::size_t{4} << 20;
};

class Recorder {
 public:
  explicit Recorder(const RecorderLimits& limits = {});

  void begin(std::uint64_t key, cudaStream_t stream);
  void end();
  // In place of end() where the pass broke off: what was captured of it is dropped.
  void abandon();
  bool enqueues() const { return state_ != State::kRepeats; }
  // While a pass is captured or repeated, memory that kernels know must stay where it is.
  bool frozen() const { return state_ != State::kPlain; }
  // Drops all graphs: memory that they name has moved. Nothing may be frozen or under way.
  void forget();
  // The device's place of a copy of the array; null for none.
  const void* stage(const void* host, std::size_t bytes);
  // The stream was waited for: loose arrays may be overwritten.
  void waited() { loose_used_ = 0; }
  void use(cudaStream_t stream) { stream_ = stream; }

  struct Counts {
    std::int64_t plain = 0, captured = 0, repeated = 0, dropped = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  enum class State : std::uint8_t { kPlain, kCaptures, kRepeats };
  struct Pass {
    std::uint64_t key = 0;
    std::int64_t runs = 0;
    std::size_t bytes = 0;                    // of the host arrays of a run
    std::unique_ptr<StagingBlock> arguments;  // from the capture on
    Event sent;                               // after the last copy of the arguments
    GraphExec graph;
  };

  Pass& pass_of(std::uint64_t key);
  void capture_begins(Pass& pass);
  const void* stage_loose(const void* host, std::size_t bytes);

  RecorderLimits limits_;
  Counts counts_;
  cudaStream_t stream_ = nullptr;
  State state_ = State::kPlain;
  std::list<std::unique_ptr<Pass>> passes_;  // the last used one first
  Pass* current_ = nullptr;
  std::size_t staged_ = 0;  // bytes of the current pass
  Buffer loose_pinned_, loose_device_;
  std::size_t loose_used_ = 0;
};

}  // namespace tessera::cuda
