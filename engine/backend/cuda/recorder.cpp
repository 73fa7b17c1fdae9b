#include "engine/backend/cuda/recorder.h"

#include <algorithm>
#include <cstring>

namespace tessera::cuda {

Recorder::Recorder(const RecorderLimits& limits)
    : limits_(limits),
      loose_pinned_(allocate_pinned(limits.loose_bytes)),
      loose_device_(allocate_device(limits.loose_bytes)) {}

Recorder::Pass& Recorder::pass_of(std::uint64_t key) {
  const auto found = std::find_if(passes_.begin(), passes_.end(),
                                  [&](const auto& pass) { return pass->key == key; });
  if (found != passes_.end()) {
    passes_.splice(passes_.begin(), passes_, found);
    return *passes_.front();
  }
  if (passes_.size() == limits_.passes) {
    // Its graph may still run.
    check(cudaStreamSynchronize(stream_), "waiting for a recorded pass");
    passes_.pop_back();
    ++counts_.dropped;
  }
  passes_.push_front(std::make_unique<Pass>());
  passes_.front()->key = key;
  return *passes_.front();
}

void Recorder::capture_begins(Pass& pass) {
  pass.arguments = std::make_unique<StagingBlock>(pass.bytes);
  pass.sent = make_event();
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "recording a pass");
  state_ = State::kCaptures;
}

void Recorder::begin(std::uint64_t key, cudaStream_t stream) {
  expects(current_ == nullptr, "recorded passes do not nest");
  stream_ = stream;
  Pass& pass = pass_of(key);
  staged_ = 0;
  state_ = State::kPlain;
  if (pass.graph.get() != nullptr) {
    // The copy of the last run's arguments may be under way.
    check(cudaEventSynchronize(pass.sent.get()), "waiting for a pass");
    pass.arguments->reset();
    state_ = State::kRepeats;
  } else if (pass.runs >= std::max<std::int64_t>(limits_.plain_runs, 1) &&
             pass.bytes <= limits_.pass_bytes) {
    capture_begins(pass);
  }
  current_ = &pass;  // after all that may fail
}

void Recorder::forget() {
  expects(!frozen(), "graphs are dropped between passes");
  for (const auto& pass : passes_) pass->graph = GraphExec();
}

void Recorder::abandon() {
  current_ = nullptr;
  const State state = std::exchange(state_, State::kPlain);
  if (state != State::kCaptures) return;
  cudaGraph_t captured = nullptr;
  cudaStreamEndCapture(stream_, &captured);  // an error on top of the one that is being notified
  const Graph dropped(captured);
}

void Recorder::end() {
  expects(current_ != nullptr, "a recorded pass was begun");
  Pass& pass = *current_;
  current_ = nullptr;
  const State state = std::exchange(state_, State::kPlain);
  if (pass.runs++ == 0) pass.bytes = staged_;
  expects(state == State::kPlain || staged_ == pass.bytes,
          "a repeated pass stages what it did before");
  if (state == State::kPlain) {
    ++counts_.plain;
    return;
  }
  if (state == State::kCaptures) {
    ++counts_.captured;
    cudaGraph_t captured = nullptr;
    check(cudaStreamEndCapture(stream_, &captured), "recording a pass");
    const Graph graph(captured);
    cudaGraphExec_t made = nullptr;
    check(cudaGraphInstantiate(&made, graph.get(), 0), "preparing a recorded pass");
    pass.graph = GraphExec(made);
  } else {
    ++counts_.repeated;
  }
  pass.arguments->flush(stream_);
  check(cudaEventRecord(pass.sent.get(), stream_), "marking a pass");
  check(cudaGraphLaunch(pass.graph.get(), stream_), "repeating a pass");
}

const void* Recorder::stage(const void* host, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (current_ != nullptr) staged_ += StagingBlock::padded(bytes);
  if (state_ == State::kPlain) return stage_loose(host, bytes);
  expects(current_->arguments->fits(bytes), "a repeated pass stages what it did before");
  return current_->arguments->put(host, bytes);
}

const void* Recorder::stage_loose(const void* host, std::size_t bytes) {
  const std::size_t padded = StagingBlock::padded(bytes);
  if (loose_used_ + padded > limits_.loose_bytes) {
    check(cudaStreamSynchronize(stream_), "waiting for room to stage arguments");
    loose_used_ = 0;
  }
  if (padded > limits_.loose_bytes) {
    // Lists of what thousands of rows side by side may see; what is enqueued has run.
    loose_device_ = allocate_device(padded);
    loose_pinned_ = allocate_pinned(padded);
    limits_.loose_bytes = padded;
  }
  auto* pinned = static_cast<std::byte*>(loose_pinned_.get()) + loose_used_;
  auto* device = static_cast<std::byte*>(loose_device_.get()) + loose_used_;
  loose_used_ += padded;
  std::memcpy(pinned, host, bytes);
  check(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, stream_),
        "sending arguments to the device");
  return device;
}

}  // namespace tessera::cuda
