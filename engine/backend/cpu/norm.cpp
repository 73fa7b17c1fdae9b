// Normalisations. RMSNorm (Zhang & Sennrich 2019), LayerNorm (Ba et al. 2016), softmax and unit
// length work on rows; GroupNorm (Wu & He 2018) is reduced to one scale and shift per channel,
// which the next op applies as it reads.
#include <algorithm>
#include <cmath>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/core/index.h"
#include "engine/ops/norm.h"

namespace tessera::cpu {

namespace {
// Image rows are summed in this many parts at most, and the parts in order: the number does not
// depend on the threads, so the sum does not either.
constexpr std::int64_t kParts = 64;

void rms_norm(CpuBackend& cpu, const RmsNormArgs& op) {
  const std::int64_t width = op.x.shape[1];
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(width, 1));
  cpu.threads().parallel_for(op.x.shape[0], grain, [&](std::int64_t row, std::int64_t end, int) {
    for (; row < end; ++row) {
      cpu.kernels().rms_norm(op.x.f32() + row * width, op.weight.f32(), op.eps,
                             op.out.f32() + row * width, width);
    }
  });
}

void layer_norm(CpuBackend& cpu, const LayerNormArgs& op) {
  const std::int64_t width = op.x.shape[1];
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(width, 1));
  cpu.threads().parallel_for(op.x.shape[0], grain, [&](std::int64_t row, std::int64_t end, int) {
    for (; row < end; ++row) {
      cpu.kernels().layer_norm(op.x.f32() + row * width, op.weight.f32(), op.bias.f32(), op.eps,
                               op.out.f32() + row * width, width);
    }
  });
}

void head_norm(CpuBackend& cpu, const HeadNormArgs& op) {
  const std::int64_t heads = op.weight.shape[0], dim = op.weight.shape[1];
  const std::int64_t grain =
      std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(heads * dim, 1));
  cpu.threads().parallel_for(op.x.shape[0], grain, [&](std::int64_t row, std::int64_t end, int) {
    for (; row < end; ++row) {
      for (std::int64_t head = 0; head < heads; ++head) {
        float* const x = op.x.f32() + row * op.x.shape[1] + head * dim;
        cpu.kernels().layer_norm(x, op.weight.f32() + head * dim, op.bias.f32() + head * dim,
                                 op.eps, x, dim);
      }
    }
  });
}

// Sums in double. A NaN anywhere in a row makes the whole row NaN.
void softmax_rows(CpuBackend& cpu, const SoftmaxRowsArgs& op) {
  const std::int64_t width = op.x.shape[1];
  cpu.threads().parallel_for(op.x.shape[0], 1, [&](std::int64_t row, std::int64_t end, int) {
    for (; row < end; ++row) {
      const float* in = op.x.f32() + row * width;
      float* to = op.out.f32() + row * width;
      const double peak = *std::max_element(in, in + width);
      double total = 0.0;
      for (std::int64_t i = 0; i < width; ++i) total += std::exp(in[i] - peak);
      for (std::int64_t i = 0; i < width; ++i) {
        to[i] = to_float(std::exp(in[i] - peak) / total);
      }
    }
  });
}

void group_norm_coefficients(CpuBackend& cpu, const GroupNormArgs& op) {
  ThreadPool& pool = cpu.threads();
  const std::int64_t pixels = op.x.shape[0] * op.x.shape[1];
  const std::int64_t channels = op.x.shape[2];
  const std::int64_t parts = std::min(kParts, std::max<std::int64_t>(1, op.x.shape[0]));
  const auto floats = to_size(2 * parts * channels) * (sizeof(double) / sizeof(float));
  cpu.ensure_scratch((floats + to_size(pool.threads()) - 1) / to_size(pool.threads()) + 64);
  // [parts][2][channels]: sum and sum of squares. In double the square of a float is exact.
  auto* sums = reinterpret_cast<double*>(cpu.scratch(0));
  pool.parallel_for(parts, 1, [&](std::int64_t part, std::int64_t end, int) {
    for (; part < end; ++part) {
      double* sum = sums + 2 * part * channels;
      double* squares = sum + channels;
      std::fill_n(sum, 2 * channels, 0.0);
      for (std::int64_t pixel = pixels * part / parts; pixel < pixels * (part + 1) / parts;
           ++pixel) {
        const float* row = op.x.f32() + pixel * channels;
        for (std::int64_t c = 0; c < channels; ++c) {
          const double value = row[c];
          sum[c] += value;
          squares[c] += value * value;
        }
      }
    }
  });
  const std::int64_t width = channels / op.groups;
  const double count = to_double(pixels * width);
  for (std::int64_t group = 0; group < op.groups; ++group) {
    double sum = 0.0, squares = 0.0;
    for (std::int64_t part = 0; part < parts; ++part) {
      for (std::int64_t c = group * width; c < (group + 1) * width; ++c) {
        sum += sums[2 * part * channels + c];
        squares += sums[(2 * part + 1) * channels + c];
      }
    }
    const double mean = sum / count;
    // Written so that NaN goes through: std::max would drop it.
    double variance = squares / count - mean * mean;
    if (variance < 0.0) variance = 0.0;
    const double factor = 1.0 / std::sqrt(variance + op.eps);
    for (std::int64_t c = group * width; c < (group + 1) * width; ++c) {
      const double slope = factor * op.gamma.f32()[c];
      op.scale.f32()[c] = to_float(slope);
      op.shift.f32()[c] = to_float(op.beta.f32()[c] - mean * slope);
    }
  }
}

void l2_normalize(CpuBackend& cpu, const L2NormalizeArgs& op) {
  const std::int64_t width = op.x.shape[1];
  cpu.threads().parallel_for(op.x.shape[0], 64, [&](std::int64_t row, std::int64_t end, int) {
    for (; row < end; ++row) {
      const float* in = op.x.f32() + row * width;
      float* to = op.out.f32() + row * width;
      double squares = 0.0;
      for (std::int64_t i = 0; i < width; ++i) squares += double{in[i]} * in[i];
      double length = std::sqrt(squares);
      if (length < op.eps) length = op.eps;
      for (std::int64_t i = 0; i < width; ++i) to[i] = to_float(in[i] / length);
    }
  });
}

}  // namespace

void add_norm_ops(OpTable& table) {
  table.add<rms_norm>();
  table.add<layer_norm>();
  table.add<head_norm>();
  table.add<softmax_rows>();
  table.add<group_norm_coefficients>();
  table.add<l2_normalize>();
}

}  // namespace tessera::cpu
