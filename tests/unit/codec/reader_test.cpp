// The program's side and the reader process: images come through unharmed, and whatever the
// process does, the program gets one error and the next image.
#include "vision/image/image_reader.h"

#include <gtest/gtest.h>

#include <fstream>

#include "engine/core/io.h"
#include "tests/support/image_files.h"
#include "tests/support/image_noise.h"
#include "vision/codec/decode.h"

namespace tessera::reader_test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kInstrumented = true;  // the sandbox stays open for the sanitizer's runtime
#else
constexpr bool kInstrumented = false;
#endif

ImageReader hostile_reader(double deadline = 10, std::uint64_t cpu_seconds = 60) {
  ImageReaderOptions options;
  options.helper = std::filesystem::path(TESSERA_BINARY_DIR) / "bin" / "hostile_helper";
  options.deadline_seconds = deadline;
  options.memory_bytes = std::uint64_t{256} << 20;
  options.cpu_seconds = cpu_seconds;
  return ImageReader(options);
}

Error error_of(ImageReader& reader, const std::string& file) {
  try {
    const DecodedImage image = reader.decode(as_bytes(file), "x.png");
    return Error({.code = "none", .found = image.format});
  } catch (const Error& error) {
    EXPECT_EQ(error.info().file, "x.png");
    EXPECT_EQ(escape_for_terminal(error.what()), error.what());
    return error;
  }
}

// The reader works: a process that serves, and pixels that are right.
void expect_recovered(ImageReader& reader) {
  EXPECT_EQ(reader.decode(as_bytes("please"), "x.png").format, "OBEYED");
}

TEST(ImageReader, GivesTheDecodersPixels) {
  ImageReader reader;
  for (const char* name : {"rgb.png", "rgba.png", "cmyk.jpg", "exif6.jpg", "lossy_alpha.webp",
                           "animated.gif", "palette.bmp"}) {
    const std::string file = golden_image(name);
    const DecodedImage want = decode_image(as_bytes(file));
    const DecodedImage got = reader.decode(as_bytes(file), name);
    EXPECT_EQ(got.width, want.width);
    EXPECT_EQ(got.height, want.height);
    EXPECT_EQ(got.channels, want.channels);
    EXPECT_EQ(got.pixels, want.pixels) << name;
    EXPECT_EQ(got.format, want.format);
    EXPECT_EQ(got.notes, want.notes);
  }
  EXPECT_EQ(reader.processes_started(), 1u) << "one process serves them all";
  EXPECT_EQ(reader.confinement(), kInstrumented ? "nothing" : "limits and system calls");
}

TEST(ImageReader, ReadsFilesAndNamesThemInErrors) {
  TempFolder folder;
  ImageReader reader;
  put_file(folder / "good.jpg", golden_image("rgb444.jpg"));
  EXPECT_EQ(reader.read(folder / "good.jpg").width, 24);
  put_file(folder / "note.png", "just a note");
  try {
    reader.read(folder / "note.png");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_PICTURE_FORMAT");
    EXPECT_EQ(error.info().file, (folder / "note.png").string());
    EXPECT_EQ(error.info().found, "text");
    EXPECT_EQ(error.exit_code(), 1);
  }
  EXPECT_THROW(reader.read(folder / "missing.png"), Error);
  EXPECT_THROW(reader.read(folder.path()), Error);
  EXPECT_EQ(reader.read(folder / "good.jpg").width, 24);
  EXPECT_EQ(reader.processes_started(), 1u);
}

TEST(ImageReader, LargeImagesComeThroughWhole) {
  ImageReader reader;
  const Image noise = noise_image(2000, 1500, 9);
  std::string pixels;  // a plain BMP: rows from the bottom, blue first
  for (std::int64_t y = 1499; y >= 0; --y) {
    for (std::int64_t x = 0; x < 2000; ++x) {
      const std::uint8_t* at = noise.at(x, y);
      pixels += {static_cast<char>(at[2]), static_cast<char>(at[1]), static_cast<char>(at[0])};
    }
  }
  const std::string file = bmp_file(2000, 1500, {.pixels = pixels});
  EXPECT_EQ(reader.decode(as_bytes(file), "large.bmp").pixels, noise.rgb);
}

TEST(ImageReader, ADyingProcessCostsOneImage) {
  ImageReader reader = hostile_reader();
  const std::vector<std::pair<std::string, std::string>> deaths = {
      {"exit 0", "status 0"}, {"exit 3", "status 3"}, {"trap", "SIGILL"}, {"crash", "SIGSEGV"}};
  std::uint64_t started = 0;
  for (const auto& [order, how] : deaths) {
    const Error error = error_of(reader, order);
    EXPECT_EQ(error.info().code, "E_PICTURE_HELPER") << order;
    if (!kInstrumented) {
      EXPECT_NE(error.info().found.find(how), std::string::npos) << error.what();
    }
    expect_recovered(reader);
    EXPECT_EQ(reader.processes_started(), ++started + 1);
  }
}

TEST(ImageReader, FiftyCrashesInARowLeaveNothingAfter) {
  ImageReader reader = hostile_reader();
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  expect_recovered(reader);
  const auto before = open_files();
  for (int i = 0; i < 50; ++i) error_of(reader, "exit 1");
  expect_recovered(reader);
  EXPECT_EQ(open_files(), before);
}

TEST(ImageReader, AHangEndsAtTheDeadline) {
  ImageReader reader = hostile_reader(0.5);
  const double start = monotonic_seconds();
  EXPECT_EQ(error_of(reader, "hang").info().code, "E_PICTURE_TIME");
  EXPECT_LT(monotonic_seconds() - start, 5.0);
  expect_recovered(reader);
}

TEST(ImageReader, ProcessorTimeIsLimitedToo) {
  if (kInstrumented) GTEST_SKIP() << "no limits next to a sanitizer";
  ImageReader reader = hostile_reader(30, 1);
  const Error error = error_of(reader, "hang");
  EXPECT_EQ(error.info().code, "E_PICTURE_HELPER");
  EXPECT_NE(error.info().found.find("SIGXCPU"), std::string::npos) << error.what();
  expect_recovered(reader);
}

TEST(ImageReader, MemoryEndsAtItsLimit) {
  if (kInstrumented) GTEST_SKIP() << "no limits next to a sanitizer";
  ImageReader reader = hostile_reader();
  EXPECT_EQ(error_of(reader, "memory 16").info().found, "OBEYED");
  EXPECT_EQ(error_of(reader, "memory 100000").info().code, "E_PICTURE_MEMORY");
  expect_recovered(reader);
  EXPECT_EQ(reader.processes_started(), 1u) << "running out of memory is an answer, not a death";
}

TEST(ImageReader, AFileLargerThanItsMemoryIsRefused) {
  if (kInstrumented) GTEST_SKIP() << "no limits next to a sanitizer";
  ImageReaderOptions options;
  options.memory_bytes = std::uint64_t{64} << 20;
  ImageReader reader(options);
  const std::string large = golden_image("rgb.bmp") + std::string(std::size_t{80} << 20, 'x');
  EXPECT_EQ(error_of(reader, large).info().code, "E_PICTURE_MEMORY");
  EXPECT_EQ(reader.decode(as_bytes(golden_image("rgb.bmp")), "x").width, 24);
}

TEST(ImageReader, LiesAreRefused) {
  ImageReader reader = hostile_reader();
  for (const char* how :
       {"magic", "huge", "wrap", "channels", "size", "zero", "text", "status", "code", "parts"}) {
    EXPECT_EQ(error_of(reader, std::string("lie ") + how).info().code, "E_PICTURE_HELPER") << how;
    expect_recovered(reader);
  }
  EXPECT_EQ(error_of(reader, "lie escape").info().code, "E_PICTURE_DATA");  // printed escaped
  expect_recovered(reader);
  for (const char* order : {"flood", "surplus"}) {
    EXPECT_NE(error_of(reader, order).info().code, "none") << order;
    expect_recovered(reader);
  }
}

TEST(ImageReader, NothingGetsOutOfTheSandbox) {
  if (kInstrumented) GTEST_SKIP() << "no sandbox next to a sanitizer";
  ImageReader reader = hostile_reader();
  expect_recovered(reader);
  if (reader.confinement() != "limits and system calls") {
    GTEST_SKIP() << "the kernel grants no system call filter here";
  }
  for (const char* order :
       {"open", "create", "connect", "fork", "exec", "kill", "stdout", "executable"}) {
    const Error error = error_of(reader, order);
    EXPECT_EQ(error.info().code, "E_PICTURE_HELPER") << order << ": " << error.info().found;
    EXPECT_NE(error.info().found.find("SIGSYS"), std::string::npos)
        << order << ": " << error.what();
    expect_recovered(reader);
  }
  EXPECT_FALSE(std::filesystem::exists("escaped"));
}

TEST(ImageReader, AMissingProcessIsNamed) {
  ImageReaderOptions options;
  options.helper = "no/such/helper";
  ImageReader reader(options);
  try {
    reader.decode(as_bytes("x"), "x.png");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_PICTURE_HELPER");
    EXPECT_EQ(error.info().file, "no/such/helper");
  }
}

TEST(ImageReader, AProgramThatIsNoReaderIsRefused) {
  for (const char* program : {"/bin/true", "/bin/cat", "/bin/echo"}) {
    ImageReaderOptions options;
    options.helper = program;
    options.deadline_seconds = 2;
    ImageReader reader(options);
    EXPECT_NE(error_of(reader, "x").info().code, "none") << program;
  }
}

// The program itself holds no decoder of strangers' images; its reader process does.
TEST(ImageReader, OnlyTheReaderProcessLinksDecoders) {
  const auto bin = std::filesystem::path(TESSERA_BINARY_DIR) / "bin";
  const auto links = [&](const char* program, const char* library) {
    return get_file(bin / program).find(library) != std::string::npos;
  };
  EXPECT_TRUE(links("tessera-helper", "libjpeg.so"));
  EXPECT_TRUE(links("tessera-helper", "libwebp.so"));
  if (!std::filesystem::exists(bin / "tessera")) GTEST_SKIP() << "the program is not built";
  EXPECT_FALSE(links("tessera", "libjpeg.so"));
  EXPECT_FALSE(links("tessera", "libwebp.so"));
}

}  // namespace
}  // namespace tessera::reader_test
