// The CPU backend: splits each op into chunks for the thread pool and calls the inner loops of the
// instruction set that was chosen when it was made. Weights are packed into panels of 16 output
// columns, [n / 16][k][16] (docs/decisions/0001-one-reduction-order.md).
#pragma once

#include <cstddef>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/cpu/kernels/kernels.h"

namespace tessera::cpu {

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Kernels& kernels, int threads);

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
  std::size_t packed_linear_bytes(std::int64_t n, std::int64_t k, DType storage) const override;
  std::size_t packed_conv_bytes(const Shape& kernel, DType storage) const override;
  void reserve_scratch(std::size_t bytes) override;
  std::size_t conv_scratch_bytes(const Conv2dArgs& args) const override;
  std::size_t attention_scratch_bytes(std::int64_t rows, std::int64_t heads,
                                      std::int64_t head_dim) const override;

  void linear(ConstTensorView x, const LinearWeight& w, ConstTensorView bias,
              TensorView out) override;
  void embedding(ConstTensorView table, std::span<const std::int32_t> ids, TensorView out) override;
  void rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView out) override;
  void add(ConstTensorView a, ConstTensorView b, TensorView out) override;
  void silu_mul(ConstTensorView gate_up, TensorView out) override;
  void gelu(ConstTensorView x, TensorView out) override;
  void gelu_tanh(ConstTensorView x, TensorView out) override;
  void quick_gelu(ConstTensorView x, TensorView out) override;
  void layer_norm(ConstTensorView x, ConstTensorView weight, ConstTensorView bias, float eps,
                  TensorView out) override;
  void softmax_rows(ConstTensorView x, TensorView out) override;
  void combine_rows(ConstTensorView x, std::span<const std::int32_t> to,
                    std::span<const float> weight, TensorView out) override;
  void rope(TensorView x, ConstTensorView cos, ConstTensorView sin, RopePairing pairing) override;
  void store_rows(const float* rows, std::int64_t row_stride, std::span<const std::int64_t> slots,
                  TensorView cache) override;
  void attention(const AttentionArgs& args) override;
  void row_attention(const RowAttentionArgs& args) override;
  void conv2d(const Conv2dArgs& args) override;
  void group_norm_coefficients(ConstTensorView x, int groups, float eps, ConstTensorView gamma,
                               ConstTensorView beta, TensorView scale, TensorView shift) override;
  void affine_channels(ConstTensorView x, ConstTensorView scale, ConstTensorView shift,
                       TensorView out) override;
  void modulate(const ModulateArgs& args) override;
  void nearest_code(ConstTensorView z, ConstTensorView codebook,
                    std::span<std::int32_t> ids) override;
  void l2_normalize(ConstTensorView x, float eps, TensorView out) override;

 private:
  // This worker's part of the scratch, grown to at least `floats` a worker before the op runs.
  void ensure_scratch(std::size_t floats_per_worker);
  float* scratch(int worker);

  const Kernels& kernels_;
  ThreadPool pool_;
  Buffer scratch_;
  std::size_t scratch_floats_ = 0;  // of one worker
};

}  // namespace tessera::cpu
