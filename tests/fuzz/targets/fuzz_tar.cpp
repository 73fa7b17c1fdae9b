// Tar archives and the samples in them. Oracle: members follow one another inside the file without
// overlap, their contents are the bytes of the file, names are looked at again the slow way; the
// archive either ends well or with an error that says where.
#include <algorithm>

#include "apps/captions/tar_reader.h"
#include "apps/captions/unpacked_source.h"
#include "apps/captions/webdataset.h"
#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "tests/fuzz/targets/fuzz_support.h"
#include "tests/support/memory_source.h"
#include "tests/support/packed.h"
#include "tests/support/tar_builder.h"

namespace tessera::fuzz {
namespace {

void check_name(const std::string& name) {
  require(!name.empty() && name.front() != '/' && name.back() != '/' && name.size() <= 4096,
          "names are relative and bounded");
  for (const char c : name) {
    require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "names hold no control characters");
  }
  require(is_valid_utf8(name), "names are UTF-8");
  const std::string slashed = "/" + name + "/";
  for (const char* part : {"/../", "/./", "//"}) {
    require(slashed.find(part) == std::string::npos, "names step nowhere");
  }
}

void check_error(const Error& error) {
  require(error.exit_code() == 1 && error.info().code.starts_with("E_") &&
              error.info().file == "f" && !error.info().where.empty(),
          "a bad archive is notified with its place");
}

void check_members(const std::string& bytes) {
  MemorySource source(bytes);
  TarReader reader(source, "f");
  std::uint64_t end = 0, count = 0;
  try {
    while (const auto member = reader.next()) {
      require(member->offset >= end + 512 && member->offset % 512 == 0,
              "members follow one another");
      require(member->size <= bytes.size() && member->offset <= bytes.size() - member->size,
              "members lie inside the file");
      check_name(member->name);
      if (++count % 2 == 0) {
        require(reader.read() == bytes.substr(member->offset, member->size),
                "contents are the bytes of the file");
      }
      end = member->offset + member->size;
    }
  } catch (const Error& error) {
    check_error(error);
  }
  require(reader.counts().members == count, "members are counted");
  require(!reader.next(), "over is over");
}

void check_samples(const std::string& bytes) {
  MemorySource source(bytes);
  SampleReader reader(source, "f", Carry::kEverything);
  std::uint64_t total = 0;
  try {
    while (const auto sample = reader.next()) {
      check_name(sample->key);
      require(sample->failure.has_value() == sample->image.extension.empty(),
              "a sample has an image or a reason");
      total += sample->image.bytes.size();
      for (const SampleMember& member : sample->others) total += member.bytes.size();
    }
  } catch (const Error& error) {
    check_error(error);
  }
  require(total <= bytes.size(), "samples hold no more than the file");
}

// What unpacks at all unpacks to the same bytes in large and in small pieces, within its bound.
std::string unpack(const std::string& bytes, Packing packing, std::size_t step) {
  MemorySource packed(bytes);
  UnpackedSource source(packed, packing, "f");
  std::string out, piece(step, '\0');
  try {
    while (const std::size_t got = source.read(piece.data(), step)) out.append(piece, 0, got);
  } catch (const Error& error) {
    check_error(error);
    out += "!";
    out += error.info().code;
  }
  require(out.size() <= source.size() + step + 20, "no more than the bound");
  return out;
}

void check_packed(const std::string& bytes) {
  for (const Packing packing : {Packing::kGzip, Packing::kZstd}) {
    const std::string small = unpack(bytes, packing, 7), large = unpack(bytes, packing, 65536);
    // An error drops the piece it falls into.
    require(
        large == small || (large.find('!') != std::string::npos && small.size() >= large.size()),
        "pieces do not matter");
    if (large == small) check_members(large);
  }
}

// Blocks whose checksum is right: the headers.
std::vector<std::size_t> headers_of(const std::string& text) {
  std::vector<std::size_t> out;
  for (std::size_t at = 0; at + 512 <= text.size(); at += 512) {
    const std::string block = text.substr(at, 512);
    if (block[0] != '\0' && TarText::sealed(block) == block) out.push_back(at);
  }
  return out;
}

// Another value in one field of one header, with the checksum put right.
std::string mutate_header(std::string text, Choice& choice) {
  static const std::string kNames[] = {"..",      "a/..",  "a/../b.jpg", "/a.jpg",    "a\nb.jpg",
                                       "./a.jpg", "a.jpg", "a/",         "b.seg.png", "\xff.jpg"};
  const auto headers = headers_of(text);
  if (headers.empty()) return {};
  const std::size_t at = headers[choice.below(headers.size())];
  std::string block = text.substr(at, 512);
  const auto put = [&](std::size_t field, std::size_t size, const std::string& value) {
    std::string padded = value.substr(0, size);
    padded.resize(size, '\0');
    block.replace(field, size, padded);
  };
  const std::uint64_t size = std::strtoull(block.substr(124, 11).c_str(), nullptr, 8);
  const std::uint64_t rest = text.size() - at - 512;
  switch (choice.below(6)) {
    case 0:
      put(0, 100, kNames[choice.below(std::size(kNames))]);
      break;
    case 1:
      put(345, 155, kNames[choice.below(std::size(kNames))]);
      break;
    case 2:
      put(156, 1, std::string(1, "0123456789xgLKSV"[choice.below(16)]));
      break;
    case 3:  // close to the rest of the file
      put(124, 12, TarText::octal(rest + choice.below(5) - std::min<std::uint64_t>(rest, 2), 11));
      break;
    case 4:
      put(124, 12, TarText::octal(other_number(size, choice) & 077777777777, 11));
      break;
    default: {
      std::string field(12, '\0');
      const std::uint64_t value = other_number(size, choice);
      for (int i = 0; i < 8; ++i) field[11 - i] = static_cast<char>(value >> (8 * i));
      field[0] = static_cast<char>(choice.one_in(4) ? 0xff : 0x80);
      put(124, 12, field);
    }
  }
  return text.replace(at, 512, TarText::sealed(block));
}

// Whole blocks doubled, dropped, moved; the end cut.
std::string mutate_blocks(std::string text, Choice& choice) {
  const std::size_t blocks = text.size() / 512;
  if (blocks == 0) return {};
  const std::size_t at = 512 * choice.below(blocks), other = 512 * choice.below(blocks);
  switch (choice.below(4)) {
    case 0:
      return text.insert(other, text.substr(at, 512 * (1 + choice.below(3))));
    case 1:
      return text.erase(at, 512 * (1 + choice.below(2)));
    case 2:
      text.resize(choice.below(text.size() + 1));
      return text;
    default: {  // a digit or a letter of pax records
      const std::size_t place = text.find('=', at);
      if (place == std::string::npos || place < 8) return {};
      text[place - choice.below(8)] = static_cast<char>("0123456789= \npathsize"[choice.below(21)]);
      return text;
    }
  }
}

std::vector<std::string> seeds() {
  const std::string magic = std::string("ustar  \0", 8);
  return {
      TarText().file("a.jpg", "picture").file("a.txt", "caption").file("d/b.png", "x").end(),
      TarText().file("a.jpg", "picture").text(),
      TarText()
          .pax(TarText::record("path", "p/a.jpg") + TarText::record("size", "3"))
          .header({.name = "x"}, 3)
          .data("abc")
          .file("b.jpg", "")
          .end(),
      TarText()
          .pax(TarText::record("comment", "c"), 'g')
          .gnu_name("long/name.jpg")
          .file("x", "data")
          .end(),
      TarText()
          .header({.name = "l", .type = '2', .link = "/x"}, 0)
          .header({.name = "s", .type = 'S', .magic = magic}, 4)
          .data("data")
          .header({.name = "d/", .type = '5'}, 0)
          .file("a.b.jpg", "1")
          .file("a.png", "2")
          .end(),
      TarText().header({.name = "b.jpg", .prefix = "some/folder"}, 2).data("xy").end(),
      gzip_of(TarText().file("a.jpg", "picture").end()) + gzip_of(""),
      zstd_of(TarText().file("a.jpg", "picture").end()) + std::string(8, '\0'),
  };
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  tessera::fuzz::write_seeds_if_asked(tessera::fuzz::seeds());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(tessera::fuzz::as_text(data, size));
  tessera::fuzz::check_members(bytes);
  tessera::fuzz::check_samples(bytes);
  tessera::fuzz::check_packed(bytes);
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace tessera::fuzz;
  Choice choice(seed);
  if (!choice.one_in(5)) {
    const std::string text(as_text(data, size));
    const std::string changed =
        choice.one_in(4) ? mutate_blocks(text, choice) : mutate_header(text, choice);
    if (!changed.empty()) return release(changed, data, max_size);
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
