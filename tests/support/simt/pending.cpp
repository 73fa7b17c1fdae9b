// Ops that are not written yet: weak, so that a definition elsewhere takes their place.
#include "engine/backend/cuda/cuda_backend.h"

#define PENDING __attribute__((weak))

namespace tessera::cuda {

namespace {
[[noreturn]] void pending(const char* what) {
  throw Error({.code = "E_PENDING", .where = what, .found = "not written yet"});
}
}  // namespace

PENDING std::shared_ptr<Libraries> make_libraries() { return nullptr; }
PENDING std::shared_ptr<RowJudgeMaker> make_row_judges(CudaBackend&) { return nullptr; }
PENDING LinearWeight CudaBackend::pack_linear(std::span<const ConstTensorView>, DType) {
  pending("pack_linear");
}
PENDING ConvWeight CudaBackend::pack_conv(ConstTensorView, DType) { pending("pack_conv"); }
PENDING std::size_t CudaBackend::packed_linear_bytes(std::int64_t, std::int64_t, DType) const {
  pending("packed");
}
PENDING std::size_t CudaBackend::packed_conv_bytes(const Shape&, DType) const { pending("packed"); }
PENDING std::size_t CudaBackend::conv_scratch_bytes(const Conv2dArgs&) const { pending("scratch"); }
PENDING std::size_t CudaBackend::attention_scratch_bytes(std::int64_t, std::int64_t,
                                                         std::int64_t) const {
  pending("scratch");
}
PENDING void CudaBackend::linear(ConstTensorView, const LinearWeight&, ConstTensorView,
                                 TensorView) {
  pending("linear");
}
PENDING void CudaBackend::linear_add(ConstTensorView, const LinearWeight&, ConstTensorView,
                                     TensorView, TensorView) {
  pending("linear_add");
}
PENDING void CudaBackend::gated_linear(ConstTensorView, const LinearWeight&, TensorView,
                                       TensorView) {
  pending("gated_linear");
}
PENDING void CudaBackend::embedding(ConstTensorView, std::span<const std::int32_t>, TensorView) {
  pending("embedding");
}
PENDING void CudaBackend::rms_norm(ConstTensorView, ConstTensorView, float, TensorView) {
  pending("rms_norm");
}
PENDING void CudaBackend::add(ConstTensorView, ConstTensorView, TensorView) { pending("add"); }
PENDING void CudaBackend::silu_mul(ConstTensorView, TensorView) { pending("silu_mul"); }
PENDING void CudaBackend::gelu(ConstTensorView, TensorView) { pending("gelu"); }
PENDING void CudaBackend::gelu_tanh(ConstTensorView, TensorView) { pending("gelu_tanh"); }
PENDING void CudaBackend::quick_gelu(ConstTensorView, TensorView) { pending("quick_gelu"); }
PENDING void CudaBackend::layer_norm(ConstTensorView, ConstTensorView, ConstTensorView, float,
                                     TensorView) {
  pending("layer_norm");
}
PENDING void CudaBackend::softmax_rows(ConstTensorView, TensorView) { pending("softmax_rows"); }
PENDING void CudaBackend::combine_rows(ConstTensorView, std::span<const std::int32_t>,
                                       std::span<const float>, TensorView) {
  pending("combine_rows");
}
PENDING void CudaBackend::rope(TensorView, ConstTensorView, ConstTensorView, RopePairing) {
  pending("rope");
}
PENDING void CudaBackend::store_rows(const float*, std::int64_t, std::span<const std::int64_t>,
                                     TensorView) {
  pending("store_rows");
}
PENDING void CudaBackend::qkv_rope(const QkvRopeArgs& args) { Backend::qkv_rope(args); }
PENDING void CudaBackend::attention(const AttentionArgs&) { pending("attention"); }
PENDING void CudaBackend::row_attention(const RowAttentionArgs&) { pending("row_attention"); }
PENDING void CudaBackend::conv2d(const Conv2dArgs&) { pending("conv2d"); }
PENDING void CudaBackend::group_norm_coefficients(ConstTensorView, int, float, ConstTensorView,
                                                  ConstTensorView, TensorView, TensorView) {
  pending("group_norm");
}
PENDING void CudaBackend::affine_channels(ConstTensorView, ConstTensorView, ConstTensorView,
                                          TensorView) {
  pending("affine_channels");
}
PENDING void CudaBackend::modulate(const ModulateArgs&) { pending("modulate"); }
PENDING void CudaBackend::nearest_code(ConstTensorView, ConstTensorView, std::span<std::int32_t>) {
  pending("nearest_code");
}
PENDING void CudaBackend::l2_normalize(ConstTensorView, float, TensorView) {
  pending("l2_normalize");
}

}  // namespace tessera::cuda
