// What a pass should take, from the bytes and products it needs and what the device reaches: the
// yardstick that stands next to measured times. The planning shares are assumptions until a
// measurement confirms or corrects them.
#pragma once

#include <cstdint>

#include "engine/core/dtype.h"
#include "engine/model/stream_model.h"

namespace tessera {

// What a device reaches, as a probe measured it, and what of that a pass is expected to reach.
struct DeviceRates {
  double bytes_per_second = 0;    // memory
  double flops_per_second = 0;    // products of bf16
  double linear_share = 0.90;     // of the memory rate, in products of few rows
  double product_share = 0.75;    // of the product rate
  double attention_share = 0.80;  // of the memory rate, reading keys and values
  double logits_share = 0.50;     // of the memory rate, in the three passes over logits
  double kernels_a_layer = 6;
  double gap_seconds = 1.2e-6;  // exposed between two kernels
  double dist_seconds = 15e-6;   // guidance, cuts, draw and verification, next to their traffic
};

// What this build runs a layer, of bf16 weights and so many rows: the plan's number for few, more
// where rows are rounded beforehand.
double kernels_of_a_layer(std::int64_t rows);

// A model as one pass sees it.
struct StepShape {
  double parameters = 0;  // read in a pass: layers, head, code aligner; no tables
  double bytes_a_parameter = 2;
  double kv_bytes_a_row = 0;  // keys and values of one cached row of one sequence, all layers
  std::int64_t layers = 0;
  std::int64_t codes = 0;  // width of a row of logits
};

// One pass of the stream loop.
struct StepPass {
  std::int64_t images = 1;
  std::int64_t branches = 2;  // sequences an image: 2 with guidance
  std::int64_t window = 1;    // rows of a sequence
  double live_rows = 0;       // cached rows that a sequence sees
};

// Seconds.
struct StepTime {
  double linear = 0, attention = 0, gaps = 0, dist = 0;
  double total() const { return linear + attention + gaps + dist; }
};

StepShape step_shape(const StreamModelConfig& model, DType weights, DType kv);

// Products take what the slower of memory and arithmetic takes, with a soft corner between the two
// (fourth powers); keys and values are read once, whatever the window.
StepTime predict_step(const DeviceRates& device, const StepShape& model, const StepPass& pass);

// The part that no implementation can go below: bytes at the probed rate.
double floor_seconds(const DeviceRates& device, const StepShape& model, const StepPass& pass);

}  // namespace tessera
