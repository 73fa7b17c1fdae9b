// Keys of image processors, class by class of the reference.
#include "engine/families/image_processor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "engine/families/language.h"
#include "engine/families/processor_keys.h"

namespace tessera {

namespace {

constexpr std::int64_t kMaxTiles = 64;  // of a pinpoint, a side

// What absent keys mean to one class. `crop` 0: the class cuts nothing.
struct ProcessorClass {
  std::string_view name;
  ResizeMode mode;
  std::int64_t shortest = 0, height = 0, width = 0;  // of `size`: an edge, or both sides
  std::int64_t crop = 0;
  std::int64_t unit = 0;         // pixels a side of a tile of its default pinpoints
  bool pads = false;             // do_pad pads to a square first
  std::int64_t min_pixels = 56 * 56, max_pixels = 28 * 28 * 1280;  // kMultiples
  std::string_view policy = {};  // name, where it is not the family's own
  LevelDefaults levels = {};
};

constexpr std::array<double, 3> kHalf = {0.5, 0.5, 0.5};
constexpr LevelDefaults kTileLevels = {ResampleFilter::kLanczos, kHalf, kHalf};
constexpr ProcessorClass kClasses[] = {
    {.name = "CLIPImageProcessor", .mode = ResizeMode::kShortestSide, .shortest = 224, .crop = 224},
    {.name = "LlavaImageProcessor",
     .mode = ResizeMode::kShortestSide,
     .shortest = 224,
     .crop = 224,
     .pads = true},
    {.name = "SiglipImageProcessor",
     .mode = ResizeMode::kStretch,
     .height = 224,
     .width = 224,
     .policy = "siglip",
     .levels = {.mean = kHalf, .std = kHalf}},
    {.name = "LlavaNextImageProcessor",
     .mode = ResizeMode::kPinpoints,
     .shortest = 224,
     .crop = 224,
     .unit = 336},
    {.name = "LlavaOnevisionImageProcessor",
     .mode = ResizeMode::kPinpoints,
     .height = 384,
     .width = 384,
     .unit = 384},
    {.name = "JanusImageProcessor", .mode = ResizeMode::kLongestSide, .height = 384, .width = 384},
    {.name = "VLMImageProcessor", .mode = ResizeMode::kLongestSide},
    {.name = "ChameleonImageProcessor",
     .mode = ResizeMode::kShortestSide,
     .shortest = 512,
     .crop = 512,
     .levels = {ResampleFilter::kLanczos, {1, 1, 1}, {1, 1, 1}, 0.0078}},
    {.name = "Emu3ImageProcessor",
     .mode = ResizeMode::kMultiples,
     .min_pixels = 512 * 512,
     .max_pixels = 1024 * 1024},
    {.name = "Emu3VisionVQImageProcessor",
     .mode = ResizeMode::kMultiples,
     .levels = {.mean = kHalf, .std = kHalf}},
    {.name = "Qwen2VLImageProcessor", .mode = ResizeMode::kMultiples},
    {.name = "Idefics3ImageProcessor", .mode = ResizeMode::kTiles, .levels = kTileLevels},
    {.name = "SmolVLMImageProcessor", .mode = ResizeMode::kTiles, .levels = kTileLevels},
};

std::string joined(std::span<const std::string_view> names) {
  std::string list;
  for (const std::string_view name : names) list += (list.empty() ? "" : ", ") + std::string(name);
  return list;
}

// image_processor_type, feature_extractor_type of older files, or the family's own class.
const ProcessorClass& class_of(std::span<const std::string_view> classes, const JsonReader& own) {
  std::string key = "image_processor_type";
  std::string name = own.string_or(key, "");
  if (name.empty() && own.has("feature_extractor_type")) {
    key = "feature_extractor_type";
    name = own.string(key);
    if (const std::size_t at = name.find("FeatureExtractor"); at != std::string::npos) {
      name.replace(at, std::string_view("FeatureExtractor").size(), "ImageProcessor");
    }
  }
  if (name.empty()) name = classes.front();
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  const auto found = std::find_if(std::begin(kClasses), std::end(kClasses),
                                  [&](const ProcessorClass& one) { return one.name == name; });
  if (found == std::end(kClasses) ||
      std::find(classes.begin(), classes.end(), name) == classes.end()) {
    own.fail(key, "one of " + joined(classes), name);
  }
  return *found;
}

// [[height, width], ...] in pixels, as tiles of one side.
std::vector<Tiling> read_pinpoints(const JsonReader& keys, std::int64_t side) {
  const Json& list = keys.raw("image_grid_pinpoints");
  std::vector<Tiling> out;
  for (const Json& pair : list) {
    const bool numbers = pair.is_array() && pair.size() == 2 && pair[0].is_number_integer() &&
                         pair[1].is_number_integer();
    const std::int64_t high = numbers ? pair[0].get<std::int64_t>() : 0;
    const std::int64_t wide = numbers ? pair[1].get<std::int64_t>() : 0;
    if (high < side || wide < side || high % side != 0 || wide % side != 0 || high > kMaxSide ||
        wide > kMaxSide || high / side > kMaxTiles || wide / side > kMaxTiles ||
        out.size() >= 256) {
      keys.fail("image_grid_pinpoints", "at most 256 pairs of multiples of " + std::to_string(side),
                pair.dump());
    }
    out.push_back({high / side, wide / side});
  }
  if (out.empty()) keys.fail("image_grid_pinpoints", "at least one pair", "none");
  return out;
}

// CLIP's steps: pad to a square (LLaVA), resize, cut the centre.
void read_single_view(const ProcessorClass& kind, const JsonReader& own, PreprocessPolicy& policy) {
  policy.mode = kind.mode;
  if (!kind.policy.empty()) policy.name = kind.policy;
  if (kind.pads && own.boolean_or("do_pad", false)) {
    policy.mode = ResizeMode::kPadToSquare;
    policy.name = "llava-1.5";
  }
  require_resize(own);
  const SizeKeys size = read_size(own, "size", false, {kind.shortest, kind.height, kind.width});
  const SizeKeys cut = read_size(own, "crop_size", true, {0, kind.crop, kind.crop});
  const bool crops = own.boolean_or("do_center_crop", kind.crop > 0);
  if (crops && cut.height != cut.width) {
    own.fail("crop_size", "a square", own.raw("crop_size").dump());
  }
  if (size.shortest == 0 && policy.mode == ResizeMode::kShortestSide) {
    policy.mode = ResizeMode::kStretch;
  }
  // A square stays a square.
  if (size.shortest > 0 && policy.mode == ResizeMode::kShortestSide && !crops) {
    own.fail("do_center_crop", "true, as the image encoder takes squares", "false");
  }
  policy.resize_height = size.shortest > 0 ? size.shortest : size.height;
  policy.resize_width = size.shortest > 0 ? size.shortest : size.width;
  if (crops) {
    require_side(own, "crop_size", cut.height, policy.side);
    return;
  }
  require_side(own, "size", policy.resize_height, policy.side);
  require_side(own, "size", policy.resize_width, policy.side);
}

void read_anyres(const ProcessorClass& kind, const JsonReader& own, const JsonReader& config,
                 PreprocessPolicy& policy) {
  const SizeKeys size = read_size(own, "size", false, {kind.shortest, kind.height, kind.width});
  const std::int64_t side = size.shortest > 0 ? size.shortest : size.height;
  require_side(own, "size", side, policy.side);
  require_side(own, "size", size.shortest > 0 ? side : size.width, policy.side);
  if (kind.crop > 0 || own.has("crop_size")) {
    const SizeKeys cut = read_size(own, "crop_size", true, {0, kind.crop, kind.crop});
    require_side(own, "crop_size", cut.height, policy.side);
    require_side(own, "crop_size", cut.width, policy.side);
  }
  own.boolean_or("do_center_crop", true);  // views have the size of the cut already
  own.boolean_or("do_resize", true);       // and that of the resize
  const bool named = own.has("image_grid_pinpoints");
  // The defaults of processor and model are the same list, in pixels.
  const bool both = named && config.has("image_grid_pinpoints");
  for (Tiling& grid : policy.pinpoints) {
    if (both) break;
    if (kind.unit % policy.side != 0) {
      (named ? config : own)
          .fail("image_grid_pinpoints", "pairs of multiples of " + std::to_string(policy.side),
                "none, which means those of its class");
    }
    grid.rows *= kind.unit / policy.side;
    grid.cols *= kind.unit / policy.side;
  }
  const std::vector<Tiling> published = policy.pinpoints;
  if (config.has("image_grid_pinpoints")) policy.pinpoints = read_pinpoints(config, policy.side);
  if ((named ? read_pinpoints(own, policy.side) : published) != policy.pinpoints) {
    own.fail("image_grid_pinpoints", "those of config.json, in their order",
             named ? "others" : "none, which means those of its class");
  }
}

void read_longest_side(const ProcessorClass& kind, const JsonReader& own,
                       PreprocessPolicy& policy) {
  require_resize(own);
  policy.shortest = own.integer_or("min_size", 14, 1, policy.side);
  if (!own.boolean_or("do_pad", true)) {
    own.fail("do_pad", "true, as the image encoder takes squares", "false");
  }
  if (kind.height == 0) {  // the authors' files
    require_side(own, "image_size", own.integer_or("image_size", policy.side, 1, kMaxSide),
                 policy.side);
    return;
  }
  const SizeKeys size = read_size(own, "size", true, {0, kind.height, kind.width});
  require_side(own, "size", size.shortest > 0 ? size.shortest : size.height, policy.side);
  require_side(own, "size", size.shortest > 0 ? size.shortest : size.width, policy.side);
}

void read_multiples(const ProcessorClass& kind, const JsonReader& own, const VisionTower& tower,
                    PreprocessPolicy& policy) {
  require_resize(own);
  policy.min_pixels = kind.min_pixels;
  policy.max_pixels = kind.max_pixels;
  if (tower.codes) {  // its class has no `size`
    require_equal(own, "spatial_factor", 8, tower.vit.patch);
    policy.min_pixels = own.integer_or("min_pixels", policy.min_pixels, 1, kMaxPixels);
    policy.max_pixels = own.integer_or("max_pixels", policy.max_pixels, 1, kMaxPixels);
    return;
  }
  const JsonReader size = sub_config(own, "size");
  for (const auto& [edge, older] :
       {std::pair{"shortest_edge", "min_pixels"}, std::pair{"longest_edge", "max_pixels"}}) {
    if (own.has("size") && !size.has(edge) && !own.has(older)) {
      own.fail("size", std::string(edge) + " in it, or " + older, own.raw("size").dump());
    }
  }
  policy.min_pixels = size.integer_or("shortest_edge", policy.min_pixels, 1, kMaxPixels);
  policy.max_pixels = size.integer_or("longest_edge", policy.max_pixels, 1, kMaxPixels);
  // The older names win.
  policy.min_pixels = own.integer_or("min_pixels", policy.min_pixels, 1, kMaxPixels);
  policy.max_pixels = own.integer_or("max_pixels", policy.max_pixels, 1, kMaxPixels);
  require_equal(own, "patch_size", 14, tower.vit.patch);
  require_equal(own, "temporal_patch_size", 2, tower.vit.frames);
  require_equal(own, "merge_size", 2, tower.projector.cell);
}

void read_tiles(const JsonReader& own, PreprocessPolicy& policy) {
  constexpr std::int64_t kClassSide = 364;
  policy.side =
      sub_config(own, "max_image_size").integer_or("longest_edge", kClassSide, 1, kMaxSide);
  policy.split = own.boolean_or("do_image_splitting", true);
  policy.longest = 4 * kClassSide;
  if (own.has("size")) {
    const JsonReader size = own.object("size");
    if (size.has("longest_edge")) {
      policy.longest = size.integer("longest_edge", 1, kMaxSide);
    } else {
      policy.longest = 0;
      policy.resize_height = size.integer("height", 1, kMaxSide);
      policy.resize_width = size.integer("width", 1, kMaxSide);
    }
  }
  if (!own.boolean_or("do_resize", true))
    policy.longest = policy.resize_height = policy.resize_width = 0;
  const std::int64_t cell = policy.patch * policy.merge;
  if (policy.side % cell != 0) {
    own.fail("max_image_size", "a multiple of " + std::to_string(cell) + " pixels",
             std::to_string(policy.side));
  }
}

// The reference stops where a folder has none. A model that names its encoder takes the encoder's,
// if that has a folder.
void require_processor(const Describer& row, const VisionTower& tower, FolderFiles& files) {
  if (!files.from_folder() || row.processors.empty()) return;
  if (!row.key.empty() && tower.folder.empty() && !tower.codes) return;
  refuse_model("E_PROCESSOR_MISSING", files.path_of(FolderFile::kPreprocessor), "",
               "this file, or " + files.path_of(FolderFile::kProcessor) + " with image_processor",
               "neither",
               "copy it from where the weights come from: it says how images are prepared");
}

}  // namespace

JsonReader image_processor_keys(FolderFiles& files) {
  return processor_keys(files, "image_processor", FolderFile::kPreprocessor);
}

bool has_image_processor(FolderFiles& files) {
  return files.has(FolderFile::kPreprocessor) ||
         files.reader(FolderFile::kProcessor).has("image_processor");
}

PixelLevels read_pixel_levels(std::span<const std::string_view> classes, FolderFiles& files) {
  const JsonReader own = image_processor_keys(files);
  const ProcessorClass& kind = class_of(classes, own);
  refuse_null_steps(own);
  PixelLevels out;
  out.mean = three(own, "image_mean", kind.levels.mean);
  out.std = three(own, "image_std", kind.levels.std);
  out.scale = 1.0 / own.number_or("rescale_factor", 1.0 / 255.0, 1e-9, 1.0);
  if (!own.boolean_or("do_normalize", true)) {
    out.mean = {0, 0, 0};
    out.std = {1, 1, 1};
  }
  if (!own.boolean_or("do_rescale", true)) {
    own.fail("do_rescale", "true, as an image is made of levels", "false");
  }
  return out;
}

PreprocessPolicy read_image_policy(const Describer& row, const JsonReader& config,
                                   const VisionTower& tower, FolderFiles& files) {
  PreprocessPolicy policy = row.policy();
  policy.patch = tower.vit.patch;
  policy.merge = tower.projector.cell;
  if (policy.mode != ResizeMode::kMultiples && policy.mode != ResizeMode::kNearestAspect) {
    const JsonReader vision = sub_config(config, "vision_config");
    const JsonReader sizes = row.size_key.empty() ? vision : sub_config(vision, row.size_key);
    policy.side = sizes.integer_or("image_size", tower.vit.grid * tower.vit.patch, 1, kMaxSide);
  }
  if (row.processors.empty() || !has_image_processor(files)) {
    require_processor(row, tower, files);
    if (policy.mode == ResizeMode::kPinpoints && config.has("image_grid_pinpoints")) {
      policy.pinpoints = read_pinpoints(config, policy.side);
    }
    return policy;
  }
  const JsonReader own = image_processor_keys(files);
  const ProcessorClass& kind = class_of(row.processors, own);
  require_cut_size(own, kind.crop);
  switch (kind.mode) {
    case ResizeMode::kStretch:
    case ResizeMode::kShortestSide:
    case ResizeMode::kPadToSquare:
      read_single_view(kind, own, policy);
      break;
    case ResizeMode::kPinpoints:
      read_anyres(kind, own, config, policy);
      break;
    case ResizeMode::kLongestSide:
      read_longest_side(kind, own, policy);
      break;
    case ResizeMode::kMultiples:
      read_multiples(kind, own, tower, policy);
      break;
    case ResizeMode::kNearestAspect:
      break;  // of no published class
    case ResizeMode::kTiles:
      read_tiles(own, policy);
      break;
  }
  read_levels(own, kind.levels, policy);
  return policy;
}

namespace {

// Processor classes of the reference and the model_types they prepare alike: those of tokens and
// tiles differ between families. Names that are none of these are of code that is never run.
struct ProcessorName {
  std::string_view name;
  std::array<std::string_view, 2> types;
};
constexpr ProcessorName kProcessorNames[] = {
    {"LlavaProcessor", {"llava"}},
    {"LlavaNextProcessor", {"llava_next"}},
    {"LlavaOnevisionProcessor", {"llava_onevision"}},
    {"Qwen2VLProcessor", {"qwen2_vl", "qwen2_5_vl"}},
    {"Qwen2_5_VLProcessor", {"qwen2_vl", "qwen2_5_vl"}},
    {"Idefics3Processor", {"idefics3"}},
    {"SmolVLMProcessor", {"smolvlm"}},
    {"JanusProcessor", {"janus", "multi_modality"}},
    {"Emu3Processor", {"emu3"}},
    {"ChameleonProcessor", {"chameleon"}},
};

// The first file that names a class decides, as in the reference.
void check_class(const DescribeSpec& spec, FolderFiles& files) {
  constexpr std::string_view kKey = "processor_class";
  for (const FolderFile file : {FolderFile::kProcessor, FolderFile::kPreprocessor,
                                FolderFile::kVideoPreprocessor, FolderFile::kTokenizerConfig}) {
    const JsonReader reader = files.reader(file);
    const std::string name = reader.string_or(kKey, "");
    if (name.empty()) continue;
    std::string wanted;
    bool known = false;
    for (const ProcessorName& row : kProcessorNames) {
      if (row.name == name) known = true;
      if (std::find(row.types.begin(), row.types.end(), spec.type) == row.types.end()) continue;
      if (row.name == name) return;
      wanted += (wanted.empty() ? "" : " or ") + std::string(row.name);
    }
    if (known && !wanted.empty()) reader.fail(kKey, wanted + ", as " + spec.type + " has", name);
    return;
  }
}

// A token by its text, which may be an object with its flags.
void check_token(const JsonReader& reader, std::string_view key, const std::string& wanted) {
  if (!reader.has(key)) return;
  const Json& value = reader.raw(key);
  const bool object = value.is_object() && value.contains("content");
  const std::string found = object ? reader.object(key).string("content") : reader.string(key);
  if (found != wanted) reader.fail(key, "\"" + wanted + "\", as the model has", found);
}

// The reference's processors look for the tokenizer's image_token in prompts.
void check_image_token(const DescribeSpec& spec, FolderFiles& files) {
  const JsonReader tokenizer = files.reader(FolderFile::kTokenizerConfig);
  check_token(tokenizer, "image_token", spec.image_token);
  constexpr std::string_view kExtra = "extra_special_tokens";
  if (!tokenizer.has(kExtra) || !tokenizer.raw(kExtra).is_object()) return;
  check_token(tokenizer.object(kExtra), "image_token", spec.image_token);
}

void check_fixed(const FixedToken& fixed, FolderFiles& files) {
  const JsonReader tokenizer = files.reader(FolderFile::kTokenizerConfig);
  check_token(tokenizer, fixed.role, std::string(fixed.token));
  constexpr std::string_view kExtra = "extra_special_tokens";
  if (!tokenizer.has(kExtra) || !tokenizer.raw(kExtra).is_object()) return;
  check_token(tokenizer.object(kExtra), fixed.role, std::string(fixed.token));
}

}  // namespace

void check_processor(const Describer& row, const DescribeSpec& spec, const JsonReader& config,
                     FolderFiles& files) {
  const JsonReader processor = files.reader(FolderFile::kProcessor);
  const VitSpec& vit = spec.tower.vit;
  const auto number = [&](std::string_view key, std::int64_t wanted) {
    if (!processor.has(key)) return;
    const std::int64_t found = processor.integer(key, 0, std::int64_t{1} << 24);
    if (found != wanted) {
      processor.fail(key, std::to_string(wanted) + ", as the image encoder of config.json has",
                     std::to_string(found));
    }
  };
  const auto text = [&](std::string_view key, const std::string& wanted) {
    check_token(processor, key, wanted);
  };
  check_class(spec, files);
  if (spec.image_id != kNoToken) check_image_token(spec, files);
  for (const FixedToken& fixed : row.fixed_tokens) check_fixed(fixed, files);
  number("patch_size", vit.patch);
  number("num_additional_image_tokens", vit.class_token ? 1 : 0);
  text("vision_feature_select_strategy",
       vit.class_token && !vit.class_token_feature ? "default" : "full");
  text("vision_aspect_ratio", config.string_or("vision_aspect_ratio", "anyres_max_9"));
  text("image_token", spec.image_token);
  const std::int64_t cell = spec.policy.patch * spec.policy.merge;
  const std::int64_t tokens = (spec.policy.side / cell) * (spec.policy.side / cell);
  if (!row.count_key.empty() && files.from_folder()) {
    require_equal(processor, row.count_key, row.default_count, tokens);
  }
  number("num_image_tokens", tokens);
  number("image_seq_len", tokens);
}

}  // namespace tessera
