// One NVIDIA device: memory, a stream on which every op is enqueued, and recorded passes. Ops are
// functions in files that are named as the CPU's.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "engine/backend/backend.h"
#include "engine/backend/cuda/device_pool.h"
#include "engine/backend/cuda/recorder.h"
#include "engine/backend/cuda/runtime.h"

namespace tessera::cuda {

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

class Libraries;  // cuBLASLt and cuDNN, where they were found (libraries.h)
class CudaBackend;

std::shared_ptr<Libraries> make_libraries();  // libraries.cpp
// What the kernels that this device runs were compiled for, 90 for compute capability 9.0; older
// than the device where the driver translated them. Of the chosen device (read_probe.cu).
int code_version();
std::shared_ptr<RowVerifierMaker> make_row_verifiers(CudaBackend& backend);  // row_verifier.cu

class CudaBackend final : public Backend {
 public:
  CudaBackend(int index, const CpuOptions& cpu, const CudaOptions& options);
  ~CudaBackend() override;

  std::string name() const override { return "cuda:" + std::to_string(device_.index); }
  Device device() const override { return device_; }
  ThreadPool& threads() override { return pool_; }

  Tensor allocate(DType dtype, Shape shape) override;
  Tensor allocate_host(DType dtype, Shape shape) override;
  void upload(ConstTensorView host, TensorView out) override;
  void download(ConstTensorView in, TensorView host) override;
  void copy(ConstTensorView from, TensorView to) override;
  void synchronize() override;
  std::optional<DeviceMemory> memory() const override;
  void begin_recorded(std::uint64_t key) override;
  void end_recorded() override;
  // 24 a multiprocessor, in 256s. The library's products come in tiles of about 128 x 256, so that
  // 4096 outputs make three waves of tiles and a last wave that is partly idle costs little; and
  // 2,340 rows of a prompt with an image go through a large device together: in two parts the
  // second one would be a fraction of a wave. Weights are read once for all of them.
  std::int64_t rows_at_once() const override;
  RowVerifierMaker* row_verifiers() override;

  LinearWeight pack_linear(std::span<const ConstTensorView> stacked, DType storage) override;
  ConvWeight pack_conv(ConstTensorView kernel, DType storage) override;
  bool keeps(DType storage) const override;
  std::size_t packed_linear_bytes(std::int64_t n, std::int64_t k, DType storage) const override;
  std::size_t packed_conv_bytes(const Shape& kernel, DType storage) const override;
  void reserve_scratch(std::size_t bytes) override;
  std::size_t conv_scratch_bytes(const Conv2dArgs& args) const override;
  std::size_t attention_scratch_bytes(std::int64_t rows, std::int64_t heads,
                                      std::int64_t head_dim) const override;

  // For the files of the ops.
  // Whichever thread asks, its next calls go to this device.
  cudaStream_t stream() const {
    select_device(device_.index);
    return stream_.get();
  }
  // False while a recorded pass is repeated: its kernels stand in the graph already.
  bool enqueues() const { return recorder_.enqueues(); }
  // A copy of a host array on the device, for kernels that are enqueued from now on. Null if empty.
  template <typename T>
  const T* stage(std::span<const T> host) {
    return static_cast<const T*>(recorder_.stage(host.data(), host.size_bytes()));
  }
  // Device memory of at least this size, the same block for every op: its contents do not outlive
  // one op. Grows outside recorded passes only (reserve_scratch).
  void* scratch(std::size_t bytes);
  const CudaOptions& options() const { return options_; }
  // Whether it was made by the same copy of this code: a program may hold two, one of them for a
  // simulated device.
  bool of_this_library() const { return library_ == library(); }
  int multiprocessors() const { return multiprocessors_; }
  // Whether kernels may wait for each other on the device (compute capability 9.0).
  bool overlaps_kernels() const { return overlaps_kernels_; }
  // Counters for is_last_of() (simt.cuh), as many as a kernel that shares sums out takes: zero
  // between kernels.
  unsigned* tickets(std::int64_t count);
  Libraries& libraries() {
    select_device(device_.index);
    return *libraries_;
  }

 private:
  void send_part(std::span<const ConstTensorView> stacked, const LinearPart& part, std::int64_t k,
                 std::byte* memory);
  static const void* library();

  const void* library_ = library();
  Device device_;
  CudaOptions options_;
  int multiprocessors_ = 1;
  bool overlaps_kernels_ = false;
  ThreadPool pool_;
  Stream stream_;
  std::shared_ptr<DevicePool> pool_of_memory_ = std::make_shared<DevicePool>();
  std::shared_ptr<DevicePool> pinned_pool_ = std::make_shared<DevicePool>(true);
  Recorder recorder_;
  Buffer tickets_{nullptr, +[](void*) {}};
  std::exception_ptr broken_pass_;  // what a recorded pass failed with, until somebody waits
  Buffer scratch_{nullptr, +[](void*) {}};
  std::size_t scratch_bytes_ = 0;
  std::shared_ptr<Libraries> libraries_;
  std::shared_ptr<RowVerifierMaker> verifiers_;
};

// What each file of ops puts into the table.
void add_attention_ops(OpTable& table);
void add_codebook_ops(OpTable& table);
void add_conv2d_ops(OpTable& table);
void add_elementwise_ops(OpTable& table);
void add_linear_ops(OpTable& table);
void add_norm_ops(OpTable& table);
void add_rope_ops(OpTable& table);
void add_row_attention_ops(OpTable& table);

}  // namespace tessera::cuda
