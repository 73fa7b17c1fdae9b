// What the VQGAN graph costs.
#include "engine/nn/vq_graph.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

std::size_t image_bytes(const VqSpec& spec, int rows, int cols) {
  const std::int64_t places = std::int64_t{rows} * cols * spec.downsample() * spec.downsample();
  return to_size(places * spec.image_channels) * sizeof(float);
}

}  // namespace

std::size_t vq_decode_scratch_bytes(const VqSpec& spec, const Backend& backend, int rows,
                                    int cols) {
  const std::size_t latents =
      to_size(spec.embed_dim) * sizeof(float) * to_size(rows) * to_size(cols);
  return conv_scratch(backend, vq_decoder_steps(spec), rows, cols).total() + latents +
         image_bytes(spec, rows, cols);
}

std::size_t vq_encode_scratch_bytes(const VqSpec& spec, const Backend& backend, int rows,
                                    int cols) {
  const int factor = narrow<int>(spec.downsample());
  return conv_scratch(backend, vq_encoder_steps(spec), rows * factor, cols * factor).total() +
         image_bytes(spec, rows, cols);
}

std::size_t vq_weight_bytes(const VqSpec& spec, const Backend& backend, DType storage,
                            VqHalves halves) {
  std::size_t bytes = conv_weight_bytes(backend, vq_decoder_steps(spec), storage);
  bytes += to_size(spec.codes * spec.embed_dim) * sizeof(float);
  if (halves == VqHalves::kBoth)
    bytes += conv_weight_bytes(backend, vq_encoder_steps(spec), storage);
  return bytes;
}

}  // namespace tessera
