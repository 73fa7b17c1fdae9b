// The page docs/adding-a-pruner.md adds a pruner in three files, one of which is its test; it is in
// the table with all that comes of that.
#include "tests/adding/page.h"
#include "vision/pruning/registry.h"

namespace tessera::testing {
namespace {

TEST(AddingAPruner, TakesItsFileARowAndItsTest) {
  EXPECT_EQ(files_of("adding-a-pruner"),
            (std::set<std::string>{"vision/pruning/longest.h", "vision/pruning/registry.cpp",
                                   "tests/unit/pruning/registry_test.cpp"}));
  EXPECT_TRUE(lines_of("adding-a-pruner", '-').empty()) << "only adds";
  EXPECT_LE(lines_of("adding-a-pruner", '+', "registry.cpp").size(), 3u) << "include and row";
}

TEST(AddingAPruner, TheTableHasIt) {
  EXPECT_EQ(pruner_row("longest").does, "the longest embeddings");
  EXPECT_EQ(make_pruner("longest")->name(), "longest");
}

}  // namespace
}  // namespace tessera::testing
