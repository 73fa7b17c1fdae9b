// Finite scalar quantization and the wavelet against numbers worked out by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "engine/core/philox.h"
#include "engine/nn/fsq_video_spec.h"
#include "tokenizers/visual/fsq.h"
#include "tokenizers/visual/haar.h"

namespace tessera::fsq_test {
namespace {

using Latent = std::array<float, 6>;

FiniteScalars published() { return FiniteScalars({8, 8, 8, 5, 5, 5}); }

// basis 1, 8, 64, 512, 2560, 12800.
TEST(FiniteScalars, CodesByHand) {
  const FiniteScalars fsq = published();
  EXPECT_EQ(fsq.codes(), 64000);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  struct Row {
    Latent latent;
    std::int32_t code;
  };
  const Row rows[] = {
      // The middle levels: 4 of 8, 2 of 5. 4 (1 + 8 + 64) + 2 (512 + 2560 + 12800).
      {{0, 0, 0, 0, 0, 0}, 32036},
      {{kInf, kInf, kInf, kInf, kInf, kInf}, 63999},
      {{-kInf, -kInf, -kInf, -kInf, -kInf, -kInf}, 0},
      // One level up and one down: tanh(z + 0.1437) 3.5035 - 0.5 is 0.96 at z = 0.3, -1.04 at -0.3;
      // tanh(z) 2.002 is 1.07 at z = 0.6.
      {{0.3f, 0, 0, 0, 0, 0}, 32037},
      {{0, -0.3f, 0, 0, 0, 0}, 32036 - 8},
      {{0, 0, 0, 0.6f, 0, 0}, 32036 + 512},
      {{0, 0, 0, 0, -0.6f, 0}, 32036 - 2560},
      // Below and above the edge between levels 0 and 1 of 5: tanh(z) 2.002 = 0.5 at z = 0.2551.
      {{0, 0, 0, 0, 0, 0.25f}, 32036},
      {{0, 0, 0, 0, 0, 0.26f}, 32036 + 12800},
  };
  for (const Row& row : rows) EXPECT_EQ(fsq.code_of(row.latent), row.code);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::int32_t code = fsq.code_of(Latent{nan, nan, nan, nan, nan, nan});
  EXPECT_GE(code, 0);
  EXPECT_LT(code, 64000);
}

TEST(FiniteScalars, VectorsByHand) {
  const FiniteScalars fsq = published();
  Latent out{};
  fsq.vector_of(0, out);
  EXPECT_EQ(out, (Latent{-1, -1, -1, -1, -1, -1}));
  fsq.vector_of(63999, out);
  EXPECT_EQ(out, (Latent{0.75f, 0.75f, 0.75f, 1, 1, 1}));
  fsq.vector_of(32036, out);
  EXPECT_EQ(out, (Latent{0, 0, 0, 0, 0, 0}));
  // 12345 = 1 + 7 * 8 + 0 * 64 + 4 * 512 + 4 * 2560 + 0 * 12800.
  fsq.vector_of(12345, out);
  EXPECT_EQ(out, (Latent{-0.75f, 0.75f, -1, 1, 1, -1}));
}

// A latent that lies on a code's level is that code.
TEST(FiniteScalars, EveryCodeComesBack) {
  const FiniteScalars fsq = published();
  const double levels[] = {8, 8, 8, 5, 5, 5};
  Latent vector{}, latent{};
  for (std::int32_t code = 0; code < 64000; ++code) {
    fsq.vector_of(code, vector);
    for (std::size_t i = 0; i < 6; ++i) {
      const double half = (levels[i] - 1) * 1.001 / 2, offset = i < 3 ? 0.5 : 0.0;
      const double level = double{vector[i]} * std::floor(levels[i] / 2);
      // The outermost level of an even number lies beyond what tanh reaches.
      const double inside = std::clamp((level + offset) / half, -0.9999, 0.9999);
      latent[i] = static_cast<float>(std::atanh(inside) - std::atanh(offset / half));
    }
    ASSERT_EQ(fsq.code_of(latent), code);
  }
}

TEST(Haar, BandsByHand) {
  // 1 at the corner t = 1, y = 0, x = 1; everything else 0: signs by the bits t and x.
  std::array<float, 8> cell{};
  cell[5] = 8.0f;
  const Tensor bands = haar({DType::kF32, Shape{2, 2, 2, 1}, cell.data(), {}});
  ASSERT_EQ(bands.shape(), (Shape{1, 1, 1, 8}));
  const float want[8] = {1, -1, 1, -1, -1, 1, -1, 1};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(bands.f32()[i], want[i]) << i;
}

TEST(Haar, TheInverseGivesEverythingBack) {
  Tensor video = Tensor::host(DType::kF32, {4, 8, 12, 3});
  const auto key = philox_key(5, 6);
  for (std::int64_t i = 0; i < video.shape().elements(); ++i) {
    const PhiloxBlock block = philox4x32({static_cast<std::uint32_t>(i), 0, 0, 0}, key);
    // Multiples of 1/256: sums of 64 of them are exact.
    video.f32()[i] = static_cast<float>(static_cast<int>(block[0] % 512) - 256) / 256.0f;
  }
  const Tensor once = haar(video.view());
  const Tensor twice = haar(once.view());
  ASSERT_EQ(twice.shape(), (Shape{1, 2, 3, 192}));
  const Tensor half = inverse_haar(twice.view());
  const Tensor back = inverse_haar(half.view());
  ASSERT_EQ(back.shape(), video.shape());
  for (std::int64_t i = 0; i < video.shape().elements(); ++i) {
    ASSERT_EQ(back.f32()[i], video.f32()[i]);
  }
  // The first three channels are means over patches of 4x4x4.
  double sum = 0;
  for (std::int64_t t = 0; t < 4; ++t) {
    for (std::int64_t y = 0; y < 4; ++y) {
      for (std::int64_t x = 4; x < 8; ++x)
        sum += double{video.f32()[((t * 8 + y) * 12 + x) * 3 + 1]};
    }
  }
  EXPECT_NEAR(twice.f32()[192 + 1], sum / 64, 1e-6);
}

// Space twice and time once beyond the wavelet: the encoder halves time first, the decoder doubles
// it last.
TEST(FsqVideoSpec, ThePublishedOneResamplesWhereItsNamesSay) {
  const FsqVideoSpec spec;
  EXPECT_EQ(spec.codes(), 64000);
  EXPECT_EQ(spec.patch_channels(), 192);
  EXPECT_EQ(spec.deepest(), 512);
  EXPECT_TRUE(encoder_resample(spec, 0).space && encoder_resample(spec, 0).time);
  EXPECT_TRUE(encoder_resample(spec, 1).space && !encoder_resample(spec, 1).time);
  EXPECT_TRUE(decoder_resample(spec, 2).space && !decoder_resample(spec, 2).time);
  EXPECT_TRUE(decoder_resample(spec, 1).space && decoder_resample(spec, 1).time);
  std::map<std::string, Shape> list;
  for (const TensorSpec& tensor : fsq_video_tensors(spec)) list.emplace(tensor.name, tensor.shape);
  EXPECT_EQ(list.at("encoder.conv_in.0.conv3d.weight"), (Shape{128, 192, 1, 3, 3}));
  EXPECT_EQ(list.at("encoder.down.0.block.0.nin_shortcut.conv3d.weight"),
            (Shape{256, 128, 1, 1, 1}));
  EXPECT_EQ(list.at("encoder.down.1.downsample.conv2.conv3d.weight"), (Shape{512, 512, 3, 1, 1}));
  EXPECT_EQ(list.at("encoder.mid.attn_1.1.proj_out.conv3d.bias"), (Shape{512}));
  EXPECT_EQ(list.at("encoder.conv_out.1.conv3d.weight"), (Shape{16, 16, 3, 1, 1}));
  EXPECT_EQ(list.at("quant_conv.conv3d.weight"), (Shape{6, 16, 1, 1, 1}));
  EXPECT_EQ(list.at("decoder.up.0.block.2.conv1.0.conv3d.weight"), (Shape{256, 256, 1, 3, 3}));
  EXPECT_EQ(list.at("decoder.up.1.upsample.conv1.conv3d.weight"), (Shape{512, 512, 3, 1, 1}));
  EXPECT_EQ(list.at("decoder.norm_out.norm.weight"), (Shape{256}));
  EXPECT_EQ(list.at("decoder.conv_out.1.conv3d.weight"), (Shape{192, 192, 3, 1, 1}));
  EXPECT_FALSE(list.contains("decoder.up.0.upsample.conv1.conv3d.weight"));
  EXPECT_EQ(fsq_video_unused(spec),
            (std::vector<std::string>{"encoder.down.1.downsample.conv2.conv3d.weight",
                                      "encoder.down.1.downsample.conv2.conv3d.bias",
                                      "decoder.up.2.upsample.conv1.conv3d.weight",
                                      "decoder.up.2.upsample.conv1.conv3d.bias"}));
}

}  // namespace
}  // namespace tessera::fsq_test
