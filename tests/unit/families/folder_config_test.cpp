// The files of a describing model's folder: what their keys mean, which contradict one another,
// what is said about those that nobody reads, and folders that are no models as they stand.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/quantised.h"
#include "engine/families/folder_files.h"
#include "engine/families/registry.h"
#include "tests/support/temp_folder.h"

namespace tessera::folder_config_test {
namespace {

constexpr const char* kLlava = R"({"model_type": "llava", "image_token_index": 90,
  "vision_feature_select_strategy": "default", "vision_feature_layer": -2,
  "text_config": {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 96},
  "vision_config": {"model_type": "clip_vision_model", "hidden_size": 24, "intermediate_size": 12,
    "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28, "patch_size": 7}})";
constexpr const char* kQwen = R"({"model_type": "qwen2_vl", "hidden_size": 32,
  "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
  "intermediate_size": 16, "vocab_size": 96, "image_token_id": 90, "video_token_id": 91,
  "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
  "vision_config": {"depth": 1, "embed_dim": 16, "hidden_size": 32, "num_heads": 2,
    "mlp_ratio": 1, "patch_size": 14}})";
constexpr const char* kIdefics = R"({"model_type": "idefics3", "scale_factor": 2,
  "image_token_id": 90,
  "text_config": {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 96},
  "vision_config": {"hidden_size": 24, "intermediate_size": 12, "num_hidden_layers": 1,
    "num_attention_heads": 2, "image_size": 28, "patch_size": 7}})";

constexpr const char* kClipViews = R"({"size": {"shortest_edge": 28}, "crop_size": 28,
  "processor_class": "LlavaProcessor"})";

class FolderConfig : public ::testing::Test {
 protected:
  void put(const char* name, std::string_view text) { put_file(folder_ / name, text); }
  ModelSpec load() { return load_model_spec(folder_.path(), {.use = ModelUse::kDescribe}); }
  PreprocessPolicy policy() { return load().describe->policy; }
  ErrorInfo refusal() {
    try {
      load();
    } catch (const Error& error) {
      return error.info();
    }
    ADD_FAILURE() << "nothing was refused";
    return {};
  }
  // What is refused names file and key.
  void expect_refused(const char* file, const char* key) {
    const ErrorInfo info = refusal();
    EXPECT_EQ(info.where, key) << info.expected << ", found " << info.found;
    EXPECT_EQ(std::filesystem::path(info.file).filename(), file);
  }
  KeyUse use_of(std::string_view file, std::string_view key) {
    const ModelSpec spec = load();
    for (const KeyAccount& one : spec.describe->account->keys) {
      if (one.file == file && one.key == key) return one.use;
    }
    ADD_FAILURE() << "no account of " << key;
    return KeyUse::kUnknown;
  }

  TempFolder folder_;
};

TEST_F(FolderConfig, NestedProcessorRulesAndIsReadWithoutThePreprocessorFile) {
  put("config.json", kQwen);
  put("processor_config.json", R"({"processor_class": "Qwen2VLProcessor", "image_processor":
    {"image_processor_type": "Qwen2VLImageProcessor",
     "size": {"shortest_edge": 1568, "longest_edge": 15680}}, "video_processor": {}})");
  EXPECT_EQ(policy().min_pixels, 1568);
  EXPECT_EQ(policy().max_pixels, 15680);
  put("preprocessor_config.json", R"({"resample": 2})");
  EXPECT_EQ(policy().max_pixels, 15680);
  EXPECT_EQ(policy().filter, ResampleFilter::kBicubic);
}

// The reference loads no processor from such a folder, whatever its config.json says.
TEST_F(FolderConfig, WithoutAProcessorItIsRefusedByNameOfTheFile) {
  for (const char* config : {kLlava, kQwen, kIdefics}) {
    put("config.json", config);
    std::filesystem::remove(folder_ / "processor_config.json");
    EXPECT_EQ(refusal().code, "E_PROCESSOR_MISSING");
    EXPECT_EQ(refusal().file, (folder_ / "preprocessor_config.json").string());
    put("processor_config.json", R"({"chat_template": "{{ messages }}"})");
    EXPECT_EQ(refusal().code, "E_PROCESSOR_MISSING");
  }
}

// Bounds of images are not those of frames, which qwen-vl-utils resizes first.
TEST_F(FolderConfig, FramesStayWithinTheBoundsOfImages) {
  const auto bounds = [&](const char* keys) {
    put("config.json", kQwen);
    put("preprocessor_config.json", keys);
    const PreprocessPolicy frame = load().describe->video.frame;
    return std::pair(frame.min_pixels, frame.max_pixels);
  };
  EXPECT_EQ(bounds("{}"), std::pair(std::int64_t{100352}, std::int64_t{602112}));
  EXPECT_EQ(bounds(R"({"min_pixels": 3136, "max_pixels": 12845056})"),
            std::pair(std::int64_t{100352}, std::int64_t{602112}));
  EXPECT_EQ(bounds(R"({"min_pixels": 3136, "max_pixels": 50176})"),
            std::pair(std::int64_t{50176}, std::int64_t{50176}));
  EXPECT_EQ(bounds(R"({"min_pixels": 802816, "max_pixels": 12845056})"),
            std::pair(std::int64_t{802816}, std::int64_t{802816}));
}

TEST_F(FolderConfig, AbsentKeysMeanTheDefaultsOfTheReferencesClass) {
  put("config.json", kQwen);
  put("preprocessor_config.json", "{}");
  EXPECT_EQ(policy().min_pixels, 56 * 56);
  EXPECT_EQ(policy().max_pixels, 1280 * 28 * 28);
  EXPECT_EQ(policy().mean, kClipMean);
  const ModelConfig& text = load().model.transformer;
  EXPECT_EQ(text.rope.theta, 1e6);
  EXPECT_FLOAT_EQ(text.norm_eps, 1e-5f);
}

TEST_F(FolderConfig, OlderPixelBoundsWin) {
  put("config.json", kQwen);
  put("preprocessor_config.json", R"({"min_pixels": 784, "size":
    {"shortest_edge": 3136, "longest_edge": 6272}})");
  EXPECT_EQ(policy().min_pixels, 784);
  EXPECT_EQ(policy().max_pixels, 6272);
  put("preprocessor_config.json", R"({"size": {"longest_edge": 6272}})");
  expect_refused("preprocessor_config.json", "size");
}

TEST_F(FolderConfig, StepsThatAreOffChangeNothingOfALevel) {
  put("config.json", kLlava);
  put("preprocessor_config.json", R"({"size": {"shortest_edge": 30}, "crop_size": 28,
    "image_processor_type": "CLIPImageProcessorFast", "do_rescale": false, "do_normalize": false})");
  EXPECT_EQ(policy().mode, ResizeMode::kShortestSide);
  EXPECT_EQ(policy().resize_height, 30);
  EXPECT_EQ(policy().side, 28);
  EXPECT_EQ(policy().rescale, 1.0);
  EXPECT_EQ(policy().mean, (std::array<double, 3>{0, 0, 0}));
  EXPECT_EQ(policy().std, (std::array<double, 3>{1, 1, 1}));
}

// Releases of the reference differ in what null means there, or refuse it.
TEST_F(FolderConfig, StepsThatAreNullAreRefused) {
  for (const char* key :
       {"do_rescale", "do_normalize", "do_resize", "resample", "image_mean", "image_std"}) {
    put("config.json", kLlava);
    Json own = {{"size", {{"shortest_edge", 28}}}, {"crop_size", 28}};
    own[key] = nullptr;
    put("preprocessor_config.json", own.dump());
    expect_refused("preprocessor_config.json", key);
  }
}

TEST_F(FolderConfig, TheNamedClassDecidesWhatIsDone) {
  put("config.json", kLlava);
  put("preprocessor_config.json", R"({"image_processor_type": "SiglipImageProcessor",
    "size": {"height": 28, "width": 28}})");
  EXPECT_EQ(policy().mode, ResizeMode::kStretch);
  EXPECT_EQ(policy().mean, (std::array<double, 3>{0.5, 0.5, 0.5}));
  put("preprocessor_config.json", R"({"image_processor_type": "LlavaImageProcessor", "do_pad": true,
    "size": {"shortest_edge": 28}, "crop_size": 28, "image_mean": [0.5, 0.25, 1.0]})");
  EXPECT_EQ(policy().mode, ResizeMode::kPadToSquare);
  EXPECT_EQ(policy().background, (Rgb{127, 63, 255}));
  put("preprocessor_config.json", R"({"image_processor_type": "ViTImageProcessor"})");
  expect_refused("preprocessor_config.json", "image_processor_type");
}

TEST_F(FolderConfig, ViewsOfOtherSizesThanTheEncoderTakesAreRefused) {
  put("config.json", kLlava);
  put("preprocessor_config.json", R"({"size": 28})");  // the class cuts 224
  expect_refused("preprocessor_config.json", "crop_size");
  put("preprocessor_config.json", R"({"size": 28, "crop_size": 28, "do_center_crop": false})");
  expect_refused("preprocessor_config.json", "do_center_crop");
  put("preprocessor_config.json", R"({"size": 28, "crop_size": 28, "do_resize": false})");
  expect_refused("preprocessor_config.json", "do_resize");
  put("config.json", kQwen);
  put("preprocessor_config.json", R"({"patch_size": 16})");
  expect_refused("preprocessor_config.json", "patch_size");
}

TEST_F(FolderConfig, FilesThatContradictEachOtherAreRefusedByFileAndKey) {
  put("config.json", kLlava);
  put("preprocessor_config.json", R"({"size": 28, "crop_size": 28, "resample": 2})");
  put("processor_config.json",
      R"({"image_processor": {"size": 28, "crop_size": 28, "resample": 3}})");
  expect_refused("processor_config.json", "image_processor.resample");
  for (const auto& [key, value] :
       {std::pair{"patch_size", "14"}, std::pair{"num_additional_image_tokens", "0"},
        std::pair{"vision_feature_select_strategy", "\"full\""},
        std::pair{"image_token", "\"<img>\""}}) {
    put("processor_config.json", "{\"" + std::string(key) + "\": " + value + "}");
    expect_refused("processor_config.json", key);
  }
  put("config.json", kIdefics);
  put("preprocessor_config.json", R"({"max_image_size": {"longest_edge": 28}})");
  put("processor_config.json", R"({"image_seq_len": 169})");
  expect_refused("processor_config.json", "image_seq_len");
  put("processor_config.json", R"({"image_seq_len": 4})");
  EXPECT_EQ(policy().side, 28);
}

TEST_F(FolderConfig, TilesOfIdeficsFollowTheirKeys) {
  put("config.json", kIdefics);
  put("preprocessor_config.json", R"({"max_image_size": {"longest_edge": 42},
    "size": {"height": 50, "width": 90}, "do_image_splitting": false})");
  EXPECT_EQ(policy().side, 42);
  EXPECT_EQ(policy().longest, 0);
  EXPECT_EQ(policy().resize_width, 90);
  EXPECT_FALSE(policy().split);
  put("preprocessor_config.json", R"({"max_image_size": {"longest_edge": 30}})");
  expect_refused("preprocessor_config.json", "max_image_size");
}

TEST_F(FolderConfig, EveryKeyIsAccountedFor) {
  Json config = parse_json(kLlava, "");
  config["transformers_version"] = "4.57.3";
  config["text_config"]["attention_dropout"] = 0.5;
  config["is_encoder_decoder"] = true;
  config["colour_of_the_box"] = "red";
  config["vision_config"]["num_channels"] = 3;
  put("config.json", config.dump());
  put("preprocessor_config.json", R"({"size": 28, "crop_size": 28, "do_convert_rgb": true,
    "sharpen": {"by": 2}})");
  put("generation_config.json", R"({"eos_token_id": 2, "num_beams": 1, "luck": 4})");
  EXPECT_EQ(use_of("config.json", "text_config.hidden_size"), KeyUse::kUsed);
  EXPECT_EQ(use_of("config.json", "vision_config.patch_size"), KeyUse::kUsed);
  EXPECT_EQ(use_of("config.json", "transformers_version"), KeyUse::kWithoutEffect);
  EXPECT_EQ(use_of("config.json", "text_config.attention_dropout"), KeyUse::kWithoutEffect);
  EXPECT_EQ(use_of("config.json", "vision_config.num_channels"), KeyUse::kWithoutEffect);
  EXPECT_EQ(use_of("config.json", "is_encoder_decoder"), KeyUse::kNotFollowed);
  EXPECT_EQ(use_of("config.json", "colour_of_the_box"), KeyUse::kUnknown);
  EXPECT_EQ(use_of("preprocessor_config.json", "crop_size"), KeyUse::kUsed);
  EXPECT_EQ(use_of("preprocessor_config.json", "do_convert_rgb"), KeyUse::kWithoutEffect);
  EXPECT_EQ(use_of("generation_config.json", "eos_token_id"), KeyUse::kUsed);
  EXPECT_EQ(load().describe->account->warnings(),
            (std::vector<std::string>{"1 key of config.json is not known: colour_of_the_box",
                                      "1 key of config.json is not followed: is_encoder_decoder",
                                      "1 key of preprocessor_config.json is not known: sharpen.by",
                                      "1 key of generation_config.json is not known: luck"}));
}

TEST_F(FolderConfig, ManyUnknownKeysAreOneLine) {
  put("preprocessor_config.json", kClipViews);
  Json config = parse_json(kLlava, "");
  for (int i = 0; i < 20; ++i) config["extra_" + std::to_string(i)] = i;
  put("config.json", config.dump());
  const std::vector<std::string> lines = load().describe->account->warnings();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].starts_with("20 keys of config.json are not known: extra_0, extra_1"));
  EXPECT_TRUE(lines[0].ends_with("extra_11, ...")) << lines[0];
}

TEST_F(FolderConfig, ThePublishedTokenBudgetOfOneVisionIsRead) {
  Json config = parse_json(kLlava, "");
  config["model_type"] = "llava_onevision";
  config["text_config"]["model_type"] = "qwen2";
  config["text_config"]["num_key_value_heads"] = 1;
  config["vision_config"]["model_type"] = "siglip_vision_model";
  config["vision_feature_select_strategy"] = "full";
  config["vision_aspect_ratio"] = "anyres_max_4";
  config["image_grid_pinpoints"] = {{28, 56}, {56, 28}};
  put("config.json", config.dump());
  put("preprocessor_config.json", R"({"size": {"height": 28, "width": 28},
    "image_grid_pinpoints": [[28, 56], [56, 28]]})");
  EXPECT_EQ(policy().max_map_tiles, 4);
  EXPECT_EQ(policy().pinpoints.size(), 2u);
  put("preprocessor_config.json", R"({"size": {"height": 28, "width": 28},
    "image_grid_pinpoints": [[56, 28], [28, 56]]})");
  expect_refused("preprocessor_config.json", "image_grid_pinpoints");
  config["vision_aspect_ratio"] = "square";
  put("config.json", config.dump());
  put("preprocessor_config.json", R"({"size": {"height": 28, "width": 28},
    "image_grid_pinpoints": [[28, 56], [56, 28]]})");
  expect_refused("config.json", "vision_aspect_ratio");
}

TEST_F(FolderConfig, PointersAreNamedWithWhatToDo) {
  put("config.json", kLlava);
  put("tokenizer.json",
      "version https://git-lfs.github.com/spec/v1\noid sha256:1234\nsize 4000000\n");
  const ErrorInfo info = refusal();
  EXPECT_EQ(info.code, "E_LFS_POINTER");
  EXPECT_EQ(info.file, (folder_ / "tokenizer.json").string());
  EXPECT_NE(info.hint.find("git lfs pull"), std::string::npos);
}

// The reference looks in prompts for the tokenizer's own token, and finds none.
TEST_F(FolderConfig, AnotherImageTokenOfTheTokenizerIsRefused) {
  put("config.json", kLlava);
  put("preprocessor_config.json", kClipViews);
  put("tokenizer_config.json", R"({"image_token": "<image>"})");
  EXPECT_EQ(use_of("tokenizer_config.json", "image_token"), KeyUse::kUsed);
  put("tokenizer_config.json", R"({"image_token": "<picture>"})");
  expect_refused("tokenizer_config.json", "image_token");
  put("tokenizer_config.json", R"({"extra_special_tokens": {"image_token":
    {"content": "<picture>", "special": true}}})");
  expect_refused("tokenizer_config.json", "extra_special_tokens.image_token");
}

TEST_F(FolderConfig, TheProcessorOfAnotherFamilyIsRefused) {
  put("config.json", kLlava);
  put("preprocessor_config.json", kClipViews);
  EXPECT_EQ(use_of("preprocessor_config.json", "processor_class"), KeyUse::kUsed);
  put("tokenizer_config.json", R"({"processor_class": "LlavaNextProcessor"})");
  EXPECT_NO_THROW(load());  // the file before it has named one
  put("processor_config.json", R"({"processor_class": "LlavaNextProcessor"})");
  expect_refused("processor_config.json", "processor_class");
  put("processor_config.json", R"({"processor_class": "OurOwnProcessor"})");
  EXPECT_NO_THROW(load());
}

TEST_F(FolderConfig, ACutWithoutASizeIsRefusedOfClassesThatHaveNone) {
  put("config.json", kQwen);
  put("preprocessor_config.json", R"({"do_center_crop": true})");
  expect_refused("preprocessor_config.json", "crop_size");
  put("preprocessor_config.json", R"({"do_center_crop": true, "crop_size": 10})");
  EXPECT_NO_THROW(load());
  put("preprocessor_config.json", R"({"do_center_crop": false})");
  EXPECT_NO_THROW(load());
}

TEST_F(FolderConfig, OneNumberIsTheMeanOfAllLevelsButNoColour) {
  put("config.json", kLlava);
  Json own = {{"size", {{"shortest_edge", 28}}}, {"crop_size", 28}, {"image_mean", 0.25}};
  put("preprocessor_config.json", own.dump());
  EXPECT_EQ(policy().mean, (std::array<double, 3>{0.25, 0.25, 0.25}));
  own["image_processor_type"] = "LlavaImageProcessor";
  own["do_pad"] = true;
  put("preprocessor_config.json", own.dump());
  expect_refused("preprocessor_config.json", "image_mean");
}

TEST_F(FolderConfig, AFrequencyOfNullIsRefused) {
  put("preprocessor_config.json", kClipViews);
  Json config = Json::parse(kLlava);
  config["text_config"]["rope_theta"] = nullptr;
  put("config.json", config.dump());
  expect_refused("config.json", "text_config.rope_theta");
  config["text_config"].erase("rope_theta");
  config["text_config"]["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", nullptr}};
  put("config.json", config.dump());
  expect_refused("config.json", "text_config.rope_parameters.rope_theta");
}

TEST_F(FolderConfig, QuantisedFoldersAreRefusedWhereverTheySaySo) {
  put("preprocessor_config.json", kClipViews);
  Json config = Json::parse(kLlava);
  config["text_config"]["quantization_config"] = {{"quant_method", "hqq"}, {"bits", 4}};
  put("config.json", config.dump());
  expect_refused("config.json", "text_config.quantization_config");
  EXPECT_EQ(refusal().found, "weights quantised by hqq, 4 bits");
  EXPECT_EQ(refusal().code, "E_QUANTISED");
  put("config.json", kLlava);
  EXPECT_NO_THROW(load());
  EXPECT_EQ(load().quantised, nullptr);
  for (const char* name : {"quantize_config.json", "quant_config.json"}) {
    put(name, R"({"bits": 5, "group_size": 128})");
    expect_refused(name, "bits");
    put(name, R"({"bits": 4, "group_size": 64, "damp_percent": 0.01, "never_seen": 1})");
    EXPECT_EQ(load().quantised->kinds.at(0).cell_columns, 64);
    EXPECT_EQ(use_of(name, "group_size"), KeyUse::kUsed);
    EXPECT_EQ(use_of(name, "damp_percent"), KeyUse::kWithoutEffect);
    EXPECT_EQ(use_of(name, "never_seen"), KeyUse::kUnknown);
    config["text_config"]["quantization_config"] = {
        {"quant_method", load().quantised->form == QuantisedForm::kAwq ? "awq" : "gptq"},
        {"bits", 4},
        {"group_size", 128}};
    put("config.json", config.dump());
    EXPECT_EQ(refusal().code, "E_QUANTISED_FILES");
    put("config.json", kLlava);
    std::filesystem::remove(folder_ / name);
  }
}

struct QuantisedKey {
  const char *method, *key, *value;  // JSON
};

TEST_F(FolderConfig, ValuesThatNoQuantisedLayoutHasAreRefusedByKey) {
  put("preprocessor_config.json", kClipViews);
  const std::map<std::string, Json> good = {
      {"fp8", Json::parse(R"({"weight_block_size": [128, 128], "fmt": "e4m3"})")},
      {"awq", Json::parse(R"({"bits": 4, "group_size": 128, "version": "gemm"})")},
      {"gptq", Json::parse(R"({"bits": 4, "group_size": 128, "desc_act": true})")},
      {"bitsandbytes", Json::parse(R"({"load_in_4bit": true, "bnb_4bit_quant_type": "nf4"})")},
      {"compressed-tensors", Json::parse(R"({"format": "pack-quantized", "config_groups": {"all": {
          "targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 128, "strategy": "group",
          "type": "int", "symmetric": true, "observer": "minmax"}}}})")}};
  const auto with = [&](const std::string& method, const char* pointer, const Json& value) {
    Json config = Json::parse(kLlava);
    Json& keys = config["quantization_config"] = good.at(method);
    keys["quant_method"] = method;
    if (*pointer != 0) keys[Json::json_pointer(pointer)] = value;
    put("config.json", config.dump());
  };
  for (const auto& [method, keys] : good) {
    with(method, "", {});
    ASSERT_NE(load().quantised, nullptr) << method;
    for (const auto& [key, unused] : keys.items()) {
      if (key == "config_groups") continue;
      EXPECT_NE(use_of("config.json", "quantization_config." + key), KeyUse::kUnknown) << key;
    }
  }
  const QuantisedKey bad[] = {
      {"fp8", "/weight_block_size", "[128]"},
      {"fp8", "/weight_block_size", "7"},
      {"awq", "/bits", "3"},
      {"awq", "/group_size", "0"},
      {"awq", "/version", "\"gemv\""},
      {"awq", "/zero_point", "false"},
      {"gptq", "/bits", "5"},
      {"gptq", "/bits", "1"},
      {"gptq", "/checkpoint_format", "\"marlin\""},
      {"gptq", "/is_marlin_format", "true"},
      {"gptq", "/pack_dtype", "\"int16\""},
      {"bitsandbytes", "/load_in_8bit", "true"},
      {"compressed-tensors", "/format", "\"nvfp4-pack-quantized\""},
      {"compressed-tensors", "/transform_config", "{\"config_groups\": {}}"},
      {"compressed-tensors", "/sparsity_config", "{\"format\": \"sparse-24-bitmask\"}"},
      {"compressed-tensors", "/config_groups", "{}"},
      {"compressed-tensors", "/config_groups/all/format", "\"marlin-24\""},
      {"compressed-tensors", "/config_groups/all/weights/num_bits", "9"},
      {"compressed-tensors", "/config_groups/all/weights/type", "\"complex\""},
      {"compressed-tensors", "/config_groups/all/weights/strategy", "\"tensor_group\""},
      {"compressed-tensors", "/config_groups/all/weights/group_size", "null"},
      {"compressed-tensors", "/config_groups/all/weights/dynamic", "true"},
      {"compressed-tensors", "/config_groups/all/weights/rotation", "1"},
      {"compressed-tensors", "/config_groups/all/rotation", "1"},
  };
  for (const QuantisedKey& each : bad) {
    SCOPED_TRACE(std::string(each.method) + each.key);
    with(each.method, each.key, Json::parse(each.value));
    std::string place = "quantization_config" + std::string(each.key);
    std::replace(place.begin(), place.end(), '/', '.');
    expect_refused("config.json", place.c_str());
  }
}

TEST_F(FolderConfig, TwoNamesOfOneIdMustAgree) {
  put("preprocessor_config.json", kClipViews);
  Json config = Json::parse(kLlava);
  config["image_token_id"] = 90;
  put("config.json", config.dump());
  EXPECT_EQ(load().describe->image_id, 90);
  config["image_token_id"] = 91;
  put("config.json", config.dump());
  expect_refused("config.json", "image_token_id");
}

TEST_F(FolderConfig, AWindowThatLlamaDoesNotReadIsNoWarning) {
  put("preprocessor_config.json", kClipViews);
  Json config = Json::parse(kLlava);
  config["text_config"]["sliding_window"] = 16;
  put("config.json", config.dump());
  EXPECT_EQ(use_of("config.json", "text_config.sliding_window"), KeyUse::kWithoutEffect);
  EXPECT_EQ(load().describe->text_limit, "");
}

}  // namespace
}  // namespace tessera::folder_config_test
