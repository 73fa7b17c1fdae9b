// Reads how a model describes images: what all families share, by the rows of their files.
#include "engine/families/describe.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "engine/families/family.h"
#include "engine/families/language.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxSide = 16384;  // pixels
constexpr std::int64_t kMaxPixels = std::int64_t{1} << 26;
constexpr std::int64_t kMaxTiles = 64;  // of a pinpoint, a side

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
        wide > kMaxSide || high / side > kMaxTiles || wide / side > kMaxTiles ||
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
PreprocessPolicy read_policy(const Describer& row, const JsonReader& config,
                             const VisionTower& tower, const std::optional<Json>& json,
                             const fs::path& folder) {
  static const Json kEmpty = Json::object();
  const std::string file = (folder / "preprocessor_config.json").string();
  const JsonReader own(json ? *json : kEmpty, file);
  PreprocessPolicy policy = row.policy(own);
  policy.patch = tower.vit.patch;
  policy.merge = tower.projector.cell;
  policy.mean = three(own, "image_mean", policy.mean);
  policy.std = three(own, "image_std", policy.std);
  policy.filter = filter_of(own, policy.filter);
  policy.rescale = own.number_or("rescale_factor", policy.rescale, 1e-9, 1.0);
  const JsonReader vision = sub_config(config, "vision_config");
  if (policy.mode == ResizeMode::kMultiples) {
    policy.min_pixels = own.integer_or("min_pixels", policy.min_pixels, 1, kMaxPixels);
    policy.max_pixels =
        own.integer_or("max_pixels", policy.max_pixels, policy.min_pixels, kMaxPixels);
    return policy;
  }
  const std::int64_t trained = tower.vit.grid * tower.vit.patch;
  const JsonReader sizes = row.size_key.empty() ? vision : sub_config(vision, row.size_key);
  policy.side = sizes.integer_or("image_size", trained, 1, kMaxSide);
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

// What the family makes of a video. Qwen's pixels of a frame, and of all together, are counted in
// tokens: 128 to 768, 90 % of 128,000.
VideoPolicy read_video_policy(const DescribeSpec& spec, const std::optional<Json>& json,
                            const fs::path& folder) {
  static const Json kEmpty = Json::object();
  const std::string file = (folder / "video_preprocessor_config.json").string();
  const JsonReader own(json ? *json : kEmpty, file);
  VideoPolicy out;
  out.frame = frame_policy(spec.policy);
  if (spec.policy.mode != ResizeMode::kMultiples) return out;
  PreprocessPolicy& frame = out.frame;
  const std::int64_t token = frame.patch * frame.merge * frame.patch * frame.merge;
  const JsonReader size = sub_config(own, "size");
  frame.min_pixels = size.integer_or("shortest_edge", 128 * token, 1, kMaxPixels);
  frame.min_pixels = own.integer_or("min_pixels", frame.min_pixels, 1, kMaxPixels);
  const std::int64_t most = std::max(768 * token, frame.min_pixels);
  frame.max_pixels = size.integer_or("longest_edge", most, frame.min_pixels, kMaxPixels);
  frame.max_pixels = own.integer_or("max_pixels", frame.max_pixels, frame.min_pixels, kMaxPixels);
  out.view_frames = spec.tower.vit.frames;
  out.total_pixels = own.integer_or("max_video_tokens", 128000, 1, 1 << 24) * token * 9 / 10;
  return out;
}

// The text that the language model writes.
LanguageConfig read_text(const Describer& row, const JsonReader& config, ModelSpec& spec) {
  const bool nested = !row.text_key.empty() || config.has("text_config");
  const std::string_view key = row.text_key.empty() ? "text_config" : row.text_key;
  const LanguageConfig language =
      parse_language(nested ? sub_config(config, key) : config, row.languages);
  StreamModelConfig& model = spec.model;
  const std::int64_t places = model.transformer.rope.positions;
  model.transformer = language.model;
  model.vocab = language.vocab;
  model.max_positions = language.max_positions;
  model.tied_head = config.has("tie_word_embeddings")
                        ? config.boolean_or("tie_word_embeddings", false)
                        : language.tied;
  model.transformer.rope.positions =
      model.codes > 0 ? std::max(places, text_places(model)) : text_places(model);
  spec.layouts.clear();
  for (const LayoutNames& names : row.layouts) {
    spec.layouts.push_back({std::string(names.root), std::string(names.head)});
  }
  return language;
}

std::int32_t read_id(const JsonReader& config, std::string_view key, std::string_view other,
                     std::int64_t fallback, std::int64_t low) {
  const std::int64_t second = config.integer_or(other, fallback, low, kMaxVocab);
  return narrow<std::int32_t>(config.integer_or(key, second, low, kMaxVocab));
}

}  // namespace

std::int64_t text_places(const StreamModelConfig& config) {
  constexpr std::int64_t kMaxPlaces = 16384;
  return std::min(config.max_positions, kMaxPlaces);
}

void read_describing(const Describer& row, std::shared_ptr<const Json> config,
                     const std::optional<Json>& preprocessor,
                     const std::optional<Json>& video_preprocessor, const fs::path& folder,
                     ModelSpec& spec) {
  const std::string file = (folder / "config.json").string();
  const JsonReader reader(*config, file);
  DescribeSpec& out = spec.describe.emplace();
  out.config = std::move(config);
  out.type = row.type;
  out.tower = row.tower(reader);
  finish_tower(out.tower, out.type, file);
  const LanguageConfig language = read_text(row, reader, spec);
  if (out.tower.projector.out_width() != language.model.width) {
    throw Error(
        {.kind = ErrorKind::kModel,
         .code = "E_JSON_VALUE",
         .file = file,
         .where = "text_config.hidden_size",
         .expected = std::to_string(out.tower.projector.out_width()) + ", the projector's width",
         .found = std::to_string(language.model.width)});
  }
  out.policy = read_policy(row, reader, out.tower, preprocessor, folder);
  out.video = read_video_policy(out, video_preprocessor, folder);
  out.video_frames = row.video_frames;
  out.chats.assign(row.chats.begin(), row.chats.end());
  if (row.finish != nullptr) row.finish(reader, out);
  out.title = std::string(row.title) + " " + size_label(language.model);
  out.image_id = read_id(reader, "image_token_id", row.image_key, row.image_id, -1);
  out.image_token = row.image_token;
  if (row.video_id >= 0) {
    out.video_id = read_id(reader, "video_token_id", "video_token_index", row.video_id, 0);
  }
  if (out.policy.mode == ResizeMode::kPinpoints) out.newline_name = "image_newline";
}

}  // namespace tessera
