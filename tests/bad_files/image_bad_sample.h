// One bad image and what becomes of it.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace tessera {

struct ImageBadSample {
  std::string name;
  std::string file;                // its bytes
  std::string code;                // of the refusal; empty: a substitute is documented and given
  std::vector<std::string> words;  // each stands in the message, or in the notes of the substitute
};

inline void PrintTo(const ImageBadSample& bad_sample, std::ostream* out) { *out << bad_sample.name; }

std::vector<ImageBadSample> png_bad_samples();
std::vector<ImageBadSample> jpeg_bad_samples();
std::vector<ImageBadSample> webp_bad_samples();
std::vector<ImageBadSample> gif_bad_samples();
std::vector<ImageBadSample> bmp_bad_samples();
std::vector<ImageBadSample> stranger_bad_samples();  // no images of the five formats

}  // namespace tessera
