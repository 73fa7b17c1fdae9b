// Runs step lists. Each step reads its map at one end of the arena and leaves its result at the
// other (or adds in place), so a dry run of the same code tells the memory that the real one will
// take.
#include "engine/nn/conv_blocks.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/core/index.h"
#include "engine/nn/conv_parts.h"
#include "engine/ops/ops.h"

namespace tessera {

namespace {

constexpr std::size_t kAlignment = 64;

using End = FeatureArena::End;

End other(End end) { return end == End::kLow ? End::kHigh : End::kLow; }


struct ConvParams {
  ConvWeight weight;
  Tensor bias;
};
struct NormParams {
  Tensor gamma;
  Tensor beta;
  std::vector<ConvParams> conditions;  // gain and bias, or none
};

// Runs steps; with `dry` set it only takes arena space and asks the backend for its scratch.
class Runner {
 public:
  Runner(Backend* backend, const Backend& sizes, FeatureArena& arena, GroupNormOptions norm,
         ConstTensorView condition)
      : backend_(backend), sizes_(sizes), arena_(arena), norm_(norm), condition_(condition) {}

  // x sits alone at `end` (or outside the arena); the result sits alone at the returned end.
  struct Place {
    TensorView map;
    End end;
  };
  Place run(const ConvStep& step, std::span<const ConvParams> convs,
            std::span<const NormParams> norms, Place x);
  std::size_t backend_scratch() const { return scratch_; }

 private:
  struct Affine {
    TensorView scale, shift;
  };

  // scale and shift that apply a norm to x, at `end`.
  Affine affine(const NormParams& norm, ConstTensorView x, End end) {
    const Affine out = {arena_.take(end, {x.shape[2]}), arena_.take(end, {x.shape[2]})};
    if (backend_ != nullptr) {
      ops::group_norm_coefficients(*backend_, x, norm_.groups, norm_.eps, norm.gamma.view(),
                                   norm.beta.view(), out.scale, out.shift);
    }
    return out;
  }

  // x as a convolution reads it through a norm: the norm's map is applied while reading, or, if it
  // differs from place to place, in a map of its own at `end`.
  Conv2dArgs through(const NormParams& norm, ConstTensorView x, End end, bool swish) {
    const Affine map = affine(norm, x, end);
    if (norm_.conditioned_by == 0) {
      return {.in = x, .scale = map.scale, .shift = map.shift, .swish = swish};
    }
    return {.in = modulated(norm, map, x, end, swish)};
  }

  TensorView modulated(const NormParams& norm, const Affine& map, ConstTensorView x, End end,
                       bool swish) {
    TensorView grids[2];
    for (std::size_t i = 0; i < 2; ++i) {
      grids[i] = arena_.take(end, {condition_.shape[0], condition_.shape[1], x.shape[2]});
      convolve({.in = condition_, .out = grids[i]}, norm.conditions[i]);
    }
    const TensorView out = arena_.take(end, x.shape);
    if (backend_ != nullptr) {
      ops::modulate(*backend_, {.in = x,
                                .scale = map.scale,
                                .shift = map.shift,
                                .gain = grids[0],
                                .bias = grids[1],
                                .swish = swish,
                                .out = out});
    }
    return out;
  }

  void convolve(Conv2dArgs args, const ConvParams& conv) {
    args.weight = &conv.weight;
    args.bias = conv.bias.view();
    scratch_ = std::max(scratch_, sizes_.conv_scratch_bytes(args));
    if (backend_ != nullptr) ops::conv2d(*backend_, args);
  }

  static void pad_around(Conv2dArgs& args) {
    args.pad_top = args.pad_left = args.pad_bottom = args.pad_right = 1;
  }

  Place finish(Place out, End old_end) {
    arena_.rewind(old_end, 0);
    return out;
  }

  Place residual(const ConvStep& step, std::span<const ConvParams> convs,
                 std::span<const NormParams> norms, Place x);
  Place attention(std::span<const ConvParams> convs, std::span<const NormParams> norms, Place x);

  Backend* backend_;
  const Backend& sizes_;
  FeatureArena& arena_;
  GroupNormOptions norm_;
  ConstTensorView condition_;
  std::size_t scratch_ = 0;
};

Runner::Place Runner::residual(const ConvStep& step, std::span<const ConvParams> convs,
                               std::span<const NormParams> norms, Place x) {
  const std::int64_t height = x.map.shape[0];
  const std::int64_t width = x.map.shape[1];
  const End far = other(x.end);
  const bool shortcut = step.c_in != step.c_out;
  // The sum is made in place: into x itself, or into the shortcut's output.
  TensorView sum = x.map;
  if (shortcut) sum = arena_.take(far, {height, width, step.c_out});
  const std::size_t after_sum = arena_.mark(far);
  const TensorView hidden = arena_.take(far, {height, width, step.c_out});

  const std::size_t after_hidden = arena_.mark(far);
  Conv2dArgs first = through(norms[0], x.map, far, true);
  first.out = hidden;
  pad_around(first);
  convolve(first, convs[0]);
  if (shortcut) convolve({.in = x.map, .out = sum}, convs[2]);
  arena_.rewind(far, after_hidden);

  Conv2dArgs second = through(norms[1], hidden, far, true);
  second.out = sum;
  second.accumulate = true;
  pad_around(second);
  convolve(second, convs[1]);
  arena_.rewind(far, after_sum);
  if (!shortcut) return x;
  return finish({sum, far}, x.end);
}

Runner::Place Runner::attention(std::span<const ConvParams> convs,
                                std::span<const NormParams> norms, Place x) {
  const std::int64_t places = x.map.shape[0] * x.map.shape[1];
  const std::int64_t channels = x.map.shape[2];
  const End far = other(x.end);
  const std::size_t before = arena_.mark(far);
  Conv2dArgs read = through(norms[0], x.map, far, false);
  TensorView projected[3];
  for (int i = 0; i < 3; ++i) {
    projected[i] = arena_.take(far, x.map.shape);
    read.out = projected[i];
    convolve(read, nth(convs, i));
    projected[i].shape = {places, 1, channels};
  }
  TensorView mixed = arena_.take(far, {places, 1, channels});
  scratch_ = std::max(scratch_, sizes_.attention_scratch_bytes(places, 1, channels));
  if (backend_ != nullptr) {
    const AttentionSegment segment{.keys = projected[1],
                                   .values = projected[2],
                                   .row_begin = 0,
                                   .rows = places,
                                   .first_visible = places,
                                   .causal = false};
    ops::attention(*backend_, {.q = projected[0],
                               .out = mixed,
                               .segments = {&segment, 1},
                               .scale = 1.0f / std::sqrt(to_float(channels))});
  }
  mixed.shape = x.map.shape;
  convolve({.in = mixed, .out = x.map, .accumulate = true}, convs[3]);
  arena_.rewind(far, before);
  return x;
}

Runner::Place Runner::run(const ConvStep& step, std::span<const ConvParams> convs,
                          std::span<const NormParams> norms, Place x) {
  if (step.kind == ConvStepKind::kRes) return residual(step, convs, norms, x);
  if (step.kind == ConvStepKind::kAttention) return attention(convs, norms, x);

  const End far = other(x.end);
  std::int64_t height = x.map.shape[0];
  std::int64_t width = x.map.shape[1];
  Conv2dArgs args{.in = x.map};
  if (step.kind == ConvStepKind::kDown) {
    expects(height % 2 == 0 && width % 2 == 0, "a stride-2 step halves even sides");
    height /= 2;
    width /= 2;
    args.stride = 2;
    args.pad_bottom = args.pad_right = 1;
  } else if (step.kind != ConvStepKind::kConv1) {
    pad_around(args);
  }
  if (step.kind == ConvStepKind::kUp) {
    height *= 2;
    width *= 2;
    args.upsample = 2;
  }
  const TensorView out = arena_.take(far, {height, width, step.c_out});
  const std::size_t after_out = arena_.mark(far);
  if (step.kind == ConvStepKind::kNorm) {
    expects(norm_.conditioned_by == 0, "a norm alone is not conditioned");
    const Affine norm = affine(norms[0], x.map, far);
    if (backend_ != nullptr) {
      ops::affine_channels(*backend_, x.map, norm.scale, norm.shift, out);
    }
  } else if (!norms.empty()) {
    args = through(norms[0], x.map, far, true);
    pad_around(args);
  }
  args.out = out;
  if (step.kind != ConvStepKind::kNorm) convolve(args, convs[0]);
  arena_.rewind(far, after_out);
  return finish({out, far}, x.end);
}

}  // namespace

struct ConvStack::Weights {
  std::vector<ConvParams> convs;
  std::vector<NormParams> norms;
};

namespace {

// A vector as f32 on the device, whatever its file type.
Tensor upload_vector(Backend& backend, ConstTensorView host) {
  const std::int64_t count = host.shape.elements();
  Tensor wide = Tensor::host(DType::kF32, {count});
  read_numbers(host, 0, 1, count, wide.f32());
  Tensor device = backend.allocate(DType::kF32, {count});
  backend.upload(wide.view(), device.view());
  return device;
}

Tensor load_vector(Backend& backend, WeightSource& source, const std::string& name,
                   const Shape& shape) {
  Tensor out = upload_vector(backend, source.get(name, shape));
  source.done(name);
  return out;
}

// Sizes without memory, for a dry run.
void add_sizes_only(const ConvPart& part, std::vector<ConvParams>& convs,
                    std::vector<NormParams>& norms) {
  if (part.is_norm) {
    norms.emplace_back();
    return;
  }
  ConvParams conv;
  conv.weight.c_out = part.c_out;
  conv.weight.c_in = part.c_in;
  conv.weight.kh = conv.weight.kw = part.kernel;
  (part.conditions ? norms.back().conditions : convs).push_back(std::move(conv));
}

}  // namespace

FeatureArena::FeatureArena(Backend& backend, std::size_t bytes)
    : device_(backend.device()),
      capacity_((bytes + kAlignment - 1) / kAlignment * kAlignment),
      counting_(false) {
  slab_ = backend.allocate(DType::kU8, {to_index(capacity_)});
}

TensorView FeatureArena::take(End end, Shape shape) {
  std::size_t bytes = to_size(shape.elements()) * sizeof(float);
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::size_t& used = nth(used_, end);
  TensorView view{DType::kF32, shape, nullptr, device_};
  used += bytes;
  peak_ = std::max(peak_, used_[0] + used_[1]);
  if (counting_) return view;
  expects(used_[0] + used_[1] <= capacity_, "the feature arena was planned large enough");
  const std::size_t offset = end == End::kLow ? used - bytes : capacity_ - used;
  view.data = slab_.view().as<std::uint8_t>() + offset;
  return view;
}

ConvStack::ConvStack(Backend& backend, std::vector<ConvStep> steps, WeightSource& weights,
                     DType storage, GroupNormOptions norm)
    : steps_(std::move(steps)), norm_(norm) {
  for (const ConvStep& step : steps_) {
    Weights& loaded = weights_.emplace_back();
    for (const ConvPart& part : parts_of(step, norm_)) {
      const std::string name = part.name + ".weight";
      if (part.is_norm) {
        NormParams affine;
        affine.gamma = load_vector(backend, weights, name, weight_shape(part));
        affine.beta = load_vector(backend, weights, part.name + ".bias", bias_shape(part));
        loaded.norms.push_back(std::move(affine));
        continue;
      }
      ConvParams conv;
      conv.weight = backend.pack_conv(weights.get(name, weight_shape(part)), storage);
      weights.done(name);
      conv.bias = load_vector(backend, weights, part.name + ".bias", bias_shape(part));
      (part.conditions ? loaded.norms.back().conditions : loaded.convs).push_back(std::move(conv));
    }
  }
}

ConvStack::~ConvStack() = default;
ConvStack::ConvStack(ConvStack&&) noexcept = default;

TensorView ConvStack::run(Backend& backend, FeatureArena& arena, ConstTensorView x,
                          ConstTensorView condition) const {
  expects(!steps_.empty() && x.shape.rank() == 3 && x.shape[2] == steps_.front().c_in,
          "input is [H, W, C] of the first step");
  expects(norm_.conditioned_by == 0 ||
              (condition.shape.rank() == 3 && condition.shape[2] == norm_.conditioned_by),
          "conditioned norms have their features");
  Runner runner(&backend, backend, arena, norm_, condition);
  // Steps that add in place would write into the caller's map; none of them comes first.
  expects(
      steps_.front().kind != ConvStepKind::kRes && steps_.front().kind != ConvStepKind::kAttention,
      "a stack starts with a convolution");
  Runner::Place place{{x.dtype, x.shape, const_cast<void*>(x.data), x.device}, End::kHigh};
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    place = runner.run(steps_[i], weights_[i].convs, weights_[i].norms, place);
  }
  return place.map;
}

ConvScratch conv_scratch(const Backend& backend, std::span<const ConvStep> steps, int height,
                         int width, const GroupNormOptions& norm) {
  expects(!steps.empty(), "a stack has steps");
  FeatureArena arena;
  const ConstTensorView condition{DType::kF32, {height, width, norm.conditioned_by}, nullptr, {}};
  Runner runner(nullptr, backend, arena, norm, condition);
  Runner::Place place{{DType::kF32, {height, width, steps.front().c_in}, nullptr, {}}, End::kHigh};
  for (const ConvStep& step : steps) {
    std::vector<ConvParams> convs;
    std::vector<NormParams> norms;
    for (const ConvPart& part : parts_of(step, norm)) add_sizes_only(part, convs, norms);
    place = runner.run(step, convs, norms, place);
  }
  return {arena.peak(), runner.backend_scratch()};
}

std::size_t conv_weight_bytes(const Backend& backend, std::span<const ConvStep> steps,
                              DType storage, const GroupNormOptions& norm) {
  std::size_t bytes = 0;
  for (const ConvStep& step : steps) {
    for (const ConvPart& part : parts_of(step, norm)) {
      const std::size_t vector = to_size(bias_shape(part)[0]) * sizeof(float);
      bytes +=
          vector + (part.is_norm ? vector : backend.packed_conv_bytes(weight_shape(part), storage));
    }
  }
  return bytes;
}

}  // namespace tessera
