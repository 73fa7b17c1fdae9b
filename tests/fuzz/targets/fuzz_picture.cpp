// Image files of all five formats; inputs that begin with "EXIF" are metadata blocks. Oracles:
// what is accepted keeps the limits and has as many bytes as its size says; a refusal has a known
// code and says what was expected and found. The mutator mends the checksums of PNG chunks.
#include <set>

#include "engine/core/error.h"
#include "tests/fuzz/targets/fuzz_support.h"
#include "tests/support/image_files.h"
#include "vision/codec/decode.h"
#include "vision/codec/readers.h"

namespace tessera::fuzz {
namespace {

const ImageLimits kLimits = {.file_bytes = 1 << 16, .side = 300, .pixels = 300 * 200};
constexpr std::string_view kExif = "EXIF";

std::vector<std::string> seeds() {
  std::vector<std::string> out;
  const auto folder = std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/image/files";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".txt" || entry.file_size() > 4000) continue;
    out.push_back(get_file(entry.path()));
  }
  std::sort(out.begin(), out.end());  // whatever order the folder is listed in
  out.push_back(std::string(kExif) + exif_of({exif_entry(0x0112, 3, 1, 6)}));
  out.push_back(std::string(kExif) +
                exif_of({exif_entry(0x0100, 4, 1, 9), exif_entry(0x0112, 3, 1, 3)}));
  const std::string palette = le32(0) + le32(0x010101) + le32(0x020202) + le32(0x030303);
  out.push_back(bmp_file(4, 2,
                         {.bits = 8,
                          .compression = 1,
                          .colours = 4,
                          .extra = palette,
                          .pixels = std::string("\4\1\0\0\0\2\1\0\0\3\3\2\1\0\0\1", 16)}));
  out.push_back(bmp_file(4, 2,
                         {.bits = 4,
                          .compression = 2,
                          .colours = 4,
                          .extra = palette,
                          .pixels = std::string("\4\x12\0\0\0\3\x32\x10\0\1", 10)}));
  out.push_back(bmp_file(2, -2,
                         {.bits = 16,
                          .compression = 3,
                          .extra = le32(0xf800) + le32(0x7e0) + le32(0x1f),
                          .pixels = palette}));
  GifCodes codes(2);
  codes.put(4).put(0).put(1).put(6).put(8).put(4).put(1).put(5);
  out.push_back(gif_screen(8, 1, std::string(12, '\1')) + gif_frame(0, 0, 8, 1) + codes.blocks() +
                ';');
  return out;
}

// Gives each whole chunk of a PNG file its right checksum.
void mend_checksums(std::string& file) {
  for (std::size_t at = 8; at + 12 <= file.size();) {
    std::uint32_t length = 0;
    for (std::size_t i = 0; i < 4; ++i)
      length = length << 8 | static_cast<unsigned char>(file[at + i]);
    if (length > file.size() - at - 12) return;
    const std::string chunk = png_chunk(file.substr(at + 4, 4), file.substr(at + 8, length));
    file.replace(at, chunk.size(), chunk);
    at += chunk.size();
  }
}

void check_exif(std::string_view block) {
  // A copy of its own, so that a read past its end is seen.
  const std::vector<std::uint8_t> copy(block.begin(), block.end());
  std::vector<std::string> notes;
  const int orientation = codec::exif_orientation(copy, notes);
  require(orientation >= 0 && orientation <= 8, "an orientation is 0-8");
  require(notes.empty() || orientation == 0, "a broken block gives no orientation");
}

void check_image(std::span<const std::uint8_t> file) {
  static const std::set<std::string> kCodes = {"E_PICTURE_FILE", "E_PICTURE_FORMAT",
                                               "E_PICTURE_SIZE", "E_PICTURE_CUT", "E_PICTURE_DATA"};
  const std::vector<std::uint8_t> copy(file.begin(), file.end());
  try {
    const DecodedImage image = decode_image(copy, kLimits);
    const auto width = static_cast<std::uint64_t>(image.width);
    const auto height = static_cast<std::uint64_t>(image.height);
    require(width >= 1 && height >= 1 && width <= kLimits.side && height <= kLimits.side, "sides");
    require(width * height <= kLimits.pixels, "area");
    require(image.channels == 3 || image.channels == 4, "channels");
    require(image.pixels.size() == width * height * static_cast<std::uint64_t>(image.channels),
            "bytes");
    require(image.format == sniff_image(copy), "the format that its first bytes say");
    require(on_background(image, {1, 2, 3}).rgb.size() == width * height * 3, "a background");
  } catch (const Error& error) {
    require(kCodes.contains(error.info().code), "a known code");
    require(!error.info().expected.empty() && !error.info().found.empty(), "a full message");
  }
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  tessera::fuzz::write_seeds_if_asked(tessera::fuzz::seeds());
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace tessera;
  const std::size_t changed = LLVMFuzzerMutate(data, size, max_size);
  std::string file(fuzz::as_text(data, changed));
  if (!file.starts_with(kPngSignature) || fuzz::Choice(seed).one_in(5)) return changed;
  fuzz::mend_checksums(file);
  return fuzz::release(file, data, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  const std::string_view text = fuzz::as_text(data, size);
  if (text.starts_with(fuzz::kExif)) {
    fuzz::check_exif(text.substr(fuzz::kExif.size()));
  } else {
    fuzz::check_image({data, size});
  }
  return 0;
}
