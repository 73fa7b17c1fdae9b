// What the VQGAN graph costs.
#include "engine/nn/vq_graph.h"

namespace tessera {

namespace {

std::size_t image_bytes(const VqSpec& spec, int rows, int cols) {
  const std::int64_t places = std::int64_t{rows} * cols * spec.downsample() * spec.downsample();
  return static_cast<std::size_t>(places * spec.image_channels) * sizeof(float);
}

}  // namespace

std::size_t vq_decode_scratch_bytes(const VqSpec& spec, const Backend& backend, int rows,
                                    int cols) {
  const std::size_t latents = static_cast<std::size_t>(spec.embed_dim) * sizeof(float) *
                              static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
  return conv_scratch(backend, vq_decoder_steps(spec), rows, cols).total() + latents +
         image_bytes(spec, rows, cols);
}

std::size_t vq_encode_scratch_bytes(const VqSpec& spec, const Backend& backend, int rows,
                                    int cols) {
  const int factor = static_cast<int>(spec.downsample());
  return conv_scratch(backend, vq_encoder_steps(spec), rows * factor, cols * factor).total() +
         image_bytes(spec, rows, cols);
}

std::size_t vq_weight_bytes(const VqSpec& spec, const Backend& backend, DType storage,
                            VqHalves halves) {
  std::size_t bytes = conv_weight_bytes(backend, vq_decoder_steps(spec), storage);
  bytes += static_cast<std::size_t>(spec.codes * spec.embed_dim) * sizeof(float);
  if (halves == VqHalves::kBoth)
    bytes += conv_weight_bytes(backend, vq_encoder_steps(spec), storage);
  return bytes;
}

}  // namespace tessera
