// The corpus of bad files of bad images. Each bad sample is shown twice: to the decoders themselves (which is
// where sanitizers look), and to the program through its reader process, which must outlive them
// all. Each is refused with its code and a line that says what was expected and found, or gives its
// documented substitute.
#include <gtest/gtest.h>

#include <set>

#include "tests/bad_files/image_bad_sample.h"
#include "tests/bad_files/refusal_cost.h"
#include "tests/support/image_files.h"
#include "vision/codec/decode.h"
#include "vision/image/image_reader.h"

namespace tessera::image_bad_files_test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kInstrumented = true;  // keeps freed memory: growth says nothing, time little
#else
constexpr bool kInstrumented = false;
#endif

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "; ";
  return out;
}

// What is wrong with the way `bad sample` was received; empty if nothing.
template <typename Decode>
std::string complaints(const ImageBadSample& bad_sample, Decode decode) {
  std::string said, code, out;
  try {
    const DecodedImage image = decode(bad_sample.file);
    said = joined(image.notes);
  } catch (const Error& error) {
    code = error.info().code;
    said = error.what();
    if (error.exit_code() != 1) out += "exit code " + std::to_string(error.exit_code()) + "; ";
    if (error.info().expected.empty() || error.info().found.empty())
      out += "no expected or no found; ";
    if (said.size() > 1024) out += "longer than 1 KiB; ";
    if (said.find("0x7f") != std::string::npos) out += "a pointer; ";
  }
  if (code != bad_sample.code) out += "code \"" + code + "\" instead of \"" + bad_sample.code + "\"; ";
  if (escape_for_terminal(said) != said) out += "control bytes; ";
  for (const std::string& word : bad_sample.words) {
    if (said.find(word) == std::string::npos) out += "no \"" + word + "\"; ";
  }
  return out.empty() ? out : out + "in: " + said;
}

DecodedImage decode_here(const std::string& file) { return decode_image(as_bytes(file)); }

std::string visit(const ImageBadSample& bad_sample) {
  const RefusalCost cost;
  const std::string out = complaints(bad_sample, &decode_here);
  return kInstrumented ? out : out + cost.complaint();
}

std::vector<ImageBadSample> all_bad_samples() {
  std::vector<ImageBadSample> all;
  for (const auto& room : {png_bad_samples(), jpeg_bad_samples(), webp_bad_samples(), gif_bad_samples(),
                           bmp_bad_samples(), stranger_bad_samples()}) {
    all.insert(all.end(), room.begin(), room.end());
  }
  return all;
}

class ImageBadFiles : public ::testing::TestWithParam<ImageBadSample> {};

TEST_P(ImageBadFiles, IsReceivedAsItsLabelSays) { EXPECT_EQ(visit(GetParam()), ""); }

INSTANTIATE_TEST_SUITE_P(BadSamples, ImageBadFiles, ::testing::ValuesIn(all_bad_samples()),
                         [](const auto& row) { return row.param.name; });

TEST(ImageBadFilesCatalogue, OneReaderProcessOutlivesThemAll) {
  ImageReader reader;
  std::size_t refused = 0, replaced = 0;
  for (const ImageBadSample& bad_sample : all_bad_samples()) {
    EXPECT_EQ(complaints(bad_sample,
                         [&](const std::string& file) {
                           return reader.decode(as_bytes(file), "exhibit");
                         }),
              "")
        << bad_sample.name;
    ++(bad_sample.code.empty() ? replaced : refused);
  }
  EXPECT_EQ(reader.processes_started(), 1u);
  std::printf("images: %zu refused by name, %zu replaced, 1 process\n", refused, replaced);
}

// The guide itself is checked: it complains of each part of a wrong label.
TEST(ImageBadFilesCatalogue, WrongLabelsAreNoticed) {
  const ImageBadSample right = png_bad_samples().front();
  ASSERT_EQ(visit(right), "");
  ImageBadSample wrong = right;
  wrong.code = "E_PICTURE_DATA";
  EXPECT_NE(visit(wrong), "");
  wrong = right;
  wrong.words.push_back("a word that no message holds");
  EXPECT_NE(visit(wrong), "");
  wrong = right;
  wrong.file = golden_image("rgb.png");
  EXPECT_NE(visit(wrong), "");
}

TEST(ImageBadFilesCatalogue, HoldsAtLeastAHundredImagesUnderNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const ImageBadSample& bad_sample : all_bad_samples()) {
    EXPECT_TRUE(names.insert(bad_sample.name).second) << bad_sample.name;
    EXPECT_TRUE(bad_sample.code.empty() || !bad_sample.words.empty()) << bad_sample.name;
  }
  EXPECT_GE(names.size(), 100u);
}

}  // namespace
}  // namespace tessera::image_bad_files_test
