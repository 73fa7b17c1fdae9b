// What the video tokenizer costs.
#include "engine/core/index.h"
#include "engine/nn/movq_spec.h"

namespace tessera {

std::size_t movq_decode_scratch_bytes(const MovqSpec& spec, const Backend& backend, int rows,
                                      int cols) {
  constexpr std::size_t kMapsAlive = 64;  // of all layers along time, at most; they are small
  const std::size_t places = to_size(rows) * to_size(cols);
  const auto side = to_size(spec.frame.downsample());
  const std::size_t maps = kMapsAlive * places * to_size(spec.frame.embed_dim);
  const std::size_t frames = to_size(spec.frames()) * places * side * side * 3;
  return conv_scratch(backend, movq_decoder_steps(spec), rows, cols,
                      movq_norm(spec, VqSide::kDecoder))
             .total() +
         (maps + frames) * sizeof(float);
}

std::size_t movq_weight_bytes(const MovqSpec& spec, const Backend& backend, DType storage,
                              VqHalves halves) {
  const std::int64_t width = spec.frame.embed_dim;
  const std::int64_t convs = spec.time_steps + 2 * spec.frame.res_blocks + 1;
  // A side's layers along time, with kernels of 4x3x3 at most.
  const auto time = to_size(convs * width * width * 36) * sizeof(float);
  std::size_t bytes = conv_weight_bytes(backend, movq_decoder_steps(spec), storage,
                                        movq_norm(spec, VqSide::kDecoder)) +
                      time + to_size(spec.frame.codes * width) * sizeof(float);
  if (halves == VqHalves::kBoth) {
    bytes += time + conv_weight_bytes(backend, movq_encoder_steps(spec), storage,
                                      movq_norm(spec, VqSide::kEncoder));
  }
  return bytes;
}

}  // namespace tessera
