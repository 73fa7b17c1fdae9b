#include "apps/lab/bench/cost_model.h"

#include <cmath>

#include "engine/core/index.h"

namespace tessera {

namespace {

// Larger than both, and equal to the larger one where they are far apart.
double soft_maximum(double a, double b) {
  return std::sqrt(std::sqrt(std::pow(a, 4.0) + std::pow(b, 4.0)));
}

double kv_bytes(const StepShape& model, const StepPass& pass) {
  return to_double(pass.images * pass.branches) * model.kv_bytes_a_row * pass.live_rows;
}

}  // namespace

double kernels_of_a_layer(std::int64_t rows) {
  if (rows <= 8) return 6;
  return rows <= 16 ? 7 : 11;
}

StepShape step_shape(const StreamModelConfig& model, DType weights, DType kv) {
  const ModelConfig& lm = model.transformer;
  const double width = to_double(lm.width);
  double layer = width * to_double(lm.q_width() + 2 * lm.kv_width()) +
                 to_double(lm.q_width()) * width + 3.0 * to_double(lm.ffn_width) * width;
  double next_to = to_double(model.codes) * width;
  // The aligner after a narrow code table: code_width -> width -> width. Families that have one
  // have a head of two products too.
  if (model.code_width > 0) next_to += width * (to_double(model.code_width) + 2 * width);
  return {.parameters = to_double(lm.layers) * layer + next_to,
          .bytes_a_parameter = to_double(dtype_size(weights)),
          .kv_bytes_a_row = 2.0 * to_double(lm.layers * lm.kv_width()) * to_double(dtype_size(kv)),
          .layers = lm.layers,
          .codes = model.codes};
}

StepTime predict_step(const DeviceRates& device, const StepShape& model, const StepPass& pass) {
  const double rows = to_double(pass.images * pass.branches * pass.window);
  const double reading =
      model.parameters * model.bytes_a_parameter / (device.linear_share * device.bytes_per_second);
  const double computing =
      2.0 * model.parameters * rows / (device.product_share * device.flops_per_second);
  // Three passes over rows of f32 logits.
  const double logits =
      12.0 * rows * to_double(model.codes) / (device.logits_share * device.bytes_per_second);
  return {.linear = soft_maximum(reading, computing),
          .attention = kv_bytes(model, pass) / (device.attention_share * device.bytes_per_second),
          .gaps = to_double(model.layers) * device.kernels_a_layer * device.gap_seconds,
          .dist = device.dist_seconds + logits};
}

double floor_seconds(const DeviceRates& device, const StepShape& model, const StepPass& pass) {
  return (model.parameters * model.bytes_a_parameter + kv_bytes(model, pass)) /
         device.bytes_per_second;
}

}  // namespace tessera
