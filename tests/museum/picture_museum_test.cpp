// The museum of bad pictures. Each exhibit is shown twice: to the decoders themselves (which is
// where sanitizers look), and to the program through its reader process, which must outlive them
// all. Each is refused with its code and a line that says what was expected and found, or gives its
// documented substitute.
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <set>

#include "tests/museum/picture_exhibit.h"
#include "tests/support/picture_files.h"
#include "vision/codec/decode.h"
#include "vision/image/picture_reader.h"

namespace tessera {
namespace {

constexpr double kMaxSeconds = 1.0;
constexpr long kMaxGrowthKib = 64 * 1024;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kInstrumented = true;  // keeps freed memory: growth says nothing, time little
#else
constexpr bool kInstrumented = false;
#endif

long memory_kib(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field)) return std::stol(line.substr(field.size() + 1));
  }
  return 0;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "; ";
  return out;
}

// What is wrong with the way `exhibit` was received; empty if nothing.
template <typename Decode>
std::string complaints(const PictureExhibit& exhibit, Decode decode) {
  std::string said, code, out;
  try {
    const Picture picture = decode(exhibit.file);
    said = joined(picture.notes);
  } catch (const Error& error) {
    code = error.info().code;
    said = error.what();
    if (error.exit_code() != 1) out += "exit code " + std::to_string(error.exit_code()) + "; ";
    if (error.info().expected.empty() || error.info().found.empty())
      out += "no expected or no found; ";
    if (said.size() > 1024) out += "longer than 1 KiB; ";
    if (said.find("0x7f") != std::string::npos) out += "a pointer; ";
  }
  if (code != exhibit.code) out += "code \"" + code + "\" instead of \"" + exhibit.code + "\"; ";
  if (escape_for_terminal(said) != said) out += "control bytes; ";
  for (const std::string& word : exhibit.words) {
    if (said.find(word) == std::string::npos) out += "no \"" + word + "\"; ";
  }
  return out.empty() ? out : out + "in: " + said;
}

Picture decode_here(const std::string& file) { return decode_picture(as_bytes(file)); }

std::string visit(const PictureExhibit& exhibit) {
  std::ofstream("/proc/self/clear_refs") << "5";
  const long memory = memory_kib("VmRSS");
  const std::clock_t start = std::clock();
  std::string out = complaints(exhibit, &decode_here);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  const long growth = memory_kib("VmHWM") - memory;
  if (kInstrumented) return out;
  if (seconds > kMaxSeconds) out += " took " + std::to_string(seconds) + " s";
  if (growth > kMaxGrowthKib) out += " took " + std::to_string(growth) + " KiB";
  return out;
}

std::vector<PictureExhibit> all_exhibits() {
  std::vector<PictureExhibit> all;
  for (const auto& room : {png_exhibits(), jpeg_exhibits(), webp_exhibits(), gif_exhibits(),
                           bmp_exhibits(), stranger_exhibits()}) {
    all.insert(all.end(), room.begin(), room.end());
  }
  return all;
}

class PictureMuseum : public ::testing::TestWithParam<PictureExhibit> {};

TEST_P(PictureMuseum, IsReceivedAsItsLabelSays) { EXPECT_EQ(visit(GetParam()), ""); }

INSTANTIATE_TEST_SUITE_P(Exhibits, PictureMuseum, ::testing::ValuesIn(all_exhibits()),
                         [](const auto& row) { return row.param.name; });

TEST(PictureMuseumCatalogue, OneReaderProcessOutlivesThemAll) {
  PictureReader reader;
  std::size_t refused = 0, replaced = 0;
  for (const PictureExhibit& exhibit : all_exhibits()) {
    EXPECT_EQ(complaints(exhibit,
                         [&](const std::string& file) {
                           return reader.decode(as_bytes(file), "exhibit");
                         }),
              "")
        << exhibit.name;
    ++(exhibit.code.empty() ? replaced : refused);
  }
  EXPECT_EQ(reader.processes_started(), 1u);
  std::printf("pictures: %zu refused by name, %zu replaced, 1 process\n", refused, replaced);
}

// The guide itself is checked: it complains of each part of a wrong label.
TEST(PictureMuseumCatalogue, WrongLabelsAreNoticed) {
  const PictureExhibit right = png_exhibits().front();
  ASSERT_EQ(visit(right), "");
  PictureExhibit wrong = right;
  wrong.code = "E_PICTURE_DATA";
  EXPECT_NE(visit(wrong), "");
  wrong = right;
  wrong.words.push_back("a word that no message holds");
  EXPECT_NE(visit(wrong), "");
  wrong = right;
  wrong.file = golden_picture("rgb.png");
  EXPECT_NE(visit(wrong), "");
}

TEST(PictureMuseumCatalogue, HoldsAtLeastAHundredPicturesUnderNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const PictureExhibit& exhibit : all_exhibits()) {
    EXPECT_TRUE(names.insert(exhibit.name).second) << exhibit.name;
    EXPECT_TRUE(exhibit.code.empty() || !exhibit.words.empty()) << exhibit.name;
  }
  EXPECT_GE(names.size(), 100u);
}

}  // namespace
}  // namespace tessera
