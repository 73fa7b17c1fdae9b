// What the files of image and video processors have in common: where their keys are, and how sizes,
// levels and filters are spelled. Readers throw Error kModel naming file and key.
#pragma once

#include <array>
#include <string_view>

#include "engine/families/folder_files.h"
#include "engine/spec/preprocess_policy.h"

namespace tessera {

inline constexpr std::int64_t kMaxSide = 16384;  // pixels
inline constexpr std::int64_t kMaxPixels = std::int64_t{1} << 26;

// The keys of `nested` within processor_config.json, or else those of the file `own`. Error where
// both name a key and the values differ.
JsonReader processor_keys(FolderFiles& files, std::string_view nested, FolderFile own);

// A list of three numbers, or one that serves as three.
std::array<double, 3> three(const JsonReader& reader, std::string_view key,
                            const std::array<double, 3>& fallback);
// `resample`
ResampleFilter filter_of(const JsonReader& reader, ResampleFilter fallback);
// Colours are integers: the mean times 255, truncated.
Rgb colour_of(const std::array<double, 3>& mean);

// What absent keys of levels mean to a class.
struct LevelDefaults {
  ResampleFilter filter = ResampleFilter::kBicubic;
  std::array<double, 3> mean = kClipMean, std = kClipStd;
  double rescale = 1.0 / 255.0;
};

// resample, image_mean, image_std, rescale_factor, do_rescale and do_normalize. Steps that are off
// count as factor 1, mean 0, deviation 1.
void read_levels(const JsonReader& own, const LevelDefaults& defaults, PreprocessPolicy& policy);

// Releases of the reference differ in what null means for these: no, or what the class says.
void refuse_null_steps(const JsonReader& own);
void require_resize(const JsonReader& own);
// The reference asks for crop_size of every class, also of those that cut nothing.
void require_cut_size(const JsonReader& own, std::int64_t fallback);

// `size` and `crop_size` as the files spell them: a number, a pair [height, width], or an object.
struct SizeKeys {
  std::int64_t shortest = 0, height = 0, width = 0;
};

// A number alone is the shortest side, or with `number_is_square` both.
SizeKeys read_size(const JsonReader& own, std::string_view key, bool number_is_square,
                   const SizeKeys& fallback);

// Pixels of a key that was read, against what the image encoder takes.
void require_side(const JsonReader& own, std::string_view key, std::int64_t found,
                  std::int64_t wanted);
// A number that config.json has too.
void require_equal(const JsonReader& own, std::string_view key, std::int64_t fallback,
                   std::int64_t wanted);

}  // namespace tessera
