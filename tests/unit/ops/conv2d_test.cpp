// Convolution against seven loops in double precision, for strides, pads, upsampling and the
// transform on read; GroupNorm coefficients against their definition.
#include <algorithm>

#include "engine/ops/ops.h"
#include "tests/unit/ops/places.h"

namespace tessera::testing::conv2d_test {
namespace {

struct Case {
  std::int64_t height, width, c_in, c_out, kernel;
  int upsample = 1, stride = 1;
  int top = 0, left = 0, bottom = 0, right = 0;
  bool affine = false, swish = false, bias = true, accumulate = false;

  std::int64_t out_height() const {
    return (height * upsample + top + bottom - kernel) / stride + 1;
  }
  std::int64_t out_width() const { return (width * upsample + left + right - kernel) / stride + 1; }
};

struct Data {
  std::vector<float> in, kernel, bias, scale, shift, start;
  explicit Data(const Case& c)
      : in(normal(static_cast<std::size_t>(c.height * c.width * c.c_in), 1)),
        kernel(normal(static_cast<std::size_t>(c.c_out * c.c_in * c.kernel * c.kernel), 2)),
        bias(normal(static_cast<std::size_t>(c.c_out), 3)),
        scale(normal(static_cast<std::size_t>(c.c_in), 4)),
        shift(normal(static_cast<std::size_t>(c.c_in), 5)),
        start(normal(static_cast<std::size_t>(c.out_height() * c.out_width() * c.c_out), 6)) {}
};

ConvWeight pack(Backend& backend, const Case& c, const Data& d, DType storage) {
  return backend.pack_conv(view_of(d.kernel, {c.c_out, c.c_in, c.kernel, c.kernel}), storage);
}

// A convolution and its tensors, where the backend keeps them.
struct Call {
  ConvWeight weight;
  Tensor in, bias, scale, shift, out;
  Conv2dArgs args;

  Call(Backend& backend, const Case& c, const Data& d, DType storage)
      : weight(pack(backend, c, d, storage)),
        in(send(backend, d.in, {c.height, c.width, c.c_in})),
        bias(send(backend, d.bias, {c.c_out})),
        scale(send(backend, d.scale, {c.c_in})),
        shift(send(backend, d.shift, {c.c_in})),
        out(send(backend, d.start, {c.out_height(), c.out_width(), c.c_out})) {
    args.in = in.view();
    args.weight = &weight;
    if (c.bias) args.bias = bias.view();
    if (c.affine) {
      args.scale = scale.view();
      args.shift = shift.view();
    }
    args.swish = c.swish;
    args.upsample = c.upsample;
    args.stride = c.stride;
    args.pad_top = c.top;
    args.pad_left = c.left;
    args.pad_bottom = c.bottom;
    args.pad_right = c.right;
    args.accumulate = c.accumulate;
    args.out = out.view();
  }
};

std::vector<float> run(Backend& backend, const Case& c, const Data& d, DType storage) {
  Call call(backend, c, d, storage);
  ops::conv2d(backend, call.args);
  return fetch(backend, call.out.view());
}

double read(const Case& c, const Data& d, std::int64_t y, std::int64_t x, std::int64_t channel) {
  if (y < 0 || x < 0 || y >= c.height * c.upsample || x >= c.width * c.upsample) return 0.0;
  const auto i = static_cast<std::size_t>(channel);
  double value = d.in[static_cast<std::size_t>(
      ((y / c.upsample) * c.width + x / c.upsample) * c.c_in + channel)];
  if (c.affine) value = value * d.scale[i] + d.shift[i];
  if (c.swish) value = value / (1.0 + std::exp(-value));
  return value;
}

double as_bf16(double value) {
  return static_cast<double>(bf16_to_float(float_to_bf16(static_cast<float>(value))));
}

// A device may round what it reads to the type of the weights. Where the rounding of f32 decides to
// which of two neighbours, either is right. A library may round sums of bf16 factors to bf16, by a
// unit of 2^-8 at most; bias and what stood there come after that.
void compare(const Place& place, const Case& c, const Data& d, DType storage,
             const std::vector<float>& got) {
  const bool rounded = !place.is_cpu() && storage == DType::kBF16;
  const std::vector<float> kernel = rounded_to(storage, d.kernel);
  std::vector<double> want, tolerance;
  for (std::int64_t y = 0; y < c.out_height(); ++y) {
    for (std::int64_t x = 0; x < c.out_width(); ++x) {
      for (std::int64_t o = 0; o < c.c_out; ++o) {
        double sum = 0, in2 = 0, w2 = 0, open = 0;
        for (std::int64_t ky = 0; ky < c.kernel; ++ky) {
          for (std::int64_t kx = 0; kx < c.kernel; ++kx) {
            for (std::int64_t i = 0; i < c.c_in; ++i) {
              double value = read(c, d, y * c.stride + ky - c.top, x * c.stride + kx - c.left, i);
              const double w = kernel[static_cast<std::size_t>(
                  ((o * c.c_in + i) * c.kernel + ky) * c.kernel + kx)];
              if (rounded) {
                const double slack = 8 * kEpsilon * (std::abs(value) + 8);
                const double below = as_bf16(value - slack), above = as_bf16(value + slack);
                value = as_bf16(value);
                open += (above - below) * std::abs(w);
              }
              sum += value * w;
              in2 += value * value;
              w2 += w * w;
            }
          }
        }
        if (rounded && !place.device.deterministic) open += std::abs(sum) / 256;
        if (c.bias) sum += d.bias[static_cast<std::size_t>(o)];
        if (c.accumulate) sum += d.start[want.size()];
        want.push_back(sum);
        tolerance.push_back(6 * kEpsilon * (std::sqrt(in2 * w2) + 4) + open);
      }
    }
  }
  EXPECT_TRUE(close(got, want, tolerance))
      << c.height << "x" << c.width << "x" << c.c_in << " to " << c.c_out << ", kernel " << c.kernel
      << ", up " << c.upsample << ", stride " << c.stride;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {.height = 5,
       .width = 7,
       .c_in = 3,
       .c_out = 17,
       .kernel = 3,
       .top = 1,
       .left = 1,
       .bottom = 1,
       .right = 1},
      {.height = 8,
       .width = 8,
       .c_in = 32,
       .c_out = 33,
       .kernel = 3,
       .top = 1,
       .left = 1,
       .bottom = 1,
       .right = 1,
       .affine = true,
       .swish = true},
      {.height = 9,
       .width = 6,
       .c_in = 20,
       .c_out = 16,
       .kernel = 3,
       .upsample = 2,
       .top = 1,
       .left = 1,
       .bottom = 1,
       .right = 1},
      {.height = 4,
       .width = 5,
       .c_in = 130,
       .c_out = 40,
       .kernel = 3,
       .upsample = 2,
       .top = 1,
       .left = 1,
       .bottom = 1,
       .right = 1,
       .affine = true,
       .swish = true,
       .bias = false},
      {.height = 10,
       .width = 11,
       .c_in = 6,
       .c_out = 9,
       .kernel = 3,
       .stride = 2,
       .bottom = 1,
       .right = 1},
      {.height = 12,
       .width = 8,
       .c_in = 17,
       .c_out = 32,
       .kernel = 3,
       .stride = 2,
       .bottom = 1,
       .right = 1,
       .affine = true},
      {.height = 6, .width = 5, .c_in = 300, .c_out = 64, .kernel = 1},
      {.height = 6,
       .width = 5,
       .c_in = 520,
       .c_out = 7,
       .kernel = 1,
       .affine = true,
       .swish = true,
       .accumulate = true},
      {.height = 7,
       .width = 9,
       .c_in = 257,
       .c_out = 20,
       .kernel = 3,
       .top = 1,
       .left = 1,
       .bottom = 1,
       .right = 1,
       .accumulate = true},
      {.height = 6, .width = 6, .c_in = 8, .c_out = 5, .kernel = 3},
      {.height = 1, .width = 1, .c_in = 1, .c_out = 1, .kernel = 1, .bias = false},
      {.height = 9,
       .width = 9,
       .c_in = 2,
       .c_out = 3,
       .kernel = 5,
       .stride = 3,
       .top = 2,
       .left = 0,
       .bottom = 1,
       .right = 2},
      {.height = 3,
       .width = 40,
       .c_in = 64,
       .c_out = 48,
       .kernel = 3,
       .top = 1,
       .left = 1,
       .bottom = 1,
       .right = 1,
       .swish = true}};
  return kCases;
}

class Conv2d : public AtPlace {};
class Conv2dThreads : public AtPlace {};

TEST_P(Conv2d, EqualsDoublePrecision) {
  for (const Case& c : cases()) {
    const Data data(c);
    compare(place(), c, data, storage(), run(*backend, c, data, storage()));
  }
}

TEST_P(Conv2d, ToleranceCatchesOneWrongWeight) {
  const DType storage = this->storage();
  const Case c = cases()[1];
  Data data(c);
  const std::vector<float> right = run(*backend, c, data, storage);
  data.kernel[1234] *= 1.02f;
  const std::vector<float> wrong = run(*backend, c, data, storage);
  const std::vector<double> want(right.begin(), right.end());
  EXPECT_GE(first_difference(wrong, want, std::vector<double>(want.size(), 1e-4)), 0);
}

TEST_P(Conv2dThreads, ChangeNothing) {
  const DType storage = this->storage();
  for (const Case& c : cases()) {
    const Data data(c);
    const std::vector<float> first = run(*place().open(1), c, data, storage);
    for (const int threads : {2, 3, 7}) {
      EXPECT_TRUE(same_bits(run(*place().open(threads), c, data, storage), first)) << threads;
    }
  }
}

TEST_P(Conv2d, NanReachesEveryPixelThatReadsIt) {
  const Case c = cases()[0];
  Data data(c);
  data.in[(2 * 7 + 3) * 3 + 1] = NAN;
  const std::vector<float> out = run(*backend, c, data, storage());
  for (std::int64_t y = 0; y < 5; ++y) {
    for (std::int64_t x = 0; x < 7; ++x) {
      const bool reads = std::abs(y - 2) <= 1 && std::abs(x - 3) <= 1;
      for (std::int64_t o = 0; o < 17; ++o) {
        ASSERT_EQ(std::isnan(out[static_cast<std::size_t>((y * 7 + x) * 17 + o)]), reads);
      }
    }
  }
}

// Room that a recorded pass makes is room that nobody planned. (Of a GPU others may take a share.)
TEST_P(Conv2d, RecordedPassesNeedTheScratchThatWasPlanned) {
  for (const Case& c : cases()) {
    const Data data(c);
    const auto fresh = place().open();
    Call call(*fresh, c, data, storage());
    fresh->reserve_scratch(fresh->conv_scratch_bytes(call.args));
    const auto free = [&] { return fresh->memory().value_or(DeviceMemory{}).free; };
    for (int turn = 0; turn < 3; ++turn) {
      fresh->upload(view_of(data.start, call.out.shape()), call.out.view());
      {
        const RecordedPass recorded(*fresh, 7);
        const std::size_t begun = free();
        ops::conv2d(*fresh, call.args);
        if (place().device.name == "simt") {
          EXPECT_EQ(free(), begun) << "turn " << turn;
        }
      }
      EXPECT_TRUE(same_bits(fetch(*fresh, call.out.view()), run(*backend, c, data, storage())));
    }
  }
}

TEST_P(Conv2d, BytesOfThePackedFormAreAsPlanned) {
  for (const Case& c : cases()) {
    const Data data(c);
    const ConvWeight weight = pack(*backend, c, data, storage());
    EXPECT_EQ(weight.packed.bytes(),
              backend->packed_conv_bytes({c.c_out, c.c_in, c.kernel, c.kernel}, storage()));
  }
}

INSTANTIATE_TEST_SUITE_P(Places, Conv2d, with_number_storage(every_place()), place_name);
INSTANTIATE_TEST_SUITE_P(Cpu, Conv2dThreads, with_number_storage(cpu_places()), place_name);

TEST(Conv2dIsas, AgreeBitForBit) {
  for (const Case& c : cases()) {
    const Data data(c);
    std::vector<float> first;
    for (const Isa isa : isas_here()) {
      const std::vector<float> out = run(*backend_of(isa), c, data, DType::kF32);
      if (first.empty()) first = out;
      EXPECT_TRUE(same_bits(out, first)) << isa_name(isa);
    }
  }
}

TEST(Conv2dScratch, IsBoundedAndCoversWhatTheCallUses) {
  const auto backend = backend_of(Isa::kAuto, 2);
  // The widest layers of a 16-fold VQ decoder at 1024 pixels.
  const auto zeros = [](std::int64_t n) { return std::vector<float>(static_cast<std::size_t>(n)); };
  const std::vector<float> kernel = zeros(16 * 128 * 9);
  const ConvWeight weight = backend->pack_conv(view_of(kernel, {16, 128, 3, 3}), DType::kF32);
  Conv2dArgs args;
  args.in = {DType::kF32, {1024, 1024, 128}, nullptr, {}};
  args.weight = &weight;
  args.swish = true;
  args.pad_top = args.pad_left = args.pad_bottom = args.pad_right = 1;
  EXPECT_LE(backend->conv_scratch_bytes(args), std::size_t{2} * 16 << 20);
}

TEST(GroupNorm, EqualsItsDefinition) {
  for (const Isa isa : isas_here()) {
    for (const auto& [height, width, channels, groups] : {std::array<std::int64_t, 4>{5, 7, 64, 32},
                                                          {1, 1, 32, 32},
                                                          {70, 3, 96, 32},
                                                          {9, 11, 20, 4}}) {
      std::vector<float> x = normal(static_cast<std::size_t>(height * width * channels), 1);
      for (float& value : x) value = value * 0.5f + 3.0f;  // a mean well away from zero
      const std::vector<float> gamma = normal(static_cast<std::size_t>(channels), 2);
      const std::vector<float> beta = normal(static_cast<std::size_t>(channels), 3);
      std::vector<float> scale(gamma.size()), shift(gamma.size()), out(x.size());
      const Shape shape{height, width, channels};
      std::vector<float> first;
      for (const int threads : {1, 2, 3, 7}) {
        const auto backend = backend_of(isa, threads);
        ops::group_norm_coefficients(*backend, view_of(x, shape), static_cast<int>(groups), 1e-6f,
                                     view_of(gamma, {channels}), view_of(beta, {channels}),
                                     view_of(scale, {channels}), view_of(shift, {channels}));
        ops::affine_channels(*backend, view_of(x, shape), view_of(scale, {channels}),
                             view_of(shift, {channels}), view_of(out, shape));
        if (first.empty()) first = out;
        EXPECT_TRUE(same_bits(out, first));
      }
      std::vector<double> want(x.size()), tolerance(x.size());
      for (std::int64_t group = 0; group < groups; ++group) {
        const std::int64_t per = channels / groups;
        double mean = 0, variance = 0;
        const double count = static_cast<double>(height * width * per);
        const auto each = [&](auto&& body) {
          for (std::int64_t pixel = 0; pixel < height * width; ++pixel) {
            for (std::int64_t c = group * per; c < (group + 1) * per; ++c) {
              body(static_cast<std::size_t>(pixel * channels + c), static_cast<std::size_t>(c));
            }
          }
        };
        each([&](std::size_t i, std::size_t) { mean += x[i] / count; });
        each(
            [&](std::size_t i, std::size_t) { variance += (x[i] - mean) * (x[i] - mean) / count; });
        const double factor = 1.0 / std::sqrt(variance + 1e-6);
        each([&](std::size_t i, std::size_t c) {
          want[i] = (x[i] - mean) * factor * gamma[c] + beta[c];
          // scale * x and shift are each rounded, and they are larger than their sum.
          tolerance[i] =
              4 * kEpsilon *
              (std::abs((std::abs(x[i]) + std::abs(mean)) * factor * gamma[c]) + std::abs(beta[c]));
        });
      }
      EXPECT_TRUE(close(out, want, tolerance)) << channels << " channels";
    }
  }
}

TEST(GroupNorm, NanSpoilsItsGroupOnly) {
  const auto backend = backend_of(Isa::kAuto);
  std::vector<float> x = normal(4 * 4 * 8, 1);
  x[5 * 8 + 6] = NAN;
  const std::vector<float> one(8, 1.0f);
  std::vector<float> scale(8), shift(8);
  ops::group_norm_coefficients(*backend, view_of(x, {4, 4, 8}), 4, 1e-6f, view_of(one, {8}),
                               view_of(one, {8}), view_of(scale, {8}), view_of(shift, {8}));
  for (std::size_t c = 0; c < 8; ++c) EXPECT_EQ(std::isnan(scale[c]), c / 2 == 3) << c;
}

}  // namespace
}  // namespace tessera::testing::conv2d_test
