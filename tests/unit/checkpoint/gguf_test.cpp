// GGUF files: one of the `gguf` package read in every key and number, and bad ones refused by name.
#include "engine/checkpoint/gguf.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/block_parts.h"
#include "engine/core/error.h"
#include "engine/core/io.h"
#include "tests/support/gguf_builder.h"

namespace tessera::gguf_test {
namespace {

const std::filesystem::path kGolden =
    std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/gguf";

std::span<const std::byte> bytes_of(const std::string& file) {
  return std::as_bytes(std::span(file));
}

struct Golden {
  MappedFile file{kGolden / "types.gguf"};
  GgufFile gguf = parse_gguf(file.bytes(), "types.gguf");
  const GgufValue& key(const char* name) const {
    const GgufValue* value = gguf.find(name);
    EXPECT_NE(value, nullptr) << name;
    static const GgufValue kNone;
    return value == nullptr ? kNone : *value;
  }
};

TEST(Gguf, KeysOfEveryKindAreRead) {
  const Golden golden;
  EXPECT_EQ(golden.gguf.version, 3u);
  EXPECT_EQ(golden.key("general.architecture").text(), "llama");
  EXPECT_EQ(golden.key("a.u8").integer(), 200);
  EXPECT_EQ(golden.key("a.i8").integer(), -100);
  EXPECT_EQ(golden.key("a.u16").integer(), 60000);
  EXPECT_EQ(golden.key("a.i16").integer(), -30000);
  EXPECT_EQ(golden.key("a.u32").integer(), 4000000000);
  EXPECT_EQ(golden.key("a.i32").integer(), -2000000000);
  EXPECT_EQ(golden.key("a.u64").integer(), 9007199254740993);
  EXPECT_EQ(golden.key("a.i64").integer(), -9007199254740993);
  EXPECT_EQ(golden.key("a.f32").number(), double{0.1f});
  EXPECT_EQ(golden.key("a.f64").number(), 0.1);
  EXPECT_EQ(golden.key("a.i8").number(), -100.0);
  EXPECT_EQ(golden.key("a.bool").boolean(), true);
  EXPECT_EQ(golden.key("a.string").text(), "smile \xf0\x9f\x98\x80");
  GgufArray strings = golden.key("a.strings").array().value();
  ASSERT_EQ(strings.left(), 3u);
  for (const char* text : {"", "one", "zwei"}) EXPECT_EQ(strings.next().text(), text);
  GgufArray numbers = golden.key("a.numbers").array().value();
  ASSERT_EQ(numbers.left(), 3u);
  for (const int number : {-1, 2, 3}) EXPECT_EQ(numbers.next().integer(), number);
  EXPECT_EQ(numbers.left(), 0u);
  EXPECT_EQ(golden.gguf.find("a.none"), nullptr);
}

TEST(Gguf, ValueOfAnotherKindIsNothing) {
  const Golden golden;
  EXPECT_FALSE(golden.key("a.string").integer());
  EXPECT_FALSE(golden.key("a.u8").text());
  EXPECT_FALSE(golden.key("a.f32").integer());
  EXPECT_FALSE(golden.key("a.u8").boolean());
  EXPECT_FALSE(golden.key("a.string").array());
  EXPECT_FALSE(golden.key("a.strings").text());
}

// Blocks of 32 numbers of many sizes, of zeros and of ties, as the package writes them.
TEST(Gguf, WrittenBlocksEqualTheReferenceBitForBit) {
  const Checkpoint golden = Checkpoint::open(kGolden / "written.safetensors");
  const ConstTensorView numbers = *golden.find("numbers");
  const std::int64_t blocks = numbers.shape[0];
  ASSERT_GT(blocks, 20);
  for (const std::uint32_t id : {2u, 3u, 6u, 7u, 8u}) {
    const BlockType& type = *find_block_type(id);
    const ConstTensorView* want = golden.find(std::string(type.name));
    ASSERT_NE(want, nullptr) << type.name;
    ASSERT_EQ(want->bytes(), static_cast<std::size_t>(blocks) * type.bytes);
    std::vector<std::byte> got(want->bytes());
    type.write(numbers.f32(), blocks, got.data());
    EXPECT_EQ(std::memcmp(got.data(), want->data, got.size()), 0) << type.name;
  }
}

// A scale beyond f16 is the largest one; a block with NaN has a scale of NaN.
TEST(Gguf, WrittenBlocksOfHugeNumbersAndOfNone) {
  for (const BlockType& type : block_types()) {
    if (type.numbers == 1) continue;
    std::vector<float> numbers(static_cast<std::size_t>(type.numbers), 1e30f), back(numbers.size());
    std::vector<std::byte> block(type.bytes);
    type.write(numbers.data(), 1, block.data());
    type.read(block.data(), 1, back.data());
    const bool offset = find_block_form(type.id) != nullptr && find_block_form(type.id)->form.offsets;
    for (const float number : back) EXPECT_GT(number, offset ? 6.5e4f : 2.5e5f) << type.name;
    numbers[9] = std::numeric_limits<float>::quiet_NaN();
    type.write(numbers.data(), 1, block.data());
    type.read(block.data(), 1, back.data());
    for (const float number : back) EXPECT_TRUE(std::isnan(number)) << type.name;
  }
}

TEST(Gguf, NumbersOfEveryFormatEqualTheReferenceBitForBit) {
  const Golden golden;
  const Checkpoint expected = Checkpoint::open(kGolden / "numbers.safetensors");
  std::set<std::string_view> seen;
  for (const GgufTensor& tensor : golden.gguf.tensors) {
    const ConstTensorView* numbers = expected.find(tensor.name);
    ASSERT_NE(numbers, nullptr) << tensor.name;
    ASSERT_EQ(tensor.shape, numbers->shape) << tensor.name;
    std::vector<float> read(static_cast<std::size_t>(tensor.numbers()));
    read_gguf_tensor(tensor, golden.file.bytes(), read.data());
    int different = 0;
    for (std::size_t i = 0; i < read.size(); ++i) {
      different +=
          std::bit_cast<std::uint32_t>(read[i]) != std::bit_cast<std::uint32_t>(numbers->f32()[i]);
    }
    EXPECT_EQ(different, 0) << tensor.name;
    seen.insert(tensor.type->name);
  }
  EXPECT_EQ(seen.size(), block_types().size()) << "a tensor of each format";
}

TEST(Gguf, FormatsHaveOneIdAndOneName) {
  std::set<std::string_view> names;
  for (const BlockType& type : block_types()) {
    EXPECT_EQ(find_block_type(type.id), &type);
    EXPECT_EQ(unread_block_name(type.id), "") << type.name;
    EXPECT_TRUE(names.insert(type.name).second) << type.name;
  }
  EXPECT_EQ(find_block_type(16), nullptr);
  EXPECT_EQ(unread_block_name(16), "IQ2_XXS");
}

std::string code_of(const std::string& file) {
  try {
    parse_gguf(bytes_of(file), "f.gguf");
  } catch (const Error& error) {
    EXPECT_EQ(error.info().kind, ErrorKind::kModel);
    EXPECT_EQ(error.info().file, "f.gguf");
    EXPECT_FALSE(error.info().where.empty());
    EXPECT_FALSE(error.info().expected.empty());
    EXPECT_FALSE(error.info().found.empty());
    EXPECT_LE(std::string(error.what()).size(), 1024u);
    return error.info().code + ": " + error.what();
  }
  return "accepted";
}

// A row of one Q4_0 block, then four f32 numbers.
GgufParts good_parts() {
  return {.keys = 1,
          .tensors = 2,
          .lists = gguf_key("k", 8, gguf_text("v")) + gguf_tensor("a", {32, 1}, 2, 0) +
                   gguf_tensor("b", {4}, 0, 32),
          .data = 48};
}

TEST(Gguf, SmallFileIsRead) {
  const std::string file = gguf_file(good_parts());
  const GgufFile gguf = parse_gguf(bytes_of(file), "f.gguf");
  ASSERT_EQ(gguf.tensors.size(), 2u);
  EXPECT_EQ(gguf.tensors[0].shape, (Shape{1, 32})) << "the innermost extent is the last";
  EXPECT_EQ(gguf.tensors[0].end - gguf.tensors[0].begin, 18u);
  EXPECT_EQ(gguf.tensors[1].end, file.size());
}

TEST(Gguf, FileCutAnywhereIsRefused) {
  const std::string file = gguf_file(good_parts());
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(code_of(file.substr(0, size)), "accepted") << size << " bytes";
  }
}

TEST(Gguf, ByteChangedAnywhereEndsInAnErrorOrInTensorsInsideTheFile) {
  const std::string file = gguf_file(good_parts());
  for (std::size_t at = 0; at < file.size(); ++at) {
    for (const int change : {1, 0x80, 0xff}) {
      std::string other = file;
      other[at] = static_cast<char>(other[at] ^ change);
      try {
        for (const GgufTensor& tensor : parse_gguf(bytes_of(other), "f").tensors) {
          ASSERT_LE(tensor.begin, tensor.end);
          ASSERT_LE(tensor.end, other.size());
          std::vector<float> numbers(static_cast<std::size_t>(tensor.numbers()));
          read_gguf_tensor(tensor, bytes_of(other), numbers.data());
        }
      } catch (const Error& error) {
        ASSERT_TRUE(error.info().code.starts_with("E_GGUF_")) << error.what();
      }
    }
  }
}

struct BadGguf {
  const char* starts;  // code and the words that follow in the message
  std::string word;
  GgufParts parts;
};

std::vector<BadGguf> bad_files() {
  const auto key = [](const std::string& body, std::uint64_t count = 1) {
    return GgufParts{.keys = count, .lists = body};
  };
  const auto tensor = [](const std::string& one, std::size_t data = 64) {
    return GgufParts{.tensors = 1, .lists = one, .data = data};
  };
  GgufParts swapped = good_parts();
  swapped.version = 3u << 24;
  return {
      {"E_GGUF_MAGIC", "byte 0", {.magic = "GGUA"}},
      {"E_GGUF_VERSION", "found 1", {.version = 1}},
      {"E_GGUF_VERSION", "big-endian", swapped},
      {"E_GGUF_COUNT", "100001", {.tensors = 100001}},
      {"E_GGUF_COUNT", "18446744073709551615", {.keys = UINT64_MAX}},
      {"E_GGUF_TRUNCATED", "byte 24", {.keys = 1}},
      {"E_GGUF_KEY", "byte 24", key(gguf_key("", 4, gguf_number(1, 4)))},
      {"E_GGUF_KEY", "found 1025", key(gguf_key(std::string(1025, 'k'), 4, gguf_number(1, 4)))},
      {"E_GGUF_KEY", "control", key(gguf_key("a\nb", 4, gguf_number(1, 4)))},
      {"E_GGUF_TEXT", "a key in UTF-8", key(gguf_key("\xff", 4, gguf_number(1, 4)))},
      {"E_GGUF_VALUE", "found 13", key(gguf_key("k", 13, ""))},
      {"E_GGUF_VALUE", "found 2", key(gguf_key("k", 7, gguf_number(2, 1)))},
      {"E_GGUF_VALUE", "\"k\"", key(gguf_key("k", 8, gguf_number(std::uint64_t{1} << 40, 8)))},
      {"E_GGUF_TEXT", "\"k\"", key(gguf_key("k", 8, gguf_text("\xc3")))},
      {"E_GGUF_VALUE", "arrays in an array",
       key(gguf_key("k", 9, gguf_number(9, 4) + gguf_number(1, 8)))},
      {"E_GGUF_COUNT", "elements",
       key(gguf_key("k", 9, gguf_number(4, 4) + gguf_number(1u << 25, 8)))},
      {"E_GGUF_TRUNCATED", "400", key(gguf_key("k", 9, gguf_number(4, 4) + gguf_number(100, 8)))},
      {"E_GGUF_TRUNCATED", "found 0",
       key(gguf_key("k", 9, gguf_number(8, 4) + gguf_number(1u << 20, 8)))},
      {"E_GGUF_DUPLICATE", "\"k\"",
       key(gguf_key("k", 7, gguf_number(1, 1)) + gguf_key("k", 7, gguf_number(1, 1)), 2)},
      {"E_GGUF_ALIGNMENT", "found 24", key(gguf_key("general.alignment", 4, gguf_number(24, 4)))},
      {"E_GGUF_ALIGNMENT", "found 0", key(gguf_key("general.alignment", 8, gguf_text("32")))},
      {"E_GGUF_NAME", "byte 24", tensor(gguf_tensor("", {4}, 0, 0))},
      {"E_GGUF_RANK", "found 5", tensor(gguf_tensor("t", {1, 1, 1, 1, 1}, 0, 0))},
      {"E_GGUF_SHAPE", "9223372036854775808",
       tensor(gguf_tensor("t", {std::uint64_t{1} << 63}, 0, 0))},
      {"E_GGUF_SHAPE", "2^63 bytes",
       tensor(gguf_tensor("t", {std::uint64_t{1} << 32, std::uint64_t{1} << 32}, 0, 0))},
      {"E_GGUF_TYPE", "IQ2_XXS", tensor(gguf_tensor("t", {256}, 16, 0))},
      {"E_GGUF_TYPE", "found 99", tensor(gguf_tensor("t", {4}, 99, 0))},
      {"E_GGUF_BLOCKS", "rows of 33", tensor(gguf_tensor("t", {33}, 2, 0))},
      {"E_GGUF_OFFSET", "found 16", tensor(gguf_tensor("t", {4}, 0, 16))},
      {"E_GGUF_TRUNCATED", "\"t\"", tensor(gguf_tensor("t", {17}, 0, 0))},
      {"E_GGUF_TRUNCATED", "\"t\"", tensor(gguf_tensor("t", {4}, 0, UINT64_MAX - 31))},
      {"E_GGUF_OVERLAP",
       "bytes of tensor \"a\"",
       {.tensors = 2,
        .lists = gguf_tensor("a", {16}, 0, 0) + gguf_tensor("b", {4}, 0, 32),
        .data = 64}},
      {"E_GGUF_DUPLICATE",
       "\"a\"",
       {.tensors = 2,
        .lists = gguf_tensor("a", {4}, 0, 0) + gguf_tensor("a", {4}, 0, 32),
        .data = 64}},
  };
}

TEST(Gguf, BadFilesAreRefusedByName) {
  for (const BadGguf& bad : bad_files()) {
    const std::string said = code_of(gguf_file(bad.parts));
    EXPECT_TRUE(said.starts_with(bad.starts)) << said;
    EXPECT_NE(said.find(bad.word), std::string::npos) << "no " << bad.word << " in " << said;
  }
}

TEST(Gguf, TensorsOfNoNumbersMayShareAPlace) {
  const std::string file =
      gguf_file({.tensors = 2,
                 .lists = gguf_tensor("a", {0}, 0, 0) + gguf_tensor("b", {4}, 0, 0),
                 .data = 16});
  EXPECT_EQ(parse_gguf(bytes_of(file), "f").tensors.size(), 2u);
}

}  // namespace
}  // namespace tessera::gguf_test
