// The tar reader on archives that others wrote, on archives that nobody should write, and on every
// prefix of a good one; the writer against bytes of Python's tarfile.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <vector>

#include "apps/captions/tar_reader.h"
#include "apps/captions/tar_writer.h"
#include "tests/support/memory_source.h"
#include "tests/support/tar_builder.h"
#include "tests/support/temp_folder.h"

namespace tessera::tar_test {
namespace {

using Header = TarText::Header;

struct Outcome {
  std::vector<std::pair<std::string, std::string>> members;
  TarCounts counts;
  std::string code, message;  // of the error that ended it
};

Outcome read_all(const std::string& bytes) {
  MemorySource source(bytes);
  TarReader reader(source, "t.tar");
  Outcome out;
  try {
    while (const auto member = reader.next()) {
      std::string contents = reader.read();
      EXPECT_EQ(contents, bytes.substr(member->offset, member->size)) << "offsets are right";
      out.members.emplace_back(member->name, std::move(contents));
    }
  } catch (const Error& error) {
    out.code = error.info().code;
    out.message = error.what();
    EXPECT_EQ(error.exit_code(), 1);
    EXPECT_EQ(error.info().file, "t.tar");
    EXPECT_FALSE(reader.next()) << "an error ends the archive";
  }
  out.counts = reader.counts();
  return out;
}

std::string names_of(const Outcome& outcome) {
  std::string names;
  for (const auto& [name, bytes] : outcome.members) names += (names.empty() ? "" : " ") + name;
  return names;
}

std::string base256(std::uint64_t value, unsigned char first = 0x80) {
  std::string field(12, '\0');
  field[0] = static_cast<char>(first);
  for (int i = 0; i < 8; ++i) field[11 - i] = static_cast<char>(value >> (8 * i));
  return field;
}

std::string golden(const std::string& name) {
  return get_file(std::string(TESSERA_SOURCE_DIR) + "/tests/golden/tar/" + name);
}

TEST(TarReader, ReadsWhatOthersWrote) {
  const std::string deep =
      std::string("folder/") + std::string(60, 'd') + "/" + std::string(60, 'e') + "/long.jpg";
  const std::string far = std::string(120, 'f') + "/" + std::string(150, 'g') + ".jpg";
  for (const std::string format : {"ustar", "gnu", "pax"}) {
    SCOPED_TRACE(format);
    const Outcome got = read_all(golden(format + ".tar"));
    EXPECT_EQ(got.code, "") << got.message;
    std::string want = "a.jpg a.txt empty.json b/\xc3\xa4.png block.bin " + deep;
    if (format != "ustar") want += " " + far;
    EXPECT_EQ(names_of(got), want);
    ASSERT_GE(got.members.size(), 6u);
    EXPECT_EQ(got.members[0].second, "picture a");
    EXPECT_EQ(got.members[2].second, "");
    EXPECT_EQ(got.members[4].second, std::string(512, 'x'));
    EXPECT_EQ(got.counts.folders, 1u);
    EXPECT_EQ(got.counts.skipped, 2u) << "a symbolic and a hard link";
  }
}

TEST(TarWriter, WritesTheBytesOfTheReference) {
  std::string text = tar_member("a.jpg", "picture a") + tar_member("empty.json", "") +
                     tar_member(std::string("folder/") + std::string(60, 'd') + "/" +
                                    std::string(60, 'e') + "/long.jpg",
                                std::string(600, 'y'));
  text += tar_end(text.size());
  const std::string want = golden("written.tar");
  ASSERT_EQ(text.size(), want.size());
  for (std::size_t i = 0; i < text.size(); ++i) ASSERT_EQ(text[i], want[i]) << "at byte " << i;
}

TEST(TarWriter, EveryLengthOfNameComesBack) {
  std::string text;
  std::vector<std::string> names;
  for (std::size_t length = 1; length <= 300; ++length) {
    std::string flat = std::to_string(length) + "-" + std::string(length, 'n');
    std::string deep = std::to_string(length) + "/" + std::string(length, 'm') + "/x.jpg";
    std::string wide;
    while (wide.size() < length) wide += "0123456/";
    wide += "w" + std::to_string(length);
    for (const std::string& name : {flat, deep, wide}) {
      names.push_back(name);
      text += tar_member(name, name);
    }
  }
  const Outcome got = read_all(text + tar_end(text.size()));
  EXPECT_EQ(got.code, "") << got.message;
  ASSERT_EQ(got.members.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(got.members[i].first, names[i]);
    EXPECT_EQ(got.members[i].second, names[i]);
  }
}

TEST(TarWriter, EndFillsARecord) {
  for (const std::uint64_t size : {0u, 512u, 9216u, 9728u, 10240u}) {
    EXPECT_EQ((size + tar_end(size).size()) % 10240, 0u);
    EXPECT_GE(tar_end(size).size(), 1024u);
    EXPECT_LT(tar_end(size).size(), 1024u + 10240u);
  }
}

// Each archive begins with the good member "ok.jpg", which must come through whatever follows.
struct Hostile {
  std::string name;
  std::function<std::string(TarText)> make;
  std::string code;     // expected error, empty for none
  std::string members;  // expected names
  std::uint64_t skipped = 0;
};

std::vector<Hostile> bad_sizes() {
  const auto sized = [](const std::string& field) {
    return [field](TarText t) { return t.header({.name = "a.jpg", .size_field = field}, 0).end(); };
  };
  return {
      {"size negative in base 256", sized(base256(~0ull, 0xff)), "E_TAR_NUMBER", "ok.jpg"},
      {"size negative, sign bit alone", sized(base256(1, 0xc0)), "E_TAR_NUMBER", "ok.jpg"},
      {"size 2^63 in base 256", sized(base256(1ull << 63)), "E_TAR_NUMBER", "ok.jpg"},
      {"size 2^64 and more", sized(std::string("\x80\0\0\1", 4) + std::string(8, '\0')),
       "E_TAR_NUMBER", "ok.jpg"},
      {"size 2^63-1", sized(base256((1ull << 63) - 1)), "E_TAR_CUT", "ok.jpg"},
      {"size 2^63-512, padded overflow", sized(base256((1ull << 63) - 512)), "E_TAR_CUT", "ok.jpg"},
      {"size one more than the rest", sized(TarText::octal(1025, 11)), "E_TAR_CUT", "ok.jpg"},
      {"size all sevens", sized("77777777777"), "E_TAR_CUT", "ok.jpg"},
      {"size blank", sized(std::string(12, ' ')), "E_TAR_NUMBER", "ok.jpg"},
      {"size NULs", sized(std::string(12, '\0')), "E_TAR_NUMBER", "ok.jpg"},
      {"size with a minus", sized("-0000000001"), "E_TAR_NUMBER", "ok.jpg"},
      {"size with an eight", sized("00000000008"), "E_TAR_NUMBER", "ok.jpg"},
      {"size with letters after", sized(std::string("0000001 abcd")), "E_TAR_NUMBER", "ok.jpg"},
  };
}

std::vector<Hostile> bad_names() {
  const auto named = [](const std::string& name) {
    return [name](TarText t) { return t.file(name, "data").file("z.jpg", "z").end(); };
  };
  const auto pax_named = [](const std::string& name) {
    return [name](TarText t) {
      return t.pax(TarText::record("path", name)).file("safe.jpg", "data").file("z.jpg", "z").end();
    };
  };
  std::vector<Hostile> out;
  for (const std::string& name :
       {std::string("../up.jpg"), std::string("a/../../up.jpg"), std::string("a/.."),
        std::string(".."), std::string("/etc/x.jpg"), std::string("//x.jpg"),
        std::string("a\nb.jpg"), std::string("a\x1b[2Jb.jpg"), std::string("a\x7f.jpg"),
        std::string("a\xc2\x9b.jpg"), std::string("a\xe2\x80\xae.jpg"), std::string("\xff.jpg"),
        std::string("."), std::string("./."), std::string("c\t.jpg")}) {
    out.push_back({"name " + name, named(name), "", "ok.jpg z.jpg", 1});
    out.push_back({"pax name " + name, pax_named(name), "", "ok.jpg z.jpg", 1});
  }
  out.push_back(
      {"NUL in a pax name", pax_named(std::string("a\0b.jpg", 7)), "", "ok.jpg z.jpg", 1});
  out.push_back({"empty pax name", pax_named(""), "", "ok.jpg z.jpg", 1});
  out.push_back({"empty name", named(""), "", "ok.jpg z.jpg", 1});
  out.push_back(
      {"dots in names are no steps up", named("..a/b..jpg"), "", "ok.jpg ..a/b..jpg z.jpg"});
  out.push_back({"folder dots go", named("./a//./b.jpg"), "", "ok.jpg a/b.jpg z.jpg"});
  out.push_back({"a prefix with ..",
                 [](TarText t) {
                   return t.header({.name = "b.jpg", .prefix = "../a"}, 4).data("data").end();
                 },
                 "", "ok.jpg", 1});
  out.push_back(
      {"GNU magic has no prefix",
       [](TarText t) {
         return t
             .header({.name = "b.jpg", .prefix = "../a", .magic = std::string("ustar  \0", 8)}, 4)
             .data("data")
             .end();
       },
       "", "ok.jpg b.jpg"});
  return out;
}

std::vector<Hostile> bad_types() {
  std::vector<Hostile> out;
  for (const char type : std::string("1234678VMZ")) {
    out.push_back({std::string("type ") + type,
                   [type](TarText t) {
                     return t.header({.name = "l", .type = type, .link = "/etc/passwd"}, 0)
                         .file("z.jpg", "z")
                         .end();
                   },
                   "", "ok.jpg z.jpg", 1});
  }
  out.push_back({"a hard link repeats its target's size",
                 [](TarText t) {
                   return t.header({.name = "l", .type = '1', .link = "ok.jpg"}, 700)
                       .file("z.jpg", "z")
                       .end();
                 },
                 "", "ok.jpg z.jpg", 1});
  for (const char type : std::string("23456")) {
    out.push_back({std::string("contents in type ") + type,
                   [type](TarText t) {
                     return t.header({.name = "l", .type = type}, 512)
                         .data(TarText().file("inner.jpg", "").text())
                         .end();
                   },
                   "E_TAR_TYPE", "ok.jpg"});
  }
  out.push_back(
      {"unknown type with contents",
       [](TarText t) {
         return t.header({.name = "q", .type = 'Q'}, 5).data("12345").file("z.jpg", "").end();
       },
       "", "ok.jpg z.jpg", 1});
  out.push_back({"old sparse file with two more map blocks",
                 [](TarText t) {
                   TarText one;
                   one.header({.name = "s", .type = 'S', .magic = std::string("ustar  \0", 8)}, 4);
                   std::string head = one.text();
                   head[482] = 1;
                   std::string more(512, '\0'), last(512, '\0');
                   more[504] = 1;
                   return t.raw(TarText::sealed(head))
                       .raw(more)
                       .raw(last)
                       .data("data")
                       .file("z.jpg", "z")
                       .end();
                 },
                 "", "ok.jpg z.jpg", 1});
  out.push_back({"pax sparse file",
                 [](TarText t) {
                   return t.pax(TarText::record("GNU.sparse.major", "1"))
                       .file("s.jpg", "s")
                       .file("z.jpg", "z")
                       .end();
                 },
                 "", "ok.jpg z.jpg", 1});
  return out;
}

std::vector<Hostile> bad_headers() {
  const auto pax = [](const std::string& records, char type = 'x') {
    return [records, type](TarText t) { return t.pax(records, type).file("a.jpg", "a").end(); };
  };
  const std::string path = TarText::record("path", "new/name.jpg");
  return {
      {"pax path", pax(path), "", "ok.jpg new/name.jpg"},
      {"pax path holds for one member only",
       [](TarText t) {
         return t.pax(TarText::record("path", "p.jpg")).file("a", "a").file("b", "").end();
       },
       "", "ok.jpg p.jpg b"},
      {"pax size smaller",
       [](TarText t) {
         return t.pax(TarText::record("size", "3")).header({.name = "a.jpg"}, 9).data("abc").end();
       },
       "", "ok.jpg a.jpg"},
      {"pax size beyond the rest", pax(TarText::record("size", "99999")), "E_TAR_CUT", "ok.jpg"},
      {"pax size 2^64", pax(TarText::record("size", "18446744073709551616")), "E_TAR_PAX",
       "ok.jpg"},
      {"pax size negative", pax(TarText::record("size", "-1")), "E_TAR_PAX", "ok.jpg"},
      {"pax record longer than the header", pax("99 path=a\n"), "E_TAR_PAX", "ok.jpg"},
      {"pax record one too long", pax("12 path=ab\n"), "E_TAR_PAX", "ok.jpg"},
      {"pax record without line break", pax("10 path=ab"), "E_TAR_PAX", "ok.jpg"},
      {"pax record of length zero", pax("0 path=a\n"), "E_TAR_PAX", "ok.jpg"},
      {"pax record of length 2^64", pax("18446744073709551616 path=a\n"), "E_TAR_PAX", "ok.jpg"},
      {"pax record without equals", pax("8 patha\n"), "E_TAR_PAX", "ok.jpg"},
      {"pax record without key", pax("6 =ab\n"), "E_TAR_PAX", "ok.jpg"},
      {"pax record that is a number", pax("123"), "E_TAR_PAX", "ok.jpg"},
      {"pax bomb", pax(TarText::record("comment", std::string(70'000, 'c'))), "E_TAR_PAX",
       "ok.jpg"},
      {"pax of 64 KiB just fits", pax(TarText::record("comment", std::string(65'536 - 15, 'c'))),
       "", "ok.jpg a.jpg"},
      {"two pax headers", [path](TarText t) { return t.pax(path).pax(path).file("a", "").end(); },
       "E_TAR_PAX", "ok.jpg"},
      {"two GNU names", [](TarText t) { return t.gnu_name("a").gnu_name("b").file("a", "").end(); },
       "E_TAR_PAX", "ok.jpg"},
      {"pax without a member", [path](TarText t) { return t.pax(path).end(); }, "E_TAR_PAX", "ok.jpg"},
      {"global path", pax(path, 'g'), "E_TAR_PAX", "ok.jpg"},
      {"global size", pax(TarText::record("size", "1"), 'g'), "E_TAR_PAX", "ok.jpg"},
      {"global comment", pax(TarText::record("comment", "hello"), 'g'), "", "ok.jpg a.jpg"},
      {"GNU long name",
       [](TarText t) { return t.gnu_name(std::string(200, 'l')).file("cut", "d").end(); }, "",
       "ok.jpg " + std::string(200, 'l')},
      {"GNU long link is ignored",
       [](TarText t) { return t.gnu_name("../x", 'K').file("a.jpg", "d").end(); }, "",
       "ok.jpg a.jpg"},
      {"GNU name that steps up",
       [](TarText t) { return t.gnu_name("../x.jpg").file("a.jpg", "d").end(); }, "", "ok.jpg", 1},
      {"GNU name of 70,000 bytes",
       [](TarText t) { return t.gnu_name(std::string(70'000, 'l')).file("a", "").end(); },
       "E_TAR_PAX", "ok.jpg"},
      {"GNU name of 5,000 bytes",
       [](TarText t) { return t.gnu_name(std::string(5'000, 'l')).file("a", "").end(); }, "",
       "ok.jpg", 1},
      {"pax wins over GNU",
       [](TarText t) {
         return t.gnu_name("gnu.jpg").pax(TarText::record("path", "pax.jpg")).file("a", "").end();
       },
       "", "ok.jpg pax.jpg"},
      {"wrong checksum",
       [](TarText t) {
         std::string text = t.file("a.jpg", "a").end();
         text[1024 + 5] ^= 1;
         return text;
       },
       "E_TAR_CHECKSUM", "ok.jpg"},
      {"zero-length member", [](TarText t) { return t.file("a.jpg", "").file("b.jpg", "").end(); },
       "", "ok.jpg a.jpg b.jpg"},
      {"one end block", [](TarText t) { return t.raw(std::string(512, '\0')).text(); }, "",
       "ok.jpg"},
      {"no end blocks", [](TarText t) { return t.text(); }, "E_TAR_END", "ok.jpg"},
      {"an archive joined to the first",
       [](TarText t) { return t.end() + TarText().file("b.jpg", "b").end(); }, "E_TAR_TRAILING",
       "ok.jpg"},
  };
}

void check(const std::vector<Hostile>& cases) {
  for (const Hostile& hostile : cases) {
    SCOPED_TRACE(hostile.name);
    const Outcome got = read_all(hostile.make(TarText().file("ok.jpg", "fine")));
    EXPECT_EQ(got.code, hostile.code) << got.message;
    EXPECT_EQ(names_of(got), hostile.members);
    EXPECT_EQ(got.counts.skipped, hostile.skipped);
    EXPECT_EQ(got.counts.members, got.members.size());
  }
}

TEST(TarReader, SizesOutOfRange) { check(bad_sizes()); }
TEST(TarReader, NamesThatLeaveTheArchive) { check(bad_names()); }
TEST(TarReader, NoLinksDevicesOrSparseFiles) { check(bad_types()); }
TEST(TarReader, HeadersThatLie) { check(bad_headers()); }

// Cut at every byte: members whose contents are there whole come through, and the cut is reported.
TEST(TarReader, EveryCutIsHeardAndKeepsWholeMembers) {
  const std::string text = TarText()
                               .file("a.jpg", std::string(700, 'a'))
                               .pax(TarText::record("path", "p/b.jpg"))
                               .file("b.jpg", std::string(512, 'b'))
                               .gnu_name("long.jpg")
                               .file("c.jpg", "c")
                               .end();
  const std::map<std::size_t, int> whole = {{512 + 700, 1}, {3072 + 512, 2}, {5120 + 1, 3}};
  const std::size_t last = text.size() - 1024;
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    const Outcome got = read_all(text.substr(0, cut));
    std::size_t want = 0;
    for (const auto& [end, count] : whole)
      want = cut >= end ? static_cast<std::size_t>(count) : want;
    ASSERT_EQ(got.members.size(), want) << cut;
    const bool at_header = cut == 0 || cut == 1536 || cut == 1536 + 1024 || cut == 3584 ||
                           cut == 3584 + 1024 || cut == last;
    const char* code = cut >= last + 512 ? "" : at_header ? "E_TAR_END" : "E_TAR_CUT";
    ASSERT_EQ(got.code, code) << cut;
  }
}

TEST(TarReader, SaysWhatIsNoTar) {
  EXPECT_NE(read_all("\x1f\x8b\x08" + std::string(600, 'g')).message.find("gzip"),
            std::string::npos);
  EXPECT_NE(read_all("PK\3\4" + std::string(600, 'g')).message.find("zip"), std::string::npos);
  EXPECT_EQ(read_all(std::string(600, 'g')).code, "E_TAR_MAGIC");
  EXPECT_EQ(read_all("short").code, "E_TAR_CUT");
}

}  // namespace
}  // namespace tessera::tar_test
