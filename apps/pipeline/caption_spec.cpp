#include "apps/pipeline/caption_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/core/io.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxSide = 16384;  // pixels
constexpr std::int64_t kMostPixels = std::int64_t{1} << 26;
constexpr std::int64_t kMostTiles = 64;  // of a pinpoint, a side
constexpr std::string_view kLlama[] = {"llama"};
constexpr std::string_view kLlavaText[] = {"llama", "mistral", "qwen2"};
constexpr std::string_view kQwen2Text[] = {"qwen2"};
constexpr std::string_view kQwen2Vl[] = {"qwen2_vl", "qwen2_vl_text"};
constexpr std::string_view kQwen25Vl[] = {"qwen2_5_vl", "qwen2_5_vl_text"};

struct FamilyRow {
  std::string_view type, title;
  std::string_view text_key;  // where the language configuration stands; empty = at the top
  std::span<const std::string_view> languages;
  std::array<TextLayout, 2> layouts;  // an empty root = none
  std::string_view policy;
  std::string_view image_key;  // of the placeholder's id, beside image_token_id
  std::int64_t image_id;       // the class default; -1 = by token
  std::string_view image_token;
  std::int64_t video_id = -1;  // the class default; -1 = clips are shown as pictures
};

const std::array<FamilyRow, 9>& family_rows() {
  static const TextLayout kLlavaFile{"language_model.model.", "language_model.lm_head.weight"};
  static const TextLayout kNested{"model.language_model.", "lm_head.weight"};
  static const TextLayout kTop{"model.", "lm_head.weight"};
  static const TextLayout kText{"model.text_model.", "lm_head.weight"};
  static const std::array<FamilyRow, 9> kRows = {{
      {"llava",
       "LLaVA",
       "text_config",
       kLlavaText,
       {kLlavaFile, kNested},
       "llava-1.5-hf",
       "image_token_index",
       32000,
       "<image>"},
      {"llava_next",
       "LLaVA-NeXT",
       "text_config",
       kLlavaText,
       {kLlavaFile, kNested},
       "llava-next",
       "image_token_index",
       32000,
       "<image>"},
      {"llava_onevision",
       "LLaVA-OneVision",
       "text_config",
       kQwen2Text,
       {kLlavaFile, kNested},
       "llava-onevision",
       "image_token_index",
       151646,
       "<image>",
       151647},
      {"janus",
       "Janus",
       "text_config",
       kLlama,
       {kNested, {}},
       "janus-hf",
       "image_token_id",
       100581,
       "<image_placeholder>"},
      {"multi_modality",
       "Janus",
       "language_config",
       kLlama,
       {kLlavaFile, {}},
       "janus",
       "image_token_id",
       -1,
       "<image_placeholder>"},
      {"qwen2_vl",
       "Qwen2-VL",
       "",
       kQwen2Vl,
       {kTop, kNested},
       "qwen2-vl",
       "image_token_id",
       151655,
       "<|image_pad|>",
       151656},
      {"qwen2_5_vl",
       "Qwen2.5-VL",
       "",
       kQwen25Vl,
       {kTop, kNested},
       "qwen2-vl",
       "image_token_id",
       151655,
       "<|image_pad|>",
       151656},
      {"idefics3",
       "Idefics3",
       "text_config",
       kLlama,
       {kText, {}},
       "idefics3",
       "image_token_id",
       128257,
       "<image>"},
      {"smolvlm",
       "SmolVLM",
       "text_config",
       kLlama,
       {kText, {}},
       "smolvlm",
       "image_token_id",
       49190,
       "<image>"},
  }};
  return kRows;
}

const FamilyRow* row_of(const std::string& type) {
  const auto& rows = family_rows();
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const FamilyRow& r) { return r.type == type; });
  return row == rows.end() ? nullptr : &*row;
}

std::string type_of(const Json& config) {
  const auto found = config.find("model_type");
  return found != config.end() && found->is_string() ? found->get<std::string>() : std::string{};
}

std::optional<Json> read_json(const fs::path& path) {
  if (!file_exists(path)) return std::nullopt;
  return parse_json(read_file(path, std::size_t{1} << 20), path.string());
}

std::array<double, 3> three(const JsonReader& reader, std::string_view key,
                            const std::array<double, 3>& fallback) {
  if (!reader.has(key)) return fallback;
  const Json& list = reader.raw(key);
  if (!list.is_array() || list.size() != 3) reader.fail(key, "three numbers", list.dump());
  std::array<double, 3> out{};
  for (std::size_t i = 0; i < 3; ++i) {
    if (!list[i].is_number()) reader.fail(key, "three numbers", list.dump());
    out[i] = list[i].get<double>();
    if (!(std::abs(out[i]) < 1e3)) reader.fail(key, "numbers below 1000", list.dump());
    if (key == "image_std" && out[i] <= 0) reader.fail(key, "numbers above 0", list.dump());
  }
  return out;
}

// [[height, width], ...] in pixels, as tiles of one side.
std::vector<Tiling> read_pinpoints(const JsonReader& config, std::int64_t side) {
  const Json& list = config.raw("image_grid_pinpoints");
  std::vector<Tiling> out;
  for (const Json& pair : list) {
    const bool numbers = pair.is_array() && pair.size() == 2 && pair[0].is_number_integer() &&
                         pair[1].is_number_integer();
    const std::int64_t high = numbers ? pair[0].get<std::int64_t>() : 0;
    const std::int64_t wide = numbers ? pair[1].get<std::int64_t>() : 0;
    if (high < side || wide < side || high % side != 0 || wide % side != 0 || high > kMaxSide ||
        wide > kMaxSide || high / side > kMostTiles || wide / side > kMostTiles ||
        out.size() >= 256) {
      config.fail("image_grid_pinpoints",
                  "at most 256 pairs of multiples of " + std::to_string(side), pair.dump());
    }
    out.push_back({high / side, wide / side});
  }
  if (out.empty()) config.fail("image_grid_pinpoints", "at least one pair", "none");
  return out;
}

ResampleFilter filter_of(const JsonReader& reader, ResampleFilter fallback) {
  switch (reader.integer_or("resample", -1, -1, 5)) {  // numbers of Pillow
    case 1:
      return ResampleFilter::kLanczos;
    case 2:
      return ResampleFilter::kBilinear;
    case 3:
      return ResampleFilter::kBicubic;
    case 4:
      return ResampleFilter::kBox;
    case -1:
      return fallback;
    default:
      reader.fail("resample", "1, 2, 3 or 4", "another filter");
  }
}

// The family's published policy with the sizes and constants of these files.
PreprocessPolicy read_policy(const FamilyRow& row, const JsonReader& config,
                             const VisionTower& tower, const std::optional<Json>& json,
                             const fs::path& folder) {
  static const Json kEmpty = Json::object();
  const std::string file = (folder / "preprocessor_config.json").string();
  const JsonReader own(json ? *json : kEmpty, file);
  // The authors' way, which newer files of LLaVA-1.5 may ask for.
  const bool pads = row.policy == "llava-1.5-hf" && own.boolean_or("do_pad", false);
  PreprocessPolicy policy = preprocess_policy(pads ? "llava-1.5" : row.policy);
  policy.patch = tower.vit.patch;
  policy.merge = tower.projector.cell;
  policy.mean = three(own, "image_mean", policy.mean);
  policy.std = three(own, "image_std", policy.std);
  policy.filter = filter_of(own, policy.filter);
  policy.rescale = own.number_or("rescale_factor", policy.rescale, 1e-9, 1.0);
  const JsonReader vision = sub_config(config, "vision_config");
  if (policy.mode == ResizeMode::kMultiples) {
    policy.min_pixels = own.integer_or("min_pixels", policy.min_pixels, 1, kMostPixels);
    policy.max_pixels =
        own.integer_or("max_pixels", policy.max_pixels, policy.min_pixels, kMostPixels);
    return policy;
  }
  const std::int64_t trained = tower.vit.grid * tower.vit.patch;
  const bool named = row.type == "multi_modality";
  policy.side = named ? sub_config(vision, "params").integer_or("image_size", 384, 1, kMaxSide)
                      : vision.integer_or("image_size", trained, 1, kMaxSide);
  if (policy.mode == ResizeMode::kLongestSide) {
    policy.shortest = own.integer_or("min_size", policy.shortest, 1, policy.side);
  }
  if (policy.mode == ResizeMode::kTiles) {
    const JsonReader size = sub_config(own, "size");
    policy.longest = size.integer_or("longest_edge", policy.longest, 1, kMaxSide);
    policy.split = own.boolean_or("do_image_splitting", policy.split);
  }
  if (policy.mode == ResizeMode::kPinpoints && config.has("image_grid_pinpoints")) {
    policy.pinpoints = read_pinpoints(config, policy.side);
  }
  return policy;
}

// LLaVA-OneVision cuts no tiles of pictures that share a prompt: each is padded to a square with
// the mean colour, one view, one newline behind it.
PreprocessPolicy whole_views(PreprocessPolicy policy) {
  policy.mode = ResizeMode::kPadToSquare;
  policy.newline_at_end = true;
  for (std::size_t i = 0; i < 3; ++i) {
    policy.background[i] =
        static_cast<std::uint8_t>(std::clamp(policy.mean[i] * 255.0, 0.0, 255.0));
  }
  return policy;
}

// What the family makes of a clip. Qwen's pixels of a frame, and of all together, are told in
// tokens: 128 to 768, 90 % of 128,000.
ClipPolicy read_clip_policy(const CaptionSpec& spec, const JsonReader& config,
                            const std::optional<Json>& json) {
  static const Json kEmpty = Json::object();
  const std::string file = (spec.folder / "video_preprocessor_config.json").string();
  const JsonReader own(json ? *json : kEmpty, file);
  ClipPolicy out;
  out.frame = frame_policy(spec.policy);
  if (spec.family == "llava_onevision") {
    out.halved = out.newline_at_end = true;
    return out;
  }
  if (spec.policy.mode != ResizeMode::kMultiples) return out;
  PreprocessPolicy& frame = out.frame;
  const std::int64_t token = frame.patch * frame.merge * frame.patch * frame.merge;
  const JsonReader size = sub_config(own, "size");
  frame.min_pixels = size.integer_or("shortest_edge", 128 * token, 1, kMostPixels);
  frame.min_pixels = own.integer_or("min_pixels", frame.min_pixels, 1, kMostPixels);
  const std::int64_t most = std::max(768 * token, frame.min_pixels);
  frame.max_pixels = size.integer_or("longest_edge", most, frame.min_pixels, kMostPixels);
  frame.max_pixels = own.integer_or("max_pixels", frame.max_pixels, frame.min_pixels, kMostPixels);
  out.view_frames = spec.tower.vit.frames;
  out.total_pixels = own.integer_or("max_video_tokens", 128000, 1, 1 << 24) * token * 9 / 10;
  if (spec.family == "qwen2_5_vl") {
    const JsonReader vision = sub_config(config, "vision_config");
    out.ids_per_second = vision.number_or("tokens_per_second", 4, 0, 1000);
  }
  return out;
}

FrameSampling frames_of(const std::string& family) {
  if (family == "qwen2_vl" || family == "qwen2_5_vl") return {.rule = FrameRule::kQwen};
  if (family == "llava_onevision") return {.rule = FrameRule::kUniform};
  if (family == "smolvlm") return {.rule = FrameRule::kRate, .rate = 1};
  return {.rule = FrameRule::kRate};
}

bool describes(const Json& config) {
  if (!config.is_object() || row_of(type_of(config)) == nullptr) return false;
  // A Janus that only paints has no understanding half.
  const auto vision = config.find("vision_config");
  return vision != config.end() && !vision->is_null();
}

}  // namespace

std::string caption_families() {
  std::string list;
  for (const FamilyRow& known : family_rows()) {
    list += (list.empty() ? "" : ", ") + std::string(known.type);
  }
  return list;
}

bool is_caption_model(const fs::path& folder) {
  const std::optional<Json> config = read_json(folder / "config.json");
  return config && describes(*config);
}

CaptionSpec read_caption_spec(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  auto config = std::make_shared<const Json>(
      parse_json(read_file(path, std::size_t{1} << 20), path.string()));
  return parse_caption_spec(std::move(config), read_json(folder / "preprocessor_config.json"),
                            read_json(folder / "video_preprocessor_config.json"), folder);
}

CaptionSpec parse_caption_spec(std::shared_ptr<const Json> config,
                               const std::optional<Json>& preprocessor, const fs::path& folder) {
  return parse_caption_spec(std::move(config), preprocessor, std::nullopt, folder);
}

CaptionSpec parse_caption_spec(std::shared_ptr<const Json> whole,
                               const std::optional<Json>& preprocessor,
                               const std::optional<Json>& video_preprocessor,
                               const fs::path& folder) {
  const std::string file = (folder / "config.json").string();
  const Json& config = *whole;
  const FamilyRow* row = config.is_object() ? row_of(type_of(config)) : nullptr;
  if (row == nullptr || !describes(config)) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_FAMILY",
                 .file = file,
                 .where = "model_type",
                 .expected = "a family that describes pictures: " + caption_families(),
                 .found = !config.is_object() ? "no object"
                          : row != nullptr
                              ? type_of(config) + ", which has no vision_config: it only paints"
                              : type_of(config)});
  }
  const JsonReader reader(config, file);
  CaptionSpec spec;
  spec.config = whole;
  spec.family = row->type;
  spec.folder = folder;
  spec.tower = parse_vision_tower(config, file);
  const bool nested = row->text_key.empty() ? reader.has("text_config") : true;
  const JsonReader text =
      !nested ? reader : sub_config(reader, row->text_key.empty() ? "text_config" : row->text_key);
  const LanguageConfig language = parse_language(text, row->languages);
  spec.text.model.transformer = language.model;
  spec.text.model.vocab = language.vocab;
  spec.text.model.max_positions = language.max_positions;
  spec.text.model.tied_head = reader.has("tie_word_embeddings")
                                  ? reader.boolean_or("tie_word_embeddings", false)
                                  : language.tied;
  for (const TextLayout& layout : row->layouts) {
    if (!layout.root.empty()) spec.text.layouts.push_back(layout);
  }
  if (spec.tower.projector.out_width() != language.model.width) {
    throw Error(
        {.kind = ErrorKind::kModel,
         .code = "E_JSON_VALUE",
         .file = file,
         .where = "text_config.hidden_size",
         .expected = std::to_string(spec.tower.projector.out_width()) + ", the projector's width",
         .found = std::to_string(language.model.width)});
  }
  spec.policy = read_policy(*row, reader, spec.tower, preprocessor, folder);
  if (spec.family == "llava_onevision") spec.together = whole_views(spec.policy);
  spec.clip = read_clip_policy(spec, reader, video_preprocessor);
  spec.clip_frames = frames_of(spec.family);
  spec.title = std::string(row->title) + " " + std::to_string(language.model.layers) + "x" +
               std::to_string(language.model.width);
  const std::int64_t wanted = reader.integer_or(
      "image_token_id", reader.integer_or(row->image_key, row->image_id, -1, kMaxVocab), -1,
      kMaxVocab);
  spec.image_id = static_cast<std::int32_t>(wanted);
  spec.image_token = row->image_token;
  if (row->video_id >= 0) {
    spec.video_id = static_cast<std::int32_t>(reader.integer_or(
        "video_token_id", reader.integer_or("video_token_index", row->video_id, 0, kMaxVocab), 0,
        kMaxVocab));
  }
  if (spec.policy.mode == ResizeMode::kPinpoints) spec.newline_name = "image_newline";
  return spec;
}

}  // namespace tessera
