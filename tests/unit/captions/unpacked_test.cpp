// Compressed shards: the same members as of the plain archive, and what damaged, cut, lying and
// swelling ones become.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "apps/captions/tar_reader.h"
#include "apps/captions/unpacked_source.h"
#include "tests/support/memory_source.h"
#include "tests/support/packed.h"
#include "tests/support/tar_builder.h"

namespace tessera::unpacked_test {
namespace {

struct Read {
  std::vector<std::pair<std::string, std::string>> members;
  std::string code, where, message;
};

Read read_packed(const std::string& bytes, Packing packing) {
  MemorySource packed(bytes);
  Read out;
  try {
    UnpackedSource source(packed, packing, "s");
    TarReader reader(source, "s");
    while (const auto member = reader.next()) {
      std::string contents = reader.read();
      EXPECT_EQ(contents.size(), member->size);
      out.members.emplace_back(member->name, std::move(contents));
    }
  } catch (const Error& error) {
    out.code = error.info().code;
    out.where = error.info().where;
    out.message = error.what();
    EXPECT_EQ(error.exit_code(), 1);
    EXPECT_EQ(error.info().file, "s");
  }
  return out;
}

// Bytes that do not shrink, so that members lie where their share of the file is.
std::string noise(std::size_t size) {
  std::string out;
  std::uint32_t state = 1;
  while (out.size() < size) {
    state = state * 1664525u + 1013904223u;
    out += static_cast<char>(state >> 24);
  }
  return out;
}

std::string archive() {
  return TarText().file("a.jpg", noise(3000)).file("a.txt", "text").file("b.jpg", noise(900)).end();
}

struct Form {
  Packing packing;
  std::string (*pack)(std::string_view);
};
const std::vector<Form>& forms() {
  static const std::vector<Form> kForms = {
      {Packing::kGzip, [](std::string_view bytes) { return gzip_of(bytes); }},
      {Packing::kZstd, [](std::string_view bytes) { return zstd_of(bytes); }}};
  return kForms;
}

TEST(UnpackedSource, NamesSayHowAShardIsPacked) {
  const auto packing = [](const char* name) { return shard_packing(name); };
  EXPECT_EQ(packing("x.tar"), Packing::kNone);
  EXPECT_EQ(packing("d.gz/x.TAR"), Packing::kNone);
  EXPECT_EQ(packing("x.tar.gz"), Packing::kGzip);
  EXPECT_EQ(packing("x.tgz"), Packing::kGzip);
  EXPECT_EQ(packing("x.Tar.Zst"), Packing::kZstd);
  EXPECT_EQ(packing("x.tzst"), Packing::kZstd);
  for (const char* name : {"x.gz", "x.zst", "tar.gz", ".tar", ".tgz", "x.tar.xz", "x.jpg", ""}) {
    EXPECT_EQ(packing(name), std::nullopt) << name;
  }
  EXPECT_EQ(shard_stem("d/x.1.tar.gz"), "x.1");
  EXPECT_EQ(shard_stem("d/x.tzst"), "x");
}

TEST(UnpackedSource, GivesTheBytesInPiecesOfAnySize) {
  const std::string text = archive() + std::string(300'000, 'z') + noise(300'000);
  for (const Form& form : forms()) {
    for (const std::size_t step : {std::size_t{1}, std::size_t{511}, std::size_t{1} << 18}) {
      MemorySource packed(form.pack(text));
      UnpackedSource source(packed, form.packing, "s");
      std::string got, piece(step, '\0');
      while (const std::size_t size = source.read(piece.data(), step)) got.append(piece, 0, size);
      EXPECT_EQ(got, text) << step;
      EXPECT_GE(source.size(), text.size());
    }
  }
}

TEST(UnpackedSource, MembersOfOneOrSeveralStreamsAreThoseOfTheArchive) {
  const std::string text = archive();
  MemorySource plain(text);
  TarReader reader(plain, "s");
  std::vector<std::pair<std::string, std::string>> want;
  while (const auto member = reader.next()) want.emplace_back(member->name, reader.read());
  ASSERT_EQ(want.size(), 3u);
  for (const Form& form : forms()) {
    const std::string two = form.pack(text.substr(0, 777)) + form.pack(text.substr(777));
    for (const std::string& bytes :
         {form.pack(text), two, two + form.pack(""), two + std::string(1000, '\0')}) {
      const Read got = read_packed(bytes, form.packing);
      EXPECT_EQ(got.code, "") << got.message;
      EXPECT_EQ(got.members, want);
    }
    EXPECT_EQ(read_packed(two + "more", form.packing).code,
              form.packing == Packing::kGzip ? "E_TAR_TRAILING" : "E_TAR_PACKED");
    EXPECT_EQ(read_packed(two + std::string(9, '\0') + "x", form.packing).code, "E_TAR_TRAILING");
    EXPECT_EQ(read_packed(two + "more", form.packing).members, want) << "they were whole";
  }
}

TEST(UnpackedSource, WhatIsPackedOtherwiseIsRefusedAtItsBeginning) {
  const std::string text = archive();
  for (const auto& [packing, bytes] : {std::pair{Packing::kGzip, text},
                                       {Packing::kGzip, zstd_of(text)},
                                       {Packing::kZstd, text},
                                       {Packing::kZstd, gzip_of(text)}}) {
    const Read got = read_packed(bytes, packing);
    EXPECT_EQ(got.code, "E_TAR_MAGIC") << got.message;
  }
  for (const Form& form : forms()) {
    EXPECT_EQ(read_packed("", form.packing).code, "E_TAR_CUT");
    EXPECT_EQ(read_packed(form.pack(""), form.packing).code, "E_TAR_END");
    EXPECT_EQ(read_packed(form.pack(form.pack(text)), form.packing).code, "E_TAR_MAGIC") << "twice";
  }
}

// The library reads the forms before version 0.8 too, and gives other bytes of a damaged one to a
// small room than to a large one. They are refused, alone and after a sound frame.
TEST(UnpackedSource, OldFormsOfZstandardAreRefused) {
  for (int version = 0x1e; version < 0x28; ++version) {
    const std::string old = static_cast<char>(version) + std::string("\xb5\x2f\xfd") + "dsta" +
                            std::string(3, '\0') + "@" + std::string(2, '\0');
    EXPECT_EQ(read_packed(old, Packing::kZstd).code, "E_TAR_MAGIC") << version;
    EXPECT_EQ(read_packed(zstd_of(archive()) + old, Packing::kZstd).code, "E_TAR_PACKED");
  }
}

// A frame that says 771 bytes and holds none: found out whatever room the caller gives.
TEST(UnpackedSource, APieceOfAnySizeReadsTheSame) {
  std::string frame("\x28\xb5\x2f\xfd\x50\x4b\x03\x02", 8);
  frame += std::string(15, '\0') + '\1' + std::string(36, '\0');
  const auto code_at = [&](std::size_t step) -> std::string {
    MemorySource packed(frame);
    UnpackedSource source(packed, Packing::kZstd, "f");
    std::string piece(step, '\0');
    try {
      while (source.read(piece.data(), step) > 0) {
      }
    } catch (const Error& error) {
      return error.info().code;
    }
    return "none";
  };
  for (const std::size_t step : {1, 7, 512, 770, 771, 65536}) {
    EXPECT_EQ(code_at(step), "E_TAR_PACKED") << step;
  }
}

// At every byte: an error, and of the members before it those that were whole.
TEST(UnpackedSource, EveryCutIsHeardAndKeepsWholeMembers) {
  const std::string text = archive();
  for (const Form& form : forms()) {
    const std::string whole = form.pack(text);
    const Read truth = read_packed(whole, form.packing);
    std::size_t most = 0;
    for (std::size_t cut = 0; cut < whole.size(); ++cut) {
      const Read got = read_packed(whole.substr(0, cut), form.packing);
      ASSERT_EQ(got.code, "E_TAR_CUT") << cut << ' ' << got.message;
      ASSERT_LE(got.members.size(), truth.members.size());
      for (std::size_t i = 0; i < got.members.size(); ++i) {
        ASSERT_EQ(got.members[i], truth.members[i]) << cut;
      }
      most = std::max(most, got.members.size());
    }
    EXPECT_EQ(most, truth.members.size());
  }
}

// A changed bit is an error, or stood where nothing depends on it (the time in a gzip header).
TEST(UnpackedSource, NoChangedBitGoesUnheard) {
  const std::string text = archive();
  for (const Form& form : forms()) {
    const std::string whole = form.pack(text);
    const Read truth = read_packed(whole, form.packing);
    std::size_t heard = 0;
    for (std::size_t at = 0; at < whole.size(); ++at) {
      std::string bad = whole;
      bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
      const Read got = read_packed(bad, form.packing);
      heard += got.code.empty() ? 0u : 1u;
      if (got.code.empty()) {
        ASSERT_EQ(got.members, truth.members) << at;
      }
    }
    EXPECT_GE(heard, whole.size() - 8);
  }
}

TEST(UnpackedSource, ASwellingArchiveIsRefused) {
  // 200 MB of zeros in some 20 kB; gzip cannot pack so close.
  const std::string bomb = zstd_of(std::string(std::size_t{200} << 20, '\0'));
  ASSERT_LT(bomb.size(), 100'000u);
  const Read got = read_packed(bomb, Packing::kZstd);
  EXPECT_EQ(got.code, "E_TAR_SIZE") << got.message;
  const Read zeros =
      read_packed(gzip_of(std::string(std::size_t{20} << 20, '\0'), 9), Packing::kGzip);
  EXPECT_EQ(zeros.code, "") << zeros.message;
}

TEST(UnpackedSource, ASizeThatTheArchiveCannotHoldIsRefusedBeforeItIsAllocated) {
  for (const Form& form : forms()) {
    for (const std::uint64_t size : {std::uint64_t{1} << 32, std::uint64_t{2} << 20}) {
      const std::string text =
          TarText().file("ok.jpg", "fine").header({.name = "a.jpg"}, size).text();
      const Read got = read_packed(form.pack(text), form.packing);
      EXPECT_EQ(got.code, "E_TAR_CUT") << got.message;
      EXPECT_EQ(got.members.size(), 1u);
    }
  }
}

TEST(UnpackedSource, AWindowThatTakesTooMuchMemoryIsRefused) {
  const std::string text = archive();
  EXPECT_EQ(read_packed(zstd_of(text, 27), Packing::kZstd).members.size(), 3u);
  const Read got = read_packed(zstd_of(text, 28), Packing::kZstd);
  EXPECT_EQ(got.code, "E_TAR_PACKED") << got.message;
  EXPECT_NE(got.message.find("memory"), std::string::npos) << got.message;
}

}  // namespace
}  // namespace tessera::unpacked_test
