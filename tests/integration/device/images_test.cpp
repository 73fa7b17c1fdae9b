// Images generated, encoded and scored on a device whose memory the host cannot touch and whose ops
// run late: the CPU backend's, bit for bit.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/lab/eval/eval_scenes.h"
#include "apps/lab/models/test_models.h"
#include "apps/lab/scene/render.h"
#include "apps/lab/scorer/scorer.h"
#include "apps/runtime/generate_task.h"
#include "apps/runtime/visual_model.h"
#include "engine/decoding/loop_settings.h"
#include "tests/support/guarded_backend.h"

namespace tessera::images_test {
namespace {

class Collector final : public GenerateListener {
 public:
  void on_image(GeneratedImage&& decoded_image) override {
    images.push_back(std::move(decoded_image));
  }
  std::vector<GeneratedImage> images;
};

struct Generation {
  const char* model = "test:tiny";
  const char* method = "plain";
  std::int64_t window = 0;  // 0: the method's own
  const char* draft = "";
};

std::vector<GeneratedImage> generate(const Generation& generation, const char* device) {
  GenerateOptions options;
  options.model = generation.model;
  options.device = device;
  options.threads = 1;
  options.batch_size = 2;
  options.method = decode_method(generation.method);
  if (generation.window > 0) options.method.window = generation.window;
  options.draft_model = generation.draft;
  Runtime runtime;
  GenerateTask task(runtime, options);
  EXPECT_EQ(task.backend().name().starts_with("guarded"), std::string(device) != "cpu");
  std::vector<PreparedRequest> prepared;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    GenerateRequest request{.prompt = "a red cube", .seed = seed};
    if (seed == 2) request.sampling.set(setting::kGuidance, 1);
    prepared.push_back(task.prepare(request));
  }
  Collector collector;
  EXPECT_TRUE(task.run(prepared, collector));
  return std::move(collector.images);
}

void expect_equal(const std::vector<GeneratedImage>& got, const std::vector<GeneratedImage>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].status, ImageStatus::kDone) << format_error(got[i].error);
    EXPECT_EQ(got[i].codes, want[i].codes);
    EXPECT_EQ(got[i].facts.passes, want[i].facts.passes);
    EXPECT_EQ(got[i].image.rgb, want[i].image.rgb);
  }
}

class DeviceImages : public ::testing::TestWithParam<Generation> {
 protected:
  void SetUp() override { offer_guarded_devices(); }
};

TEST_P(DeviceImages, AreTheCpusBitForBit) {
  const auto want = generate(GetParam(), "cpu");
  ASSERT_EQ(want.size(), 3u);
  EXPECT_NE(want[0].codes, want[2].codes);
  const GuardedCounts before = guarded_counts();
  expect_equal(generate(GetParam(), "guarded:0"), want);
  const GuardedCounts after = guarded_counts();
  EXPECT_GT(after.ops, before.ops);
  // Passes are recorded, in few shapes.
  const std::int64_t recorded = after.recorded - before.recorded;
  EXPECT_LE(recorded, 24);
  if (std::string(GetParam().method) == "plain") {
    EXPECT_EQ(recorded, 2);  // two images at once, then one
  }
}

// Before weights are read.
ErrorInfo refusal_of(const Setting& row, const SettingValue& value) {
  offer_guarded_devices();
  GenerateOptions options;
  options.model = "test:tiny";
  options.device = "guarded:0";
  options.method.set(row, value);
  Runtime runtime;
  try {
    const GenerateTask task(runtime, options);
  } catch (const Error& error) {
    return error.info();
  }
  ADD_FAILURE() << "the device took --" << row.name;
  return {};
}

TEST(DeviceRefusals, ACacheOfEightBits) {
  const ErrorInfo error = refusal_of(setting::kCache, {0, "q8"});
  EXPECT_EQ(error.code, "E_CACHE_DEVICE");
  EXPECT_EQ(error.where, "--kv");
  EXPECT_EQ(error.found, "q8");
}

TEST(DeviceRefusals, PreciseProductsAndInputsOfBf16) {
  for (const Setting* row : {&setting::kPrecise, &setting::kBf16Inputs}) {
    const ErrorInfo error = refusal_of(*row, {1});
    EXPECT_EQ(error.code, "E_INPUTS_DEVICE");
    EXPECT_EQ(error.where, "--" + std::string(row->name));
    EXPECT_EQ(error.found, "guarded:0");
  }
}

TEST_P(DeviceImages, OpsThatRunAtOnceGiveTheSame) {
  if (std::string(GetParam().method) != "plain") GTEST_SKIP() << "the late one says it all";
  expect_equal(generate(GetParam(), "guarded:1"), generate(GetParam(), "cpu"));
}

INSTANTIATE_TEST_SUITE_P(
    Methods, DeviceImages,
    ::testing::Values(Generation{}, Generation{.model = "test:rows"},
                      Generation{.model = "test:null"}, Generation{.method = "sjd", .window = 8},
                      Generation{.method = "coupled", .window = 8}, Generation{.method = "gumbel"},
                      Generation{.method = "tree"}, Generation{.method = "gumbel-tree"},
                      Generation{.method = "rows"},
                      Generation{.method = "draft", .draft = "test:tiny"},
                      Generation{.method = "draft-tree", .draft = "test:tiny"}),
    [](const auto& one) {
      std::string name = std::string(one.param.model).substr(5) + "_" + one.param.method;
      for (char& c : name) {
        if (c == '-') c = '_';
      }
      return name;
    });

// A tokenizer's codes, pixels and preview, and its codebook.
struct Tokenized {
  std::vector<std::int32_t> codes;
  std::vector<std::uint8_t> pixels, part;
  std::vector<float> codebook;
  bool operator==(const Tokenized&) const = default;
};

Tokenized tokenize(const char* name, const char* device) {
  const std::unique_ptr<Backend> backend = make_backend(device, {.threads = 1});
  const OpenedModel model = make_up_model(name);
  const auto tokenizer =
      make_visual_tokenizer(*backend, model, DType::kF32, TokenizerHalves::kBoth);
  const int rows = 2, cols = 3;
  const std::int64_t height = rows * tokenizer->factor(), width = cols * tokenizer->factor();
  std::vector<std::uint8_t> rgb(static_cast<std::size_t>(height * width * 3));
  for (std::size_t i = 0; i < rgb.size(); ++i) rgb[i] = static_cast<std::uint8_t>(i * i * 7 + i);
  const Tensor image = image_from_bytes(rgb, height, width);
  Tokenized out;
  out.codes = tokenizer->encode(image.view());
  out.pixels = tokenizer->to_pixels(tokenizer->decode(out.codes, rows, cols).view());
  out.part = tokenizer->to_pixels(decode_partial(*tokenizer, out.codes, 1, rows, cols).view());
  const Tensor book = tokenizer->codebook();
  out.codebook.assign(book.f32(), book.f32() + book.shape().elements());
  return out;
}

TEST(DeviceTokenizer, EncodesAndDecodesAsTheCpu) {
  offer_guarded_devices();
  for (const char* model : {"test:tiny", "test:clip", "test:cosmos"}) {
    const Tokenized want = tokenize(model, "cpu");
    EXPECT_EQ(want.codes.size(), 6u);
    EXPECT_TRUE(tokenize(model, "guarded:0") == want) << model;
    EXPECT_TRUE(tokenize(model, "guarded:1") == want) << model;
  }
}

TEST(DeviceRowVerifier, ReadsAsTheCpu) {
  offer_guarded_devices();
  const std::filesystem::path folder =
      std::filesystem::path(TESSERA_SOURCE_DIR) / "assets/models/tabletop-judge";
  const auto cpu = make_backend("cpu", {.threads = 1});
  const auto device = make_backend("guarded:0", {.threads = 1});
  const Scorer here = Scorer::open(*cpu, folder), there = Scorer::open(*device, folder);
  const int side = static_cast<int>(here.config().image_size);
  for (std::uint64_t i = 0; i < 2; ++i) {
    SceneImage scene = render_scene(sample_scene(5, SceneSplit::kVal, i), side);
    const Image image(side, side, std::move(scene.rgb));
    EXPECT_EQ(there.logits(image), here.logits(image));
    EXPECT_TRUE(there.read(image) == here.read(image));
  }
}

// The whole of `eval scenes`, short: generates, renders, reconstructs, reads back.
std::string evaluation(const char* device) {
  EvalScenesRequest request;
  request.options.model = "tabletop-janus";
  request.options.device = device;
  request.options.threads = 1;
  request.options.method = decode_method("gumbel");
  request.scorer = "tabletop-judge";
  request.splits = {SceneSplit::kVal};
  request.prompts = 1;
  request.ceiling = 2;
  request.reconstructions = 1;
  request.floor = 0;
  const EvalScenesReport report = eval_scenes(request, {});
  std::string out = interval_json(report.psnr_db).dump();
  for (const EvalRow& row : report.rows) out += row_json(row).dump();
  for (const EvalSample& sample : report.samples) {
    out.append(sample.image.rgb.begin(), sample.image.rgb.end());
  }
  EXPECT_FALSE(report.samples.empty());
  return out;
}

TEST(DeviceEval, MarksWhatTheCpuMarks) {
  offer_guarded_devices();
  EXPECT_EQ(evaluation("guarded:0"), evaluation("cpu"));
}

TEST(DeviceEval, ACaptionerReadsWhatItReadsOnTheCpu) {
  offer_guarded_devices();
  std::vector<Image> images;
  for (std::uint64_t i = 0; i < 2; ++i) {
    SceneImage scene = render_scene(sample_scene(5, SceneSplit::kVal, i), 96);
    images.emplace_back(96, 96, std::move(scene.rgb));
  }
  const auto read = [&](const char* device) {
    return SceneReader::open("tabletop-llava", {.device = device, .threads = 1})->read(images);
  };
  const auto want = read("cpu");
  EXPECT_TRUE(want[0].has_value());
  EXPECT_TRUE(read("guarded:0") == want);
}

}  // namespace
}  // namespace tessera::images_test
