// The stream of items: order, ids, what is skipped, and that no bad input ends the rest.
#include "apps/captions/inputs.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <set>

#include "apps/captions/text_forms.h"
#include "tests/support/fault_scope.h"
#include "tests/support/packed.h"
#include "tests/support/tar_builder.h"
#include "tests/support/temp_folder.h"

namespace tessera::inputs_test {
namespace {

namespace fs = std::filesystem;

class Inputs : public ::testing::Test {
 protected:
  fs::path make(const std::string& name, const std::string& text = "x") {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    put_file(path, text);
    return path;
  }
  std::vector<CaptionItem> items(std::vector<fs::path> arguments, InputOptions options = {}) {
    CaptionInputs inputs(std::move(arguments), options);
    std::vector<CaptionItem> out;
    while (auto item = inputs.next()) out.push_back(std::move(*item));
    counts_ = inputs.counts();
    std::set<std::string> ids;
    for (const CaptionItem& item : out) EXPECT_TRUE(ids.insert(item.id).second) << item.id;
    return out;
  }
  // Ids without the temporary folder's name; failed ones with their code.
  std::string ids(const std::vector<CaptionItem>& list) {
    const std::string root = folder_.path().string() + "/";
    std::string out;
    for (const CaptionItem& item : list) {
      const std::string id = item.id.starts_with(root) ? item.id.substr(root.size()) : item.id;
      out += (out.empty() ? "" : " ") + id + (item.failure ? "!" + item.failure->code : "");
    }
    return out;
  }

  TempFolder folder_;
  InputCounts counts_;
};

TEST_F(Inputs, FoldersInNaturalOrder) {
  for (const char* name : {"d/img10.png", "d/img9.JPG", "d/a.txt", "d/sub/z.webp", "d/sub2/y.gif",
                           "d/noending", "d/.hidden.png", "d/.git/x.png", "d/x.bmp", "d/w.jpeg"}) {
    make(name);
  }
  EXPECT_EQ(ids(items({folder_ / "d"})), "d/img9.JPG d/img10.png d/w.jpeg d/x.bmp");
  const auto all = items({folder_ / "d"}, {.recursive = true});
  EXPECT_EQ(ids(all), "d/img9.JPG d/img10.png d/sub/z.webp d/sub2/y.gif d/w.jpeg d/x.bmp");
  EXPECT_EQ(all[2].key, "sub/z");
  EXPECT_EQ(all[2].name, "z");
  EXPECT_EQ(all[2].directory, "sub");
  EXPECT_EQ(all[2].file_extension, "webp");
  EXPECT_EQ(all[0].directory, "d");
}

TEST_F(Inputs, LinksToFoldersAreNotFollowed) {
  make("d/a.png");
  fs::create_directory_symlink(folder_ / "d", folder_ / "d" / "again");
  fs::create_symlink(folder_ / "d" / "a.png", folder_ / "d" / "b.png");
  fs::create_symlink(folder_ / "nowhere", folder_ / "d" / "c.png");
  EXPECT_EQ(ids(items({folder_ / "d"}, {.recursive = true})), "d/a.png d/b.png d/c.png");
  EXPECT_EQ(counts_.links_skipped, 1u);
}

TEST_F(Inputs, NamesThatAreNoTextStillHaveIds) {
  make("d/a\nb.png");
  make("d/\xff.png");
  make("d/ok.png");
  const auto list = items({folder_ / "d"});
  ASSERT_EQ(list.size(), 3u);
  for (const CaptionItem& item : list) {
    EXPECT_TRUE(fs::exists(item.file));
    for (const std::string& text : {item.id, item.path, item.name, item.key}) {
      EXPECT_EQ(text.find_first_of("\n\xff"), std::string::npos);
      EXPECT_FALSE(text.empty());
    }
  }
}

TEST_F(Inputs, AFolderThatCannotBeListedIsOneFailedItem) {
  make("d/a/1.png");
  make("d/b/2.png");
  make("d/c/3.png");
  const FaultScope fault({.op = IoOp::kList, .nth = 3, .error = EACCES});
  const auto list = items({folder_ / "d"}, {.recursive = true});
  EXPECT_EQ(ids(list), "d/a/1.png d/b!E_IO_LIST d/c/3.png");
  EXPECT_EQ(list[1].failure->kind, ErrorKind::kGeneral);
}

TEST_F(Inputs, FilesAndMissingThingsAreLeftToWhoeverOpensThem) {
  const auto list = items({make("a.b.jpg"), folder_ / "missing.jpg", folder_ / "missing.tar"});
  EXPECT_EQ(ids(list), "a.b.jpg missing.jpg missing.tar!E_IO_OPEN");
  EXPECT_EQ(list[0].name, "a.b");
  EXPECT_EQ(list[0].key.substr(list[0].key.rfind('/') + 1), "a_b") << "a key ends at the first dot";
}

TEST_F(Inputs, Shards) {
  const std::string tar = TarText()
                              .file("c/0.jpg", "pic")
                              .file("c/0.txt", "old")
                              .file("1.png", "a")
                              .header({.name = "l.png", .type = '2', .link = "x"}, 0)
                              .file("../2.png", "a")
                              .file("c/0.png", "again")
                              .file("README", "")
                              .file("3.png", "b")
                              .end();
  const fs::path shard = make("s.tar", tar);
  auto list = items({shard, make("z.jpg")}, {.carry = Carry::kEverything});
  EXPECT_EQ(ids(list), "s.tar/c/0 s.tar/1 s.tar/c/0//5120!E_SAMPLE_KEY s.tar/3 z.jpg");
  EXPECT_EQ(list[0].path, (folder_ / "s.tar/c/0.jpg").string());
  EXPECT_TRUE(list[0].file.empty());
  EXPECT_EQ(list[0].image.bytes, "pic");
  EXPECT_EQ(list[0].others.at(0).bytes, "old");
  EXPECT_EQ(list[0].name, "0");
  EXPECT_EQ(list[0].directory, "c");
  EXPECT_EQ(list[1].directory, "s");
  EXPECT_EQ(list[0].key, "s/c/0") << "two inputs: keys say which";
  EXPECT_EQ(counts_.tar.members, 6u);
  EXPECT_EQ(counts_.tar.skipped, 2u);
  EXPECT_EQ(counts_.without_key, 1u);
  list = items({shard, make("t.tar", tar)});
  EXPECT_EQ(list.at(0).key, "s/c/0");
  EXPECT_EQ(list.at(4).key, "t/c/0");
}

TEST_F(Inputs, CompressedShards) {
  const std::string tar = TarText().file("c/0.jpg", "pic").file("1.png", "a").end();
  const auto list = items({make("s.tar.gz", gzip_of(tar)), make("t.TGZ", gzip_of(tar)),
                           make("u.1.tar.zst", zstd_of(tar)), make("v.tzst", gzip_of(tar))});
  EXPECT_EQ(ids(list),
            "s.tar.gz/c/0 s.tar.gz/1 t.TGZ/c/0 t.TGZ/1 u.1.tar.zst/c/0 u.1.tar.zst/1 "
            "v.tzst!E_TAR_MAGIC");
  EXPECT_EQ(list[0].image.bytes, "pic");
  EXPECT_EQ(list[0].path, (folder_ / "s.tar.gz/c/0.jpg").string());
  EXPECT_EQ(list[0].key, "s/c/0") << "as of s.tar";
  EXPECT_EQ(list[1].directory, "s");
  EXPECT_EQ(list[2].key, "t/c/0");
  EXPECT_EQ(list[4].key, "u_1/c/0");
}

TEST_F(Inputs, ACutShardKeepsWhatIsWholeAndTheRestGoesOn) {
  const std::string tar = TarText().file("0.jpg", "a").file("1.jpg", "b").end();
  const auto list = items({make("s.tar", tar.substr(0, 1500)), make("empty.tar", ""),
                           make("gz.tar", "\x1f\x8b" + std::string(1000, 'z')), make("z.jpg")});
  EXPECT_EQ(ids(list), "s.tar/0 s.tar!E_TAR_CUT empty.tar!E_TAR_END gz.tar!E_TAR_MAGIC z.jpg");
}

TEST_F(Inputs, Lists) {
  make("d/a.jpg");
  const fs::path list = make("l.jsonl",
                             "{\"image\":\"d/a.jpg\",\"prompt\":\"what?\"}\n"
                             "{\"image\":\"d/a.jpg\",\"id\":\"a.2\"}\n");
  CaptionInputs inputs({list}, {});
  EXPECT_TRUE(inputs.check().empty());
  const auto first = inputs.next(), second = inputs.next();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->id, (folder_ / "d/a.jpg").string());
  EXPECT_EQ(first->prompt, "what?");
  EXPECT_EQ(first->key, "d/a");
  EXPECT_EQ(second->id, listed_id("a.2"));
  EXPECT_EQ(second->file, folder_ / "d/a.jpg");
  EXPECT_EQ(second->key, "a%2E2");
  EXPECT_FALSE(inputs.next());
}

// An id is no path, even if it looks like one.
TEST_F(Inputs, IdsOfListsMeetNoPaths) {
  make("one.png");
  const fs::path wide = make("wide.png");
  const fs::path list = make("l.jsonl",
                             "{\"image\":\"one.png\",\"id\":\"wide.png\"}\n"
                             "{\"image\":\"one.png\",\"id\":\"a_b\"}\n"
                             "{\"image\":\"one.png\",\"id\":\"a.b\"}\n");
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  const auto all = items({"l.jsonl", "wide.png"});  // proves that ids differ
  fs::current_path(before);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(shown_id(all[0].id), all[3].id);
  EXPECT_NE(all[1].key, all[2].key);
}

TEST_F(Inputs, KeysOfSeveralInputsSayWhichAndNeverMeet) {
  for (const char* name : {"a/x/1.png", "b/x/1.png", "y/1.png"}) make(name);
  const fs::path tar = make("x.tar", TarText().file("1.png", "a").end());
  std::set<std::string> keys;
  for (const CaptionItem& item : items({folder_ / "a/x", folder_ / "b/x", tar, folder_ / "y"})) {
    keys.insert(item.key);
  }
  EXPECT_EQ(keys, (std::set<std::string>{"x/1", "x-2/1", "x-3/1", "y/1"}));
  EXPECT_EQ(items({folder_ / "y"}).at(0).key, "1") << "one input needs no name";
}

TEST_F(Inputs, EndingsHaveNoCaseAndFoldersNoEndSlash) {
  const std::string tar = TarText().file("0.jpg", "a").end();
  EXPECT_EQ(ids(items({make("S.TAR", tar)})), "S.TAR/0");
  make("d/a.png");
  const auto describe = [&](const fs::path& path) {
    CaptionInputs inputs({path}, {});
    EXPECT_TRUE(inputs.check().empty());
    return inputs.description();
  };
  EXPECT_EQ(describe((folder_ / "d").string() + "/"), describe(folder_ / "d"));
  CaptionInputs shards({folder_ / "S.TAR"}, {}), folders({folder_ / "d"}, {});
  EXPECT_TRUE(shards.has_shards());
  EXPECT_FALSE(folders.has_shards());
}

// A link to a folder elsewhere would have text files written there; a link to an image would not.
TEST_F(Inputs, ListsDoNotLeaveTheirFolderThroughLinks) {
  make("far/a.png");
  make("l/b/a.png");
  fs::create_directory_symlink(folder_ / "far", folder_ / "l/link");
  fs::create_directory_symlink(folder_ / "l/b", folder_ / "l/near");
  fs::create_symlink(folder_ / "far/a.png", folder_ / "l/c.png");
  const fs::path list = make("l/l.jsonl",
                             "{\"image\":\"link/a.png\"}\n{\"image\":\"near/a.png\"}\n"
                             "{\"image\":\"c.png\"}\n{\"image\":\"nowhere/a.png\"}\n");
  EXPECT_EQ(ids(items({list})), "l/link/a.png!E_LIST_PATH l/near/a.png l/c.png l/nowhere/a.png");
  EXPECT_EQ(ids(items({list}, {.outside = OutsidePaths::kAllowed})),
            "l/link/a.png l/near/a.png l/c.png l/nowhere/a.png");
}

TEST_F(Inputs, CheckFindsAllErrorsOfAllLists) {
  const fs::path one = make("1.jsonl", "x\ny\n"), two = make("2.jsonl", "{}\n");
  CaptionInputs inputs({one, make("a.jpg"), two, folder_ / "none.jsonl"}, {});
  const auto errors = inputs.check();
  ASSERT_EQ(errors.size(), 4u);
  for (const ErrorInfo& error : errors) EXPECT_EQ(error.kind, ErrorKind::kUsage);
  EXPECT_EQ(errors[2].file, two.string());
  EXPECT_EQ(errors[3].code, "E_IO_OPEN");
}

TEST_F(Inputs, DescriptionChangesWithTheInputs) {
  make("d/a.jpg");
  const fs::path tar = make("s.tar", TarText().file("0.jpg", "a").end());
  const fs::path list = make("l.jsonl", "{\"image\":\"d/a.jpg\"}\n");
  const auto describe = [&] {
    CaptionInputs inputs({folder_ / "d", tar, list, folder_ / "x.jpg"}, {});
    EXPECT_TRUE(inputs.check().empty());
    return inputs.description();
  };
  const Json before = describe();
  ASSERT_EQ(before.size(), 4u);
  EXPECT_EQ(before[0]["kind"], "folder");
  EXPECT_EQ(before[0]["entries"], 1);
  EXPECT_EQ(before[1]["bytes"], 2048);
  EXPECT_EQ(describe(), before);
  make("d/b.jpg");
  EXPECT_NE(describe()[0], before[0]);
  make("l.jsonl", "{\"image\":\"d/a.jpg\",\"prompt\":\"p\"}\n");
  EXPECT_NE(describe()[2], before[2]);
  EXPECT_EQ(describe()[3], before[3]);
}

}  // namespace
}  // namespace tessera::inputs_test
