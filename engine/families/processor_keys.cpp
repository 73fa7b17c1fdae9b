#include "engine/families/processor_keys.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"

namespace tessera {

namespace {

// Where both files name a key, they must agree: the reference would follow one in silence.
void require_agreement(const JsonReader& nested, const Json& inner, FolderFiles& files,
                       FolderFile other_file) {
  const JsonReader other = files.reader(other_file);
  static constexpr std::string_view kNames[] = {"image_processor_type", "video_processor_type",
                                                "processor_class", "feature_extractor_type"};
  for (const auto& [key, value] : inner.items()) {
    if (std::find(std::begin(kNames), std::end(kNames), key) != std::end(kNames)) continue;
    if (!other.has(key) || value.is_null() || other.raw(key) == value) continue;
    nested.fail(key, "the same as in " + other.file(), value.dump());
  }
}

}  // namespace

JsonReader processor_keys(FolderFiles& files, std::string_view nested, FolderFile own) {
  const JsonReader processor = files.reader(FolderFile::kProcessor);
  if (!processor.has(nested)) return files.reader(own);
  const JsonReader inside = processor.object(nested);
  if (files.has(own)) require_agreement(inside, processor.raw(nested), files, own);
  return inside;
}

std::array<double, 3> three(const JsonReader& reader, std::string_view key,
                            const std::array<double, 3>& fallback) {
  if (!reader.has(key)) return fallback;
  const Json& list = reader.raw(key);
  const bool one = list.is_number();
  if (!one && (!list.is_array() || list.size() != 3))
    reader.fail(key, "three numbers", list.dump());
  std::array<double, 3> out{};
  for (std::size_t i = 0; i < 3; ++i) {
    const Json& number = one ? list : list[i];
    if (!number.is_number()) reader.fail(key, "three numbers", list.dump());
    out[i] = number.get<double>();
    if (!(std::abs(out[i]) < 1e3)) reader.fail(key, "numbers below 1000", list.dump());
    if (key == "image_std" && out[i] <= 0) reader.fail(key, "numbers above 0", list.dump());
  }
  return out;
}

ResampleFilter filter_of(const JsonReader& reader, ResampleFilter fallback) {
  const std::int64_t number = reader.integer_or("resample", -1, -1, 5);  // of Pillow
  switch (number) {
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
      reader.fail("resample", "1, 2, 3 or 4 (Lanczos, bilinear, bicubic, box)",
                  std::to_string(number));
  }
}

Rgb colour_of(const std::array<double, 3>& mean) {
  Rgb out{};
  for (std::size_t i = 0; i < 3; ++i) {
    out[i] = truncate<std::uint8_t>(std::clamp(mean[i] * 255.0, 0.0, 255.0));
  }
  return out;
}

void refuse_null_steps(const JsonReader& own) {
  for (const std::string_view key : {"do_rescale", "do_normalize", "do_resize"}) {
    if (own.is_null(key)) own.fail(key, "true or false", "null");
  }
  for (const std::string_view key : {"resample", "image_mean", "image_std"}) {
    if (own.is_null(key)) own.fail(key, "a value, or no such key", "null");
  }
}

void read_levels(const JsonReader& own, const LevelDefaults& defaults, PreprocessPolicy& policy) {
  refuse_null_steps(own);
  policy.filter = filter_of(own, defaults.filter);
  policy.mean = three(own, "image_mean", defaults.mean);
  policy.std = three(own, "image_std", defaults.std);
  policy.background = {0, 0, 0};
  if (policy.mode == ResizeMode::kLongestSide || policy.mode == ResizeMode::kPadToSquare) {
    // One number serves as three, but not for the colour: there the reference stops.
    if (own.has("image_mean") && own.raw("image_mean").is_number()) {
      own.fail("image_mean", "three numbers, as squares are filled up in this colour",
               own.raw("image_mean").dump());
    }
    policy.background = colour_of(policy.mean);
  }
  policy.rescale = own.number_or("rescale_factor", defaults.rescale, 1e-9, 1.0);
  policy.mean_colour.reset();
  if (!own.boolean_or("do_rescale", true)) policy.rescale = 1.0;
  if (!own.boolean_or("do_normalize", true)) {
    policy.mean_colour = colour_of(policy.mean);
    policy.mean = {0, 0, 0};
    policy.std = {1, 1, 1};
  }
}

void require_resize(const JsonReader& own) {
  if (!own.boolean_or("do_resize", true)) {
    own.fail("do_resize", "true, as the image encoder takes views of one size", "false");
  }
}

void require_cut_size(const JsonReader& own, std::int64_t fallback) {
  if (own.boolean_or("do_center_crop", false) && fallback == 0 && !own.has("crop_size")) {
    own.fail("crop_size", "a side in pixels, as do_center_crop is true", "none");
  }
}

SizeKeys read_size(const JsonReader& own, std::string_view key, bool number_is_square,
                   const SizeKeys& fallback) {
  if (!own.has(key)) return fallback;
  const Json& value = own.raw(key);
  SizeKeys out;
  if (value.is_number()) {
    const std::int64_t number = own.integer(key, 1, kMaxSide);
    const bool square = number_is_square || own.boolean_or("default_to_square", false);
    if (square) return {.height = number, .width = number};
    return {.shortest = number};
  }
  if (value.is_array()) {
    const std::vector<std::int64_t> pair = own.integers(key, 1, kMaxSide, 2);
    if (pair.size() != 2) own.fail(key, "height and width", value.dump());
    return {.height = pair[0], .width = pair[1]};
  }
  const JsonReader sides = own.object(key);
  if (sides.has("height") && sides.has("width") && value.size() == 2) {
    out.height = sides.integer("height", 1, kMaxSide);
    out.width = sides.integer("width", 1, kMaxSide);
    return out;
  }
  if (!sides.has("shortest_edge") || value.size() != 1) {
    own.fail(key, "height and width, or shortest_edge alone", value.dump());
  }
  out.shortest = sides.integer("shortest_edge", 1, kMaxSide);
  return out;
}

void require_side(const JsonReader& own, std::string_view key, std::int64_t found,
                  std::int64_t wanted) {
  if (found == wanted) return;
  own.fail(key, "views of " + std::to_string(wanted) + " pixels a side, as the image encoder takes",
           std::to_string(found) + (own.has(key) ? "" : ", the default of its class"));
}

void require_equal(const JsonReader& own, std::string_view key, std::int64_t fallback,
                   std::int64_t wanted) {
  const std::int64_t found = own.integer_or(key, fallback, 1, kMaxSide);
  if (found == wanted) return;
  own.fail(key, std::to_string(wanted) + ", as config.json says",
           std::to_string(found) + (own.has(key) ? "" : ", the default of its class"));
}

}  // namespace tessera
