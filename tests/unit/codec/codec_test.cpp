// The decoders: equal to Pillow on stored files of every kind, and to hand-worked pixels on kinds
// that Pillow does not write.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/support/image_files.h"
#include "tests/support/image_noise.h"
#include "vision/codec/decode.h"

namespace tessera::codec_test {
namespace {

DecodedImage decode(const std::string& file, const ImageLimits& limits = {}) {
  return decode_image(as_bytes(file), limits);
}

std::string refusal(const std::string& file, const ImageLimits& limits = {}) {
  try {
    decode(file, limits);
  } catch (const Error& error) {
    EXPECT_FALSE(error.info().expected.empty());
    EXPECT_FALSE(error.info().found.empty());
    return error.info().code;
  }
  return "";
}

std::vector<int> pixels_of(const DecodedImage& image) {
  return {image.pixels.begin(), image.pixels.end()};
}

TEST(Codec, ReadsWhatPillowReads) {
  const auto folder = std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/image/files";
  std::ifstream in(folder / "expected.txt");
  int files = 0, laid = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string name, format;
    std::int64_t width = 0, height = 0, channels = 0;
    std::uint32_t crc = 0;
    words >> name;
    if (name == "over") {
      words >> name >> std::hex >> crc;
      EXPECT_EQ(crc32_of(on_background(decode(golden_image(name)), {255, 255, 255})), crc)
          << name;
      ++laid;
      continue;
    }
    words >> format >> width >> height >> channels >> std::hex >> crc;
    const DecodedImage image = decode(golden_image(name));
    EXPECT_EQ(image.format, format) << name;
    EXPECT_EQ(image.width, width) << name;
    EXPECT_EQ(image.height, height) << name;
    EXPECT_EQ(image.channels, channels) << name;
    EXPECT_EQ(crc32_of(image.pixels.data(), image.pixels.size()), crc) << name;
    ++files;
  }
  EXPECT_GE(files, 40);
  EXPECT_GE(laid, 6);
}

TEST(Codec, AnimationsGiveTheirFirstFrameAndSaySo) {
  for (const char* name : {"animated.webp", "animated.gif"}) {
    const DecodedImage image = decode(golden_image(name));
    ASSERT_EQ(image.notes.size(), 1u) << name;
    EXPECT_NE(image.notes[0].find("first frame"), std::string::npos);
  }
  EXPECT_TRUE(decode(golden_image("plain.gif")).notes.empty());
}

TEST(Codec, TheNameOfAFormatComesFromItsBytes) {
  EXPECT_EQ(sniff_image(as_bytes(golden_image("rgb.png"))), "PNG");
  EXPECT_EQ(sniff_image(as_bytes(std::string("II*\0abcd", 8))), "TIFF");
  EXPECT_EQ(sniff_image(as_bytes(std::string("RIFF\1\2\3\4WAVE"))), "");
  EXPECT_EQ(sniff_image(as_bytes(std::string("a note\n"))), "text");
  EXPECT_EQ(refusal("hello, world"), "E_PICTURE_FORMAT");
  EXPECT_EQ(refusal(""), "E_PICTURE_FILE");
}

TEST(Codec, EveryCutOfEveryFileIsRefused) {
  for (const char* name : {"rgb.png", "palette_alpha.png", "rgb420.jpg", "progressive.jpg",
                           "lossy.webp", "lossless_alpha.webp", "plain.gif", "rgb.bmp"}) {
    const std::string file = golden_image(name);
    // What may be missing without loss: marks that end a file after its last pixel.
    const std::size_t spare = std::string(name).ends_with(".gif") ? 2 : 0;
    for (std::size_t length = 0; length + spare < file.size(); ++length) {
      const std::string code = refusal(file.substr(0, length));
      EXPECT_FALSE(code.empty()) << name << " cut to " << length << " of " << file.size();
    }
  }
}

TEST(Codec, LimitsHoldAtTheirEdge) {
  const std::string png = golden_image("rgb.png");  // 24 x 17
  EXPECT_EQ(refusal(png, {.side = 24, .pixels = 408}), "");
  EXPECT_EQ(refusal(png, {.side = 23}), "E_PICTURE_SIZE");
  EXPECT_EQ(refusal(png, {.pixels = 407}), "E_PICTURE_SIZE");
  EXPECT_EQ(refusal(png, {.file_bytes = png.size()}), "");
  EXPECT_EQ(refusal(png, {.file_bytes = png.size() - 1}), "E_PICTURE_FILE");
  for (const char* name : {"rgb444.jpg", "lossy.webp", "animated.webp", "plain.gif", "rgb.bmp"}) {
    EXPECT_EQ(refusal(golden_image(name), {.side = 24, .pixels = 408}), "") << name;
    EXPECT_EQ(refusal(golden_image(name), {.pixels = 407}), "E_PICTURE_SIZE") << name;
  }
}

TEST(Codec, SixteenBitColoursKeepTheirUpperByte) {
  const std::string row("\0\x12\x34\xab\xcd\xff\x00", 7);
  EXPECT_EQ(pixels_of(decode(png_of(png_header(1, 1, 16, 2), row))),
            (std::vector<int>{0x12, 0xab, 0xff}));
}

TEST(Codec, InterlacedPngIsPutTogether) {
  // 3 x 2, gray: pass 1 holds (0,0); pass 4 (2,0); pass 6 (1,0); pass 7 the second row.
  const std::string rows("\0\x0a\0\x1e\0\x14\0\x28\x32\x3c", 10);
  EXPECT_EQ(
      pixels_of(decode(png_of(png_header(3, 2, 8, 0, 1), rows))),
      (std::vector<int>{10, 10, 10, 20, 20, 20, 30, 30, 30, 40, 40, 40, 50, 50, 50, 60, 60, 60}));
}

TEST(Codec, ColourProfilesAndTextsReachNoDecoder) {
  const std::string row("\0\x10\x20\x30", 4);
  const std::string junk = png_chunk("iCCP", "not a profile") + png_chunk("zTXt", "k") +
                           png_chunk("gAMA", be32(1)) + png_chunk("sBIT", "wrong length");
  EXPECT_EQ(pixels_of(decode(png_of(png_header(1, 1, 8, 2), row, junk))),
            (std::vector<int>{0x10, 0x20, 0x30}));
}

TEST(Codec, BmpOfEveryDepth) {
  const std::string palette = le32(0x000000) + le32(0xff8040) + le32(0x00ff00) + le32(0x0000ff);
  const std::vector<int> second = {0xff, 0x80, 0x40}, third = {0, 255, 0};
  const auto joined = [](std::vector<int> a, const std::vector<int>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  const std::vector<int> both = joined(second, third);
  const auto bmp = [&](std::uint32_t bits, const std::string& pixels) {
    return pixels_of(
        decode(bmp_file(2, 1, {.bits = bits, .colours = 4, .extra = palette, .pixels = pixels})));
  };
  EXPECT_EQ(bmp(2, std::string("\x60\0\0\0", 4)), both);
  EXPECT_EQ(bmp(4, std::string("\x12\0\0\0", 4)), both);
  EXPECT_EQ(bmp(8, std::string("\1\2\0\0", 4)), both);
  EXPECT_EQ(pixels_of(decode(bmp_file(2, 1,
                                      {.bits = 1,
                                       .colours = 2,
                                       .extra = le32(0) + le32(0xff8040),
                                       .pixels = std::string("\x40\0\0\0", 4)}))),
            joined({0, 0, 0}, second));
  EXPECT_EQ(pixels_of(decode(bmp_file(1, 1, {.bits = 16, .pixels = le16(0x7c1f) + le16(0)}))),
            (std::vector<int>{255, 0, 255}));
  EXPECT_EQ(pixels_of(decode(bmp_file(1, 1, {.bits = 32, .pixels = le32(0x80112233)}))),
            (std::vector<int>{0x11, 0x22, 0x33}));
}

TEST(Codec, BmpRowsGoUpUnlessTheHeightIsNegative) {
  const std::string pixels("\1\1\1\0\2\2\2\0", 8);
  EXPECT_EQ(pixels_of(decode(bmp_file(1, 2, {.pixels = pixels}))),
            (std::vector<int>{2, 2, 2, 1, 1, 1}));
  EXPECT_EQ(pixels_of(decode(bmp_file(1, -2, {.pixels = pixels}))),
            (std::vector<int>{1, 1, 1, 2, 2, 2}));
}

TEST(Codec, BmpBitFields) {
  const std::string masks = le32(0xf800) + le32(0x07e0) + le32(0x001f);
  EXPECT_EQ(
      pixels_of(decode(bmp_file(
          1, 1, {.bits = 16, .compression = 3, .extra = masks, .pixels = le16(0x8410) + le16(0)}))),
      (std::vector<int>{16 * 255 / 31, 32 * 255 / 63, 16 * 255 / 31}));
  const std::string four = le32(0xff0000) + le32(0xff00) + le32(0xff) + le32(0xff000000);
  const auto with_alpha = [&](std::uint32_t pixel) {
    return decode(
        bmp_file(1, 1, {.bits = 32, .compression = 6, .extra = four, .pixels = le32(pixel)}));
  };
  EXPECT_EQ(pixels_of(with_alpha(0x80112233)), (std::vector<int>{0x11, 0x22, 0x33, 0x80}));
  const DecodedImage empty = with_alpha(0x00112233);
  EXPECT_EQ(pixels_of(empty), (std::vector<int>{0x11, 0x22, 0x33, 255}));
  EXPECT_EQ(empty.notes.size(), 1u);
}

TEST(Codec, BmpRuns) {
  const std::string palette = le32(0) + le32(0x010101) + le32(0x020202) + le32(0x030303);
  const auto bmp = [&](std::uint32_t bits, std::uint32_t compression, const std::string& runs) {
    const DecodedImage image = decode(bmp_file(4, 2,
                                            {.bits = bits,
                                             .compression = compression,
                                             .colours = 4,
                                             .extra = palette,
                                             .pixels = runs}));
    std::string out;
    for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
      out += static_cast<char>('0' + image.pixels[i]);
    }
    return out;
  };
  // Bottom row: three 1s and one 2; top row: a step of one, then the literal 3 2 1.
  EXPECT_EQ(bmp(8, 1, std::string("\3\1\1\2\0\0\0\2\1\0\0\3\3\2\1\0\0\1", 18)), "03211112");
  EXPECT_EQ(bmp(4, 2, std::string("\4\x12\0\0\0\3\x32\x10\0\1", 10)), "32101212");
  EXPECT_EQ(bmp(8, 1, std::string("\0\1", 2)), "00000000");
}

TEST(Codec, GifTablesGrowAndStartAnew) {
  const std::string palette = std::string(3, '\1') + std::string(3, '\2') + std::string(6, '\0');
  // 0, 1, then code 6 = "0 1", code 8 = "0 1 0" as it is being defined; clear; 1.
  GifCodes codes(2);
  codes.put(4).put(0).put(1).put(6).put(8).put(4).put(1).put(5);
  const std::string file = gif_screen(8, 1, palette) + gif_frame(0, 0, 8, 1) + codes.blocks() + ';';
  std::string got;
  const DecodedImage image = decode(file);
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    got += static_cast<char>('0' + image.pixels[i]);
  }
  EXPECT_EQ(got, "12121212");
}

TEST(Codec, WhatAGifFrameLeavesFreeIsTransparent) {
  const std::string palette = std::string(3, '\7') + std::string(3, '\0');
  GifCodes codes(2);
  codes.put(4).put(0).put(5);
  const DecodedImage image =
      decode(gif_screen(2, 1, palette) + gif_frame(1, 0, 1, 1) + codes.blocks() + ';');
  EXPECT_EQ(pixels_of(image), (std::vector<int>{0, 0, 0, 0, 7, 7, 7, 255}));
}

TEST(Codec, BrokenExifIsLeftOutWithANote) {
  const std::string row("\0\x10\x20\x30\x40\x50\x60", 7);
  const auto notes = [&](const std::string& exif) {
    const DecodedImage image = decode(png_of(png_header(2, 1, 8, 2), row, png_chunk("eXIf", exif)));
    EXPECT_EQ(image.width * image.height, 2);
    return image.notes.size();
  };
  EXPECT_EQ(notes(exif_of({exif_entry(0x0112, 3, 1, 6)})), 0u);
  EXPECT_EQ(notes(exif_of({exif_entry(0x0100, 3, 1, 6)})), 0u) << "no orientation is no fault";
  EXPECT_EQ(notes(exif_of({exif_entry(0x0112, 3, 1, 9)})), 1u);
  EXPECT_EQ(notes(exif_of({exif_entry(0x0112, 4, 1, 6)})), 1u);
  EXPECT_EQ(notes(exif_of({exif_entry(0x0112, 3, 2, 6)})), 1u);
  EXPECT_EQ(notes("II"), 1u);
  EXPECT_EQ(notes("II" + le16(42) + le32(0xffffffff)), 1u);
  EXPECT_EQ(notes("II" + le16(42) + le32(8) + le16(65535)), 1u);
  EXPECT_EQ(notes(exif_of({exif_entry(1, 3, 1, 1)}, 8)), 0u) << "a directory that follows itself";
  EXPECT_EQ(notes(std::string(65537, 'I')), 1u);
}

}  // namespace
}  // namespace tessera::codec_test
