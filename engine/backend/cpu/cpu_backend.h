// The CPU as a device. An op is a function in a file of its own or of its kind: it splits the work
// into chunks for the thread pool and calls the inner loops of the instruction set that was chosen
// when the device was made. Weights are packed into panels of 16 output columns, [n / 16][k][16]
// (docs/decisions/0001-one-reduction-order.md).
#pragma once

#include <cstddef>

#include "engine/backend/backend.h"
#include "engine/backend/cpu/kernels/kernels.h"
#include "engine/backend/cpu/panel_memory.h"

namespace tessera::cpu {

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

class CpuBackend final : public Backend {
 public:
  // The tables of one instruction set.
  struct Tables {
    const Kernels& kernels;
    const IntegerKernels& integers;
    const PairKernels& pairs;
  };
  CpuBackend(const Tables& tables, int threads, CpuOptions::Inputs inputs);

  std::string name() const override;
  Device device() const override { return {}; }
  ThreadPool& threads() override { return pool_; }

  Tensor allocate(DType dtype, Shape shape) override;
  void upload(ConstTensorView host, TensorView out) override;
  void download(ConstTensorView in, TensorView host) override;
  void copy(ConstTensorView from, TensorView to) override { upload(from, to); }
  void synchronize() override {}

  LinearWeight pack_linear(std::span<const ConstTensorView> stacked, DType storage) override;
  ConvWeight pack_conv(ConstTensorView kernel, DType storage) override;
  bool keeps(DType storage) const override;
  bool caches(DType /*type*/) const override { return true; }
  std::size_t packed_linear_bytes(std::int64_t n, std::int64_t k, DType storage) const override;
  std::size_t packed_conv_bytes(const Shape& kernel, DType storage) const override;
  void reserve_scratch(std::size_t bytes) override;
  std::size_t conv_scratch_bytes(const Conv2dArgs& args) const override;
  std::size_t attention_scratch_bytes(std::int64_t rows, std::int64_t heads,
                                      std::int64_t head_dim) const override;

  // For the files of the ops.
  const Kernels& kernels() const { return tables_.kernels; }
  const IntegerKernels& integer_kernels() const { return tables_.integers; }
  const PairKernels& pair_kernels() const { return tables_.pairs; }
  CpuOptions::Inputs inputs() const { return inputs_; }
  bool precise() const { return precise_; }
  void set_precise(bool precise) { precise_ = precise; }
  // A worker's part of the scratch, grown to at least so many floats a worker before an op runs.
  void ensure_scratch(std::size_t floats_per_worker);
  float* scratch(int worker);
  // Memory that all workers see, until the next call; grown as needed, 64-byte aligned.
  std::byte* shared_scratch(std::size_t bytes);

 private:
  const Tables tables_;
  const CpuOptions::Inputs inputs_;
  bool precise_ = false;  // products with weights of blocks take f32 inputs
  ThreadPool pool_;
  PanelMemory panel_memory_;
  Buffer scratch_;
  std::size_t scratch_floats_ = 0;  // of one worker
  Buffer shared_scratch_{nullptr, +[](void*) {}};
  std::size_t shared_bytes_ = 0;
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

}  // namespace tessera::cpu
