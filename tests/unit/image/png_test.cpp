// PNG files: what is written is read back, whatever the text; what is broken is refused by name.
#include "vision/image/png.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "engine/core/io.h"
#include "engine/core/philox.h"
#include "engine/core/utf8.h"

namespace tessera::png_test {
namespace {

Image test_image(std::int64_t width, std::int64_t height) {
  Image image(width, height);
  for (std::size_t i = 0; i < image.rgb.size(); ++i) {
    image.rgb[i] = static_cast<std::uint8_t>(i * 7 + i / 5);
  }
  return image;
}

std::filesystem::path temporary(const std::string& name) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("tessera_png_test_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  return folder / name;
}

std::string u32(std::uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
  return out;
}

std::string chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const auto crc =
      crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return u32(static_cast<std::uint32_t>(data.size())) + body + u32(static_cast<std::uint32_t>(crc));
}

std::string deflate_bytes(const std::string& text) {
  uLongf size = compressBound(static_cast<uLong>(text.size()));
  std::string out(size, '\0');
  compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(text.data()),
           static_cast<uLong>(text.size()));
  out.resize(size);
  return out;
}

// An image with extra chunks after the header.
std::string with_chunks(const std::string& chunks) {
  std::string png = encode_png(test_image(3, 2), {}, "");
  png.insert(33, chunks);
  return png;
}

std::string code_of(const std::string& data) {
  try {
    parse_png_texts(data, "x.png");
  } catch (const Error& error) {
    EXPECT_EQ(error.info().file, "x.png");
    return error.info().code;
  }
  return "";
}

TEST(Png, PixelsComeBack) {
  for (const auto& [width, height] : {std::pair{1, 1}, {64, 64}, {17, 5}, {300, 2}}) {
    const Image image = test_image(width, height);
    const auto path = temporary("pixels.png");
    save_png(path, image);
    const Image back = read_own_png(path);
    EXPECT_EQ(back.width, width);
    EXPECT_EQ(back.height, height);
    EXPECT_EQ(back.rgb, image.rgb);
  }
}

TEST(Png, EqualInputGivesEqualBytes) {
  const PngText text{"parameters", "a red cube"};
  EXPECT_EQ(encode_png(test_image(20, 9), {&text, 1}, "x"),
            encode_png(test_image(20, 9), {&text, 1}, "x"));
}

TEST(Png, TextComesBackWhateverItHolds) {
  const std::vector<std::string> texts = {
      "a red cube",
      "",
      "two\nlines",
      "caf\xc3\xa9",
      "\xe7\xba\xa2\xe8\x89\xb2\xe7\xab\x8b\xe6\x96\xb9\xe4\xbd\x93",
      "\xf0\x9f\x8e\xa8 \xe2\x80\xae gnirts",
      "\x1b]0;title\x07\x1b[31m red",
      "\xc2\x80\xc2\x9f\xc2\xa0",
      std::string(70000, 'a') + "\xd0\x96",
  };
  for (const std::string& text : texts) {
    const PngText written{"parameters", text};
    const PngTexts read =
        parse_png_texts(encode_png(test_image(2, 2), {&written, 1}, "<xmp/>"), "x.png");
    ASSERT_EQ(read.texts.size(), 1u);
    EXPECT_EQ(read.texts[0].keyword, "parameters");
    EXPECT_EQ(read.texts[0].text, text);
    EXPECT_EQ(read.xmp, "<xmp/>");
    EXPECT_TRUE(read.warnings.empty());
  }
}

TEST(Png, RandomTextComesBack) {
  for (std::uint32_t round = 0; round < 2000; ++round) {
    std::string text;
    const auto key = philox_key(round, 1);
    const std::uint32_t length = philox4x32({0, 0, 0, 0}, key)[0] % 40;
    for (std::uint32_t i = 1; i <= length; ++i) {
      const PhiloxBlock bits = philox4x32({i, 0, 0, 0}, key);
      char32_t code = bits[0] % (bits[1] % 2 == 0 ? 0x180u : 0x110000u);
      if (code == 0 || (code >= 0xd800 && code < 0xe000)) code = 0xe9;
      append_utf8(text, code);
    }
    const PngText written{"k", text};
    const PngTexts read = parse_png_texts(encode_png(test_image(1, 1), {&written, 1}, ""), "x.png");
    ASSERT_EQ(read.texts.size(), 1u) << round;
    ASSERT_EQ(read.texts[0].text, text) << round;
  }
}

// Latin-1 texts are stored as tEXt, so that readers without UTF-8 support see them.
TEST(Png, ChunkTypeFollowsTheText) {
  const auto encoded = [](const std::string& text) {
    const PngText written{"parameters", text};
    return encode_png(test_image(1, 1), {&written, 1}, "");
  };
  EXPECT_NE(encoded("caf\xc3\xa9").find("tEXtparameters"), std::string::npos);
  EXPECT_NE(encoded("\xd0\x96").find("iTXtparameters"), std::string::npos);
  EXPECT_NE(encoded("\x1b[31m").find("iTXtparameters"), std::string::npos);
}

TEST(Png, ReadsTheTextsOfOtherPrograms) {
  const std::string z("k\0\0", 3), i_plain("k\0\0\0en\0K\0", 9), i_zip("k\0\1\0\0\0", 6);
  const PngTexts read = parse_png_texts(
      with_chunks(chunk("tEXt", std::string("prompt\0{\"a\":\xe9}", 14)) +
                  chunk("zTXt", z + deflate_bytes("packed")) + chunk("iTXt", i_plain + "plain") +
                  chunk("iTXt", i_zip + deflate_bytes("\xd0\x96"))),
      "x.png");
  ASSERT_EQ(read.texts.size(), 4u);
  EXPECT_EQ(read.texts[0].text, "{\"a\":\xc3\xa9}");
  EXPECT_EQ(read.texts[1].text, "packed");
  EXPECT_EQ(read.texts[2].text, "plain");
  EXPECT_EQ(read.texts[3].text, "\xd0\x96");
}

TEST(Png, BrokenTextChunksAreLeftOutWithAWarning) {
  const std::vector<std::string> broken = {
      chunk("tEXt", "no keyword end"),
      chunk("tEXt", std::string("\0x", 2)),
      chunk("tEXt", std::string(80, 'k') + std::string("\0x", 2)),
      chunk("tEXt", std::string("k\0a\0b", 5)),
      chunk("zTXt", std::string("k\0\1abc", 6)),
      chunk("zTXt", std::string("k\0\0not zlib", 11)),
      chunk("zTXt",
            std::string("k\0\0", 3) + deflate_bytes(std::string(std::size_t{64} << 20, 'a'))),
      chunk("iTXt", std::string("k\0", 2)),
      chunk("iTXt", std::string("k\0\0\0abc", 7)),
      chunk("iTXt", std::string("k\0\0\0\0\0\xff\xfe", 8)),
      chunk("iTXt", std::string("k\0\1\7\0\0abc", 9)),
      chunk("tEXt", std::string("k\0", 2) + std::string((1 << 20) + 1, 'a')),
  };
  for (const std::string& bad : broken) {
    const PngTexts read =
        parse_png_texts(with_chunks(bad + chunk("tEXt", std::string("ok\0fine", 7))), "x.png");
    EXPECT_EQ(read.warnings.size(), 1u);
    ASSERT_EQ(read.texts.size(), 1u);
    EXPECT_EQ(read.texts[0].text, "fine");
  }
}

TEST(Png, TextLimitsHoldInAll) {
  std::string many, large;
  for (int i = 0; i < 70; ++i) many += chunk("tEXt", std::string("k\0a", 3));
  for (int i = 0; i < 6; ++i) {
    large += chunk("zTXt", std::string("k\0\0", 3) + deflate_bytes(std::string(1000000, 'a')));
  }
  const PngTexts counted = parse_png_texts(with_chunks(many), "x.png");
  EXPECT_EQ(counted.texts.size(), 64u);
  EXPECT_EQ(counted.warnings.size(), 1u);
  const PngTexts sized = parse_png_texts(with_chunks(large), "x.png");
  EXPECT_EQ(sized.texts.size(), 4u);
  EXPECT_EQ(sized.warnings.size(), 2u);
}

TEST(Png, DamageIsRefusedByName) {
  const PngText text{"parameters", "a red cube"};
  const std::string good = encode_png(test_image(4, 4), {&text, 1}, "");
  EXPECT_EQ(code_of(good), "");
  EXPECT_EQ(code_of("GIF89a"), "E_PNG_SIGNATURE");
  EXPECT_EQ(code_of(""), "E_PNG_SIGNATURE");
  for (std::size_t length = 8; length < good.size(); ++length) {
    EXPECT_EQ(code_of(good.substr(0, length)), "E_PNG_CUT") << length;
  }
  for (std::size_t at = 16; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x20);
    const std::string code = code_of(bad);
    EXPECT_TRUE(code == "E_PNG_CRC" || code == "E_PNG_CUT") << at << " " << code;
  }
  EXPECT_EQ(code_of(good.substr(0, 8) + good.substr(33)), "E_PNG_HEADER");
  std::string huge = good;
  huge.replace(33, 4, u32(0xfffffff0u));
  EXPECT_EQ(code_of(huge), "E_PNG_CUT");
}

TEST(Png, OwnPixelsOnly) {
  const std::string good = encode_png(test_image(4, 4), {}, "");
  const auto refused = [](const std::string& data) {
    const auto path = temporary("bad.png");
    std::ofstream(path, std::ios::binary) << data;
    try {
      read_own_png(path);
    } catch (const Error& error) {
      return error.info().code;
    }
    return std::string();
  };
  EXPECT_EQ(refused(good), "");
  const auto with_header = [&](const std::string& header) {
    return good.substr(0, 8) + chunk("IHDR", header) + good.substr(33);
  };
  EXPECT_EQ(refused(with_header(u32(4) + u32(4) + std::string("\x08\x06\0\0\0", 5))),
            "E_PNG_PIXELS");
  EXPECT_EQ(refused(with_header(u32(40000) + u32(40000) + std::string("\x08\x02\0\0\0", 5))),
            "E_PNG_PIXELS");
  EXPECT_EQ(refused(with_header(u32(0) + u32(4) + std::string("\x08\x02\0\0\0", 5))),
            "E_PNG_PIXELS");
  EXPECT_EQ(refused(good.substr(0, 33) + chunk("IEND", "")), "E_PNG_PIXELS");
  EXPECT_EQ(refused(good.substr(0, 20)), "E_PNG_CUT");
}

TEST(Png, FailedWriteLeavesNothing) {
  const auto folder = temporary("write_test");
  const auto path = folder / "folder_in_the_way.png";
  std::filesystem::create_directories(path / "x");
  EXPECT_THROW(save_png(path, test_image(2, 2)), Error);
  EXPECT_EQ(list_folder(folder).size(), 1u);
}

TEST(Xmp, MarksTheImageAndSurvivesTheFile) {
  const std::string xmp = ai_media_xmp("tessera <\"1&2\">");
  EXPECT_EQ(xmp.find("<\"1"), std::string::npos);
  EXPECT_EQ(digital_source_type(xmp), "trainedAlgorithmicMedia");
  EXPECT_EQ(parse_png_texts(encode_png(test_image(2, 2), {}, xmp), "x").xmp, xmp);
  EXPECT_EQ(digital_source_type("<x/>"), "");
  // An address in other text is no statement, and no text can make one.
  const std::string address = "http://cv.iptc.org/newscodes/digitalsourcetype/forged";
  for (const std::string& foreign :
       {address, "DigitalSourceType='" + address + "'", "\" DigitalSourceType=\"" + address}) {
    EXPECT_EQ(digital_source_type(ai_media_xmp(foreign)), "trainedAlgorithmicMedia") << foreign;
  }
  EXPECT_EQ(digital_source_type("<a x=\"" + address + "\"/>"), "");
  EXPECT_EQ(digital_source_type("<p:DigitalSourceType rdf:resource=\"" + address + "\"/>"),
            "forged");
  EXPECT_EQ(digital_source_type("<p:DigitalSourceType>" + address + "</p:DigitalSourceType>"),
            "forged");
  // What XML does not have is left out, white space stays what it is.
  const std::string odd = ai_media_xmp("a\x01\x1b\n\xff'b");
  EXPECT_NE(odd.find("\"a&#10;&apos;b\""), std::string::npos) << odd;
}

TEST(ContactSheet, PutsImagesOnAGrid) {
  std::vector<Image> images;
  for (int i = 0; i < 5; ++i) {
    Image one(2, 2);
    for (auto& value : one.rgb) value = static_cast<std::uint8_t>(10 + i);
    images.push_back(one);
  }
  const Image sheet = contact_sheet(images, 3, 1);
  EXPECT_EQ(sheet.width, 3 * 3 + 1);
  EXPECT_EQ(sheet.height, 2 * 3 + 1);
  EXPECT_EQ(*sheet.at(0, 0), 255);
  EXPECT_EQ(*sheet.at(1, 1), 10);
  EXPECT_EQ(*sheet.at(7, 1), 12);
  EXPECT_EQ(*sheet.at(4, 4), 14);
  EXPECT_EQ(*sheet.at(7, 4), 255);
}

}  // namespace
}  // namespace tessera::png_test
