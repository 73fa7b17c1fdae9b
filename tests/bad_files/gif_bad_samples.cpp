// Bad GIF and BMP files, made from nothing.
#include "tests/bad_files/image_bad_sample.h"
#include "tests/support/image_files.h"

namespace tessera {

namespace {

const std::string kPalette(12, '\x40');  // four colours

GifCodes codes() { return GifCodes(2); }

std::string gif(const GifCodes& data, std::uint32_t width = 2, std::uint32_t height = 1) {
  return gif_screen(width, height, kPalette) + gif_frame(0, 0, width, height) + data.blocks() + ';';
}

void add_gif_headers(std::vector<ImageBadSample>& out) {
  const GifCodes two = codes().put(4).put(0).put(1).put(5);
  const std::string good = gif(two);
  const auto bad = [&](const char* name, const std::string& file, const char* code,
                       std::vector<std::string> words) {
    out.push_back({name, file, code, std::move(words)});
  };
  bad("gif_signature_only", "GIF89a", "E_PICTURE_CUT", {"byte 6"});
  bad("gif_cut_in_palette", good.substr(0, 15), "E_PICTURE_CUT", {"colour table"});
  bad("gif_cut_in_frame", good.substr(0, 30), "E_PICTURE_CUT", {"frame"});
  bad("gif_cut_in_data", good.substr(0, 37), "E_PICTURE_CUT", {"data block"});
  bad("gif_no_frame", gif_screen(2, 1, kPalette) + ';', "E_PICTURE_DATA", {"a frame"});
  bad("gif_canvas_0", gif(two, 0, 1), "E_PICTURE_SIZE", {"0x1"});
  bad("gif_canvas_65535", gif(two, 65535, 65535), "E_PICTURE_SIZE", {"65535x65535"});
  bad("gif_frame_outside", gif_screen(2, 1, kPalette) + gif_frame(1, 0, 2, 1) + two.blocks(),
      "E_PICTURE_DATA", {"inside the canvas", "2x1 at 1,0"});
  bad("gif_frame_far_outside",
      gif_screen(2, 1, kPalette) + gif_frame(65535, 65535, 1, 1) + two.blocks(), "E_PICTURE_DATA",
      {"65535,65535"});
  bad("gif_frame_of_no_size", gif_screen(2, 1, kPalette) + gif_frame(0, 0, 0, 1) + two.blocks(),
      "E_PICTURE_DATA", {"0x1"});
  bad("gif_no_palette", gif_screen(2, 1, "") + gif_frame(0, 0, 2, 1) + two.blocks(),
      "E_PICTURE_DATA", {"colour table"});
  bad("gif_strange_block", gif_screen(2, 1, kPalette) + "Z", "E_PICTURE_DATA", {"byte 90"});
  bad("gif_extension_cut", gif_screen(2, 1, kPalette) + "!\xfe\x20short", "E_PICTURE_CUT",
      {"data block"});
  bad("gif_short_control", gif_screen(2, 1, kPalette) + "!\xf9\x02zz" + std::string(1, '\0'),
      "E_PICTURE_DATA", {"graphic control"});
  std::string comments;
  for (int i = 0; i < 100000; ++i) comments += std::string("!\xfe\1x\0", 5);
  bad("gif_hundred_thousand_comments",
      gif_screen(2, 1, kPalette) + comments + good.substr(gif_screen(2, 1, kPalette).size()), "",
      {});
  bad("gif_second_frame_damaged", good.substr(0, good.size() - 1) + ",,,,", "", {"first frame"});
  bad("gif_no_trailer", good.substr(0, good.size() - 1), "", {});
}

void add_gif_data(std::vector<ImageBadSample>& out) {
  const auto bad = [&](const char* name, const std::string& file, const char* code,
                       std::vector<std::string> words) {
    out.push_back({name, file, code, std::move(words)});
  };
  const std::string head = gif_screen(2, 1, kPalette) + gif_frame(0, 0, 2, 1);
  for (const int size : {0, 1, 9, 255}) {
    bad(("gif_code_size_" + std::to_string(size)).c_str(),
        head + static_cast<char>(size) + std::string("\1\0\0", 3), "E_PICTURE_DATA", {"2-8 bits"});
  }
  bad("gif_first_code_undefined", gif(codes().put(4).put(7)), "E_PICTURE_DATA", {"LZW", "7"});
  bad("gif_code_beyond_the_table", gif(codes().put(4).put(0).put(7)), "E_PICTURE_DATA", {"LZW"});
  bad("gif_too_few_pixels", gif(codes().put(4).put(0).put(5)), "E_PICTURE_CUT",
      {"2 pixels", "found 1"});
  bad("gif_no_codes", gif(codes()), "E_PICTURE_CUT", {"found 0"});
  bad("gif_data_of_zeros",
      gif_screen(300, 300, kPalette) + gif_frame(0, 0, 300, 300) + "\2\x20" + std::string(33, '\0'),
      "E_PICTURE_CUT", {"90000 pixels"});
  bad("gif_bomb", gif(codes().put(4).put(0).put(5), 16384, 4096), "E_PICTURE_CUT",
      {"67108864 pixels"});
  GifCodes wide(3);
  bad("gif_index_without_colour", gif(wide.put(8).put(7).put(7).put(9)), "E_PICTURE_DATA",
      {"indices below 4", "found 7"});
  GifCodes endless(2);
  endless.put(4);
  for (int i = 0; i < 6000; ++i) endless.put(i % 4);
  bad("gif_table_full_without_clear", gif(endless, 60, 100), "", {});
}

std::string bmp(std::int32_t width, std::int32_t height, const BmpOptions& options) {
  return bmp_file(width, height, options);
}

void add_bmp_headers(std::vector<ImageBadSample>& out) {
  const std::string pixels(64, '\x10');
  const std::string good = bmp(2, 2, {.pixels = pixels});
  const auto bad = [&](const char* name, const std::string& file, const char* code,
                       std::vector<std::string> words) {
    out.push_back({name, file, code, std::move(words)});
  };
  const auto sized = [&](const char* name, std::int64_t width, std::int64_t height,
                         std::vector<std::string> words) {
    bad(name,
        bmp(static_cast<std::int32_t>(width), static_cast<std::int32_t>(height),
            {.pixels = pixels}),
        "E_PICTURE_SIZE", std::move(words));
  };
  bad("bmp_two_bytes", "BM", "E_PICTURE_CUT", {"file header"});
  bad("bmp_cut_in_header", good.substr(0, 40), "E_PICTURE_CUT", {"header"});
  bad("bmp_header_of_41_bytes", std::string(good).replace(14, 4, le32(41)), "E_PICTURE_FORMAT",
      {"found 41"});
  bad("bmp_header_of_4_gib", std::string(good).replace(14, 4, le32(0xffffffff)), "E_PICTURE_FORMAT",
      {"4294967295"});
  sized("bmp_width_0", 0, 2, {"0x2"});
  sized("bmp_height_0", 2, 0, {"2x0"});
  sized("bmp_width_negative", -2, 2, {"0x2"});
  sized("bmp_height_lowest", 2, INT32_MIN, {"2x2147483648"});
  sized("bmp_both_huge", INT32_MAX, INT32_MAX, {"2147483647"});
  bad("bmp_rows_cut", bmp(100, 100, {.pixels = pixels}), "E_PICTURE_CUT",
      {"30000 bytes of pixels"});
  for (const std::uint32_t bits : {0u, 3u, 48u, 65535u}) {
    bad(("bmp_bits_" + std::to_string(bits)).c_str(), bmp(2, 2, {.bits = bits, .pixels = pixels}),
        "E_PICTURE_FORMAT", {"bits"});
  }
  bad("bmp_jpeg_inside", bmp(2, 2, {.compression = 4, .pixels = pixels}), "E_PICTURE_FORMAT",
      {"compression 4"});
  bad("bmp_runs_of_24_bits", bmp(2, 2, {.compression = 1, .pixels = pixels}), "E_PICTURE_FORMAT",
      {"24 bits"});
  bad("bmp_pixels_in_the_header", bmp(2, 2, {.pixels = pixels, .data_at = 20}), "E_PICTURE_DATA",
      {"byte 20"});
  bad("bmp_pixels_beyond_the_end", bmp(2, 2, {.pixels = pixels, .data_at = 5000}), "E_PICTURE_CUT",
      {"pixels"});
  bad("bmp_pixels_at_4_gib", bmp(2, 2, {.pixels = pixels, .data_at = 0xfffffff0}), "E_PICTURE_CUT",
      {"pixels"});
  bad("bmp_four_billion_colours", bmp(2, 2, {.bits = 8, .colours = 0xffffffff, .pixels = pixels}),
      "E_PICTURE_DATA", {"at most 256 colours"});
  bad("bmp_index_without_colour",
      bmp(2, 2, {.bits = 8, .colours = 2, .extra = le32(0) + le32(1), .pixels = pixels}),
      "E_PICTURE_DATA", {"indices below 2", "found 16"});
  bad("bmp_palette_missing", bmp(2, 2, {.bits = 8, .pixels = std::string(8, '\0')}),
      "E_PICTURE_DATA", {"indices below 0"});
  bad("bmp_masks_with_gaps",
      bmp(2, 2,
          {.bits = 16,
           .compression = 3,
           .extra = le32(0xa000) + le32(0) + le32(0),
           .pixels = pixels}),
      "E_PICTURE_DATA", {"gaps"});
}

void add_bmp_runs(std::vector<ImageBadSample>& out) {
  const std::string palette(16, '\0');
  const auto runs = [&](const char* name, const std::string& data, const char* code,
                        std::vector<std::string> words, std::int32_t height = 2) {
    out.push_back(
        {name,
         bmp(2, height,
             {.bits = 8, .compression = 1, .colours = 4, .extra = palette, .pixels = data}),
         code, std::move(words)});
  };
  runs("bmp_run_past_the_row", std::string("\3\1\0\1", 4), "E_PICTURE_DATA",
       {"runs inside", "2,0"});
  runs("bmp_run_of_255", std::string("\xff\1\0\1", 4), "E_PICTURE_DATA", {"runs inside"});
  runs("bmp_literal_past_the_row", std::string("\0\4\1\1\1\1\0\1", 8), "E_PICTURE_DATA",
       {"runs inside"});
  runs("bmp_run_above_the_top", std::string("\0\0\0\0\1\1\0\1", 8), "E_PICTURE_DATA", {"0,2"});
  runs("bmp_step_above_the_top", std::string("\0\2\0\xff\0\1", 6), "E_PICTURE_DATA", {"0,255"});
  runs("bmp_step_past_the_row", std::string("\0\2\xff\0\1\1\0\1", 8), "E_PICTURE_DATA", {"255,0"});
  runs("bmp_endless_rows", std::string(4000, '\0'), "E_PICTURE_DATA", {"0,3"});
  runs("bmp_runs_without_end", std::string("\1\1", 2), "E_PICTURE_CUT", {"a run"});
  runs("bmp_literal_cut", std::string("\0\x20\1\1", 4), "E_PICTURE_CUT", {"pixels of a run"});
  runs("bmp_runs_top_down", std::string("\0\1", 2), "E_PICTURE_DATA", {"positive height"}, -2);
  runs("bmp_runs_that_paint_nothing", std::string("\0\1", 2), "", {});
}

}  // namespace

std::vector<ImageBadSample> gif_bad_samples() {
  std::vector<ImageBadSample> out;
  add_gif_headers(out);
  add_gif_data(out);
  return out;
}

std::vector<ImageBadSample> bmp_bad_samples() {
  std::vector<ImageBadSample> out;
  add_bmp_headers(out);
  add_bmp_runs(out);
  return out;
}

}  // namespace tessera
