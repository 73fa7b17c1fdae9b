// The video tokenizer against the Emu3VQVAE class of transformers (assets/recipes/fixtures_movq.py):
// codes equal, frames to 1e-5 of the largest; the authors' names as well as the port's; a stream
// equals a video in one piece; a wrong tensor is noticed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "engine/checkpoint/checked_weight.h"
#include "engine/checkpoint/checkpoint.h"
#include "tests/support/chosen_backend.h"
#include "tests/support/movq_reference.h"
#include "tests/support/source_folder.h"
#include "tokenizers/visual/movq_tokenizer.h"

namespace tessera::movq_golden_test {
namespace {

constexpr double kTolerance = 1e-5;  // of max|reference|
const std::string kFile = source_folder() / "tests/golden/movq/movq.safetensors";

class MovqGolden : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> backend = chosen_backend();
  Checkpoint recorded = Checkpoint::open(kFile);
  Checkpoint checkpoint = Checkpoint::from_tensors("hashed", reference_movq_weights(recorded));

  Tensor stored(const std::string& name, const Shape& shape) {
    return widened(checked_weight(recorded, "golden." + name, shape));
  }
  std::vector<std::int32_t> stored_codes(const std::string& name) {
    const ConstTensorView view = *recorded.find("golden." + name);
    const auto* ids = static_cast<const std::int32_t*>(view.data);
    return {ids, ids + view.shape.elements()};
  }
  static ConstTensorView frame_of(const Tensor& video, std::int64_t index, std::int64_t height,
                                  std::int64_t width) {
    ConstTensorView view = video.view();
    view.data = video.view().f32() + index * height * width * 3;
    view.shape = {height, width, 3};
    return view;
  }
  static double gap(const Tensor& a, ConstTensorView b) {
    double largest = 0.0, most = 0.0;
    for (std::int64_t i = 0; i < b.shape.elements(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(b.f32()[i])));
      largest = std::max(largest, std::abs(static_cast<double>(a.view().f32()[i]) - b.f32()[i]));
    }
    return largest / most;
  }
};

TEST_F(MovqGolden, CodesOfAVideoAreEqual) {
  const MovqTokenizer tokenizer(*backend, reference_movq_spec(), checkpoint, DType::kF32,
                                TokenizerHalves::kBoth);
  EXPECT_EQ(tokenizer.frames(), 4);
  EXPECT_EQ(tokenizer.factor(), 2);
  const Tensor video = stored("clip", {8, 16, 24, 3});
  VideoEncoder encoder(tokenizer, 16, 24);
  std::vector<std::int32_t> codes;
  for (int i = 0; i < 8; ++i) {
    const auto grid = encoder.push(frame_of(video, i, 16, 24));
    EXPECT_EQ(grid.has_value(), i % 4 == 3);
    if (grid) codes.insert(codes.end(), grid->begin(), grid->end());
  }
  EXPECT_EQ(codes, stored_codes("codes"));
}

TEST_F(MovqGolden, FramesOfAVideoAreEqual) {
  const MovqTokenizer tokenizer(*backend, reference_movq_spec(), checkpoint, DType::kF32,
                                TokenizerHalves::kDecoder);
  const Tensor expected = stored("decoded", {8, 16, 24, 3});
  const std::vector<std::int32_t> codes = stored_codes("codes");
  MovqVideoDecoder decoder(tokenizer, 8, 12);
  double worst = 0.0;
  for (int grid = 0; grid < 2; ++grid) {
    const auto frames =
        decoder.next(std::span(codes).subspan(static_cast<std::size_t>(grid) * 96, 96), 4);
    ASSERT_EQ(frames.size(), 4u);
    for (int i = 0; i < 4; ++i) {
      worst = std::max(worst, gap(frames[static_cast<std::size_t>(i)],
                                  frame_of(expected, grid * 4 + i, 16, 24)));
    }
  }
  std::printf("frames differ by %.1e of the largest value\n", worst);
  EXPECT_LT(worst, kTolerance);
}

TEST_F(MovqGolden, AImageIsAVideoThatStandsStill) {
  const MovqTokenizer tokenizer(*backend, reference_movq_spec(), checkpoint, DType::kF32,
                                TokenizerHalves::kBoth);
  const Tensor image = stored("picture", {16, 24, 3});
  EXPECT_EQ(tokenizer.encode(image.view()), stored_codes("picture_codes"));
  const Tensor decoded = tokenizer.decode(stored_codes("picture_codes"), 8, 12);
  EXPECT_LT(gap(decoded, stored("picture_decoded", {16, 24, 3}).view()), kTolerance);
}

// Names and shapes of the reference's own tensors.
TEST_F(MovqGolden, EveryTensorIsReadAndNamed) {
  std::map<std::string, std::string> named;
  for (const TensorSpec& tensor : movq_tensors(reference_movq_spec())) {
    std::string shape;
    for (int axis = 0; axis < tensor.shape.rank(); ++axis) {
      shape += " " + std::to_string(tensor.shape[axis]);
    }
    EXPECT_TRUE(named.emplace(tensor.name, shape).second) << tensor.name;
  }
  std::map<std::string, std::string> reference;
  std::ifstream file(source_folder() / "tests/golden/movq/names.txt");
  for (std::string line; std::getline(file, line);) {
    const std::size_t space = line.find(' ');
    reference.emplace(line.substr(0, space), line.substr(space));
  }
  EXPECT_GT(reference.size(), 300u);
  EXPECT_EQ(named, reference);
}

// A tensor that is slightly another one is noticed.
TEST_F(MovqGolden, AWrongTensorIsNoticed) {
  const Tensor expected = stored("picture_decoded", {16, 24, 3});
  for (const char* name : {"decoder.time_conv.1.conv.conv.bias", "post_quant_conv.conv.bias"}) {
    auto tensors = reference_movq_weights(recorded);
    tensors.at(name).f32()[0] += 0.01f;
    const MovqTokenizer tokenizer(*backend, reference_movq_spec(),
                                  Checkpoint::from_tensors("wrong", std::move(tensors)),
                                  DType::kF32, TokenizerHalves::kDecoder);
    const Tensor decoded = tokenizer.decode(stored_codes("picture_codes"), 8, 12);
    EXPECT_GT(gap(decoded, expected.view()), 10 * kTolerance) << name;
  }
}

// The published tokenizer: 270.7 million parameters, counted by instantiation.
TEST(MovqSpecTest, ThePublishedOneHasItsSize) {
  MovqSpec spec;
  spec.frame.base_channels = 256;
  spec.frame.multipliers = {1, 2, 2, 4};
  spec.frame.res_blocks = 2;
  spec.frame.latent_channels = spec.frame.embed_dim = 4;
  spec.frame.codes = 32768;
  for (const MovqNames names : {MovqNames::kEmu3, MovqNames::kHfEmu3}) {
    spec.names = names;
    std::int64_t sum = 0;
    std::set<std::string> all;
    for (const TensorSpec& tensor : movq_tensors(spec)) {
      all.insert(tensor.name);
      if (tensor.name.find("running_") == std::string::npos) sum += tensor.shape.elements();
    }
    EXPECT_NEAR(static_cast<double>(sum) / 1e6, 270.7, 0.1);
    const std::string attention = names == MovqNames::kEmu3
                                      ? "decoder.mid.attn_1.norm.conv_y.weight"
                                      : "decoder.middle_block.attn_norm.conv_y.weight";
    EXPECT_TRUE(all.contains(attention));
    EXPECT_TRUE(all.contains(names == MovqNames::kEmu3
                                 ? "decoder.up.3.attn.2.norm.norm_layer.bias"
                                 : "decoder.up_block.up.3.attn_norms.2.norm_layer.bias"));
    EXPECT_TRUE(all.contains("encoder.time_conv.1.conv.conv.weight"));
  }
}

}  // namespace
}  // namespace tessera::movq_golden_test
