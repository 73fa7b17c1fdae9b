// What Cosmos' video tokenizer costs.
#include <algorithm>

#include "engine/core/index.h"
#include "engine/nn/fsq_video_spec.h"
#include "engine/ops/conv2d.h"

namespace tessera {

namespace {

// A convolution with its slices along time apart, as it is packed.
std::size_t packed_bytes(const Backend& backend, const Shape& kernel, DType storage) {
  return to_size(kernel[2]) *
         backend.packed_conv_bytes({kernel[0], kernel[1], kernel[3], kernel[4]}, storage);
}

}  // namespace

std::size_t fsq_video_weight_bytes(const FsqVideoSpec& spec, const Backend& backend, DType storage,
                                  VqHalves halves) {
  const std::vector<std::string> unused = fsq_video_unused(spec);
  std::size_t bytes = to_size(spec.codes()) * spec.levels.size() * sizeof(float);
  for (const TensorSpec& tensor : fsq_video_tensors(spec)) {
    const std::string_view name = std::string_view(tensor.name).substr(spec.prefix.size());
    const bool encodes = name.starts_with("encoder.") || name.starts_with("quant_conv.");
    if (encodes && halves == VqHalves::kDecoder) continue;
    if (std::find(unused.begin(), unused.end(), tensor.name) != unused.end()) continue;
    bytes += tensor.shape.rank() == 5 ? packed_bytes(backend, tensor.shape, storage)
                                      : to_size(tensor.shape.elements()) * sizeof(float);
  }
  return bytes;
}

// The widest level keeps, of each convolution along time, the last two maps it read, and has a few
// more alive while a block runs; keys and values of the middle are of all grids, at the smallest
// size.
std::size_t fsq_video_scratch_bytes(const FsqVideoSpec& spec, const Backend& backend, int rows,
                                   int cols) {
  constexpr std::size_t kAlive = 8;  // maps next to those kept
  const auto blocks = to_size(spec.res_blocks) + 1;
  std::int64_t height = rows, width = cols;
  std::size_t kept = 0, widest = 0, steps = 1;
  std::size_t scratch = 0;
  const auto map_bytes = [&](std::int64_t channels) {
    return to_size(height * width * channels) * sizeof(float);
  };
  const auto convolution = [&](std::int64_t in, std::int64_t out, std::int64_t side) {
    ConvWeight weight;
    weight.c_in = in;
    weight.c_out = out;
    weight.kh = weight.kw = side;
    Conv2dArgs args{.in = {DType::kF32, {height, width, in}, nullptr, {}},
                    .weight = &weight,
                    .out = {DType::kF32, {height, width, out}, nullptr, {}}};
    args.pad_top = args.pad_left = args.pad_bottom = args.pad_right = narrow<int>(side / 2);
    scratch = std::max(scratch, backend.conv_scratch_bytes(args));
  };
  const std::int64_t deepest = spec.deepest();
  kept += 2 * 5 * map_bytes(deepest) + 2 * 16 * map_bytes(deepest);
  scratch = std::max(scratch, backend.attention_scratch_bytes(height * width, 1, deepest));
  scratch = std::max(scratch, backend.attention_scratch_bytes(1, height * width, deepest));
  for (int level = spec.levels_count() - 1; level >= 0; --level) {
    const std::int64_t channels = spec.width_of(level);
    kept += 2 * (2 * blocks + 1) * map_bytes(channels);
    convolution(channels, channels, 3);
    if (level > 0) {
      const FsqVideoResample up = decoder_resample(spec, level);
      height *= up.space ? 2 : 1;
      width *= up.space ? 2 : 1;
      steps *= up.time ? 2 : 1;
    }
    widest = std::max(widest, (kAlive + steps) * map_bytes(channels));
  }
  kept += 2 * map_bytes(spec.patch_channels());
  convolution(spec.channels, spec.patch_channels(), 3);
  const std::size_t frames =
      to_size(spec.temporal) * map_bytes(spec.patch_channels()) / to_size(spec.patch);
  return kept + widest + frames + 2 * map_bytes(spec.patch_channels()) + scratch;
}

}  // namespace tessera
