// The VQ tokenizer apart from parity: published parameter counts, the graph against the list of
// names, pixel rules, previews, bad weights, and the memory that decoding really takes.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <set>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/philox.h"
#include "tokenizers/visual/vq_tokenizer.h"

namespace tessera::visual_test {
namespace {

VqSpec tiny_spec() {
  VqSpec spec;
  spec.base_channels = 32;
  spec.multipliers = {1, 2};
  spec.res_blocks = 1;
  spec.latent_channels = 16;
  spec.embed_dim = 4;
  spec.codes = 20;
  return spec;
}

std::map<std::string, Tensor> random_tensors(const VqSpec& spec) {
  std::map<std::string, Tensor> tensors;
  std::uint32_t item = 0;
  for (const TensorSpec& wanted : vq_tensors(spec)) {
    Tensor tensor = Tensor::host(DType::kF32, wanted.shape);
    const std::int64_t count = wanted.shape.elements();
    const double fan_in = static_cast<double>(count) / static_cast<double>(wanted.shape[0]);
    const auto scale = static_cast<float>(1.0 / std::sqrt(std::max(fan_in, 4.0)));
    for (std::int64_t i = 0; i < count; ++i) {
      const PhiloxBlock block = philox4x32({static_cast<std::uint32_t>(i), 0, 0, 0}, {item, 1});
      tensor.f32()[i] = (uniform_open(block[0]) - 0.5f) * 2.0f * scale +
                        (wanted.name.find("norm") != std::string::npos ? 1.0f : 0.0f);
    }
    ++item;
    tensors.emplace(wanted.name, std::move(tensor));
  }
  return tensors;
}

std::vector<std::int32_t> some_codes(const VqSpec& spec, int count) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>(i * 7 % spec.codes));
  return ids;
}

TEST(VqSpecCounts, PublishedTokenizers) {
  VqSpec vq16;
  EXPECT_EQ(vq_parameter_count(vq16), 71883403);
  VqSpec vq8 = vq16;
  vq8.multipliers = {1, 2, 2, 4};
  EXPECT_EQ(vq_parameter_count(vq8), 70109835);
  for (const VqNames names : {VqNames::kLlamaGen, VqNames::kHfJanus}) {
    vq16.names = names;
    EXPECT_EQ(vq_parameter_count(vq16), 71883403);
  }
  EXPECT_EQ(vq16.downsample(), 16);
}

// The graph reads exactly the tensors of the list that checkpoints are checked against.
TEST(VqGraph, ReadsTheTensorsOfTheList) {
  for (const VqNames names : {VqNames::kLlamaGen, VqNames::kHfJanus}) {
    for (const bool attention : {true, false}) {
      VqSpec spec;
      spec.names = names;
      spec.prefix = "some.prefix.";
      spec.attention_last_level = attention;
      std::map<std::string, std::string> listed;
      for (const TensorSpec& tensor : vq_tensors(spec)) {
        listed.emplace(tensor.name, tensor.shape.to_string());
      }
      std::map<std::string, std::string> read = {
          {"some.prefix.quantize.embedding.weight", Shape{spec.codes, spec.embed_dim}.to_string()}};
      for (const auto& steps : {vq_encoder_steps(spec), vq_decoder_steps(spec)}) {
        for (const TensorSpec& tensor : conv_step_tensors(steps)) {
          EXPECT_TRUE(read.emplace(tensor.name, tensor.shape.to_string()).second) << tensor.name;
        }
        EXPECT_EQ(conv_steps_factor(steps), 16);
      }
      EXPECT_EQ(read, listed);
    }
  }
}

TEST(PixelRules, ByHand) {
  Tensor image = Tensor::host(DType::kF32, {1, 3, 3});
  const float values[9] = {-1.5f, -1.0f, -0.9999f,
                           0.0f,  0.5f,  0.9999f,
                           1.0f,  7.0f,  std::numeric_limits<float>::quiet_NaN()};
  std::copy(values, values + 9, image.f32());
  const std::vector<std::uint8_t> janus =
      pixels_from_image(image.view(), PixelRule::kJanusTruncate);
  EXPECT_EQ(janus, (std::vector<std::uint8_t>{0, 0, 0, 127, 191, 254, 255, 255, 0}));
  const std::vector<std::uint8_t> eval = pixels_from_image(image.view(), PixelRule::kLlamaGenEval);
  EXPECT_EQ(eval, (std::vector<std::uint8_t>{0, 0, 0, 128, 191, 255, 255, 255, 0}));
}

TEST(PixelRules, BytesSurviveTheRoundTrip) {
  std::vector<std::uint8_t> bytes(256 * 3);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i / 3);
  const Tensor image = image_from_bytes(bytes, 16, 16);
  EXPECT_EQ(image.f32()[0], -1.0f);
  EXPECT_EQ(image.f32()[767], 1.0f);
  const std::vector<std::uint8_t> back = pixels_from_image(image.view(), PixelRule::kJanusTruncate);
  for (std::size_t i = 0; i < bytes.size(); ++i) EXPECT_NEAR(back[i], bytes[i], 1) << i;
}

class TinyTokenizer : public ::testing::Test {
 protected:
  VqTokenizer make(std::map<std::string, Tensor> tensors,
                   TokenizerHalves halves = TokenizerHalves::kBoth,
                   DType storage = DType::kF32) const {
    const Checkpoint checkpoint = Checkpoint::from_tensors("tiny", std::move(tensors));
    return {*backend_, spec_, checkpoint, storage, halves};
  }
  VqSpec spec_ = tiny_spec();
  std::unique_ptr<Backend> backend_ = make_backend("cpu", {.threads = 2});
};

TEST_F(TinyTokenizer, ShapesAndRange) {
  const VqTokenizer tokenizer = make(random_tensors(spec_));
  EXPECT_EQ(tokenizer.factor(), 2);
  EXPECT_EQ(tokenizer.codes(), 20);
  const Tensor image = tokenizer.decode(some_codes(spec_, 15), 3, 5);
  EXPECT_EQ(image.shape(), (Shape{6, 10, 3}));
  const std::vector<std::int32_t> ids = tokenizer.encode(image.view());
  EXPECT_EQ(ids.size(), 15u);
  for (const std::int32_t id : ids) {
    EXPECT_GE(id, 0);
    EXPECT_LT(id, 20);
  }
  EXPECT_EQ(tokenizer.to_pixels(image.view()).size(), 180u);
}

// A codebook entry's length must not matter: only its direction is a code.
TEST_F(TinyTokenizer, OnlyTheDirectionOfAnEntryCounts) {
  std::map<std::string, Tensor> scaled = random_tensors(spec_);
  Tensor& book = scaled.at("quantize.embedding.weight");
  for (std::int64_t i = 0; i < book.shape().elements(); ++i) {
    book.f32()[i] *= i / spec_.embed_dim % 2 == 0 ? 4.0f : 0.25f;
  }
  const VqTokenizer a = make(random_tensors(spec_));
  const VqTokenizer b = make(std::move(scaled));
  const Tensor first = a.decode(some_codes(spec_, 16), 4, 4);
  const Tensor second = b.decode(some_codes(spec_, 16), 4, 4);
  for (std::int64_t i = 0; i < first.shape().elements(); ++i) {
    ASSERT_NEAR(first.f32()[i], second.f32()[i], 1e-5);
  }
  EXPECT_EQ(a.encode(first.view()), b.encode(first.view()));
}

TEST_F(TinyTokenizer, Bf16StorageStaysNear) {
  const Tensor f32 = make(random_tensors(spec_)).decode(some_codes(spec_, 16), 4, 4);
  const Tensor bf16 = make(random_tensors(spec_), TokenizerHalves::kDecoder, DType::kBF16)
                          .decode(some_codes(spec_, 16), 4, 4);
  double worst = 0.0;
  double largest = 0.0;
  for (std::int64_t i = 0; i < f32.shape().elements(); ++i) {
    worst = std::max(worst, std::abs(double{f32.f32()[i]} - double{bf16.f32()[i]}));
    largest = std::max(largest, std::abs(double{f32.f32()[i]}));
  }
  EXPECT_GT(worst, 0.0) << "the weights were rounded";
  EXPECT_LT(worst, 0.05 * largest);
}

TEST_F(TinyTokenizer, PreviewShowsReadyRowsAndMeanBelow) {
  const VqTokenizer tokenizer = make(random_tensors(spec_));
  const std::vector<std::int32_t> ids = some_codes(spec_, 16);
  const Tensor whole = tokenizer.decode(ids, 4, 4);
  const Tensor all = decode_partial(tokenizer, ids, 4, 4, 4);
  EXPECT_TRUE(std::equal(whole.f32(), whole.f32() + whole.shape().elements(), all.f32()));

  const Tensor half = decode_partial(tokenizer, std::span(ids).first(8), 2, 4, 4);
  EXPECT_EQ(half.shape(), (Shape{8, 8, 3}));
  const Tensor top = tokenizer.decode(std::span(ids).first(8), 2, 4);
  EXPECT_TRUE(std::equal(top.f32(), top.f32() + top.shape().elements(), half.f32()));
  double mean = 0.0;
  for (int i = 0; i < 32; ++i) mean += top.f32()[i * 3 + 1] / 32.0;
  EXPECT_NEAR(half.f32()[4 * 8 * 3 + 1], mean, 1e-6);
  EXPECT_EQ(half.f32()[4 * 8 * 3], half.f32()[8 * 8 * 3 - 3]);

  const Tensor none = decode_partial(tokenizer, {}, 0, 4, 4);
  EXPECT_EQ(none.f32()[0], 0.0f);
  EXPECT_EQ(none.f32()[8 * 8 * 3 - 1], 0.0f);
}

void expect_refused(const std::function<void()>& load, const std::string& code,
                    const std::string& word) {
  try {
    load();
    FAIL() << "not refused: " << code;
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, code);
    EXPECT_EQ(error.exit_code(), 4);
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

TEST_F(TinyTokenizer, BadWeightsAreRefusedByName) {
  const std::string name = "decoder.conv_blocks.0.res.1.conv2.weight";
  std::map<std::string, Tensor> tensors = random_tensors(spec_);
  tensors.erase(name);
  expect_refused([&] { make(std::move(tensors)); }, "E_WEIGHT_MISSING", name);

  tensors = random_tensors(spec_);
  tensors.at(name) = Tensor::host(DType::kF32, {64, 64, 3, 1});
  expect_refused([&] { make(std::move(tensors)); }, "E_WEIGHT_SHAPE", "[64, 64, 3, 3]");

  tensors = random_tensors(spec_);
  tensors.at(name).f32()[12] = std::numeric_limits<float>::quiet_NaN();
  tensors.at(name).f32()[99] = -std::numeric_limits<float>::infinity();
  expect_refused([&] { make(std::move(tensors)); }, "E_WEIGHT_NOT_FINITE", "index 12");

  tensors = random_tensors(spec_);
  tensors.at(name) = Tensor::host(DType::kI32, {64, 64, 3, 3});
  expect_refused([&] { make(std::move(tensors)); }, "E_WEIGHT_DTYPE", "i32");
}

TEST(VqScratch, PublishedSizeStaysBelow300Megabytes) {
  const auto backend = make_backend("cpu", {.threads = 2});
  const std::size_t bytes = vq_decode_scratch_bytes(VqSpec{}, *backend, 32, 32);
  EXPECT_LE(bytes, 300000000u);
  // Two feature maps of 512 x 512 x 128 floats are the least that a residual block needs.
  EXPECT_GE(bytes, 2u * 512 * 512 * 128 * 4);
  std::cout << "VQ-16, 512 x 512 pixels, 2 threads: " << bytes << " bytes\n";
}

// Bytes from a line of /proc/self/status.
std::size_t status_bytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key + ":", 0) == 0) return std::stoull(line.substr(key.size() + 1)) * 1024;
  }
  return 0;
}

// Sets the peak that the kernel remembers back to what is resident now.
bool reset_peak() {
  std::ofstream out("/proc/self/clear_refs");
  out << "5" << std::flush;
  return out.good();
}

// A sanitizer's shadow memory counts as resident.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kResidentIsOurs = false;
#else
constexpr bool kResidentIsOurs = true;
#endif

// The plan is what decoding takes: never less, and not much more.
TEST(VqScratch, DecodeTakesWhatThePlanSays) {
  VqSpec spec = tiny_spec();
  spec.multipliers = {1, 1, 1, 1, 2};
  const auto backend = make_backend("cpu", {.threads = 2});
  const Checkpoint checkpoint = Checkpoint::from_tensors("tiny", random_tensors(spec));
  const VqTokenizer tokenizer(*backend, spec, checkpoint, DType::kF32, TokenizerHalves::kDecoder);
  constexpr int kSide = 16;  // 256 x 256 pixels of 32 channels: 8.4 MB a map
  const std::vector<std::int32_t> ids = some_codes(spec, kSide * kSide);
  const std::size_t planned = tokenizer.decode_scratch_bytes(kSide, kSide);
  if (!kResidentIsOurs) GTEST_SKIP() << "memory cannot be notified from a sanitizer's own";
  if (!reset_peak()) GTEST_SKIP() << "the kernel does not let the peak be reset";
  const std::size_t before = status_bytes("VmRSS");
  const Tensor image = tokenizer.decode(ids, kSide, kSide);
  const std::size_t taken = status_bytes("VmHWM") - before;
  std::cout << "planned " << planned << ", taken " << taken << " bytes\n";
  EXPECT_LE(taken, planned + planned / 20);
  EXPECT_GE(taken, planned - planned / 10);
}

}  // namespace
}  // namespace tessera::visual_test
