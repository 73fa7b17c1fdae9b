// Joins encoder, codebook and decoder. The codebook is normalised once, when it is loaded, so
// encode and decode see the same unit vectors.
#include "tokenizers/visual/vq_tokenizer.h"

#include <algorithm>

#include "engine/checkpoint/checked_weight.h"
#include "engine/ops/ops.h"
#include "tokenizers/visual/device_maps.h"

namespace tessera {

namespace {

constexpr float kUnitEps = 1e-12f;

GroupNormOptions norm_of(const VqSpec& spec) { return {spec.norm_groups, spec.norm_eps}; }

ConvStack load_stack(Backend& backend, const VqSpec& spec, std::vector<ConvStep> steps,
                     const Checkpoint& checkpoint, DType storage) {
  CheckedSource source(checkpoint);
  return {backend, std::move(steps), source, storage, norm_of(spec)};
}

Tensor load_codebook(Backend& backend, const VqSpec& spec, const Checkpoint& checkpoint) {
  const std::string name = spec.prefix + "quantize.embedding.weight";
  const Shape shape = {spec.codes, spec.embed_dim};
  const Tensor rows = widened(checked_weight(checkpoint, name, shape));
  checkpoint.release(name);
  Tensor book = backend.allocate(DType::kF32, shape);
  backend.upload(rows.view(), book.view());
  if (spec.l2_normalize) {
    Tensor unit = backend.allocate(DType::kF32, shape);
    ops::l2_normalize(backend, book.view(), kUnitEps, unit.view());
    backend.synchronize();
    return unit;
  }
  return book;
}

}  // namespace

VqTokenizer::VqTokenizer(Backend& backend, const VqSpec& spec, const Checkpoint& checkpoint,
                         DType storage, TokenizerHalves halves)
    : backend_(backend), spec_(spec), codebook_(load_codebook(backend, spec, checkpoint)) {
  if (halves != TokenizerHalves::kEncoder) {
    decoder_.emplace(load_stack(backend, spec, vq_decoder_steps(spec), checkpoint, storage));
  }
  if (halves != TokenizerHalves::kDecoder) {
    encoder_.emplace(load_stack(backend, spec, vq_encoder_steps(spec), checkpoint, storage));
  }
}

TensorView VqTokenizer::run_encoder(FeatureArena& arena, ConstTensorView image) const {
  const TensorView z = encoder_->run(backend_, arena, image);
  backend_.synchronize();
  return z;
}

namespace {

void check_image(const VqTokenizer& tokenizer, ConstTensorView image) {
  expects(image.shape.rank() == 3 && image.shape[2] == tokenizer.spec().image_channels,
          "an image is [H, W, 3]");
  expects(image.shape[0] > 0 && image.shape[0] % tokenizer.factor() == 0 && image.shape[1] > 0 &&
              image.shape[1] % tokenizer.factor() == 0,
          "image sides are multiples of the tokenizer's factor");
}

}  // namespace

Tensor VqTokenizer::latents(ConstTensorView image) const {
  expects(encoder_.has_value(), "the encoder half is loaded");
  check_image(*this, image);
  const auto height = static_cast<int>(image.shape[0]);
  const auto width = static_cast<int>(image.shape[1]);
  FeatureArena arena(backend_, conv_scratch(backend_, encoder_->steps(), height, width).arena);
  const DeviceImage input = to_device(backend_, image);
  return to_host(backend_, run_encoder(arena, input.view));
}

std::vector<std::int32_t> VqTokenizer::encode(ConstTensorView image) const {
  expects(encoder_.has_value(), "the encoder half is loaded");
  check_image(*this, image);
  const auto height = static_cast<int>(image.shape[0]);
  const auto width = static_cast<int>(image.shape[1]);
  FeatureArena arena(backend_, conv_scratch(backend_, encoder_->steps(), height, width).arena);
  const DeviceImage input = to_device(backend_, image);
  TensorView z = run_encoder(arena, input.view);
  const std::int64_t places = z.shape[0] * z.shape[1];
  z.shape = {places, spec_.embed_dim};
  Tensor unit;
  ConstTensorView rows = z;
  if (spec_.l2_normalize) {
    unit = backend_.allocate(DType::kF32, z.shape);
    ops::l2_normalize(backend_, z, kUnitEps, unit.view());
    rows = unit.view();
  }
  std::vector<std::int32_t> ids(static_cast<std::size_t>(places));
  ops::nearest_code(backend_, rows, codebook_.view(), ids);
  backend_.synchronize();
  return ids;
}

Tensor VqTokenizer::decode(std::span<const std::int32_t> ids, int rows, int cols) const {
  expects(decoder_.has_value(), "the decoder half is loaded");
  expects(rows > 0 && cols > 0 &&
              ids.size() == static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols),
          "one code for every place");
  for (const std::int32_t id : ids) {
    expects(id >= 0 && id < spec_.codes, "codes are inside the codebook");
  }
  Tensor entries = backend_.allocate(DType::kF32, {std::int64_t{rows} * cols, spec_.embed_dim});
  ops::embedding(backend_, codebook_.view(), ids, entries.view());
  TensorView input = entries.view();
  input.shape = {rows, cols, spec_.embed_dim};
  FeatureArena arena(backend_, conv_scratch(backend_, decoder_->steps(), rows, cols).arena);
  return to_host(backend_, decoder_->run(backend_, arena, input));
}

std::size_t VqTokenizer::decode_scratch_bytes(int rows, int cols) const {
  return vq_decode_scratch_bytes(spec_, backend_, rows, cols);
}

std::vector<std::uint8_t> VqTokenizer::to_pixels(ConstTensorView image) const {
  return pixels_from_image(image, spec_.pixels, spec_.levels);
}

namespace {

// As transformers' image processors undo their steps: single precision, each step rounded.
float level_of(float x, std::size_t channel, const PixelLevels& levels) {
  const double std = nth(levels.std, channel);
  const auto mean = static_cast<float>(-nth(levels.mean, channel) / std);
  const float unit = (x - mean) / static_cast<float>(1.0 / std);
  return static_cast<float>(static_cast<double>(unit) * levels.scale);
}

}  // namespace

std::vector<std::uint8_t> pixels_from_image(ConstTensorView image, PixelRule rule,
                                            const PixelLevels& levels) {
  const float* values = image.f32();
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(image.shape.elements()));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const float x = values[i];
    const float level = rule == PixelRule::kLevels          ? level_of(x, i % 3, levels)
                        : rule == PixelRule::kJanusTruncate ? (x + 1.0f) / 2.0f * 255.0f
                                                            : 127.5f * x + 128.0f;
    // Written so that NaN takes the first branch.
    if (!(level > 0.0f)) {
      bytes[i] = 0;
    } else {
      bytes[i] = static_cast<std::uint8_t>(std::min(level, 255.0f));
    }
  }
  return bytes;
}

Tensor VqTokenizer::codebook() const {
  Tensor out = Tensor::host(DType::kF32, codebook_.shape());
  backend_.download(codebook_.view(), out.view());
  backend_.synchronize();
  return out;
}

}  // namespace tessera
