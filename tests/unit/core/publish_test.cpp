// Files that are there whole or not at all, and never in the place of another.
#include "engine/core/publish.h"

#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "engine/core/io_watch.h"
#include "tests/support/fault_scope.h"
#include "tests/support/temp_folder.h"

namespace tessera::publish_test {
namespace {

namespace fs = std::filesystem;

TEST(Publish, NewNamesOnly) {
  const TempFolder folder;
  EXPECT_TRUE(publish_file(folder / "a", "first", Publish::kNew));
  EXPECT_FALSE(publish_file(folder / "a", "second", Publish::kNew));
  EXPECT_EQ(get_file(folder / "a"), "first");
  EXPECT_TRUE(publish_file(folder / "a", "third", Publish::kReplace));
  EXPECT_EQ(get_file(folder / "a"), "third");
  // A link is a name that is taken, wherever it leads.
  fs::create_symlink(folder / "nowhere", folder / "link");
  EXPECT_FALSE(publish_file(folder / "link", "x", Publish::kNew));
  EXPECT_FALSE(fs::exists(folder / "nowhere"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 2)
      << "no temporary is left";
}

TEST(Publish, EveryFailingCallLeavesNothingAfter) {
  int faults = 0;
  for (std::uint64_t nth = 1;; ++nth) {
    const TempFolder folder;
    const FaultScope fault({.op = IoOp::kAny, .nth = nth, .error = ENOSPC});
    std::string code;
    try {
      publish_file(folder / "a", "text", Publish::kNew);
    } catch (const Error& error) {
      code = error.info().code;
      EXPECT_EQ(error.exit_code(), 6);
    }
    if (fault.hits() == 0) break;
    ++faults;
    EXPECT_EQ(code, "E_IO_WRITE") << nth;
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      EXPECT_EQ(get_file(entry.path()), "text") << entry.path();
      EXPECT_EQ(entry.path().filename(), "a");
    }
  }
  EXPECT_GE(faults, 5);
}

TEST(Publish, FoldersAreMadeWithTheirParents) {
  const TempFolder folder;
  make_folders_durable(folder / "a/b/c");
  make_folders_durable(folder / "a/b/c");
  EXPECT_TRUE(fs::is_directory(folder / "a/b/c"));
  put_file(folder / "file", "x");
  EXPECT_THROW(make_folders_durable(folder / "file/d"), Error);
}

TEST(Publish, TemporariesAreKnownByTheirNames) {
  EXPECT_EQ(target_of_temporary(".a.png.tmp-12-3"), "a.png");
  EXPECT_EQ(target_of_temporary("..tmp-1-1.tmp-12-3"), ".tmp-1-1");
  for (const char* other : {"a.png.tmp-12-3", ".a.png.tmp-12", ".a.png.tmp-12-", ".a.png.tmp--3",
                            ".a.png.tmp-1x-3", ".tmp-1-2", ".a.png", "", ".a.png.tmp-12-3 "}) {
    EXPECT_EQ(target_of_temporary(other), "") << other;
  }
}

class Watch final : public IoWatcher {
 public:
  Watch() { installed_watcher().store(this); }
  ~Watch() override { installed_watcher().store(nullptr); }
  void before(const IoChange& change) override { seen.push_back(change.op); }
  std::vector<IoOp> seen;
};

// Whoever models a disk relies on it: create, write, sync, rename, open and sync of the folder.
TEST(Publish, TheWatcherSeesEveryChangeInOrder) {
  const TempFolder folder;
  const Watch watch;
  publish_file(folder / "a", "text", Publish::kNew);
  EXPECT_EQ(watch.seen, (std::vector<IoOp>{IoOp::kOpen, IoOp::kWrite, IoOp::kSync, IoOp::kRename,
                                           IoOp::kOpen, IoOp::kSync}));
}

}  // namespace
}  // namespace tessera::publish_test
