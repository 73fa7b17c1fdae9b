// Frames pass the 2-D stacks one by one; along time every layer is a loop over maps [h, w, D] that
// keeps the last two of what it read.
#include "tokenizers/visual/movq_tokenizer.h"

#include <cmath>
#include <utility>

#include "engine/core/index.h"
#include "engine/ops/ops.h"
#include "tokenizers/visual/device_maps.h"
#include "tokenizers/visual/time_conv.h"
#include "tokenizers/visual/vq_tokenizer.h"

namespace tessera {

namespace {

constexpr float kBatchNormEps = 1e-5f;

// Names of the frame graphs, as the file spells them.
class RenamedSource final : public WeightSource {
 public:
  RenamedSource(const Checkpoint& checkpoint, const MovqSpec& spec)
      : source_(checkpoint), spec_(spec) {}
  ConstTensorView get(const std::string& name, const Shape& shape) override {
    bool linear = false;
    const std::string there = movq_name(spec_, name, linear);
    if (!linear) return source_.get(there, shape);
    ConstTensorView weight = source_.get(there, {shape[0], shape[1]});
    weight.shape = shape;
    return weight;
  }
  void done(const std::string& name) override {
    bool linear = false;
    source_.done(movq_name(spec_, name, linear));
  }

 private:
  CheckedSource source_;
  const MovqSpec& spec_;
};

}  // namespace

// x + conv2(swish(norm2(conv1(swish(norm1(x)))))), batch norms by their running statistics.
struct MovqTokenizer::TimeRes {
  Tensor scale1, shift1, scale2, shift2;
  TimeConv conv1, conv2;

  TimeRes(Backend& backend, const Checkpoint& checkpoint, const std::string& name,
          std::int64_t channels, DType storage)
      : conv1(backend, checkpoint, name + ".conv1.conv", {channels, channels, 3, 3}, storage),
        conv2(backend, checkpoint, name + ".conv2.conv", {channels, channels, 3, 3}, storage) {
    load_norm(backend, checkpoint, name + ".norm1", channels, scale1, shift1);
    load_norm(backend, checkpoint, name + ".norm2", channels, scale2, shift2);
  }

  static void load_norm(Backend& backend, const Checkpoint& checkpoint, const std::string& name,
                        std::int64_t channels, Tensor& scale, Tensor& shift) {
    const auto vector = [&](const char* leaf) {
      return widened(checked_weight(checkpoint, name + leaf, {channels}));
    };
    const Tensor gamma = vector(".weight"), beta = vector(".bias");
    const Tensor mean = vector(".running_mean"), variance = vector(".running_var");
    Tensor factor = Tensor::host(DType::kF32, {channels});
    Tensor offset = Tensor::host(DType::kF32, {channels});
    for (std::int64_t c = 0; c < channels; ++c) {
      const float spread = variance.view().f32()[c];
      if (!(spread >= 0.0f)) {
        throw Error({.kind = ErrorKind::kModel,
                     .code = "E_WEIGHT_RANGE",
                     .file = name + ".running_var",
                     .where = "element " + std::to_string(c),
                     .expected = "a variance",
                     .found = std::to_string(spread)});
      }
      factor.f32()[c] = gamma.view().f32()[c] / std::sqrt(spread + kBatchNormEps);
      offset.f32()[c] = beta.view().f32()[c] - mean.view().f32()[c] * factor.f32()[c];
    }
    scale = uploaded(backend, factor);
    shift = uploaded(backend, offset);
  }
};

// The layers along time of one side.
struct MovqTokenizer::TimeSide {
  std::vector<TimeRes> res;
  std::vector<TimeConv> convs;
  TimeConv quant;  // quant_conv or post_quant_conv

  TimeSide(Backend& backend, const MovqSpec& spec, const Checkpoint& checkpoint, VqSide side,
           DType storage)
      : quant(backend, checkpoint,
              spec.frame.prefix +
                  (side == VqSide::kEncoder ? "quant_conv.conv" : "post_quant_conv.conv"),
              {spec.frame.latent_channels, spec.frame.latent_channels, 3, 1}, storage) {
    const std::int64_t channels = spec.frame.latent_channels;
    const std::string name =
        spec.frame.prefix + (side == VqSide::kEncoder ? "encoder." : "decoder.");
    for (std::int64_t i = 0; i < spec.frame.res_blocks; ++i) {
      res.emplace_back(backend, checkpoint, name + "time_res_stack." + std::to_string(i), channels,
                       storage);
    }
    for (int i = 0; i < spec.time_steps; ++i) {
      convs.emplace_back(
          backend, checkpoint, name + "time_conv." + std::to_string(i) + ".conv.conv",
          TimeConv::Size{channels, channels, side == VqSide::kEncoder ? 4 : 3, 3}, storage);
    }
  }
};

// The layers of a side at one place of a video: what each of them read last.
class MovqTokenizer::Stream {
 public:
  Stream(const MovqTokenizer& owner, const TimeSide& side, std::int64_t height, std::int64_t width)
      : owner_(owner),
        side_(side),
        shape_({height, width, owner.spec_.frame.latent_channels}),
        res_(side.res.size()),
        convs_(side.convs.size()),
        pending_(side.convs.size()) {}

  Map map() const {
    return std::make_shared<Tensor>(owner_.backend_.allocate(DType::kF32, shape_));
  }

  // The three newest of what a layer read, `now` last.
  static std::vector<Map> three(const Past& past, const Map& now) {
    std::vector<Map> maps(kPastMaps - past.size());
    maps.insert(maps.end(), past.begin(), past.end());
    maps.push_back(now);
    return maps;
  }

  Map quant(const Map& x) {
    Map out = map();
    side_.quant.apply(owner_.backend_, three(quant_, x), {.out = out->view()});
    remember(quant_, x);
    return out;
  }

  Map residuals(Map x) {
    for (std::size_t i = 0; i < side_.res.size(); ++i) {
      const TimeRes& block = side_.res[i];
      Map hidden = map();
      block.conv1.apply(owner_.backend_, three(res_[i].outer, x),
                        {.scale = block.scale1.view(),
                         .shift = block.shift1.view(),
                         .swish = true,
                         .out = hidden->view()});
      Map inner = map();
      block.conv2.apply(owner_.backend_, three(res_[i].inner, hidden),
                        {.scale = block.scale2.view(),
                         .shift = block.shift2.view(),
                         .swish = true,
                         .out = inner->view()});
      Map sum = map();
      ops::add(owner_.backend_, x->view(), inner->view(), sum->view());
      remember(res_[i].outer, std::exchange(x, sum));
      remember(res_[i].inner, hidden);
    }
    return x;
  }

  // Two maps in, one out: nullptr after the first. `step` counts the halvings.
  Map halve(std::size_t step, const Map& x) {
    Past& past = convs_[step];
    Map& first = pending_[step];
    if (first == nullptr) {
      first = x;
      return nullptr;
    }
    std::vector<Map> maps = three(past, first);
    maps.push_back(x);
    Map out = swished(
        [&](TensorView to) { side_.convs[step].apply(owner_.backend_, maps, {.out = to}); });
    remember(past, std::exchange(first, nullptr));
    remember(past, x);
    return out;
  }

  // One map in, two out: each frame is doubled, then convolved.
  std::array<Map, 2> twice(std::size_t step, const Map& x) {
    std::array<Map, 2> out;
    for (Map& one : out) {
      const std::vector<Map> maps = three(convs_[step], x);
      one = swished(
          [&](TensorView to) { side_.convs[step].apply(owner_.backend_, maps, {.out = to}); });
      remember(convs_[step], x);
    }
    return out;
  }

 private:
  struct ResPast {
    Past outer, inner;
  };

  template <typename Fill>
  Map swished(Fill fill) {
    Map out = map();
    fill(out->view());
    ConstTensorView one = owner_.ones_.view(), zero = owner_.zeros_.view();
    ModulateArgs args{.in = out->view(),
                      .scale = one,
                      .shift = zero,
                      .gain = one,
                      .bias = zero,
                      .swish = true,
                      .out = out->view()};
    args.gain.shape = args.bias.shape = {1, 1, shape_[2]};
    ops::modulate(owner_.backend_, args);
    return out;
  }

  const MovqTokenizer& owner_;
  const TimeSide& side_;
  Shape shape_;
  Past quant_;
  std::vector<ResPast> res_;
  std::vector<Past> convs_;
  std::vector<Map> pending_;
};

MovqTokenizer::MovqTokenizer(Backend& backend, const MovqSpec& spec, const Checkpoint& checkpoint,
                             DType storage, TokenizerHalves halves)
    : backend_(backend),
      spec_(spec),
      codebook_(uploaded(backend, widened(checked_weight(
                                      checkpoint, spec.frame.prefix + "quantize.embedding.weight",
                                      {spec.frame.codes, spec.frame.embed_dim})))),
      ones_(filled(backend, spec.frame.embed_dim, 1.0f)),
      zeros_(filled(backend, spec.frame.embed_dim, 0.0f)) {
  RenamedSource source(checkpoint, spec);
  if (halves != TokenizerHalves::kEncoder) {
    decoder_.emplace(backend, movq_decoder_steps(spec), source, storage,
                     movq_norm(spec, VqSide::kDecoder));
    decoder_time_ =
        std::make_unique<TimeSide>(backend, spec, checkpoint, VqSide::kDecoder, storage);
  }
  if (halves == TokenizerHalves::kDecoder) return;
  encoder_.emplace(backend, movq_encoder_steps(spec), source, storage,
                   movq_norm(spec, VqSide::kEncoder));
  encoder_time_ = std::make_unique<TimeSide>(backend, spec, checkpoint, VqSide::kEncoder, storage);
}

MovqTokenizer::~MovqTokenizer() = default;

std::vector<std::int32_t> MovqTokenizer::encode(ConstTensorView image) const {
  VideoEncoder encoder(*this, narrow<int>(image.shape[0]), narrow<int>(image.shape[1]));
  std::optional<std::vector<std::int32_t>> ids;
  for (int i = 0; i < frames(); ++i) ids = encoder.push(image);
  return *ids;
}

Tensor MovqTokenizer::decode(std::span<const std::int32_t> ids, int rows, int cols) const {
  return std::move(MovqVideoDecoder(*this, rows, cols).next(ids, 1).front());
}

std::size_t MovqTokenizer::decode_scratch_bytes(int rows, int cols) const {
  return movq_decode_scratch_bytes(spec_, backend_, rows, cols);
}

Tensor MovqTokenizer::codebook() const {
  Tensor out = Tensor::host(DType::kF32, codebook_.shape());
  backend_.download(codebook_.view(), out.view());
  backend_.synchronize();
  return out;
}

std::unique_ptr<GridEncoder> MovqTokenizer::video_encoder(int height, int width) const {
  return std::make_unique<VideoEncoder>(*this, height, width);
}
std::unique_ptr<GridDecoder> MovqTokenizer::video_decoder(int rows, int cols) const {
  return std::make_unique<MovqVideoDecoder>(*this, rows, cols);
}

std::vector<std::uint8_t> MovqTokenizer::to_pixels(ConstTensorView image) const {
  return pixels_from_image(image, spec_.frame.pixels, spec_.frame.levels);
}

struct VideoEncoder::State {
  const MovqTokenizer& owner;
  int height, width;
  FeatureArena arena;
  MovqTokenizer::Stream stream;

  State(const MovqTokenizer& tokenizer, int tall, int wide)
      : owner(tokenizer),
        height(tall),
        width(wide),
        arena(tokenizer.backend_,
              conv_scratch(tokenizer.backend_, tokenizer.encoder_->steps(), tall, wide).arena),
        stream(tokenizer, *tokenizer.encoder_time_, tall / tokenizer.factor(),
               wide / tokenizer.factor()) {}
};

VideoEncoder::VideoEncoder(const MovqTokenizer& tokenizer, int height, int width) {
  expects(tokenizer.encoder_.has_value(), "the encoder half is loaded");
  expects(height > 0 && width > 0 && height % tokenizer.factor() == 0 &&
              width % tokenizer.factor() == 0,
          "image sides are multiples of the tokenizer's factor");
  state_ = std::make_unique<State>(tokenizer, height, width);
}
VideoEncoder::~VideoEncoder() = default;

std::optional<std::vector<std::int32_t>> VideoEncoder::push(ConstTensorView image) {
  State& state = *state_;
  expects(image.shape == Shape({state.height, state.width, 3}), "a frame of the video's size");
  const MovqTokenizer& owner = state.owner;
  Backend& backend = owner.backend_;
  const DeviceImage input = to_device(backend, image);
  const TensorView latents = owner.encoder_->run(backend, state.arena, input.view);
  Map map = state.stream.map();
  // The arena's map is the next frame's scratch: a copy.
  ops::affine_channels(backend, latents, owner.ones_.view(), owner.zeros_.view(), map->view());
  state.arena.rewind(FeatureArena::End::kLow, 0);
  state.arena.rewind(FeatureArena::End::kHigh, 0);
  for (int step = 0; step < owner.spec_.time_steps; ++step) {
    map = state.stream.halve(to_size(step), map);
    if (map == nullptr) return std::nullopt;
  }
  map = state.stream.quant(state.stream.residuals(std::move(map)));
  TensorView rows = map->view();
  const std::int64_t places = rows.shape[0] * rows.shape[1];
  rows.shape = {places, owner.spec_.frame.embed_dim};
  std::vector<std::int32_t> ids(to_size(places));
  ops::nearest_code(backend, rows, owner.codebook_.view(), ids);
  backend.synchronize();
  return ids;
}

struct MovqVideoDecoder::State {
  const MovqTokenizer& owner;
  int rows, cols;
  FeatureArena arena;
  MovqTokenizer::Stream latents, codes;  // the same layers, read twice

  State(const MovqTokenizer& tokenizer, int tall, int wide)
      : owner(tokenizer),
        rows(tall),
        cols(wide),
        arena(tokenizer.backend_, conv_scratch(tokenizer.backend_, tokenizer.decoder_->steps(), tall,
                                               wide, movq_norm(tokenizer.spec_, VqSide::kDecoder))
                                      .arena),
        latents(tokenizer, *tokenizer.decoder_time_, tall, wide),
        codes(tokenizer, *tokenizer.decoder_time_, tall, wide) {}

  // All frames of a grid out of its map.
  static std::vector<Map> frames_of(MovqTokenizer::Stream& stream, Map map, int time_steps) {
    std::vector<Map> maps = {stream.residuals(std::move(map))};
    for (int step = 0; step < time_steps; ++step) {
      std::vector<Map> doubled;
      for (const Map& one : maps) {
        for (Map& half : stream.twice(to_size(step), one)) {
          doubled.push_back(std::move(half));
        }
      }
      maps = std::move(doubled);
    }
    return maps;
  }
};

MovqVideoDecoder::MovqVideoDecoder(const MovqTokenizer& tokenizer, int rows, int cols) {
  expects(rows > 0 && cols > 0, "a grid has places");
  state_ = std::make_unique<State>(tokenizer, rows, cols);
}
MovqVideoDecoder::~MovqVideoDecoder() = default;

std::vector<Tensor> MovqVideoDecoder::next(std::span<const std::int32_t> ids, int wanted) {
  State& state = *state_;
  const MovqTokenizer& owner = state.owner;
  expects(ids.size() == to_size(state.rows) * to_size(state.cols), "one code for every place");
  for (const std::int32_t id : ids) {
    expects(id >= 0 && id < owner.codes(), "codes are inside the codebook");
  }
  expects(wanted >= 1 && wanted <= owner.frames(), "frames of the grid");
  Backend& backend = owner.backend_;
  Map vectors = state.codes.map();
  TensorView rows = vectors->view();
  rows.shape = {std::ssize(ids), owner.spec_.frame.embed_dim};
  ops::embedding(backend, owner.codebook_.view(), ids, rows);
  const int steps = owner.spec_.time_steps;
  const auto latents = State::frames_of(state.latents, state.latents.quant(vectors), steps);
  const auto conditions = State::frames_of(state.codes, vectors, steps);
  std::vector<Tensor> images;
  for (int i = 0; i < wanted; ++i) {
    const auto at = to_size(i);
    images.push_back(to_host(backend, owner.decoder_->run(backend, state.arena, latents[at]->view(),
                                                         conditions[at]->view())));
    state.arena.rewind(FeatureArena::End::kLow, 0);
    state.arena.rewind(FeatureArena::End::kHigh, 0);
  }
  return images;
}

}  // namespace tessera
