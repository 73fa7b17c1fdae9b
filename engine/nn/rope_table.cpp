// Builds rotary tables on the host and uploads them.
#include "engine/nn/rope_table.h"

#include <cmath>
#include <vector>

namespace tessera {

namespace {

// theta^(-2 i / width) for i < count, as f32 of the f32 power (the reference computes 1 / power).
std::vector<float> inverse_frequencies(double theta, std::int64_t width, std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(width);
    const float power = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    out[static_cast<std::size_t>(i)] = 1.0f / power;
  }
  return out;
}

// In f32, as the reference has it.
void stretch_frequencies(const RopeStretch& stretch, std::vector<float>& frequencies) {
  if (stretch.factor == 1.0) return;
  constexpr float kTurn = 6.283185307179586f;
  const auto factor = static_cast<float>(stretch.factor);
  const auto original = static_cast<float>(stretch.original);
  const auto low = static_cast<float>(stretch.low), high = static_cast<float>(stretch.high);
  for (float& frequency : frequencies) {
    const float wave = kTurn / frequency;
    if (wave > original / low) {
      frequency /= factor;
    } else if (wave >= original / high) {
      const float smooth = (original / wave - low) / (high - low);
      frequency = (1.0f - smooth) * frequency / factor + smooth * frequency;
    }
  }
}

struct HostTable {
  std::int64_t half;
  std::vector<float> cos, sin;

  void turn(std::int64_t row, std::int64_t pair, float angle) {
    const auto at = static_cast<std::size_t>(row * half + pair);
    cos[at] = static_cast<float>(std::cos(static_cast<double>(angle)));
    sin[at] = static_cast<float>(std::sin(static_cast<double>(angle)));
  }
};

void fill_one_d(const RopeSpec& spec, std::int64_t head_dim, HostTable& table) {
  std::vector<float> frequency = inverse_frequencies(spec.theta, head_dim, table.half);
  stretch_frequencies(spec.stretch, frequency);
  for (std::int64_t position = 0; position < spec.positions; ++position) {
    for (std::int64_t i = 0; i < table.half; ++i) {
      table.turn(position, i,
                 static_cast<float>(position) * frequency[static_cast<std::size_t>(i)]);
    }
  }
}

void fill_grid(const RopeSpec& spec, HostTable& table) {
  const std::int64_t quarter = table.half / 2;
  const std::vector<float> frequency = inverse_frequencies(spec.theta, table.half, quarter);
  for (std::int64_t place = 0; place < spec.grid_rows * spec.grid_cols; ++place) {
    const auto row = static_cast<float>(place / spec.grid_cols);
    const auto col = static_cast<float>(place % spec.grid_cols);
    for (std::int64_t k = 0; k < quarter; ++k) {
      const float f = frequency[static_cast<std::size_t>(k)];
      table.turn(spec.condition_rows + place, k, row * f);
      table.turn(spec.condition_rows + place, quarter + k, col * f);
    }
  }
}

Tensor upload(Backend& backend, const std::vector<float>& values, Shape shape) {
  Tensor out = backend.allocate(DType::kF32, shape);
  backend.upload({DType::kF32, shape, values.data(), Device{}}, out.view());
  return out;
}

}  // namespace

RopeTable make_rope_table(Backend& backend, const RopeSpec& spec, std::int64_t head_dim) {
  const bool grid = spec.layout == RopeLayout::kGrid2d;
  expects(head_dim > 0 && head_dim % (grid ? 4 : 2) == 0, "pairs fill the head");
  expects(spec.rows() > 0, "a rotary table has rows");
  const Shape shape{spec.rows(), head_dim / 2};
  HostTable table{head_dim / 2, {}, {}};
  table.cos.assign(static_cast<std::size_t>(shape.elements()), 0.0f);
  table.sin.assign(static_cast<std::size_t>(shape.elements()), 0.0f);
  if (grid) {
    fill_grid(spec, table);
  } else {
    fill_one_d(spec, head_dim, table);
  }
  return {upload(backend, table.cos, shape), upload(backend, table.sin, shape), spec.pairing};
}

void fill_turns(Backend& backend, const RopeTable& table, std::span<const std::int64_t> from,
                std::span<const std::int64_t> to, float* cos, float* sin) {
  expects(from.size() == to.size(), "a turn leads from a row to a row");
  Tensor cosines = Tensor::host(DType::kF32, table.cos.shape());
  Tensor sines = Tensor::host(DType::kF32, table.sin.shape());
  backend.download(table.cos.view(), cosines.view());
  backend.download(table.sin.view(), sines.view());
  backend.synchronize();
  const std::int64_t rows = table.cos.shape()[0], half = table.cos.shape()[1];
  for (std::size_t turn = 0; turn < from.size(); ++turn) {
    expects(from[turn] >= 0 && from[turn] < rows && to[turn] >= 0 && to[turn] < rows,
            "the rotary table has both rows");
    for (std::int64_t pair = 0; pair < half; ++pair) {
      const std::int64_t a = from[turn] * half + pair, b = to[turn] * half + pair;
      const double cos_a = cosines.f32()[a], sin_a = sines.f32()[a];
      const double cos_b = cosines.f32()[b], sin_b = sines.f32()[b];
      *cos++ = static_cast<float>(cos_b * cos_a + sin_b * sin_a);
      *sin++ = static_cast<float>(sin_b * cos_a - cos_b * sin_a);
    }
  }
}

void fill_grid_rope(std::span<const GridPlace> places, double theta, std::int64_t head_dim,
                    float* cos, float* sin) {
  expects(head_dim > 0 && head_dim % 4 == 0, "pairs by row and by column fill the head");
  const std::int64_t quarter = head_dim / 4;
  const std::vector<float> frequency = inverse_frequencies(theta, head_dim / 2, quarter);
  for (const GridPlace& place : places) {
    for (std::int64_t i = 0; i < 2 * quarter; ++i) {
      const auto position = static_cast<float>(i < quarter ? place.row : place.col);
      const float angle = position * frequency[static_cast<std::size_t>(i % quarter)];
      *cos++ = static_cast<float>(std::cos(static_cast<double>(angle)));
      *sin++ = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

}  // namespace tessera
