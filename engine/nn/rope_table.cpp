// Builds rotary tables on the host and uploads them.
#include "engine/nn/rope_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/core/index.h"
#include "engine/nn/rope_divisors.h"

namespace tessera {

namespace {

// theta^(2 i / width) in f32.
float rope_power(double theta, std::int64_t width, std::int64_t i) {
  const float exponent = to_float(2 * i) / to_float(width);
  return to_float(std::pow(theta, double{exponent}));
}

// theta^(-2 i / width) for i < count, as f32 of the f32 power (the reference computes 1 / power).
std::vector<float> inverse_frequencies(double theta, std::int64_t width, std::int64_t count) {
  std::vector<float> out(to_size(count));
  for (std::int64_t i = 0; i < count; ++i) {
    nth(out, i) = 1.0f / rope_power(theta, width, i);
  }
  return out;
}

void stretch_llama3(const RopeStretch& stretch, std::vector<float>& frequencies) {
  constexpr float kTurn = 6.283185307179586f;
  const auto factor = to_float(stretch.factor);
  const auto original = to_float(stretch.original);
  const auto low = to_float(stretch.low), high = to_float(stretch.high);
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

// The pair, as a fraction, that turns so many times within the original positions.
double pair_of_turns(const RopeSpec& spec, double turns, double head_dim) {
  constexpr double kTurn = 6.283185307179586;
  const double original = to_double(spec.stretch.original);
  return head_dim * std::log(original / (turns * kTurn)) / (2.0 * std::log(spec.theta));
}

void stretch_yarn(const RopeSpec& spec, std::int64_t head_dim, std::vector<float>& frequencies) {
  const RopeStretch& stretch = spec.stretch;
  const auto width = to_double(head_dim);
  double low = pair_of_turns(spec, stretch.fast, width);
  double high = pair_of_turns(spec, stretch.slow, width);
  if (stretch.whole) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, width - 1.0);
  if (low == high) high += 0.001;
  const auto factor = to_float(stretch.factor);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float place = (to_float(i) - to_float(low)) / to_float(high - low);
    const float kept = 1.0f - std::clamp(place, 0.0f, 1.0f);
    const float power = rope_power(spec.theta, head_dim, to_index(i));
    frequencies[i] = 1.0f / (factor * power) * (1.0f - kept) + frequencies[i] * kept;
  }
}

void stretch_frequencies(const RopeSpec& spec, std::int64_t head_dim,
                         std::vector<float>& frequencies) {
  const RopeStretch& stretch = spec.stretch;
  switch (stretch.kind) {
    case RopeKind::kPlain:
      return;
    case RopeKind::kLinear:
      for (float& frequency : frequencies) frequency /= to_float(stretch.factor);
      return;
    case RopeKind::kLlama3:
      return stretch_llama3(stretch, frequencies);
    case RopeKind::kYarn:
      return stretch_yarn(spec, head_dim, frequencies);
    case RopeKind::kDivided:
      expects(stretch.divisors.size() == frequencies.size(), "a divisor for every pair");
      for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const float power = rope_power(spec.theta, head_dim, to_index(i));
        frequencies[i] = 1.0f / (to_float(stretch.divisors[i]) * power);
      }
      return;
  }
}

struct HostTable {
  std::int64_t half;
  std::vector<float> cos, sin;

  void turn(std::int64_t row, std::int64_t pair, float angle) {
    const auto at = to_size(row * half + pair);
    cos[at] = to_float(std::cos(double{angle}));
    sin[at] = to_float(std::sin(double{angle}));
  }
};

void fill_one_d(const RopeSpec& spec, std::int64_t head_dim, HostTable& table) {
  std::vector<float> frequency = inverse_frequencies(spec.theta, head_dim, table.half);
  stretch_frequencies(spec, head_dim, frequency);
  for (std::int64_t position = 0; position < spec.positions; ++position) {
    for (std::int64_t i = 0; i < table.half; ++i) {
      table.turn(position, i, to_float(position) * nth(frequency, i));
    }
  }
  if (spec.stretch.scale == 1.0) return;
  const auto scale = to_float(spec.stretch.scale);
  for (float& value : table.cos) value *= scale;
  for (float& value : table.sin) value *= scale;
}

void fill_grid(const RopeSpec& spec, HostTable& table) {
  const std::int64_t quarter = table.half / 2;
  const std::vector<float> frequency = inverse_frequencies(spec.theta, table.half, quarter);
  for (std::int64_t place = 0; place < spec.grid_rows * spec.grid_cols; ++place) {
    const auto row = to_float(place / spec.grid_cols);
    const auto col = to_float(place % spec.grid_cols);
    for (std::int64_t k = 0; k < quarter; ++k) {
      const float f = nth(frequency, k);
      table.turn(spec.condition_rows + place, k, row * f);
      table.turn(spec.condition_rows + place, quarter + k, col * f);
    }
  }
}

// In f32, as the reference has it.
void stretch_axis(const RopeYarn& yarn, std::int64_t original, std::vector<float>& frequencies) {
  if (yarn.factor == 1.0) return;
  constexpr double kTurn = 6.283185307179586;
  const double high = kTurn * yarn.fast / to_double(original);
  const double low = kTurn * yarn.slow / to_double(original);
  for (float& frequency : frequencies) {
    const float place = (frequency - to_float(low)) / to_float(high - low);
    const float kept = std::clamp(place, 0.0f, 1.0f);
    frequency *= (1.0f - kept) / to_float(yarn.factor) + kept;
  }
}

void fill_video(const RopeSpec& spec, std::int64_t head_dim, HostTable& table) {
  const std::array<std::int64_t, 3> pairs = axis_pairs(head_dim);
  std::array<std::vector<float>, 3> frequency;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    frequency[axis] = inverse_frequencies(spec.theta, 2 * pairs[axis], pairs[axis]);
    stretch_axis(spec.yarn, axis == 0 ? spec.yarn.original_times : spec.yarn.original_rows,
                 frequency[axis]);
  }
  std::fill(table.cos.begin(), table.cos.end(), 1.0f);
  const std::int64_t cells = spec.grid_rows * spec.grid_cols;
  for (std::int64_t place = 0; place < spec.grid_times * cells; ++place) {
    const std::array<std::int64_t, 3> at = {place / cells, place % cells / spec.grid_cols,
                                            place % spec.grid_cols};
    std::int64_t pair = 0;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      for (const float f : frequency[axis]) {
        table.turn(spec.condition_rows + place, pair++, to_float(at[axis]) * f);
      }
    }
  }
}

void round_to_bf16(std::vector<float>& values) {
  for (float& value : values) value = bf16_to_float(float_to_bf16(value));
}

Tensor upload(Backend& backend, const std::vector<float>& values, Shape shape) {
  Tensor out = backend.allocate(DType::kF32, shape);
  backend.upload({DType::kF32, shape, values.data(), Device{}}, out.view());
  return out;
}

}  // namespace

std::vector<float> rope_divisors(const RopeSpec& spec, std::int64_t head_dim) {
  const std::int64_t half = head_dim / 2;
  std::vector<float> wanted = inverse_frequencies(spec.theta, head_dim, half);
  stretch_frequencies(spec, head_dim, wanted);
  std::vector<float> out;
  for (std::int64_t i = 0; i < half; ++i) {
    const float power = rope_power(spec.theta, head_dim, i), goal = nth(wanted, i);
    const auto miss = [&](float divisor) { return std::abs(1.0f / (divisor * power) - goal); };
    const float middle = to_float(1.0 / (double{goal} * double{power}));
    float best = middle;
    for (const float end : {0.0f, std::numeric_limits<float>::infinity()}) {
      float other = middle;
      for (int step = 0; step < 4; ++step) {
        other = std::nextafter(other, end);
        if (miss(other) < miss(best)) best = other;
      }
    }
    out.push_back(best);
  }
  return out;
}

std::array<std::int64_t, 3> axis_pairs(std::int64_t head_dim) {
  const std::int64_t side = head_dim / 6;
  return {head_dim / 2 - 2 * side, side, side};
}

RopeTable make_rope_table(Backend& backend, const RopeSpec& spec, std::int64_t head_dim) {
  const bool grid = spec.layout == RopeLayout::kGrid2d;
  const bool video = spec.layout == RopeLayout::kGrid3d;
  expects(head_dim > 0 && head_dim % (grid ? 4 : 2) == 0 && (!video || head_dim >= 6),
          "pairs fill the head");
  expects(spec.rows() > 0, "a rotary table has rows");
  const Shape shape{spec.rows(), head_dim / 2};
  HostTable table{head_dim / 2, {}, {}};
  table.cos.assign(to_size(shape.elements()), 0.0f);
  table.sin.assign(to_size(shape.elements()), 0.0f);
  if (grid) {
    fill_grid(spec, table);
  } else if (video) {
    fill_video(spec, head_dim, table);
  } else {
    fill_one_d(spec, head_dim, table);
  }
  if (spec.rounded) {
    round_to_bf16(table.cos);
    round_to_bf16(table.sin);
  }
  return {upload(backend, table.cos, shape), upload(backend, table.sin, shape), spec.pairing,
          spec.stretch.scale};
}

Tensor make_place_table(Backend& backend, const RopeSpec& spec, std::int64_t width) {
  expects(spec.layout == RopeLayout::kGrid3d, "places have three axes");
  expects(width >= 6 && width % 2 == 0, "sines and cosines of three axes fill a row");
  const std::array<std::int64_t, 3> pairs = axis_pairs(width);
  const Shape shape{spec.rows(), width};
  std::vector<std::uint16_t> table(to_size(shape.elements()));
  const std::int64_t cells = spec.grid_rows * spec.grid_cols;
  for (std::int64_t place = 0; place < spec.grid_times * cells; ++place) {
    const std::array<std::int64_t, 3> at = {place / cells, place % cells / spec.grid_cols,
                                            place % spec.grid_cols};
    std::uint16_t* out = table.data() + (spec.condition_rows + place) * width;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      for (std::int64_t k = 0; k < pairs[axis]; ++k) {
        const double power = std::pow(10000.0, to_double(k) / to_double(pairs[axis]));
        const double angle = to_double(at[axis]) / power;
        out[k] = float_to_bf16(to_float(std::sin(angle)));
        out[pairs[axis] + k] = float_to_bf16(to_float(std::cos(angle)));
      }
      out += 2 * pairs[axis];
    }
  }
  Tensor out = backend.allocate(DType::kBF16, shape);
  backend.upload({DType::kBF16, shape, table.data(), Device{}}, out.view());
  backend.synchronize();
  return out;
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
  const double length = table.scale * table.scale;
  for (std::size_t turn = 0; turn < from.size(); ++turn) {
    expects(from[turn] >= 0 && from[turn] < rows && to[turn] >= 0 && to[turn] < rows,
            "the rotary table has both rows");
    for (std::int64_t pair = 0; pair < half; ++pair) {
      const std::int64_t a = from[turn] * half + pair, b = to[turn] * half + pair;
      const double cos_a = cosines.f32()[a], sin_a = sines.f32()[a];
      const double cos_b = cosines.f32()[b], sin_b = sines.f32()[b];
      *cos++ = to_float((cos_b * cos_a + sin_b * sin_a) / length);
      *sin++ = to_float((sin_b * cos_a - cos_b * sin_a) / length);
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
      const auto position = to_float(i < quarter ? place.row : place.col);
      const float angle = position * nth(frequency, i % quarter);
      *cos++ = to_float(std::cos(double{angle}));
      *sin++ = to_float(std::sin(double{angle}));
    }
  }
}

}  // namespace tessera
