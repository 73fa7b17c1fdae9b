// A test double: the arithmetic of the CPU backend on a device whose memory the host cannot touch
// (guarded_memory.h) and whose ops run late, at synchronize(). What works here and gives the CPU
// backend's bits neither reads device memory on the host, nor hands host memory to an op, nor
// forgets to wait, nor lets a host array go that an op reads later. Recorded passes are held to
// their contract: the same key means the same ops on the same tensors. It takes ops of any kind.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/backend/backend.h"

namespace tessera {

struct GuardedOptions {
  bool late = true;        // ops run at synchronize(), else at once
  bool own_memory = true;  // memory() says so: passes are padded and recorded
};

// Of all guarded backends of this process, for tests that want to know what ran.
struct GuardedCounts {
  std::int64_t ops = 0;       // enqueued
  std::int64_t recorded = 0;  // passes whose key was new
  std::int64_t repeated = 0;  // passes whose key was known
};
GuardedCounts guarded_counts();

class GuardedBackend final : public Backend {
 public:
  GuardedBackend(const CpuOptions& cpu, const GuardedOptions& options);
  // With another device's arithmetic, which computes in the host's memory.
  GuardedBackend(std::unique_ptr<Backend> arithmetic, const GuardedOptions& options);
  ~GuardedBackend() override;

  std::string name() const override { return options_.late ? "guarded:0" : "guarded:1"; }
  Device device() const override { return {DeviceKind::kCuda, options_.late ? 7 : 8}; }
  ThreadPool& threads() override { return cpu_->threads(); }

  Tensor allocate(DType dtype, Shape shape) override;
  void upload(ConstTensorView host, TensorView out) override;
  void download(ConstTensorView in, TensorView host) override;
  void copy(ConstTensorView from, TensorView to) override;
  void synchronize() override;
  std::optional<DeviceMemory> memory() const override;
  void begin_recorded(std::uint64_t key) override;
  void end_recorded() override;

  LinearWeight pack_linear(std::span<const ConstTensorView> stacked, DType storage) override;
  ConvWeight pack_conv(ConstTensorView kernel, DType storage) override;
  std::size_t packed_linear_bytes(std::int64_t n, std::int64_t k, DType storage) const override;
  std::size_t packed_conv_bytes(const Shape& kernel, DType storage) const override;
  void reserve_scratch(std::size_t bytes) override;
  std::size_t conv_scratch_bytes(const Conv2dArgs& args) const override;
  std::size_t attention_scratch_bytes(std::int64_t rows, std::int64_t heads,
                                      std::int64_t head_dim) const override;

 protected:
  // Every op there is: its arguments are copied and opened (LateOp), and the op runs on the CPU.
  void run_unknown(const OpKind& kind, const void* op) override;

 private:
  class LateOp;
  using Job = std::function<void(Backend& cpu)>;

  // The same view where the CPU's ops may read it; notes it in a recorded pass.
  ConstTensorView open(ConstTensorView view);
  TensorView open(TensorView view);
  void note(std::uint64_t word);
  void enqueue(Job job);
  void outside_passes(const char* what) const;
  Tensor moved(const Tensor& host);

  GuardedOptions options_;
  std::unique_ptr<Backend> cpu_;
  std::vector<Job> queue_;
  bool in_pass_ = false;
  std::uint64_t key_ = 0;
  std::vector<std::uint64_t> noted_;
  std::map<std::uint64_t, std::vector<std::uint64_t>> passes_;  // what each key did
};

// Makes `--device guarded:0` (late) and `--device guarded:1` (at once) devices of this process.
void offer_guarded_devices();

}  // namespace tessera
