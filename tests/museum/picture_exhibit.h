// One bad picture and what becomes of it.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace tessera {

struct PictureExhibit {
  std::string name;
  std::string file;                // its bytes
  std::string code;                // of the refusal; empty: a substitute is documented and given
  std::vector<std::string> words;  // each stands in the message, or in the notes of the substitute
};

inline void PrintTo(const PictureExhibit& exhibit, std::ostream* out) { *out << exhibit.name; }

std::vector<PictureExhibit> png_exhibits();
std::vector<PictureExhibit> jpeg_exhibits();
std::vector<PictureExhibit> webp_exhibits();
std::vector<PictureExhibit> gif_exhibits();
std::vector<PictureExhibit> bmp_exhibits();
std::vector<PictureExhibit> stranger_exhibits();  // no pictures of the five formats

}  // namespace tessera
