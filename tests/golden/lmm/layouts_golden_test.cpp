// One model under every set of names that releases of the library write, and in every type of
// number: the same text, to the bit, as from the published file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "apps/runtime/caption_model.h"
#include "apps/runtime/split_prompt.h"
#include "engine/core/storage.h"
#include "tests/golden/lmm/parity.h"
#include "tests/support/hashed_weights.h"
#include "tests/support/temp_folder.h"

namespace tessera::layouts_golden_test {
namespace {

namespace fs = std::filesystem;

struct Rename {
  const char *from, *to;  // prefixes
};
using Renames = std::vector<Rename>;

struct Layout {
  const char* family;
  const char* name;
  Renames renames;  // of the published file's names, the first that fits
};
void PrintTo(const Layout& layout, std::ostream* out) {
  *out << layout.family << " " << layout.name;
}

std::string renamed(const std::string& name, const Renames& renames) {
  for (const Rename& rename : renames) {
    if (name.starts_with(rename.from)) return rename.to + name.substr(std::strlen(rename.from));
  }
  return name;
}

// f16 towards zero; what is below its normal numbers is 0.
std::uint16_t half_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t exponent = (bits >> 23) & 0xffu, sign = (bits >> 16) & 0x8000u;
  if (exponent <= 112 || exponent >= 143) return static_cast<std::uint16_t>(sign);
  return static_cast<std::uint16_t>(sign | ((exponent - 112) << 10) | ((bits >> 13) & 0x3ffu));
}

// As f32, f16 or f64.
Tensor as_type(const ConstTensorView& view, DType dtype) {
  const Tensor wide = widened(view);
  Tensor out = Tensor::host(dtype, view.shape);
  for (std::int64_t i = 0; i < view.shape.elements(); ++i) {
    if (dtype == DType::kF32) out.f32()[i] = wide.f32()[i];
    if (dtype == DType::kF64) out.view().as<double>()[i] = static_cast<double>(wide.f32()[i]);
    if (dtype == DType::kF16) out.view().as<std::uint16_t>()[i] = half_of(wide.f32()[i]);
  }
  return out;
}

// `from` with its weights as change(name, view) gives them; a tensor without a name is left out.
using Change = std::function<std::pair<std::string, Tensor>(const std::string&, ConstTensorView)>;
void write_folder(const fs::path& from, const fs::path& to, const Change& change) {
  for (const auto& file : fs::directory_iterator(from)) {
    if (file.path().extension() == ".json") fs::copy_file(file, to / file.path().filename());
  }
  const Checkpoint weights = Checkpoint::open(from / "model.safetensors");
  std::map<std::string, Tensor> kept;
  std::map<std::string, ConstTensorView> views;
  for (const auto& [name, view] : weights.tensors()) {
    auto [is, tensor] = change(name, view);
    if (is.empty()) continue;
    const Tensor& one = kept.emplace(is, std::move(tensor)).first->second;
    views.emplace(is, one.view());
  }
  write_safetensors(to / "model.safetensors", views);
}

Tensor as_it_is(const ConstTensorView& view) {
  Tensor out = Tensor::host(view.dtype, view.shape);
  std::memcpy(out.view().data, view.data, view.bytes());
  return out;
}

LastRows run(const TinyLmm& tiny) {
  std::vector<PromptImage> visual;
  for (int i = 0; i < 2; ++i) {
    visual.push_back({tiny.images->encode(preprocess(tiny.spec.describe->policy, tiny.image(i)),
                                          tiny.spec.three_axes(), nullptr)});
  }
  std::vector<std::int32_t> ids = tiny.ints("input_ids");
  std::replace(ids.begin(), ids.end(), 90, tiny.spec.describe->image_id);
  return last_rows(*tiny.backend, *tiny.text,
                   build_prompt(*tiny.text, ids, tiny.spec.describe->image_id, std::move(visual)));
}

void expect_same(const LastRows& got, const LastRows& want) {
  EXPECT_EQ(got.hidden, want.hidden);
  EXPECT_EQ(got.logits, want.logits);
}

fs::path recording(const std::string& family) {
  return TinyLmm::goldens() / family / "recorded.safetensors";
}

class FileLayout : public ::testing::TestWithParam<Layout> {};

TEST_P(FileLayout, IsReadAsThePublishedOne) {
  const auto& [family, unused, renames] = GetParam();
  const TempFolder folder;
  std::size_t changed = 0;
  write_folder(TinyLmm::goldens() / family, folder.path(),
               [&](const std::string& name, ConstTensorView view) {
                 const std::string is = renamed(name, renames);
                 changed += is != name ? 1 : 0;
                 return std::pair{is, as_it_is(view)};
               });
  EXPECT_GT(changed, 10u);
  expect_same(run(TinyLmm(folder.path(), recording(family), 1)), run(TinyLmm(family)));
}

const Renames kSaved5 = {{"vision_tower.vision_model.", "vision_tower."}};
const Renames kMemory4 = {{"language_model.lm_head.", "lm_head."},
                          {"language_model.model.", "model.language_model."},
                          {"vision_tower.", "model.vision_tower."},
                          {"multi_modal_projector.", "model.multi_modal_projector."},
                          {"image_newline", "model.image_newline"}};
const Renames kMemory5 = {{"language_model.lm_head.", "lm_head."},
                          {"language_model.model.", "model.language_model."},
                          {"vision_tower.vision_model.", "model.vision_tower."},
                          {"multi_modal_projector.", "model.multi_modal_projector."},
                          {"image_newline", "model.image_newline"}};
const Renames kBare = {{"language_model.lm_head.", "lm_head."},
                       {"language_model.model.", "language_model."},
                       {"vision_tower.vision_model.", "vision_tower."}};
const Renames kQwenMemory = {{"visual.", "model.visual."}, {"model.", "model.language_model."}};
const Renames kQwenBare = {{"model.", "language_model."}};
const Renames kIdeficsBare = {{"model.", ""}};

INSTANTIATE_TEST_SUITE_P(
    All, FileLayout,
    ::testing::Values(
        Layout{"llava-1.5", "saved by 5", kSaved5}, Layout{"llava-1.5", "memory of 4", kMemory4},
        Layout{"llava-1.5", "memory of 5", kMemory5}, Layout{"llava-1.5", "bare", kBare},
        Layout{"llava-next", "saved by 5", kSaved5}, Layout{"llava-next", "memory of 4", kMemory4},
        Layout{"llava-next", "memory of 5", kMemory5},
        Layout{"llava-onevision", "saved by 5", kSaved5},
        Layout{"llava-onevision", "memory of 5", kMemory5},
        Layout{"llava-onevision", "bare", kBare}, Layout{"qwen2-vl", "memory", kQwenMemory},
        Layout{"qwen2-vl", "bare", kQwenBare}, Layout{"qwen2.5-vl", "memory", kQwenMemory},
        Layout{"qwen2.5-vl", "bare", kQwenBare}, Layout{"idefics3", "bare", kIdeficsBare},
        Layout{"smolvlm", "bare", kIdeficsBare}));

// --- types of numbers
// ------------------------------------------------------------------------------

class NumberType : public ::testing::TestWithParam<const char*> {
 protected:
  static LastRows run_as(DType dtype, const fs::path& from, const TempFolder& folder) {
    write_folder(from, folder.path(), [&](const std::string& name, ConstTensorView view) {
      return std::pair{name, as_type(view, dtype)};
    });
    return run(TinyLmm(folder.path(), recording(GetParam()), 1));
  }
};

TEST_P(NumberType, F64IsReadAsF32) {
  const TempFolder wide;
  expect_same(run_as(DType::kF64, TinyLmm::goldens() / GetParam(), wide), run(TinyLmm(GetParam())));
}

TEST_P(NumberType, F16LosesNothing) {
  const TempFolder half, wide;
  const LastRows got = run_as(DType::kF16, TinyLmm::goldens() / GetParam(), half);
  expect_same(got, run_as(DType::kF32, half.path(), wide));
}

INSTANTIATE_TEST_SUITE_P(Families, NumberType, ::testing::ValuesIn(kTinyFamilies),
                         [](const auto& family) { return test_name(family.param); });

// What a captioner's weights are kept as, unless somebody asks for something else.
TEST(StoredType, OnlyBf16IsKeptAsBf16) {
  const fs::path model = fs::path(TESSERA_SOURCE_DIR) / "assets" / "models" / "tabletop-llava";
  const auto stored = [&](const std::function<bool(const std::string&)>& bf16, DType other) {
    const TempFolder folder;
    write_folder(model, folder.path(), [&](const std::string& name, ConstTensorView view) {
      if (!bf16(name)) return std::pair{name, as_type(view, other)};
      const Tensor wide = widened(view);
      Tensor out = Tensor::host(DType::kBF16, view.shape);
      storage_of(DType::kBF16).write(wide.f32(), view.shape.elements(), out.view().data);
      return std::pair{name, std::move(out)};
    });
    return CaptionModel::open(folder.path())->stored();
  };
  const auto all = [](const std::string&) { return true; };
  const auto none = [](const std::string&) { return false; };
  EXPECT_EQ(stored(all, DType::kF32), DType::kBF16);
  for (const DType other : {DType::kF32, DType::kF16, DType::kF64}) {
    EXPECT_EQ(stored(none, other), DType::kF32) << dtype_name(other);
  }
  // One matrix of f16 among bf16, in either half; norms are f32 in memory anyway.
  for (const char* name : {"mlp.down_proj.weight", "mlp.fc2.weight"}) {
    EXPECT_EQ(
        stored([&](const std::string& one) { return one.find(name) == one.npos; }, DType::kF16),
        DType::kF32)
        << name;
  }
  EXPECT_EQ(
      stored([](const std::string& one) { return one.find("norm") == one.npos; }, DType::kF32),
      DType::kBF16);
}

// --- the authors' own layout
// -----------------------------------------------------------------------

// The tiny LLaVA-1.5 as the authors save one: its keys at the top, its encoder within the model's
// file, or in CLIP's own folder inside the model's or next to it.
class AuthorsLayout : public ::testing::Test {
 protected:
  enum class Tower { kInside, kInFolder, kNextToIt };
  static constexpr const char* kWithinModel = "model.vision_tower.vision_tower.vision_model.";

  void write(Tower tower, const std::function<void(Json&)>& change = {}) {
    const fs::path model = root_ / "model";
    const fs::path clip = tower == Tower::kInFolder ? model / "tiny-clip" : root_ / "tiny-clip";
    fs::create_directories(model);
    fs::create_directories(clip);
    const TinyLmm plain("llava-1.5");
    const Json& port = *plain.spec.describe->config;
    Json config = port.at("text_config");
    config.update({{"model_type", "llava_llama"},
                   {"mm_vision_tower", "somebody/tiny-clip"},
                   {"mm_vision_select_layer", -2},
                   {"mm_vision_select_feature", "patch"},
                   {"mm_hidden_size", 24},
                   {"mm_projector_type", "mlp2x_gelu"}});
    if (change) change(config);
    std::ofstream(model / "config.json") << config.dump();
    std::ofstream(clip / "config.json")
        << Json{{"model_type", "clip"}, {"vision_config", port.at("vision_config")}}.dump();
    for (const auto& [folder, keys] : processors_) {
      std::ofstream((folder == "clip" ? clip : model) / "preprocessor_config.json") << keys.dump();
    }
    const bool inside = tower == Tower::kInside;
    const Renames renames = {{"language_model.lm_head.", "lm_head."},
                             {"language_model.model.", "model."},
                             {"multi_modal_projector.linear_1.", "model.mm_projector.0."},
                             {"multi_modal_projector.linear_2.", "model.mm_projector.2."},
                             {"vision_tower.vision_model.", inside ? kWithinModel : clip_prefix_.c_str()}};
    std::map<std::string, ConstTensorView> own, encoder;
    for (const auto& [name, view] : plain.weights->tensors()) {
      const std::string is = renamed(name, renames);
      if (!projector_.empty() && is.starts_with("model.mm_projector")) continue;
      const bool outside = !inside && name.starts_with("vision_tower.");
      (outside ? encoder : own).emplace(is, view);
    }
    for (const auto& [name, tensor] : projector_) own.emplace(name, tensor.view());
    EXPECT_EQ(encoder.empty(), inside);
    const float scale = 1;  // of CLIP's other half
    if (!clip_prefix_.empty()) encoder.emplace("logit_scale", ConstTensorView{DType::kF32, {1}, &scale, {}});
    write_safetensors(model / "model.safetensors", own);
    write_safetensors(clip / "model.safetensors", encoder);
  }

  OpenedModel open() const {
    return open_model((root_ / "model").string(), {.use = ModelUse::kDescribe});
  }

  LastRows run_opened() const {
    TinyLmm tiny("llava-1.5");
    OpenedModel model = open();
    tiny.spec = model.spec;
    tiny.spec.model.transformer.rope.positions = tiny.spec.model.max_positions;
    tiny.text = std::make_unique<StreamModel>(load_stream_model(
        tiny.spec.model, tiny.spec.names, *model.source, *tiny.backend, DType::kF32));
    tiny.images =
        std::make_unique<PatchEncoder>(*tiny.backend, tiny.spec.describe->tower, "config.json",
                                        *model.weights, std::vector<float>{}, DType::kF32);
    return run(tiny);
  }

  // Linear layers of these names with made-up numbers.
  void make_projector(const std::vector<std::string>& stems) {
    projector_.clear();
    std::int64_t width = 24;
    for (const std::string& stem : stems) {
      const std::pair<const char*, Shape> parts[] = {{".weight", {32, width}}, {".bias", {32}}};
      for (const auto& [end, shape] : parts) {
        const std::vector<float> values = hashed_values(stem + end, shape.elements());
        Tensor& one =
            projector_.emplace(stem + end, Tensor::host(DType::kF32, shape)).first->second;
        std::transform(values.begin(), values.end(), one.f32(), [](float v) { return v / 4; });
      }
      width = 32;
    }
  }

  // The same by the definition.
  std::vector<double> projected(std::vector<double> row, const std::vector<std::string>& stems) {
    for (std::size_t layer = 0; layer < stems.size(); ++layer) {
      if (layer > 0) {
        for (double& x : row) x *= 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
      }
      const float* weight = projector_.at(stems[layer] + ".weight").f32();
      const float* bias = projector_.at(stems[layer] + ".bias").f32();
      std::vector<double> out(bias, bias + 32);
      for (std::size_t i = 0; i < out.size(); ++i) {
        for (std::size_t k = 0; k < row.size(); ++k)
          out[i] += double{weight[i * row.size() + k]} * row[k];
      }
      row = std::move(out);
    }
    return row;
  }

  PreprocessPolicy policy(const Json& keys) {
    write(Tower::kNextToIt, [&](Json& config) { config.update(keys); });
    return load_model_spec(root_ / "model", {.use = ModelUse::kDescribe}).describe->policy;
  }

  std::optional<ErrorInfo> refusal(const Json& keys = Json::object()) {
    try {
      policy(keys);
    } catch (const Error& error) {
      return error.info();
    }
    return {};
  }

  TempFolder root_;
  // preprocessor_config.json of "clip" and "model"
  std::map<std::string, Json> processors_ = {{"clip",
                                              {{"image_processor_type", "CLIPImageProcessor"},
                                               {"size", {{"shortest_edge", 16}}},
                                               {"crop_size", 16}}}};
  std::map<std::string, Tensor> projector_;  // in place of the tiny model's
  std::string clip_prefix_ = "vision_model.";  // of the encoder's tensors in its own folder
};

TEST_F(AuthorsLayout, ProjectorsHaveTheLayersOfTheirKind) {
  const TinyLmm tiny("llava-1.5");
  const std::vector<float> features = tiny.floats("features");
  const std::string stem = "model.mm_projector";
  const std::pair<Json, std::vector<std::string>> kinds[] = {
      {nullptr, {stem}},
      {"linear", {stem}},
      {"mlp1x_gelu", {stem + ".0"}},
      {"mlp2x_gelu", {stem + ".0", stem + ".2"}},
      {"mlp3x_gelu", {stem + ".0", stem + ".2", stem + ".4"}}};
  for (const auto& [kind, stems] : kinds) {
    SCOPED_TRACE(kind.dump());
    make_projector(stems);
    const Json value = kind;
    write(Tower::kInFolder, [&](Json& config) { config["mm_projector_type"] = value; });
    const OpenedModel model = open();
    const PatchEncoder images(*tiny.backend, model.spec.describe->tower, "config.json",
                               *model.weights, std::vector<float>{}, DType::kF32);
    const VisualRows rows =
        images.encode(preprocess(tiny.spec.describe->policy, tiny.image(0)), false, nullptr);
    ASSERT_EQ(rows.rows.size(), 16u * 32u);
    for (std::size_t i = 0; i < 16; ++i) {
      const std::vector<double> want = projected(
          {features.begin() + to_index(i) * 24, features.begin() + to_index(i + 1) * 24}, stems);
      for (std::size_t k = 0; k < 32; ++k) {
        ASSERT_NEAR(rows.rows[i * 32 + k], want[k], 1e-5 * (1 + std::abs(want[k])));
      }
    }
  }
}

TEST_F(AuthorsLayout, IsTheSameModelWhereverItsEncoderIs) {
  const LastRows want = run(TinyLmm("llava-1.5"));
  for (const Tower tower : {Tower::kInside, Tower::kInFolder, Tower::kNextToIt}) {
    write(tower);
    expect_same(run_opened(), want);
  }
  clip_prefix_.clear();  // as release 5 saves it
  write(Tower::kNextToIt);
  expect_same(run_opened(), want);
}

TEST_F(AuthorsLayout, KeysOfTheModelChooseHowImagesAreShown) {
  EXPECT_EQ(policy(Json::object()).mode, ResizeMode::kShortestSide);
  EXPECT_EQ(policy({{"image_aspect_ratio", "pad"}}).mode, ResizeMode::kPadToSquare);
  EXPECT_EQ(policy({{"image_aspect_ratio", "pad"}}).side, 16);
  const PreprocessPolicy tiles = policy({{"image_aspect_ratio", "anyres"},
                                         {"mm_patch_merge_type", "spatial_unpad"},
                                         {"image_grid_pinpoints", {{16, 32}, {48, 16}}}});
  EXPECT_EQ(tiles.pinpoints, (std::vector<Tiling>{{2, 1}, {1, 3}}));  // widths come first
}

// The authors' code asks the encoder's folder for its processor, and no other.
TEST_F(AuthorsLayout, ImagesArePreparedAsTheEncodersFolderSays) {
  const PreprocessPolicy published = policy({{"image_aspect_ratio", "pad"}});
  EXPECT_EQ(published.mean, kClipMean);
  EXPECT_EQ(published.background, (Rgb{122, 116, 104}));
  Json& clip = processors_.at("clip");
  clip.update(
      {{"image_mean", {0.5, 0.25, 0.125}}, {"resample", 2}, {"size", {{"shortest_edge", 20}}}});
  const PreprocessPolicy other = policy({{"image_aspect_ratio", "pad"}});
  EXPECT_EQ(other.mean, (std::array{0.5, 0.25, 0.125}));
  EXPECT_EQ(other.background, (Rgb{127, 63, 31}));
  EXPECT_EQ(other.filter, ResampleFilter::kBilinear);
  EXPECT_EQ(other.resize_height, 20);
  EXPECT_EQ(policy({{"image_aspect_ratio", "square"}}).background, Rgb{});

  const Json tiles = {{"image_aspect_ratio", "anyres"},
                      {"mm_patch_merge_type", "spatial_unpad"},
                      {"image_grid_pinpoints", {{16, 32}, {48, 16}}}};
  const std::optional<ErrorInfo> scaled = refusal(tiles);
  ASSERT_TRUE(scaled);
  EXPECT_EQ(scaled->where, "image_aspect_ratio");
  clip["size"] = {{"height", 16}, {"width", 16}};
  clip["do_center_crop"] = false;
  EXPECT_EQ(policy({{"image_aspect_ratio", "square"}}).mode, ResizeMode::kStretch);
  EXPECT_EQ(policy({{"image_aspect_ratio", "pad"}}).mode, ResizeMode::kPadToSquare);
}

TEST_F(AuthorsLayout, ProcessorsOfModelAndEncoderMayNotDiffer) {
  const Json own = processors_.at("clip");
  processors_["model"] = own;
  EXPECT_FALSE(refusal());
  processors_["model"]["resample"] = 2;
  const std::optional<ErrorInfo> other = refusal();
  ASSERT_TRUE(other);
  EXPECT_EQ(other->code, "E_FOLDER_KEY");
  EXPECT_EQ(other->file, (root_ / "model" / "preprocessor_config.json").string());
  EXPECT_NE(other->expected.find("tiny-clip"), std::string::npos);
  // The model's serve an encoder that has none.
  processors_.erase("clip");
  fs::remove(root_ / "tiny-clip" / "preprocessor_config.json");
  EXPECT_EQ(policy(Json::object()).filter, ResampleFilter::kBilinear);
  processors_.clear();
  fs::remove(root_ / "model" / "preprocessor_config.json");
  const std::optional<ErrorInfo> none = refusal();
  ASSERT_TRUE(none);
  EXPECT_EQ(none->code, "E_PROCESSOR_MISSING");
  EXPECT_NE(none->file.find("tiny-clip"), std::string::npos);
}

TEST_F(AuthorsLayout, KeysOfTheEncodersProcessorAreAccountedFor) {
  processors_.at("clip")["brightness"] = 2;
  write(Tower::kNextToIt);
  const FolderAccount account =
      *load_model_spec(root_ / "model", {.use = ModelUse::kDescribe}).describe->account;
  std::map<std::string, KeyUse> found;
  for (const KeyAccount& key : account.keys) {
    if (key.file == "tiny-clip/preprocessor_config.json") found[key.key] = key.use;
  }
  EXPECT_EQ(found, (std::map<std::string, KeyUse>{{"image_processor_type", KeyUse::kUsed},
                                                  {"size.shortest_edge", KeyUse::kUsed},
                                                  {"crop_size", KeyUse::kUsed},
                                                  {"brightness", KeyUse::kUnknown}}));
}

TEST_F(AuthorsLayout, WhatIsNotThereIsNamed) {
  const auto refused = [&](const std::function<void(Json&)>& change) {
    write(Tower::kNextToIt, change);
    try {
      open();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 4);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto with = [](const char* key, const Json& value) {
    return [=](Json& config) { config[key] = value; };
  };
  const auto names = [](const std::string& text, const char* key) {
    EXPECT_NE(text.find(key), std::string::npos) << text;
  };
  names(refused(with("mm_vision_tower", "somebody/absent")), "mm_vision_tower");
  names(refused(with("mm_vision_tower", "../..")), "mm_vision_tower");
  for (const char* kind : {"identity", "mlp9x_gelu", "mlp2x_relu", "mlp2x_gelu_spatial"}) {
    names(refused(with("mm_projector_type", kind)), "mm_projector_type");
  }
  names(refused(with("mm_projector_type", "linear")), "model.mm_projector.weight");
  names(refused(with("mm_use_im_start_end", true)), "mm_use_im_start_end");
  names(refused(with("mm_hidden_size", 32)), "mm_hidden_size");
  names(refused(with("image_aspect_ratio", "anyres")), "mm_patch_merge_type");
  names(refused([](Json& config) {
          config.update({{"image_aspect_ratio", "anyres"},
                         {"mm_patch_merge_type", "spatial_unpad"},
                         {"image_grid_pinpoints", {{16, 32}}},
                         {"mm_vision_select_feature", "cls_patch"}});
        }),
        "mm_vision_select_feature");
}

// The tokenizer of such a folder has no token for an image: pieces around images are encoded alone.
TEST_F(AuthorsLayout, PromptsAreEncodedInPieces) {
  const auto tokenizer = TextTokenizer::from_file(fs::path(TESSERA_SOURCE_DIR) / "assets" /
                                                  "models" / "tabletop-llava" / "tokenizer.json");
  const Prompt prompt = {{PromptSegment::Kind::kPlain, "USER: "},
                         {PromptSegment::Kind::kImage, "<image><image><image>"},
                         {PromptSegment::Kind::kPlain, "\nwhat is it? ASSISTANT:"}};
  std::vector<std::int32_t> want = tokenizer.encode("USER: ", true);
  want.insert(want.end(), 3, 9999);
  for (const std::int32_t id : tokenizer.encode("\nwhat is it? ASSISTANT:", false)) {
    want.push_back(id);
  }
  EXPECT_EQ(encode_around_images(tokenizer, prompt, "<image>", 9999), want);
}

// A file with a head has it, though its configuration ties head and table.
TEST(TiedHead, AHeadInTheFileComesFirst) {
  const TinyLmm plain("llava-1.5");
  const TempFolder folder;
  write_folder(plain.folder, folder.path(), [](const std::string& name, ConstTensorView view) {
    return std::pair{name, as_it_is(view)};
  });
  Json config = *plain.spec.describe->config;
  config["tie_word_embeddings"] = config["text_config"]["tie_word_embeddings"] = true;
  std::ofstream(folder / "config.json") << config.dump();
  expect_same(run(TinyLmm(folder.path(), recording("llava-1.5"), 1)), run(plain));
}

// The reference would draw the head at random: for it, an absent key is false.
TEST(TiedHead, AMissingHeadIsRefusedWhereTheConfigurationUntiesIt) {
  const TinyLmm plain("llava-1.5");
  const TempFolder folder;
  write_folder(plain.folder, folder.path(), [](const std::string& name, ConstTensorView view) {
    const bool head = name.ends_with("lm_head.weight");
    return std::pair{head ? std::string() : name, as_it_is(view)};
  });
  const Json published = *plain.spec.describe->config;
  const auto refused_at = [&](const Json& whole, const Json& text) -> std::string {
    Json config = published;
    config.erase("tie_word_embeddings");
    config["text_config"].erase("tie_word_embeddings");
    if (!whole.is_null()) config["tie_word_embeddings"] = whole;
    if (!text.is_null()) config["text_config"]["tie_word_embeddings"] = text;
    std::ofstream(folder / "config.json") << config.dump();
    try {
      TinyLmm(folder.path(), recording("llava-1.5"), 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.info().code, "E_TIED_HEAD");
      EXPECT_EQ(error.info().file, (folder / "config.json").string());
      return error.info().where;
    }
    return "";
  };
  EXPECT_EQ(refused_at(false, nullptr), "tie_word_embeddings");
  EXPECT_EQ(refused_at(false, false), "tie_word_embeddings");
  EXPECT_EQ(refused_at(nullptr, false), "text_config.tie_word_embeddings");
  EXPECT_EQ(refused_at(nullptr, nullptr), "tie_word_embeddings");
  EXPECT_EQ(refused_at(true, false), "");
  EXPECT_EQ(refused_at(false, true), "");
}

}  // namespace
}  // namespace tessera::layouts_golden_test
