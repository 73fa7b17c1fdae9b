// GGUF files that are written here: read back key by key and byte by byte, and never half there.
#include "engine/checkpoint/gguf_write.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "tests/support/fault_scope.h"
#include "tests/support/temp_folder.h"

namespace tessera::gguf_write_test {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(TESSERA_SOURCE_DIR) / "tests/golden/gguf/types.gguf";

struct Opened {
  explicit Opened(const fs::path& path) : file(path), gguf(parse_gguf(file.bytes(), "f.gguf")) {}
  std::span<const std::byte> bytes(const GgufTensor& tensor) const {
    return file.bytes().subspan(tensor.begin, tensor.end - tensor.begin);
  }
  MappedFile file;
  GgufFile gguf;
};

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

std::vector<GgufPlanned> planned(const GgufFile& gguf) {
  std::vector<GgufPlanned> out;
  for (const GgufTensor& tensor : gguf.tensors) {
    out.push_back({tensor.name, tensor.type, tensor.shape});
  }
  return out;
}

// Tensors in two pieces each, where they have two bytes.
void write_copy(const Opened& from, const fs::path& path) {
  GgufKeys keys;
  for (const auto& [key, value] : from.gguf.keys) keys.copy(key, value);
  GgufWriter writer(path, keys, planned(from.gguf));
  for (const GgufTensor& tensor : from.gguf.tensors) {
    const auto bytes = from.bytes(tensor);
    writer.append(bytes.first(bytes.size() / 3));
    writer.append(bytes.subspan(bytes.size() / 3));
  }
  writer.publish();
  EXPECT_EQ(fs::file_size(path), writer.bytes());
}

TEST(GgufWrite, ACopyHasEveryKeyAndTensorOfEveryKind) {
  const TempFolder folder;
  const Opened from(kGolden);
  write_copy(from, folder / "copy.gguf");
  const Opened copy(folder / "copy.gguf");
  EXPECT_EQ(copy.gguf.version, 3u);
  ASSERT_EQ(copy.gguf.keys.size(), from.gguf.keys.size());
  ASSERT_GT(copy.gguf.keys.size(), 14u) << "of every kind";
  for (const auto& [key, value] : from.gguf.keys) {
    const GgufValue* const own = copy.gguf.find(key);
    ASSERT_NE(own, nullptr) << key;
    EXPECT_EQ(own->kind(), value.kind()) << key;
    EXPECT_TRUE(same(own->body(), value.body())) << key;
    if (!value.array()) continue;
    EXPECT_EQ(own->array()->element(), value.array()->element());
    EXPECT_EQ(own->array()->left(), value.array()->left());
  }
  ASSERT_EQ(copy.gguf.tensors.size(), from.gguf.tensors.size());
  for (std::size_t i = 0; i < copy.gguf.tensors.size(); ++i) {
    const GgufTensor &own = copy.gguf.tensors[i], &other = from.gguf.tensors[i];
    EXPECT_EQ(own.name, other.name);
    EXPECT_EQ(own.type, other.type);
    EXPECT_EQ(own.shape, other.shape);
    EXPECT_TRUE(same(copy.bytes(own), from.bytes(other))) << own.name;
  }
}

TEST(GgufWrite, KeysThatAreSetAreReadBack) {
  const TempFolder folder;
  GgufKeys keys;
  keys.text("text", "smile \xf0\x9f\x98\x80");
  keys.u32("u32", 4000000000u);
  keys.f32("f32", 0.1f);
  keys.boolean("yes", true);
  keys.boolean("no", false);
  const std::vector<std::string> texts = {"", "one", "two"};
  keys.texts("texts", texts);
  const std::vector<std::int32_t> ids = {-1, 0, 7};
  keys.i32s("ids", ids);
  const std::vector<float> scores = {-1.5f, 0.25f};
  keys.f32s("scores", scores);
  keys.u32("u32", 5);  // again
  GgufWriter writer(folder / "keys.gguf", keys, {});
  writer.publish();
  const Opened read(folder / "keys.gguf");
  EXPECT_EQ(read.gguf.keys.size(), 8u);
  EXPECT_EQ(read.gguf.find("text")->text(), "smile \xf0\x9f\x98\x80");
  EXPECT_EQ(read.gguf.find("u32")->integer(), 5);
  EXPECT_EQ(read.gguf.find("f32")->number(), double{0.1f});
  EXPECT_EQ(read.gguf.find("yes")->boolean(), true);
  EXPECT_EQ(read.gguf.find("no")->boolean(), false);
  GgufArray words = *read.gguf.find("texts")->array();
  ASSERT_EQ(words.left(), 3u);
  for (const std::string& text : texts) EXPECT_EQ(words.next().text(), text);
  GgufArray numbers = *read.gguf.find("ids")->array();
  ASSERT_EQ(numbers.left(), 3u);
  for (const std::int32_t id : ids) EXPECT_EQ(numbers.next().integer(), id);
  GgufArray floats = *read.gguf.find("scores")->array();
  ASSERT_EQ(floats.left(), 2u);
  for (const float score : scores) EXPECT_EQ(floats.next().number(), double{score});
}

TEST(GgufWrite, PlainNumbersAreRoundedAsTheTypesAre) {
  const float numbers[] = {0.1f, -1.0f, 65504.0f, 1e-7f};
  for (const char* name : {"F32", "F16", "BF16"}) {
    const auto types = block_types();
    const auto type =
        std::find_if(types.begin(), types.end(), [&](const auto& t) { return t.name == name; });
    ASSERT_NE(type, types.end());
    const BlockWriter write = block_writer(*type);
    ASSERT_NE(write, nullptr) << name;
    std::vector<std::byte> bytes(4 * type->bytes), again(4 * type->bytes);
    float back[4];
    write(numbers, 4, bytes.data());
    type->read(bytes.data(), 4, back);
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(back[i], numbers[i], std::abs(numbers[i]) / 128 + 1e-7);
    write(back, 4, again.data());
    EXPECT_EQ(bytes, again) << name << ": a second rounding changes nothing";
  }
  EXPECT_EQ(block_writer(*find_block_type(28)), nullptr) << "F64";
}

TEST(GgufWrite, ShapesOfNoWholeBlocksDoNotFit) {
  const BlockType &q8 = *find_block_type(8), &f32 = *find_block_type(0);
  EXPECT_TRUE(fits_gguf({3, 64}, q8));
  EXPECT_FALSE(fits_gguf({64, 48}, q8));
  EXPECT_TRUE(fits_gguf({64, 48}, f32));
  EXPECT_TRUE(fits_gguf({1, 1, 1, 32}, q8));
  EXPECT_FALSE(fits_gguf({1, 1, 1, 1, 32}, q8)) << "files have four extents";
  EXPECT_FALSE(fits_gguf({}, f32));
}

TEST(GgufWrite, AFullDiskLeavesNoHalfFile) {
  const Opened from(kGolden);
  std::uint64_t faults = 0;
  for (std::uint64_t nth = 1;; nth += 5) {
    const TempFolder folder;
    const FaultScope fault({.op = IoOp::kWrite, .nth = nth, .error = ENOSPC});
    std::string code;
    try {
      write_copy(from, folder / "copy.gguf");
    } catch (const Error& error) {
      code = error.info().code;
    }
    if (fault.hits() == 0) break;
    ++faults;
    EXPECT_EQ(code, "E_IO_WRITE");
    EXPECT_TRUE(fs::is_empty(folder.path())) << nth;
  }
  EXPECT_GE(faults, 3u);
}

}  // namespace
}  // namespace tessera::gguf_write_test
