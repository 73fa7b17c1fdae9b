// Cosmos' video tokenizer against a reference of our own (assets/recipes/fixtures_cosmos.py), which
// runs whole videos at once: codes equal, latents and frames to 1e-5 of the largest; the wavelet;
// grids that stand do not change when a video goes on; a wrong tensor is noticed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "engine/checkpoint/checkpoint.h"
#include "tests/support/chosen_backend.h"
#include "tests/support/hashed_weights.h"
#include "tests/support/source_folder.h"
#include "tokenizers/visual/fsq_video_tokenizer.h"
#include "tokenizers/visual/haar.h"

namespace tessera::fsq_video_golden_test {
namespace {

constexpr double kTolerance = 1e-5;  // of max|reference|
constexpr int kHeight = 32, kWidth = 48, kRows = 2, kCols = 3, kFrames = 17;

FsqVideoSpec small_spec() {
  FsqVideoSpec spec;
  spec.channels = 8;
  spec.multipliers = {1, 2, 2};
  spec.res_blocks = 1;
  spec.latent_channels = 4;
  spec.prefix = "tokenizer.";
  return spec;
}

Checkpoint small_weights() {
  return Checkpoint::from_tensors("hashed", hashed_weights(fsq_video_tensors(small_spec())));
}

class FsqVideoGolden : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> backend = chosen_backend();
  Checkpoint recorded =
      Checkpoint::open(source_folder() / "tests/golden/cosmos/recorded.safetensors");
  std::vector<float> video = hashed_values("clip", kFrames* kHeight* kWidth * 3);

  FsqVideoTokenizer load(const Checkpoint& weights,
                        TokenizerHalves halves = TokenizerHalves::kBoth) {
    return FsqVideoTokenizer(*backend, small_spec(), weights, DType::kF32, halves);
  }
  ConstTensorView frame(int index) const {
    return {DType::kF32, Shape{kHeight, kWidth, 3}, video.data() + index * kHeight * kWidth * 3, {}};
  }
  std::vector<std::int32_t> codes() const {
    const ConstTensorView view = *recorded.find("codes");
    return {view.as<std::int32_t>(), view.as<std::int32_t>() + view.shape.elements()};
  }
  double gap(const std::vector<float>& got, const char* name) const {
    const ConstTensorView want = *recorded.find(name);
    EXPECT_EQ(static_cast<std::int64_t>(got.size()), want.shape.elements());
    double largest = 0.0, most = 0.0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      most = std::max(most, std::abs(double{want.f32()[i]}));
      largest = std::max(largest, std::abs(double{got[i]} - want.f32()[i]));
    }
    return largest / most;
  }
  // Every third row and fifth column of the frames that are recorded.
  std::vector<float> samples(const std::vector<Tensor>& frames) const {
    std::vector<float> out;
    for (const std::size_t index : {0, 1, 8, 9, 16}) {
      for (int y = 0; y < kHeight; y += 3) {
        for (int x = 0; x < kWidth; x += 5) {
          const float* pixel = frames[index].f32() + (y * kWidth + x) * 3;
          out.insert(out.end(), pixel, pixel + 3);
        }
      }
    }
    return out;
  }
  static std::vector<Tensor> decoded(const FsqVideoTokenizer& tokenizer,
                                     const std::vector<std::int32_t>& codes) {
    const auto decoder = tokenizer.video_decoder(kRows, kCols);
    std::vector<Tensor> frames;
    for (std::size_t grid = 0; grid < codes.size() / 6; ++grid) {
      for (Tensor& one : decoder->next(std::span(codes).subspan(grid * 6, 6), grid == 0 ? 1 : 8)) {
        frames.push_back(std::move(one));
      }
    }
    return frames;
  }
};

TEST_F(FsqVideoGolden, LatentsAndCodesOfAVideoAreEqual) {
  const Checkpoint weights = small_weights();
  const FsqVideoTokenizer tokenizer = load(weights);
  EXPECT_EQ(tokenizer.factor(), 16);
  EXPECT_EQ(tokenizer.codes(), 64000);
  FsqVideoEncoder latents(tokenizer, kHeight, kWidth);
  const auto encoder = tokenizer.video_encoder(kHeight, kWidth);
  std::vector<float> all;
  std::vector<std::int32_t> ids;
  for (int i = 0; i < kFrames; ++i) {
    const Tensor map = latents.push_latents(frame(i));
    const auto grid = encoder->push(frame(i));
    EXPECT_EQ(grid.has_value(), i % 8 == 0);
    EXPECT_EQ(map.empty(), !grid.has_value());
    if (!grid) continue;
    all.insert(all.end(), map.f32(), map.f32() + map.shape().elements());
    ids.insert(ids.end(), grid->begin(), grid->end());
  }
  const double off = gap(all, "latents");
  std::printf("latents differ by %.1e of the largest value\n", off);
  EXPECT_LT(off, kTolerance);
  EXPECT_EQ(ids, codes());
}

TEST_F(FsqVideoGolden, FramesOfAVideoAreEqual) {
  const Checkpoint weights = small_weights();
  const FsqVideoTokenizer tokenizer = load(weights, TokenizerHalves::kDecoder);
  const std::vector<Tensor> frames = decoded(tokenizer, codes());
  ASSERT_EQ(frames.size(), static_cast<std::size_t>(kFrames));
  const double off = gap(samples(frames), "frames");
  std::printf("frames differ by %.1e of the largest value\n", off);
  EXPECT_LT(off, kTolerance);
}

// A video that stands still after its first frames has the same first codes as one that goes on:
// prompts need no padding.
TEST_F(FsqVideoGolden, NothingLooksAhead) {
  const Checkpoint weights = small_weights();
  const FsqVideoTokenizer tokenizer = load(weights);
  const auto encoder = tokenizer.video_encoder(kHeight, kWidth);
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 9; ++i) {
    if (const auto grid = encoder->push(frame(i)))
      ids.insert(ids.end(), grid->begin(), grid->end());
  }
  const std::vector<std::int32_t> all = codes();
  EXPECT_EQ(ids, std::vector<std::int32_t>(all.begin(), all.begin() + 12));
  EXPECT_EQ(tokenizer.encode(frame(0)), std::vector<std::int32_t>(all.begin(), all.begin() + 6));
  const std::vector<Tensor> whole = decoded(tokenizer, all);
  const Tensor image = tokenizer.decode(std::span(all).first(6), kRows, kCols);
  EXPECT_EQ(std::memcmp(image.f32(), whole[0].f32(), image.bytes()), 0);
}

TEST_F(FsqVideoGolden, AWaveletOfTwoStepsIsEqual) {
  const std::vector<float> frames = hashed_values("wavelet", 5 * 4 * 8 * 3);
  // The first frame four times.
  std::vector<float> padded;
  for (int i = 0; i < 3; ++i)
    padded.insert(padded.end(), frames.begin(), frames.begin() + 4 * 8 * 3);
  padded.insert(padded.end(), frames.begin(), frames.end());
  const Tensor once = haar({DType::kF32, Shape{8, 4, 8, 3}, padded.data(), {}});
  const Tensor twice = haar(once.view());
  ASSERT_EQ(twice.shape(), (Shape{2, 1, 2, 192}));
  EXPECT_LT(gap({twice.f32(), twice.f32() + twice.shape().elements()}, "wavelet"), 1e-6);
}

TEST_F(FsqVideoGolden, AnyTensorOffByAHundredthIsNoticed) {
  const std::vector<std::string> unused = fsq_video_unused(small_spec());
  std::size_t seen = 0;
  const std::vector<TensorSpec> list = fsq_video_tensors(small_spec());
  for (std::size_t at = 0; at < list.size(); at += 5) {
    const std::string& name = list[at].name;
    if (std::find(unused.begin(), unused.end(), name) != unused.end()) continue;
    std::map<std::string, Tensor> tensors = hashed_weights(list);
    Tensor& tensor = tensors.at(name);
    for (std::int64_t i = 0; i < tensor.shape().elements(); i += 3) tensor.f32()[i] += 1e-2f;
    const Checkpoint weights = Checkpoint::from_tensors("edited", std::move(tensors));
    const FsqVideoTokenizer tokenizer = load(weights);
    if (name.starts_with("tokenizer.encoder.") || name.starts_with("tokenizer.quant_conv")) {
      FsqVideoEncoder encoder(tokenizer, kHeight, kWidth);
      std::vector<float> all;
      for (int i = 0; i < kFrames; ++i) {
        const Tensor map = encoder.push_latents(frame(i));
        if (!map.empty()) all.insert(all.end(), map.f32(), map.f32() + map.shape().elements());
      }
      EXPECT_GT(gap(all, "latents"), kTolerance) << name;
    } else {
      EXPECT_GT(gap(samples(decoded(tokenizer, codes())), "frames"), kTolerance) << name;
    }
    ++seen;
  }
  EXPECT_GT(seen, 30u);
}

}  // namespace
}  // namespace tessera::fsq_video_golden_test
