// Normalisations. RMSNorm (Zhang & Sennrich 2019), LayerNorm (Ba et al. 2016), softmax and unit
// length work on rows; GroupNorm (Wu & He 2018) is reduced to one scale and shift per channel,
// which the next op applies as it reads.
#include <algorithm>
#include <cmath>

#include "engine/backend/cpu/cpu_backend.h"

namespace tessera::cpu {

namespace {
// Image rows are summed in this many parts at most, and the parts in order: the number does not
// depend on the threads, so the sum does not either.
constexpr std::int64_t kParts = 64;
}  // namespace

void CpuBackend::rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView out) {
  const std::int64_t width = x.shape[1];
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(width, 1));
  pool_.parallel_for(x.shape[0], grain, [&](std::int64_t row, std::int64_t end, int) {
    for (; row < end; ++row) {
      kernels_.rms_norm(x.f32() + row * width, weight.f32(), eps, out.f32() + row * width, width);
    }
  });
}

void CpuBackend::layer_norm(ConstTensorView x, ConstTensorView weight, ConstTensorView bias,
                            float eps, TensorView out) {
  const std::int64_t width = x.shape[1];
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(width, 1));
  pool_.parallel_for(x.shape[0], grain, [&](std::int64_t row, std::int64_t end, int) {
    for (; row < end; ++row) {
      kernels_.layer_norm(x.f32() + row * width, weight.f32(), bias.f32(), eps,
                          out.f32() + row * width, width);
    }
  });
}

// Sums in double. A NaN anywhere in a row makes the whole row NaN.
void CpuBackend::softmax_rows(ConstTensorView x, TensorView out) {
  const std::int64_t width = x.shape[1];
  pool_.parallel_for(x.shape[0], 1, [&](std::int64_t row, std::int64_t end, int) {
    for (; row < end; ++row) {
      const float* in = x.f32() + row * width;
      float* to = out.f32() + row * width;
      const double peak = *std::max_element(in, in + width);
      double total = 0.0;
      for (std::int64_t i = 0; i < width; ++i) total += std::exp(in[i] - peak);
      for (std::int64_t i = 0; i < width; ++i) {
        to[i] = static_cast<float>(std::exp(in[i] - peak) / total);
      }
    }
  });
}

void CpuBackend::group_norm_coefficients(ConstTensorView x, int groups, float eps,
                                         ConstTensorView gamma, ConstTensorView beta,
                                         TensorView scale, TensorView shift) {
  const std::int64_t pixels = x.shape[0] * x.shape[1];
  const std::int64_t channels = x.shape[2];
  const std::int64_t parts = std::min(kParts, std::max<std::int64_t>(1, x.shape[0]));
  const auto floats =
      static_cast<std::size_t>(2 * parts * channels) * (sizeof(double) / sizeof(float));
  ensure_scratch((floats + static_cast<std::size_t>(pool_.threads()) - 1) /
                     static_cast<std::size_t>(pool_.threads()) +
                 64);
  // [parts][2][channels]: sum and sum of squares. In double the square of a float is exact.
  auto* sums = static_cast<double*>(scratch_.get());
  pool_.parallel_for(parts, 1, [&](std::int64_t part, std::int64_t end, int) {
    for (; part < end; ++part) {
      double* sum = sums + 2 * part * channels;
      double* squares = sum + channels;
      std::fill_n(sum, 2 * channels, 0.0);
      for (std::int64_t pixel = pixels * part / parts; pixel < pixels * (part + 1) / parts;
           ++pixel) {
        const float* row = x.f32() + pixel * channels;
        for (std::int64_t c = 0; c < channels; ++c) {
          const double value = row[c];
          sum[c] += value;
          squares[c] += value * value;
        }
      }
    }
  });
  const std::int64_t width = channels / groups;
  const double count = static_cast<double>(pixels * width);
  for (std::int64_t group = 0; group < groups; ++group) {
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
    const double factor = 1.0 / std::sqrt(variance + static_cast<double>(eps));
    for (std::int64_t c = group * width; c < (group + 1) * width; ++c) {
      const double slope = factor * gamma.f32()[c];
      scale.f32()[c] = static_cast<float>(slope);
      shift.f32()[c] = static_cast<float>(beta.f32()[c] - mean * slope);
    }
  }
}

void CpuBackend::l2_normalize(ConstTensorView x, float eps, TensorView out) {
  const std::int64_t width = x.shape[1];
  pool_.parallel_for(x.shape[0], 64, [&](std::int64_t row, std::int64_t end, int) {
    for (; row < end; ++row) {
      const float* in = x.f32() + row * width;
      float* to = out.f32() + row * width;
      double squares = 0.0;
      for (std::int64_t i = 0; i < width; ++i) squares += static_cast<double>(in[i]) * in[i];
      double length = std::sqrt(squares);
      if (length < static_cast<double>(eps)) length = static_cast<double>(eps);
      for (std::int64_t i = 0; i < width; ++i) to[i] = static_cast<float>(in[i] / length);
    }
  });
}

}  // namespace tessera::cpu
