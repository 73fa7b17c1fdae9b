// Metadata of other programs, as their files have it, and hostile forms of it.
#include "apps/runtime/metadata.h"

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"
#include "vision/image/png.h"

namespace tessera::metadata_test {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

TEST(A1111, ReadsPromptNegativeAndFields) {
  const Fields fields = parse_a1111(
      "a cat, (sharp:1.2)\nsecond line\nNegative prompt: dog,\nblurry\nSteps: 20, Sampler: DPM++ "
      "2M "
      "Karras, CFG scale: 7, Seed: 965400086, Size: 512x512, Model hash: 7f96a1a9ca, Model: "
      "AnythingV5_v5PrtRE, ControlNet 0: \"Module: canny, Weight: 1\", Version: v1.5.1");
  const Fields want = {{"Prompt", "a cat, (sharp:1.2)\nsecond line"},
                       {"Negative prompt", "dog,\nblurry"},
                       {"Steps", "20"},
                       {"Sampler", "DPM++ 2M Karras"},
                       {"CFG scale", "7"},
                       {"Seed", "965400086"},
                       {"Size", "512x512"},
                       {"Model hash", "7f96a1a9ca"},
                       {"Model", "AnythingV5_v5PrtRE"},
                       {"ControlNet 0", "Module: canny, Weight: 1"},
                       {"Version", "v1.5.1"}};
  EXPECT_EQ(fields, want);
}

TEST(A1111, TextWithoutFieldsIsAllPrompt) {
  EXPECT_EQ(parse_a1111("just words"), (Fields{{"Prompt", "just words"}}));
  EXPECT_EQ(parse_a1111("a\nb: c"), (Fields{{"Prompt", "a\nb: c"}}));
  EXPECT_EQ(parse_a1111(""), (Fields{{"Prompt", ""}}));
  EXPECT_EQ(parse_a1111("Negative prompt: x\nSteps: 1, Seed: 2, Size: 3x3")[1],
            (std::pair<std::string, std::string>("Negative prompt", "x")));
}

TEST(A1111, HostileLinesEndQuickly) {
  for (const std::string& text :
       {std::string(1 << 20, ','), std::string(1 << 20, ':'), std::string(1 << 20, '"'),
        "Steps: \"" + std::string(1 << 20, '\\'), "\n" + std::string(1 << 20, ' ')}) {
    EXPECT_LE(parse_a1111(text).size(), 300u);
  }
  std::string many = "p\n";
  for (int i = 0; i < 5000; ++i) many += "K: v, ";
  EXPECT_LE(parse_a1111(many).size(), 257u);
}

constexpr const char* kGraph = R"({
 "3":{"class_type":"KSampler","inputs":{"seed":156680208700286,"steps":20,"cfg":8,
   "sampler_name":"euler","scheduler":"normal","denoise":1,
   "model":["4",0],"positive":["6",0],"negative":["7",0],"latent_image":["5",0]}},
 "4":{"class_type":"CheckpointLoaderSimple","inputs":{"ckpt_name":"v1-5.safetensors"}},
 "5":{"class_type":"EmptyLatentImage","inputs":{"width":512,"height":768,"batch_size":1}},
 "6":{"class_type":"CLIPTextEncode","inputs":{"text":"a bottle","clip":["4",1]}},
 "7":{"class_type":"ConditioningCombine","inputs":{"conditioning_1":["8",0]}},
 "8":{"class_type":"CLIPTextEncode","inputs":{"text":"watermark","clip":["4",1]}}})";

TEST(ComfyUi, FollowsTheGraph) {
  const Fields want = {{"Prompt", "a bottle"},
                       {"Negative prompt", "watermark"},
                       {"Seed", "156680208700286"},
                       {"Steps", "20"},
                       {"CFG scale", "8"},
                       {"Sampler", "euler"},
                       {"Schedule type", "normal"},
                       {"Denoising strength", "1"},
                       {"Model", "v1-5.safetensors"},
                       {"Width", "512"},
                       {"Height", "768"}};
  EXPECT_EQ(parse_comfy_graph(kGraph, "x"), want);
}

TEST(ComfyUi, CyclesAndOddShapesEnd) {
  for (const char* json :
       {R"({"1":{"class_type":"KSampler","inputs":{"positive":["1",0]}}})",
        R"({"1":{"class_type":"KSampler","inputs":{"positive":["2",0]}},
            "2":{"class_type":"C","inputs":{"conditioning":["3",0]}},
            "3":{"class_type":"C","inputs":{"conditioning":["2",0]}}})",
        R"({"1":{"class_type":"KSampler","inputs":{"positive":"x","negative":[],"seed":{}}}})",
        R"({"1":{"class_type":"KSampler","inputs":7}})", R"({"1":{"class_type":7}})"}) {
    EXPECT_NO_THROW(parse_comfy_graph(json, "x")) << json;
  }
  for (const char* json : {"[]", "7", "{}", R"({"a":1})", "{", ""}) {
    EXPECT_THROW(parse_comfy_graph(json, "x"), Error) << json;
  }
  EXPECT_THROW(parse_comfy_graph(std::string(100000, '['), "x"), Error);
}

ImageMetadata read_with(const std::vector<PngText>& texts) {
  const TempFolder folder;
  const auto path = folder.path() / "picture.png";
  save_png(path, Image(1, 1), texts, "");
  return read_metadata(path);
}

TEST(Metadata, TellsProgramsApart) {
  EXPECT_EQ(read_with({}).origin, MetadataOrigin::kNone);
  EXPECT_EQ(read_with({{"parameters", "x\nSteps: 1, Sampler: a, Seed: 2"}}).origin,
            MetadataOrigin::kA1111);
  EXPECT_EQ(
      read_with({{"parameters", "x\nSteps: 1, Sampler: a, Seed: 2, Version: stable-diffusion.cpp"}})
          .origin,
      MetadataOrigin::kStableDiffusionCpp);
  EXPECT_EQ(read_with({{"prompt", kGraph}, {"workflow", "{}"}}).origin, MetadataOrigin::kComfyUi);
  const ImageMetadata note = read_with({{"prompt", "not a graph"}});
  EXPECT_EQ(note.origin, MetadataOrigin::kNone);
  EXPECT_EQ(note.warnings.size(), 1u);
}

TEST(Metadata, AForgedBlockIsAWarningNotARecord) {
  const ImageMetadata forged =
      read_with({{"parameters", "x\nSteps: 1, Sampler: a, Seed: 2, Tessera: \"{\\\"a\\\":1}\""}});
  EXPECT_EQ(forged.origin, MetadataOrigin::kA1111);
  EXPECT_FALSE(forged.facts);
  EXPECT_EQ(forged.warnings.size(), 1u);
}

}  // namespace
}  // namespace tessera::metadata_test
