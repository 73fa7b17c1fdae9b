// Bad PNG files, and files of other kinds that come as images. The good one is 2 x 2, 8-bit RGB.
#include "tests/bad_files/image_bad_sample.h"
#include "tests/support/image_files.h"

namespace tessera {

namespace {

const std::string kRows("\0\1\2\3\4\5\6\0\7\x8\x9\xa\xb\xc", 14);
const std::string kHeader = png_header(2, 2, 8, 2);

void add_structure(std::vector<ImageBadSample>& out) {
  const std::string good = png_of(kHeader, kRows);
  const std::string data = png_chunk("IDAT", deflated(kRows));
  out.push_back({"png_signature_only", kPngSignature, "E_PICTURE_CUT", {"byte 8", "a chunk"}});
  out.push_back({"png_cut_in_header", good.substr(0, 20), "E_PICTURE_CUT", {"found 4 bytes"}});
  out.push_back({"png_cut_in_data", good.substr(0, 50), "E_PICTURE_CUT", {"a chunk"}});
  out.push_back(
      {"png_without_end", good.substr(0, good.size() - 12), "E_PICTURE_CUT", {"found 0"}});
  std::string bad = good;
  bad[19] ^= 1;
  out.push_back({"png_header_flipped", bad, "E_PICTURE_DATA", {"byte 8", "checksum"}});
  bad = good;
  bad[45] ^= 1;
  out.push_back({"png_data_flipped", bad, "E_PICTURE_DATA", {"byte 33", "checksum"}});
  bad = good;
  bad.replace(33, 4, be32(0xffffffff));
  out.push_back({"png_chunk_of_4_gib", bad, "E_PICTURE_CUT", {"4294967295 bytes"}});
  out.push_back(
      {"png_header_twice", png_file(kHeader + kHeader + data), "E_PICTURE_DATA", {"IHDR"}});
  out.push_back({"png_header_late", png_file(data + kHeader), "E_PICTURE_DATA", {"IHDR"}});
  out.push_back({"png_header_short",
                 png_file(png_chunk("IHDR", std::string(12, '\1')) + data),
                 "E_PICTURE_DATA",
                 {"13 bytes", "found 12"}});
  out.push_back({"png_without_data", png_file(kHeader), "E_PICTURE_CUT", {"IDAT"}});
  out.push_back({"png_strange_critical_chunk",
                 png_file(kHeader + png_chunk("ABCD", "x") + data),
                 "E_PICTURE_FORMAT",
                 {"critical"}});
  out.push_back({"png_text_bomb",
                 png_of(kHeader, kRows,
                        png_chunk("zTXt", std::string("k\0\0", 3) +
                                              deflated(std::string(std::size_t{16} << 20, 'a')))),
                 "",
                 {}});
  std::string many;
  for (int i = 0; i < 50000; ++i) many += png_chunk("teXt", "");
  out.push_back({"png_many_chunks", png_of(kHeader, kRows, many), "", {}});
  out.push_back({"png_bytes_behind_the_end", good + std::string(5000, 'x'), "", {}});
}

void add_sizes(std::vector<ImageBadSample>& out) {
  const auto sized = [&](const char* name, std::uint32_t width, std::uint32_t height,
                         const char* code, std::vector<std::string> words) {
    out.push_back({name, png_of(png_header(width, height, 8, 2), kRows), code, std::move(words)});
  };
  sized("png_no_width", 0, 2, "E_PICTURE_SIZE", {"IHDR", "0x2"});
  sized("png_no_height", 2, 0, "E_PICTURE_SIZE", {"2x0"});
  sized("png_side_one_too_long", 16385, 1, "E_PICTURE_SIZE", {"1-16384", "16385x1"});
  sized("png_area_too_large", 16384, 4097, "E_PICTURE_SIZE", {"67108864", "16384x4097"});
  sized("png_side_2_31", 0x80000000u, 1, "E_PICTURE_SIZE", {"2147483648"});
  sized("png_sides_2_32", 0xffffffffu, 0xffffffffu, "E_PICTURE_SIZE", {"4294967295x4294967295"});
  sized("png_bomb", 16384, 4096, "E_PICTURE_CUT", {"pixel data", "IDAT"});
  sized("png_rows_missing", 2, 3, "E_PICTURE_CUT", {"Not enough image data"});
  out.push_back({"png_rows_left_over", png_of(png_header(2, 1, 8, 2), kRows), "", {}});
}

void add_kinds(std::vector<ImageBadSample>& out) {
  const auto kind = [&](const char* name, const std::string& header) {
    out.push_back({name, png_of(header, kRows), "E_PICTURE_DATA", {"intact PNG"}});
  };
  kind("png_depth_3", png_header(2, 2, 3, 0));
  kind("png_depth_16_palette", png_header(2, 2, 16, 3));
  kind("png_colour_type_5", png_header(2, 2, 8, 5));
  kind("png_colour_type_255", png_header(2, 2, 8, 255));
  kind("png_interlace_2", png_header(2, 2, 8, 2, 2));
  kind("png_palette_missing", png_header(2, 2, 8, 3));
  std::string rows = kRows;
  rows[7] = 9;
  out.push_back({"png_filter_9", png_of(kHeader, rows), "E_PICTURE_DATA", {"filter"}});
  out.push_back({"png_not_zlib",
                 png_file(kHeader + png_chunk("IDAT", "this is no deflate stream")),
                 "E_PICTURE_DATA",
                 {"pixel data"}});
  std::string stream = deflated(std::string(14, '\0'));
  stream[stream.size() - 6] ^= 0x40;
  out.push_back(
      {"png_stream_damaged", png_file(kHeader + png_chunk("IDAT", stream)), "E_PICTURE_DATA", {}});
  out.back().words = {"pixel data"};
  const std::string indices("\0\0\7\0\1\1", 6);
  out.push_back({"png_index_beyond_palette",
                 png_of(png_header(2, 2, 8, 3), indices, png_chunk("PLTE", "\1\2\3\4\5\6")),
                 "",
                 {}});
  out.push_back({"png_transparency_of_wrong_length",
                 png_of(kHeader, kRows, png_chunk("tRNS", "abc")),
                 "",
                 {}});
}

void add_exif(std::vector<ImageBadSample>& out) {
  const auto exif = [&](const char* name, const std::string& block,
                        std::vector<std::string> words) {
    out.push_back({name, png_of(kHeader, kRows, png_chunk("eXIf", block)), "", std::move(words)});
  };
  exif("png_exif_follows_itself", exif_of({exif_entry(0x8769, 4, 1, 8)}, 8), {});
  exif("png_exif_of_65535_entries", "II" + le16(42) + le32(8) + le16(65535), {"directory is cut"});
  exif("png_exif_outside", "MM" + std::string("\0*\xff\xff\xff\xff", 6), {"lies outside"});
  exif("png_exif_orientation_0", exif_of({exif_entry(0x0112, 3, 1, 0)}), {"none of 1-8"});
  exif("png_exif_orientation_list", exif_of({exif_entry(0x0112, 3, 0xffffffff, 6)}),
       {"no single number"});
  exif("png_exif_too_large", std::string(70000, 'M'), {"64 KiB"});
}

}  // namespace

std::vector<ImageBadSample> png_bad_samples() {
  std::vector<ImageBadSample> out;
  add_structure(out);
  add_sizes(out);
  add_kinds(out);
  add_exif(out);
  return out;
}

std::vector<ImageBadSample> stranger_bad_samples() {
  const auto box = [](const std::string& brand) {
    return std::string("\0\0\0\x18", 4) + brand + std::string(16, '\0');
  };
  const std::vector<std::pair<std::string, std::string>> files = {
      {"TIFF", std::string("II*\0\x08\0\0\0", 8)},
      {"JPEG 2000", std::string("\0\0\0\x0cjP  \r\n\x87\n", 12)},
      {"JPEG XL", "\xff\x0a xx"},
      {"AVIF", box("ftypavif")},
      {"HEIF", box("ftypheic")},
      {"MP4", box("ftypisom")},
      {"PDF", "%PDF-1.7\n"},
      {"ZIP", "PK\x03\x04 and so on"},
      {"ELF",
       "\x7f"
       "ELF\2\1\1"},
      {"SVG", "<svg xmlns='http://www.w3.org/2000/svg'/>"},
      {"HTML", "<!DOCTYPE html><p>404"},
      {"text", "not an image\n"},
  };
  std::vector<ImageBadSample> out;
  for (const auto& [name, file] : files) {
    out.push_back(
        {"stranger_" + name, file, "E_PICTURE_FORMAT", {"PNG, JPEG, WebP, GIF or BMP", name}});
    for (char& c : out.back().name) c = c == ' ' ? '_' : c;
  }
  out.push_back({"stranger_zeros", std::string(1000, '\0'), "E_PICTURE_FORMAT", {"bytes 00 00"}});
  out.push_back({"stranger_empty", "", "E_PICTURE_FILE", {"an empty file"}});
  out.push_back(
      {"stranger_terminal_codes", "\x1b]0;owned\x07", "E_PICTURE_FORMAT", {"bytes 1b 5d"}});
  out.push_back({"stranger_wave", "RIFF" + le32(4) + "WAVE", "E_PICTURE_FORMAT", {"bytes 52 49"}});
  return out;
}

}  // namespace tessera
