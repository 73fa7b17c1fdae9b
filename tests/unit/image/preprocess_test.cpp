// Preprocessing: pixels and values equal to the Hugging Face processors' bit for bit, token counts
// of published families, and the geometry on hundreds of sizes.
#include "vision/image/preprocess.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "engine/families/registry.h"
#include "tests/support/image_noise.h"

namespace tessera::preprocess_test {
namespace {

std::vector<std::vector<std::string>> golden_lines() {
  std::ifstream in(std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/image/preprocess.txt");
  std::vector<std::vector<std::string>> out;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    out.emplace_back(std::istream_iterator<std::string>(words),
                     std::istream_iterator<std::string>());
  }
  return out;
}

DecodedImage image_of(const Image& image) {
  DecodedImage out(image.width, image.height, 3, "test");
  out.pixels = image.rgb;
  return out;
}

// The 8-bit pixels of a view as [3, height, width].
EncoderView planes(const Image& view) {
  PreprocessPolicy plain;
  plain.rescale = 1;
  plain.mean = {0, 0, 0};
  plain.std = {1, 1, 1};
  return normalise(plain, view);
}

std::uint32_t crc_of_levels(const std::vector<float>& values, std::uint32_t before) {
  const std::vector<std::uint8_t> levels(values.begin(), values.end());
  return crc32_of(levels.data(), levels.size(), before);
}

struct Result {
  std::size_t views = 0;
  std::int64_t height = 0, width = 0;
  std::uint32_t pixels = 0, values = 0;
};

Result run(const PreprocessPolicy& policy, const Image& image) {
  Result out;
  const PreprocessPlan plan = plan_preprocess(policy, image.width, image.height);
  const std::vector<Image> views = make_views(policy, plan, image);
  const bool patches = policy.mode == ResizeMode::kMultiples;
  EXPECT_EQ(static_cast<std::int64_t>(views.size()), plan.views);
  for (std::size_t i = 0; i < views.size(); ++i) {
    EXPECT_EQ(views[i].width, plan.view_width);
    EXPECT_EQ(views[i].height, plan.view_height);
    const EncoderView levels = planes(views[i]);
    const EncoderView view = normalise(policy, views[i]);
    const std::vector<float> values = patches ? patch_rows(policy, view, 2) : view.values;
    out.pixels = crc_of_levels(patches ? patch_rows(policy, levels, 2) : levels.values, out.pixels);
    out.values = crc32_of(values.data(), values.size() * sizeof(float), out.values);
  }
  out.views = views.size();
  out.height = patches ? plan.view_rows * plan.view_cols * 4 : plan.view_height;
  out.width = patches ? 3 * 2 * 14 * 14 : plan.view_width;
  return out;
}

PassOrder order_named(const std::string& name) {
  if (name == "pillow13") return PassOrder::kPillow13;
  EXPECT_EQ(name, "across");
  return PassOrder::kAcrossFirst;
}

TEST(Preprocess, EqualsTheReferenceBitForBit) {
  std::map<std::string, int> images;
  for (const auto& words : golden_lines()) {
    if (words[0] == "resolutions" || words[0] == "sizes") continue;
    ASSERT_EQ(words.size(), 10u);
    const std::string name = words[0] + " " + words[1] + " " + words[2] + "x" + words[3];
    const Image image = noise_image(std::stol(words[2]), std::stol(words[3]),
                                      static_cast<std::uint32_t>(std::stoul(words[4])));
    PreprocessPolicy policy = preprocess_policy(words[1]);
    EXPECT_EQ(policy.order, PassOrder::kAcrossFirst) << "what the published models were made with";
    policy.order = order_named(words[0]);
    const Result got = run(policy, image);
    EXPECT_EQ(std::to_string(got.views), words[5]) << name;
    EXPECT_EQ(std::to_string(got.height), words[6]) << name;
    EXPECT_EQ(std::to_string(got.width), words[7]) << name;
    EXPECT_EQ(got.pixels, std::stoul(words[8], nullptr, 16)) << name;
    EXPECT_EQ(got.values, std::stoul(words[9], nullptr, 16)) << name;
    ++images[words[0]];
  }
  EXPECT_GE(images["across"], 80);
  EXPECT_GE(images["pillow13"], 3) << "images that the order of the passes changes";
}

TEST(Preprocess, IsViewsThatAreNormalised) {
  const Image image = noise_image(64, 40, 7);
  for (const std::string& name : preprocess_policy_names()) {
    const PreprocessPolicy policy = preprocess_policy(name);
    const PreprocessedImage done = preprocess(policy, image_of(image));
    const std::vector<Image> views = make_views(policy, done.plan, image);
    ASSERT_EQ(done.views.size(), views.size()) << name;
    for (std::size_t i = 0; i < views.size(); ++i) {
      EXPECT_EQ(done.views[i].values, normalise(policy, views[i]).values) << name;
    }
  }
}

TEST(Preprocess, GeometryEqualsTheReferenceOnManySizes) {
  const PreprocessPolicy next = preprocess_policy("llava-next");
  PreprocessPolicy qwen = preprocess_policy("qwen2-vl");
  int maps = 0, sizes = 0;
  for (const auto& words : golden_lines()) {
    if (words[0] != "resolutions" && words[0] != "sizes") continue;
    std::vector<std::int64_t> n;
    for (std::size_t i = 1; i < words.size(); ++i) n.push_back(std::stol(words[i]));
    const std::string name = words[0] + " " + words[1] + "x" + words[2];
    if (words[0] == "sizes") {
      qwen.max_pixels = n[2] * 784;
      const PreprocessPlan plan = plan_preprocess(qwen, n[0], n[1]);
      EXPECT_EQ(plan.view_width, n[3]) << name;
      EXPECT_EQ(plan.view_height, n[4]) << name;
      ++sizes;
    } else {
      const PreprocessPlan plan = plan_preprocess(next, n[0], n[1]);
      EXPECT_EQ(plan.tiles, (Tiling{n[2], n[3]})) << name;
      EXPECT_EQ(plan.map_rows, n[4]) << name;
      EXPECT_EQ(plan.map_cols, n[5]) << name;
      ++maps;
    }
  }
  EXPECT_GE(maps, 500);
  EXPECT_GE(sizes, 500);
}

std::int64_t tokens(const std::string& policy, std::int64_t width, std::int64_t height) {
  return plan_preprocess(preprocess_policy(policy), width, height).tokens;
}

TEST(PreprocessTokens, OneViewOfAFixedSize) {
  for (const auto& [width, height] : {std::pair{336, 336}, {640, 480}, {1, 1}, {1920, 1080}}) {
    EXPECT_EQ(tokens("llava-1.5", width, height), 576);
    EXPECT_EQ(tokens("llava-1.5-hf", width, height), 576);
    EXPECT_EQ(tokens("janus", width, height), 576);
    EXPECT_EQ(tokens("janus-hf", width, height), 576);
  }
}

TEST(PreprocessTokens, LlavaNext) {
  for (const char* policy : {"llava-next", "llava-next-authors"}) {
    EXPECT_EQ(tokens(policy, 336, 336), 1176);
    EXPECT_EQ(tokens(policy, 640, 480), 2340);
    EXPECT_EQ(tokens(policy, 800, 600), 2340);
    EXPECT_EQ(tokens(policy, 1024, 768), 2340);
    EXPECT_EQ(tokens(policy, 480, 640), 2352);
    EXPECT_EQ(tokens(policy, 672, 672), 2928);
    EXPECT_EQ(tokens(policy, 1920, 1080), 1948);
    EXPECT_EQ(tokens(policy, 1000, 300), 2182);
    EXPECT_EQ(tokens(policy, 300, 1000), 2232);
  }
  const PreprocessPlan plan = plan_preprocess(preprocess_policy("llava-next"), 640, 480);
  EXPECT_EQ(plan.map_rows, 36);
  EXPECT_EQ(plan.map_cols, 48);
  const PreprocessPlan flat = plan_preprocess(preprocess_policy("llava-next"), 1920, 1080);
  EXPECT_EQ(flat.map_rows, 28);
  EXPECT_EQ(flat.map_cols, 48);
  const PreprocessPlan wide = plan_preprocess(preprocess_policy("llava-next"), 1000, 300);
  EXPECT_EQ(wide.tiles, (Tiling{1, 3}));
  EXPECT_EQ(wide.map_rows, 22);
  EXPECT_EQ(wide.map_cols, 72);
}

// The one place where the authors and Hugging Face part: which way a square is cut in two.
TEST(PreprocessTokens, LlavaNextTies) {
  EXPECT_EQ(plan_preprocess(preprocess_policy("llava-next"), 336, 336).tiles, (Tiling{1, 2}));
  EXPECT_EQ(plan_preprocess(preprocess_policy("llava-next-authors"), 336, 336).tiles,
            (Tiling{2, 1}));
}

TEST(PreprocessTokens, LlavaOneVision) {
  EXPECT_EQ(tokens("llava-onevision", 384, 384), 1485);
  EXPECT_EQ(tokens("llava-onevision", 640, 480), 2929);
  EXPECT_EQ(tokens("llava-onevision", 1024, 768), 4725);
  EXPECT_EQ(tokens("llava-onevision", 1920, 1080), 7269);
  const PreprocessPlan plan = plan_preprocess(preprocess_policy("llava-onevision"), 1920, 1080);
  EXPECT_EQ(plan.map_rows, 75);
  EXPECT_EQ(plan.map_cols, 135);
  EXPECT_EQ(plan.packed_rows, 60);
  EXPECT_EQ(plan.packed_cols, 108);
}

TEST(PreprocessTokens, QwenVl) {
  EXPECT_EQ(tokens("qwen2-vl", 336, 336), 144);
  EXPECT_EQ(tokens("qwen2-vl", 640, 480), 391);
  EXPECT_EQ(tokens("qwen2-vl", 1024, 768), 999);
  EXPECT_EQ(tokens("qwen2-vl", 1920, 1080), 2691);
  EXPECT_EQ(tokens("qwen2-vl", 3840, 2160), 10549);
  EXPECT_EQ(tokens("qwen2-vl", 20, 20), 4);
  const auto sides = [](std::int64_t width, std::int64_t height) {
    const PreprocessPlan plan = plan_preprocess(preprocess_policy("qwen2-vl"), width, height);
    return std::pair(plan.view_width, plan.view_height);
  };
  EXPECT_EQ(sides(640, 480), std::pair(std::int64_t{644}, std::int64_t{476}));
  EXPECT_EQ(sides(1024, 768), std::pair(std::int64_t{1036}, std::int64_t{756}));
  EXPECT_EQ(sides(1920, 1080), std::pair(std::int64_t{1932}, std::int64_t{1092}));
  EXPECT_EQ(sides(20, 20), std::pair(std::int64_t{56}, std::int64_t{56}));
  // 70 / 28 = 2.5 goes down to 2, 98 / 28 = 3.5 up to 4.
  EXPECT_EQ(sides(70, 98), std::pair(std::int64_t{56}, std::int64_t{112}));
  PreprocessPolicy small = preprocess_policy("qwen2-vl");
  small.max_pixels = 1280 * 784;
  EXPECT_EQ(plan_preprocess(small, 1920, 1080).tokens, 1222);
}

TEST(PreprocessTokens, IdeficsAndSmolVlm) {
  const auto count = [](std::int64_t width, std::int64_t height) {
    return std::vector{tokens("smolvlm-500m", width, height), tokens("smolvlm", width, height),
                       tokens("idefics3", width, height)};
  };
  EXPECT_EQ(count(640, 480), (std::vector<std::int64_t>{832, 1053, 2197}));
  EXPECT_EQ(count(512, 512), (std::vector<std::int64_t>{1088, 1377, 2873}));
  EXPECT_EQ(count(300, 1000), (std::vector<std::int64_t>{576, 729, 1521}));
  EXPECT_EQ(plan_preprocess(preprocess_policy("smolvlm"), 640, 480).tiles, (Tiling{3, 4}));
  EXPECT_EQ(plan_preprocess(preprocess_policy("smolvlm"), 300, 1000).tiles, (Tiling{4, 2}));
}

TEST(PreprocessTokens, WhatFitsOneTileIsTheGlobalViewAlone) {
  PreprocessPolicy policy = preprocess_policy("smolvlm");
  policy.longest = 384;
  const PreprocessPlan plan = plan_preprocess(policy, 640, 480);
  EXPECT_EQ(plan.views, 1);
  EXPECT_EQ(plan.tiles, Tiling{});
  EXPECT_EQ(plan.tokens, 81);
}

// The authors' rounding differs from Hugging Face's by a row here and there.
TEST(Preprocess, JanusRoundings) {
  const PreprocessPlan authors = plan_preprocess(preprocess_policy("janus"), 640, 481);
  const PreprocessPlan port = plan_preprocess(preprocess_policy("janus-hf"), 640, 481);
  EXPECT_EQ(authors.resized_height, 288);  // 288.6
  EXPECT_EQ(port.resized_height, 289);
  EXPECT_EQ(plan_preprocess(preprocess_policy("janus"), 1000, 10).resized_height, 14);
  const Image gray = make_views(preprocess_policy("janus"), authors, Image(640, 481)).front();
  EXPECT_EQ(*gray.at(5, 47), 127);
  EXPECT_EQ(*gray.at(5, 48), 0);
}

TEST(Preprocess, TransparencyShowsTheFamilysColour) {
  DecodedImage clear(4, 4, 4, "test");
  for (std::size_t i = 0; i < clear.pixels.size(); i += 4) clear.pixels[i + 3] = 128;
  PreprocessPolicy policy;
  policy.side = 4;
  policy.patch = 2;
  policy.rescale = 1;
  policy.mean = {0, 0, 0};
  policy.std = {1, 1, 1};
  EXPECT_EQ(preprocess(policy, clear).views[0].values[0], 127);  // black, half covering white
  policy.after = {10, 20, 200};
  const EncoderView view = preprocess(policy, clear).views[0];
  EXPECT_EQ(view.values[0], 5);
  EXPECT_EQ(view.values[16], 10);
  EXPECT_EQ(view.values[32], 100);
}

// Numbers each pixel and looks where it ends up.
TEST(Preprocess, PatchRowsKeepCellsTogether) {
  PreprocessPolicy policy;
  policy.patch = 2;
  policy.merge = 2;
  EncoderView view = {8, 4, std::vector<float>(3 * 4 * 8)};
  for (std::size_t i = 0; i < view.values.size(); ++i) view.values[i] = static_cast<float>(i);
  const std::vector<float> rows = patch_rows(policy, view, 2);
  ASSERT_EQ(rows.size(), view.values.size() * 2);
  const std::size_t row = 3 * 2 * 4;
  EXPECT_EQ(rows[0], 0);  // patch 0: y 0, x 0
  EXPECT_EQ(rows[1], 1);
  EXPECT_EQ(rows[2], 8);         // next line of the patch
  EXPECT_EQ(rows[4], 0);         // second frame
  EXPECT_EQ(rows[8], 32);        // second channel
  EXPECT_EQ(rows[row], 2);       // patch 1: to the right
  EXPECT_EQ(rows[2 * row], 16);  // patch 2: below, in the same cell
  EXPECT_EQ(rows[4 * row], 4);   // the next cell
}

TEST(Preprocess, ThinImagesAreRefused) {
  for (const std::string& name : preprocess_policy_names()) {
    const PreprocessPolicy policy = preprocess_policy(name);
    EXPECT_NO_THROW(plan_preprocess(policy, 200, 1)) << name;
    try {
      plan_preprocess(policy, 1, 201);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.info().code, "E_PICTURE_ASPECT");
      EXPECT_EQ(error.info().found, "1x201");
    }
  }
}

TEST(Preprocess, UnknownPoliciesAreNamed) {
  try {
    preprocess_policy("clip-17");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_POLICY");
    EXPECT_EQ(error.info().found, "clip-17");
    EXPECT_NE(error.info().expected.find("qwen2-vl"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::preprocess_test
