// The residual convolution blocks of the "taming" VQGAN family (Esser, Rombach, Ommer: "Taming
// transformers for high-resolution image synthesis", 2021): residual block, single-head attention
// over all places, stride-2 downsampling, nearest upsampling. A network is a list of steps run in
// order, so encoder, decoder and the small verify are the same code with other data.
// Feature maps are [H, W, C] f32.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/core/index.h"
#include "engine/core/tensor.h"
#include "engine/nn/vq_spec.h"

namespace tessera {

enum class ConvStepKind : std::uint8_t {
  kConv1,      // 1x1
  kConv3,      // 3x3, one zero around
  kRes,        // GN, swish, conv3, GN, swish, conv3, plus the input (through a 1x1 if C changes)
  kAttention,  // GN, q k v, softmax(q k / sqrt C) v, projection, plus the input
  kDown,       // one zero right and below, conv3 with stride 2
  kUp,         // nearest x2, conv3
  kNormConv3,  // GN, swish, conv3
  kNorm,       // GN alone
};

// One step and the names of its tensors: `name` is the prefix of a block ("decoder.mid.0") or the
// convolution or norm itself ("decoder.conv_in"); `norm_name` is the norm of kNormConv3.
struct ConvStep {
  ConvStepKind kind = ConvStepKind::kConv3;
  std::string name;
  int c_in = 0;
  int c_out = 0;
  std::string norm_name = {};
};

struct GroupNormOptions {
  int groups = 32;
  float eps = 1e-6f;
  // Channels of the features that condition every norm (MoVQ's SpatialNorm: the norm itself is
  // NAME.norm_layer, NAME.conv_y and NAME.conv_b are 1x1 convolutions of the features); 0 = none.
  int conditioned_by = 0;
};

// Every tensor that the steps read, in step order.
std::vector<TensorSpec> conv_step_tensors(std::span<const ConvStep> steps,
                                          const GroupNormOptions& norm = {});

// Pixels per output place (downsampling) or output pixels per place (upsampling) of all steps.
int conv_steps_factor(std::span<const ConvStep> steps);

// Where weights come from: host tensors of the asked-for shape, already checked. done() tells that
// the tensor has been packed and its pages are not needed any more.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual ConstTensorView get(const std::string& name, const Shape& shape) = 0;
  virtual void done(const std::string& name) = 0;
};

// One slab of device memory used as two stacks that grow towards each other: a step reads its input
// at one end and builds its output at the other, so two feature maps are alive, not a whole
// network. With a null backend nothing is allocated and only the peak is counted.
class FeatureArena {
 public:
  enum class End : std::uint8_t { kLow, kHigh };

  FeatureArena() = default;  // counts only
  FeatureArena(Backend& backend, std::size_t bytes);

  TensorView take(End end, Shape shape);  // f32
  std::size_t mark(End end) const { return nth(used_, end); }
  void rewind(End end, std::size_t mark) { nth(used_, end) = mark; }
  std::size_t peak() const { return peak_; }

 private:
  Tensor slab_;
  Device device_;
  std::size_t capacity_ = 0;
  std::size_t used_[2] = {0, 0};
  std::size_t peak_ = 0;
  bool counting_ = true;
};

// A step list with its weights on a device. Const after construction.
class ConvStack {
 public:
  ConvStack(Backend& backend, std::vector<ConvStep> steps, WeightSource& weights, DType storage,
            GroupNormOptions norm = {});
  ~ConvStack();
  ConvStack(ConvStack&&) noexcept;
  ConvStack& operator=(ConvStack&&) = delete;

  // x [H, W, c_in of the first step] on the device, outside the arena; `condition` [H, W,
  // conditioned_by] where norms are conditioned. Returns the last step's output, which lives in the
  // arena. The arena holds nothing else before and after.
  TensorView run(Backend& backend, FeatureArena& arena, ConstTensorView x,
                 ConstTensorView condition = {}) const;

  std::span<const ConvStep> steps() const { return steps_; }

 private:
  struct Weights;
  std::vector<ConvStep> steps_;
  std::vector<Weights> weights_;
  GroupNormOptions norm_;
};

// Bytes of the arena, and of the backend's own scratch, that running `steps` on [height, width]
// takes; found by running the same code without memory and arithmetic.
struct ConvScratch {
  std::size_t arena = 0;
  std::size_t backend = 0;
  std::size_t total() const { return arena + backend; }
};
ConvScratch conv_scratch(const Backend& backend, std::span<const ConvStep> steps, int height,
                         int width, const GroupNormOptions& norm = {});

// Bytes of the packed weights of `steps`.
std::size_t conv_weight_bytes(const Backend& backend, std::span<const ConvStep> steps,
                              DType storage, const GroupNormOptions& norm = {});

}  // namespace tessera
