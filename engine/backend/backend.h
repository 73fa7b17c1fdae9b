// What a device can do: allocate, and run the ops a transformer and a convolutional tokenizer need.
// Arguments arrive checked (engine/ops does that). Calls enqueue; only synchronize() blocks.
//
// Row contract, kept by every backend on the decode path: one output row is one reduction in one
// fixed order over its inputs. It depends neither on how many rows are computed beside it, nor on
// the number of threads, nor on rows cached after the ones it may see.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/core/tensor.h"
#include "engine/core/thread_pool.h"

namespace tessera {

// A matrix [n, k] in the backend's own packed layout, stored as f32 or bf16, computed in f32.
struct LinearWeight {
  Tensor packed;
  std::int64_t n = 0;  // outputs
  std::int64_t k = 0;  // inputs
  DType storage = DType::kF32;
};

// A convolution kernel [c_out, c_in, kh, kw] in the backend's own packed layout.
struct ConvWeight {
  Tensor packed;
  std::int64_t c_out = 0, c_in = 0, kh = 0, kw = 0;
  DType storage = DType::kF32;
};

enum class RopePairing : std::uint8_t {
  kHalfSplit,    // pair (x_i, x_{i + hd/2}): Llama as Hugging Face stores it
  kInterleaved,  // pair (x_{2i}, x_{2i+1}): LlamaGen
};

// One sequence's part of an attention call. Keys and values are [capacity, kv_heads, head_dim],
// f32 or bf16. Query rows [row_begin, row_begin + rows) of the batch belong to it; row r sees keys
// [0, first_visible + r + 1), which is causal attention when first_visible keys were cached before
// the window. With `causal` false every row sees keys [0, first_visible). Keys need not lie in
// order: with `listed`, key i from `listed_from` on is row listed[i - listed_from] of the tables.
// The result is that of tables in order, bit for bit. `key_bias`, if given, is added to every score
// of a key, heads and rows alike: ln(size) weighs a key as that many equal ones (Bolya et al. 2023),
// the lowest float hides it.
struct AttentionSegment {
  ConstTensorView keys;
  ConstTensorView values;
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
  std::int64_t first_visible = 0;
  bool causal = true;
  std::int64_t listed_from = 0;
  std::span<const std::int32_t> listed;
  ConstTensorView key_bias;  // f32, one number a visible key, or empty
};

struct AttentionArgs {
  ConstTensorView q;                          // [M, heads, head_dim] f32
  TensorView out;                             // [M, heads, head_dim] f32
  std::span<const AttentionSegment> segments;
  float scale = 1.0f;
  TensorView log_sum;  // [M, heads] f32: ln sum exp(score) over the keys a row sees, or empty
};

// Which of the axes query and head of a block of attention weights are averaged away.
enum class AttentionMean : std::uint8_t {
  kNone,   // out [R, heads, N]
  kHeads,  // out [R, N]
  kRows,   // out [heads, N]
  kBoth,   // out [N]
};

// Attention weights of a few query rows over all keys, recovered from the log-sum-exp of the
// attention that ran: weight = exp(scale q.k + key_bias - log_sum). Without log_sum they are the
// softmax over these keys. Nothing of size heads x N x N is ever held.
struct RowAttentionArgs {
  ConstTensorView q;         // [R, heads, head_dim] f32, R >= 1
  ConstTensorView keys;      // [N, kv_heads, head_dim] f32, N >= 1
  ConstTensorView key_bias;  // [N] f32 or empty
  ConstTensorView log_sum;   // [R, heads] f32 or empty
  float scale = 1.0f;
  AttentionMean mean = AttentionMean::kNone;
  TensorView out;  // f32, shape by `mean`
};

// 2-D convolution over one image, NHWC without the N. The input may be transformed as it is read,
// so that a GroupNorm, a swish and an upsampling never stand in memory:
//   read(y, x, c) = act(scale[c] * in(y / up, x / up, c) + shift[c]),  zero outside the image.
struct Conv2dArgs {
  ConstTensorView in;                 // [H, W, c_in] f32
  const ConvWeight* weight = nullptr;
  ConstTensorView bias;               // [c_out] f32 or empty
  ConstTensorView scale, shift;       // [c_in] f32, both or neither
  bool swish = false;                 // after scale and shift
  int upsample = 1;                   // 1 or 2 (nearest)
  int stride = 1;
  int pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;  // in upsampled pixels
  TensorView out;                     // [H', W', c_out] f32
  bool accumulate = false;            // out += result instead of out = result
};

// A norm that other features condition (Zheng et al., "MoVQ", 2022): every place of x is scaled and
// shifted by what stands at its place of a coarser grid,
//   out(y, x, c) = act((scale[c] in(y, x, c) + shift[c]) gain(y / f, x / g, c) + bias(y / f, x / g, c)).
struct ModulateArgs {
  ConstTensorView in;            // [h f, w g, C] f32
  ConstTensorView scale, shift;  // [C] f32
  ConstTensorView gain, bias;    // [h, w, C] f32
  bool swish = false;
  TensorView out;  // as in; may be in
};

// The rows of a layer on their way into attention: queries and keys are taken out of the joined
// product, their heads normed where there are norms, turned by the rotary tables; queries go to `q`,
// keys and values into the cache rows `slots`.
struct QkvRopeArgs {
  ConstTensorView qkv;             // [M, (heads + 2 kv_heads) hd] f32: q | k | v
  ConstTensorView q_norm, k_norm;  // [hd] f32 or empty
  float eps = 0;                   // of these norms
  ConstTensorView cos, sin;        // [M, hd / 2] f32
  RopePairing pairing = RopePairing::kHalfSplit;
  std::span<const std::int64_t> slots;     // [M]
  std::span<const std::int64_t> identity;  // [M] 0, 1, ...
  TensorView q;                    // [M, heads, hd] f32, out
  TensorView k;                    // [M, kv_heads, hd] f32, scratch
  TensorView keys, values;         // [capacity, kv_heads, hd] f32 or bf16
};

// Bytes of a device's own memory; the host's is not counted here.
struct DeviceMemory {
  std::size_t free = 0, total = 0;
};

class RowJudgeMaker;  // engine/backend/row_judge.h

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  // "cpu-avx2", "cpu-reference", "cuda:0"
  virtual Device device() const = 0;
  virtual ThreadPool& threads() = 0;

  virtual Tensor allocate(DType dtype, Shape shape) = 0;
  // Host memory that the device copies to and from while the host goes on.
  virtual Tensor allocate_host(DType dtype, Shape shape) { return Tensor::host(dtype, shape); }
  virtual void upload(ConstTensorView host, TensorView out) = 0;    // same dtype and shape
  virtual void download(ConstTensorView in, TensorView host) = 0;
  virtual void copy(ConstTensorView from, TensorView to) = 0;  // both on the device, not overlapping
  virtual void synchronize() = 0;
  // Nothing where the device computes in the host's memory.
  virtual std::optional<DeviceMemory> memory() const { return std::nullopt; }

  // Ops called between these two are the same ones whenever `key` is the same, on the same tensors
  // and of the same shapes; only the contents of host spans and the lengths that
  // AttentionSegment::first_visible gives may differ. A device may then repeat what it recorded the
  // first time.
  virtual void begin_recorded(std::uint64_t /*key*/) {}
  virtual void end_recorded() {}
  // Rows that a model sends through its layers together: longer batches go in parts of so many.
  virtual std::int64_t rows_at_once() const { return 256; }
  // Sampling and acceptance on the device; null where the host does them.
  virtual RowJudgeMaker* row_judges() { return nullptr; }

  // Rows of several matrices [n_i, k] stacked into one packed weight (QKV, gate and up), or a range
  // of rows of one (an image-only head). Sources f32, bf16 or f16 in host memory.
  virtual LinearWeight pack_linear(std::span<const ConstTensorView> stacked, DType storage) = 0;
  virtual ConvWeight pack_conv(ConstTensorView kernel, DType storage) = 0;
  // Bytes that pack_linear of [n, k] / pack_conv will hold, for the memory plan.
  virtual std::size_t packed_linear_bytes(std::int64_t n, std::int64_t k, DType storage) const = 0;
  virtual std::size_t packed_conv_bytes(const Shape& kernel, DType storage) const = 0;
  // Scratch that one conv2d / attention call of these sizes needs at most; grown once, kept.
  virtual void reserve_scratch(std::size_t bytes) = 0;
  virtual std::size_t conv_scratch_bytes(const Conv2dArgs& args) const = 0;
  virtual std::size_t attention_scratch_bytes(std::int64_t rows, std::int64_t heads,
                                              std::int64_t head_dim) const = 0;

  virtual void linear(ConstTensorView x, const LinearWeight& w, ConstTensorView bias,
                      TensorView out) = 0;                                   // [M,k] -> [M,n]
  // sum += w x + bias; scratch [M,n].
  virtual void linear_add(ConstTensorView x, const LinearWeight& w, ConstTensorView bias,
                          TensorView sum, TensorView scratch) {
    linear(x, w, bias, scratch);
    add(sum, scratch, sum);
  }
  // out = silu(gate) * up of [gate | up] = w x; scratch [M,2F], out [M,F].
  virtual void gated_linear(ConstTensorView x, const LinearWeight& gate_up, TensorView scratch,
                            TensorView out) {
    linear(x, gate_up, {}, scratch);
    silu_mul(scratch, out);
  }
  // The same products of rms_norm(x, norm, eps); normed [M,k] is scratch.
  virtual void normed_linear(ConstTensorView x, ConstTensorView norm, float eps,
                             const LinearWeight& w, ConstTensorView bias, TensorView normed,
                             TensorView out) {
    rms_norm(x, norm, eps, normed);
    linear(normed, w, bias, out);
  }
  virtual void normed_gated_linear(ConstTensorView x, ConstTensorView norm, float eps,
                                   const LinearWeight& gate_up, TensorView normed,
                                   TensorView scratch, TensorView out) {
    rms_norm(x, norm, eps, normed);
    gated_linear(normed, gate_up, scratch, out);
  }
  virtual void embedding(ConstTensorView table, std::span<const std::int32_t> ids,
                         TensorView out) = 0;                                // [V,C] -> [M,C]
  virtual void rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView out) = 0;
  virtual void add(ConstTensorView a, ConstTensorView b, TensorView out) = 0;
  virtual void silu_mul(ConstTensorView gate_up, TensorView out) = 0;        // [M,2F] -> [M,F]
  virtual void gelu(ConstTensorView x, TensorView out) = 0;                  // exact erf
  virtual void gelu_tanh(ConstTensorView x, TensorView out) = 0;   // the tanh form
  virtual void quick_gelu(ConstTensorView x, TensorView out) = 0;  // x sigmoid(1.702 x)
  // y = (x - mean) / sqrt(variance + eps) * weight + bias over each row [C].
  virtual void layer_norm(ConstTensorView x, ConstTensorView weight, ConstTensorView bias,
                          float eps, TensorView out) = 0;
  virtual void softmax_rows(ConstTensorView x, TensorView out) = 0;  // [M,N]; out may be x
  // out [K,C]: row to[i] receives weight[i] * x[i], summed in the order of i; other rows are zero.
  virtual void combine_rows(ConstTensorView x, std::span<const std::int32_t> to,
                            std::span<const float> weight, TensorView out) = 0;
  // x [M, heads, hd] rotated in place by per-row tables cos, sin [M, hd/2].
  virtual void rope(TensorView x, ConstTensorView cos, ConstTensorView sin, RopePairing pairing) = 0;
  // Copies rows [M, heads*hd] (row stride `row_stride` elements) into cache rows given by index.
  virtual void store_rows(const float* rows, std::int64_t row_stride,
                          std::span<const std::int64_t> slots, TensorView cache) = 0;
  // The parts one after the other, unless a device does them in one.
  virtual void qkv_rope(const QkvRopeArgs& args);
  virtual void attention(const AttentionArgs& args) = 0;
  virtual void row_attention(const RowAttentionArgs& args) = 0;

  virtual void conv2d(const Conv2dArgs& args) = 0;
  // Per-channel scale and shift that apply GroupNorm(groups, eps, gamma, beta) to x [H, W, C].
  virtual void group_norm_coefficients(ConstTensorView x, int groups, float eps,
                                       ConstTensorView gamma, ConstTensorView beta, TensorView scale,
                                       TensorView shift) = 0;
  // out = scale[c] * x + shift[c]
  virtual void affine_channels(ConstTensorView x, ConstTensorView scale, ConstTensorView shift,
                               TensorView out) = 0;
  virtual void modulate(const ModulateArgs& args) = 0;
  // argmin over the codebook of |z|^2 + |e|^2 - 2 z.e, lowest index on a tie. z [N,D], e [V,D].
  virtual void nearest_code(ConstTensorView z, ConstTensorView codebook,
                            std::span<std::int32_t> ids) = 0;
  // Rows scaled to unit length: x / max(|x|, eps).
  virtual void l2_normalize(ConstTensorView x, float eps, TensorView out) = 0;
};

struct CpuOptions {
  int threads = 0;          // 0 = one per core
  // All give the same bits; kReference runs everywhere and is slow.
  enum class Isa : std::uint8_t { kAuto, kReference, kAvx2, kAvx512 } isa = Isa::kAuto;
};

struct CudaOptions {
  // One family of kernels with one order of summation for every number of rows: a row's result is
  // the same bits whatever stands beside it. Without, wide products, convolutions and long
  // attention go by faster ways.
  bool deterministic = false;
  bool tf32 = false;    // products, convolutions and attention of f32 may round to tf32 or finer
  bool overlap = true;  // kernels may begin before the one in front ends, where the device can
};

// Devices that this build and this machine offer, the CPU first.
struct DeviceInfo {
  std::string name;         // as --device takes it: "cpu", "cuda:0"
  std::string description;  // "AVX2+FMA, 2 threads"
  bool usable = true;
  std::string why_not;
};
std::vector<DeviceInfo> list_devices();

// A device from outside this library; later calls of list_devices() and make_backend() know it.
struct DeviceOffer {
  DeviceInfo info;
  std::function<std::unique_ptr<Backend>(const CpuOptions&, const CudaOptions&)> make;
};
void offer_device(DeviceOffer offer);

// Error kUsage with the list of devices when `device` is unknown or unusable ("auto" never fails).
std::unique_ptr<Backend> make_backend(const std::string& device, const CpuOptions& options = {},
                                      const CudaOptions& cuda = {});

// Room for the activations of one pass, in the memory of the backend's device.
inline Arena make_arena(Backend& backend, std::size_t bytes) {
  if (backend.device().kind == DeviceKind::kCpu) return Arena(bytes);
  return Arena(backend.allocate(DType::kU8, Shape{static_cast<std::int64_t>(bytes)}));
}

// Between begin_recorded() and end_recorded().
class RecordedPass {
 public:
  RecordedPass(Backend& backend, std::uint64_t key) : backend_(backend) {
    backend_.begin_recorded(key);
  }
  ~RecordedPass() { backend_.end_recorded(); }
  RecordedPass(const RecordedPass&) = delete;
  RecordedPass& operator=(const RecordedPass&) = delete;

 private:
  Backend& backend_;
};

}  // namespace tessera
