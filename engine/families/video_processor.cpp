// Keys of video processors, class by class of the reference.
#include "engine/families/video_processor.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "engine/families/language.h"
#include "engine/families/processor_keys.h"

namespace tessera {

namespace {

// Pixels of a frame as qwen-vl-utils resizes it before the processor does: 128 to 768 tokens of
// the published models.
constexpr std::int64_t kUsualMinPixels = 128 * 28 * 28, kUsualMaxPixels = 768 * 28 * 28;
constexpr std::array<double, 3> kMiddles = {0.5, 0.5, 0.5};

// What the files say of frames: a video processor's keys, or an image processor's in their place.
struct VideoKeys {
  JsonReader own;
  bool of_images = false;
};

void read_stretched(const VideoKeys& keys, const DescribeSpec&, VideoPolicy& out) {
  const JsonReader& own = keys.own;
  constexpr std::int64_t kClassSide = 384;
  const SizeKeys size = read_size(own, "size", false, {.height = kClassSide, .width = kClassSide});
  if (size.shortest > 0) {
    own.fail("size", "height and width, as the image encoder takes squares",
             own.raw("size").dump());
  }
  require_side(own, "size", size.height, out.frame.side);
  require_side(own, "size", size.width, out.frame.side);
  if (!own.boolean_or("do_center_crop", false)) return;
  const SizeKeys cut = read_size(own, "crop_size", true, {});
  require_side(own, "crop_size", cut.height, out.frame.side);
  require_side(own, "crop_size", cut.width, out.frame.side);
}

// The older names win.
void read_pixel_bounds(const VideoKeys& keys, PreprocessPolicy& frame) {
  const JsonReader& own = keys.own;
  const JsonReader size = sub_config(own, "size");
  for (const auto& [edge, older] :
       {std::pair{"shortest_edge", "min_pixels"}, std::pair{"longest_edge", "max_pixels"}}) {
    if (own.has("size") && !size.has(edge) && !own.has(older)) {
      own.fail("size", std::string(edge) + " in it, or " + older, own.raw("size").dump());
    }
  }
  std::int64_t low = size.integer_or("shortest_edge", kUsualMinPixels, 1, kMaxPixels);
  low = own.integer_or("min_pixels", low, 1, kMaxPixels);
  std::int64_t high = size.integer_or("longest_edge", kUsualMaxPixels, 1, kMaxPixels);
  high = own.integer_or("max_pixels", high, 1, kMaxPixels);
  if (keys.of_images) {  // of bounds for images, what qwen-vl-utils leaves
    high = std::max(std::min(high, kUsualMaxPixels), low);
    low = std::min(std::max(low, kUsualMinPixels), high);
  }
  if (high < low) {
    own.fail(own.has("max_pixels") ? "max_pixels" : "size",
             "at least " + std::to_string(low) + ", the fewest pixels", std::to_string(high));
  }
  frame.min_pixels = low;
  frame.max_pixels = high;
}

void read_multiples(const VideoKeys& keys, const DescribeSpec& spec, VideoPolicy& out) {
  const JsonReader& own = keys.own;
  PreprocessPolicy& frame = out.frame;
  read_pixel_bounds(keys, frame);
  require_equal(own, "patch_size", 14, frame.patch);
  require_equal(own, "temporal_patch_size", 2, spec.tower.vit.frames);
  require_equal(own, "merge_size", 2, frame.merge);
  const std::int64_t token = frame.patch * frame.merge * frame.patch * frame.merge;
  out.total_pixels = own.integer_or("max_video_tokens", 128000, 1, 1 << 24) * token * 9 / 10;
  if (!own.boolean_or("cap_pixels_per_frame", true)) out.total_pixels = 0;
}

// Frames become squares of max_image_size after they were resized to `size`.
void read_one_tile(const VideoKeys& keys, const DescribeSpec& spec, VideoPolicy& out) {
  const JsonReader& own = keys.own;
  constexpr std::int64_t kClassSide = 364;
  PreprocessPolicy& frame = out.frame;
  const std::int64_t side =
      sub_config(own, "max_image_size").integer_or("longest_edge", kClassSide, 1, kMaxSide);
  require_side(own, "max_image_size", side, spec.policy.side);
  frame.longest = 4 * kClassSide;
  frame.resize_height = frame.resize_width = 0;
  const JsonReader sampling = sub_config(own, "video_sampling");
  const bool older = !own.has("size") && sampling.has("video_size");
  if (!older && !own.has("size")) return;
  const JsonReader size = older ? sampling.object("video_size") : own.object("size");
  if (size.has("longest_edge")) {
    frame.longest = size.integer("longest_edge", 1, kMaxSide);
    return;
  }
  frame.longest = 0;
  frame.resize_height = size.integer("height", 1, kMaxSide);
  frame.resize_width = size.integer("width", 1, kMaxSide);
}

// One row a class: the model_types that have it, and what absent keys mean.
struct VideoClass {
  std::string_view name;
  std::array<std::string_view, 2> types;
  LevelDefaults levels;
  void (*read)(const VideoKeys& keys, const DescribeSpec& spec, VideoPolicy& out);
};
constexpr VideoClass kVideoClasses[] = {
    {"LlavaOnevisionVideoProcessor", {"llava_onevision"}, {}, read_stretched},
    {"Qwen2VLVideoProcessor", {"qwen2_vl", "qwen2_5_vl"}, {}, read_multiples},
    {"SmolVLMVideoProcessor",
     {"smolvlm"},
     {ResampleFilter::kLanczos, kMiddles, kMiddles},
     read_one_tile},
};

// Null: the reference shows such models no videos, and here frames are prepared as images are.
const VideoClass* class_of(std::string_view type) {
  const auto found =
      std::find_if(std::begin(kVideoClasses), std::end(kVideoClasses), [&](const auto& one) {
        return std::find(one.types.begin(), one.types.end(), type) != one.types.end();
      });
  return found == std::end(kVideoClasses) ? nullptr : &*found;
}

// Within processor_config.json, else of video_preprocessor_config.json, else of
// preprocessor_config.json: the first that there is.
VideoKeys video_keys(FolderFiles& files) {
  constexpr std::string_view kNested = "video_processor";
  const JsonReader processor = files.reader(FolderFile::kProcessor);
  if (processor.has(kNested) || files.has(FolderFile::kVideoPreprocessor)) {
    return {processor_keys(files, kNested, FolderFile::kVideoPreprocessor)};
  }
  if (!files.has(FolderFile::kPreprocessor)) {
    processor.fail(kNested, "it, or " + files.path_of(FolderFile::kVideoPreprocessor), "neither");
  }
  return {files.reader(FolderFile::kPreprocessor), true};
}

void read_frames(const VideoClass& kind, const VideoKeys& keys, const DescribeSpec& spec,
                 VideoPolicy& out) {
  const JsonReader& own = keys.own;
  constexpr std::string_view kType = "video_processor_type";
  if (const std::string name = own.string_or(kType, ""); !name.empty() && name != kind.name) {
    own.fail(kType, std::string(kind.name) + ", as " + spec.type + " has", name);
  }
  require_resize(own);
  require_cut_size(own, 0);
  read_levels(own, kind.levels, out.frame);
  kind.read(keys, spec, out);
}

}  // namespace

VideoPolicy read_video_policy(const DescribeSpec& spec, FolderFiles& files,
                              std::optional<ErrorInfo>& refusal) {
  VideoPolicy out;
  out.frame = frame_policy(spec.policy);
  const VideoClass* kind = class_of(spec.type);
  if (kind == nullptr) return out;
  if (spec.policy.mode == ResizeMode::kMultiples) {
    out.view_frames = spec.tower.vit.frames;
    const std::int64_t side = out.frame.patch * out.frame.merge;
    out.frame.min_pixels = kUsualMinPixels;
    out.frame.max_pixels = kUsualMaxPixels;
    out.total_pixels = 128000 * side * side * 9 / 10;
  }
  if (!files.has_processors()) return out;
  const VideoKeys keys = video_keys(files);
  try {
    read_frames(*kind, keys, spec, out);
  } catch (const Error& error) {
    refusal = error.info();
  }
  return out;
}

}  // namespace tessera
