// Frames gather until the wavelet has a patch of them; codes and wavelet are the host's, everything
// between the device's.
#include "tokenizers/visual/fsq_video_tokenizer.h"

#include <algorithm>
#include <utility>

#include "engine/core/index.h"
#include "engine/ops/ops.h"
#include "tokenizers/visual/device_maps.h"
#include "tokenizers/visual/fsq_video_layers.h"
#include "tokenizers/visual/haar.h"
#include "tokenizers/visual/vq_tokenizer.h"

namespace tessera {

namespace {

TimeConv quant_conv(Backend& backend, const FsqVideoSpec& spec, const Checkpoint& checkpoint,
                    VqSide side, DType storage) {
  const auto vector = std::ssize(spec.levels);
  const bool encodes = side == VqSide::kEncoder;
  return TimeConv(
      backend, checkpoint, spec.prefix + (encodes ? "quant_conv.conv3d" : "post_quant_conv.conv3d"),
      {encodes ? vector : spec.latent_channels, encodes ? spec.latent_channels : vector}, storage);
}

Map through_conv(Backend& backend, const TimeConv& conv, const Map& x) {
  Map out = std::make_shared<Tensor>(
      backend.allocate(DType::kF32, {x->shape()[0], x->shape()[1], conv.out_channels()}));
  conv.apply(backend, {&x, 1}, {.out = out->view()});
  return out;
}

}  // namespace

struct FsqVideoTokenizer::Sides {
  VideoSide decoder;
  TimeConv decoder_quant;
  std::optional<VideoSide> encoder;
  std::optional<TimeConv> encoder_quant;
};

FsqVideoTokenizer::FsqVideoTokenizer(Backend& backend, const FsqVideoSpec& spec,
                                   const Checkpoint& checkpoint, DType storage,
                                   TokenizerHalves halves)
    : backend_(backend),
      spec_(spec),
      quantizer_(spec.levels),
      sides_(new Sides{load_video_decoder(backend, spec, checkpoint, storage),
                       quant_conv(backend, spec, checkpoint, VqSide::kDecoder, storage),
                       std::nullopt, std::nullopt}) {
  if (halves == TokenizerHalves::kDecoder) return;
  sides_->encoder = load_video_encoder(backend, spec, checkpoint, storage);
  sides_->encoder_quant = quant_conv(backend, spec, checkpoint, VqSide::kEncoder, storage);
}

FsqVideoTokenizer::~FsqVideoTokenizer() = default;

std::vector<std::int32_t> FsqVideoTokenizer::encode(ConstTensorView image) const {
  FsqVideoEncoder encoder(*this, narrow<int>(image.shape[0]), narrow<int>(image.shape[1]));
  return *encoder.push(image);
}

Tensor FsqVideoTokenizer::decode(std::span<const std::int32_t> ids, int rows, int cols) const {
  return std::move(FsqVideoDecoder(*this, rows, cols).next(ids, 1).front());
}

std::size_t FsqVideoTokenizer::decode_scratch_bytes(int rows, int cols) const {
  return fsq_video_scratch_bytes(spec_, backend_, rows, cols);
}

Tensor FsqVideoTokenizer::codebook() const {
  const auto width = to_size(quantizer_.width());
  Tensor out = Tensor::host(DType::kF32, {codes(), quantizer_.width()});
  for (std::int64_t code = 0; code < codes(); ++code) {
    quantizer_.vector_of(narrow<std::int32_t>(code), {out.f32() + to_size(code) * width, width});
  }
  return out;
}

std::vector<std::uint8_t> FsqVideoTokenizer::to_pixels(ConstTensorView image) const {
  return pixels_from_image(image, PixelRule::kJanusTruncate);
}

std::unique_ptr<GridEncoder> FsqVideoTokenizer::video_encoder(int height, int width) const {
  return std::make_unique<FsqVideoEncoder>(*this, height, width);
}
std::unique_ptr<GridDecoder> FsqVideoTokenizer::video_decoder(int rows, int cols) const {
  return std::make_unique<FsqVideoDecoder>(*this, rows, cols);
}

struct FsqVideoEncoder::State {
  const FsqVideoTokenizer& owner;
  Shape frame;
  VideoPass pass;
  Tensor patch;  // [patch, H, W, 3]
  std::int64_t filled = 0;

  State(const FsqVideoTokenizer& tokenizer, int height, int width)
      : owner(tokenizer),
        frame({height, width, 3}),
        pass(tokenizer.backend_),
        patch(Tensor::host(DType::kF32, {tokenizer.spec_.patch, height, width, 3})) {}

  // The wavelet of the patch: [H/p, W/p, 3 p^3] on the device.
  Map bands() const {
    Tensor out = patch.clone();
    for (std::int64_t side = owner.spec_.patch; side > 1; side /= 2) {
      out = haar(std::as_const(out).view());
    }
    Map map = std::make_shared<Tensor>(
        owner.backend_.allocate(DType::kF32, {out.shape()[1], out.shape()[2], out.shape()[3]}));
    ConstTensorView host = std::as_const(out).view();
    host.shape = map->shape();
    owner.backend_.upload(host, map->view());
    owner.backend_.synchronize();
    return map;
  }
};

FsqVideoEncoder::FsqVideoEncoder(const FsqVideoTokenizer& tokenizer, int height, int width) {
  expects(tokenizer.sides_->encoder.has_value(), "the encoder half is loaded");
  expects(height > 0 && width > 0 && height % tokenizer.factor() == 0 &&
              width % tokenizer.factor() == 0,
          "image sides are multiples of the tokenizer's factor");
  state_ = std::make_unique<State>(tokenizer, height, width);
}
FsqVideoEncoder::~FsqVideoEncoder() = default;

// The first frame of a video fills a patch alone.
Tensor FsqVideoEncoder::push_latents(ConstTensorView image) {
  State& state = *state_;
  const FsqVideoTokenizer& owner = state.owner;
  expects(image.shape == state.frame, "a frame of the video's size");
  const std::int64_t size = state.frame.elements(), patch = owner.spec_.patch;
  const bool first = state.filled == 0;
  const std::int64_t from = first ? 0 : (state.filled - 1) % patch;
  for (std::int64_t at = from; at < (first ? patch : from + 1); ++at) {
    std::copy_n(image.f32(), size, state.patch.f32() + at * size);
  }
  ++state.filled;
  if (!first && from + 1 < patch) return {};
  const Map map = state.pass.encode(*owner.sides_->encoder, state.bands());
  if (map == nullptr) return {};
  return to_host(owner.backend_,
                 through_conv(owner.backend_, *owner.sides_->encoder_quant, map)->view());
}

std::optional<std::vector<std::int32_t>> FsqVideoEncoder::push(ConstTensorView image) {
  const Tensor latents = push_latents(image);
  if (latents.empty()) return std::nullopt;
  const auto width = to_size(latents.shape()[2]);
  const auto places = to_size(latents.shape()[0] * latents.shape()[1]);
  std::vector<std::int32_t> ids;
  for (std::size_t place = 0; place < places; ++place) {
    ids.push_back(state_->owner.quantizer_.code_of({latents.f32() + place * width, width}));
  }
  return ids;
}

struct FsqVideoDecoder::State {
  const FsqVideoTokenizer& owner;
  int rows, cols;
  VideoPass pass;
  bool begun = false;

  State(const FsqVideoTokenizer& tokenizer, int tall, int wide)
      : owner(tokenizer), rows(tall), cols(wide), pass(tokenizer.backend_) {}

  Map vectors(std::span<const std::int32_t> ids) const {
    const std::int64_t width = owner.quantizer_.width();
    Tensor host = Tensor::host(DType::kF32, {rows, cols, width});
    float* out = host.f32();
    for (const std::int32_t id : ids) {
      owner.quantizer_.vector_of(id, {out, to_size(width)});
      out += width;
    }
    return std::make_shared<Tensor>(uploaded(owner.backend_, host));
  }

  // The frames of one map of bands, [p, H, W, 3].
  Tensor frames(const Map& map) const {
    Tensor out = to_host(owner.backend_, std::as_const(*map).view());
    for (std::int64_t side = 1; side < owner.spec_.patch; side *= 2) {
      ConstTensorView bands = std::as_const(out).view();
      if (side == 1) bands.shape = {1, bands.shape[0], bands.shape[1], bands.shape[2]};
      out = inverse_haar(bands);
    }
    return out;
  }
};

FsqVideoDecoder::FsqVideoDecoder(const FsqVideoTokenizer& tokenizer, int rows, int cols) {
  expects(rows > 0 && cols > 0, "a grid has places");
  state_ = std::make_unique<State>(tokenizer, rows, cols);
}
FsqVideoDecoder::~FsqVideoDecoder() = default;

// Of the first patch the last frame is the video's first.
std::vector<Tensor> FsqVideoDecoder::next(std::span<const std::int32_t> ids, int wanted) {
  State& state = *state_;
  const FsqVideoTokenizer& owner = state.owner;
  expects(ids.size() == to_size(state.rows) * to_size(state.cols), "one code for every place");
  expects(wanted >= 1 && wanted <= (state.begun ? owner.frames() : 1), "frames of the grid");
  const std::int64_t patch = owner.spec_.patch;
  const Map latents = through_conv(owner.backend_, owner.sides_->decoder_quant, state.vectors(ids));
  std::vector<Tensor> images;
  std::int64_t skip = state.begun ? 0 : patch - 1;
  state.begun = true;
  for (const Map& map : state.pass.decode(owner.sides_->decoder, latents)) {
    if (narrow<int>(images.size()) == wanted) break;
    const Tensor frames = state.frames(map);
    const bool flat = frames.shape().rank() == 3;  // without a wavelet
    const Shape size =
        flat ? frames.shape() : Shape{frames.shape()[1], frames.shape()[2], frames.shape()[3]};
    for (std::int64_t at = skip; at < patch && narrow<int>(images.size()) < wanted; ++at) {
      Tensor image = Tensor::host(DType::kF32, size);
      std::copy_n(frames.f32() + at * size.elements(), size.elements(), image.f32());
      images.push_back(std::move(image));
    }
    skip = 0;
  }
  return images;
}

}  // namespace tessera
