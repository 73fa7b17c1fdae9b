// Names of models to files, in a made-up assets folder and hub cache.
#include "apps/runtime/model_catalog.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "apps/lab/models/test_models.h"
#include "engine/core/io.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/runtime/refused_model.h"

namespace tessera::model_catalog_test {
namespace {

namespace fs = std::filesystem;

class Catalog : public ::testing::Test {
 protected:
  Catalog() {
    setenv("TESSERA_ASSETS", (folder_.path() / "assets").c_str(), 1);
    setenv("HF_HUB_CACHE", (folder_.path() / "hub").c_str(), 1);
    put(folder_.path() / "assets/models/small");
    put(repository() / "snapshots/0123456789abcdef");
    put(repository() / "snapshots/fedcba9876543210");
    ensure_output_folder(repository() / "refs");
    write_file_atomic(repository() / "refs/main", "0123456789abcdef\n");
  }
  ~Catalog() override {
    unsetenv("TESSERA_ASSETS");
    unsetenv("HF_HUB_CACHE");
  }

  fs::path repository() const { return folder_.path() / "hub/models--some--model"; }

  // The configuration of the tiny model; its weights are not there.
  static void put(const fs::path& path) {
    ensure_output_folder(path);
    write_file_atomic(path / "config.json", test_model_config("tiny"));
  }

  TempFolder folder_;
};

TEST_F(Catalog, FindsEachKind) {
  const ModelReference bundled = resolve_model("small");
  EXPECT_EQ(bundled.origin, ModelOrigin::kBundled);
  EXPECT_EQ(bundled.shown_name, "small");
  EXPECT_EQ(bundled.open_name, (folder_.path() / "assets/models/small").string());

  const ModelReference path = resolve_model((folder_.path() / "assets/models/small/").string());
  EXPECT_EQ(path.origin, ModelOrigin::kPath);
  EXPECT_EQ(path.shown_name, "small") << "a base name, never a path";

  const ModelReference hub = resolve_model("some/model");
  EXPECT_EQ(hub.origin, ModelOrigin::kHubCache);
  EXPECT_EQ(hub.open_name, (repository() / "snapshots/0123456789abcdef").string());
  EXPECT_EQ(hub.shown_name, "some/model@0123456789ab");

  EXPECT_EQ(resolve_model("some/model@fedcba9876543210").open_name,
            (repository() / "snapshots/fedcba9876543210").string());
  EXPECT_EQ(resolve_model("test:tiny").origin, ModelOrigin::kMadeUp);
}

TEST_F(Catalog, MissingModelsNameTheFix) {
  EXPECT_EQ(testing::refused_model("nowhere").code, "E_MODEL_MISSING");
  EXPECT_EQ(testing::refused_model("nowhere").kind, ErrorKind::kModel);
  EXPECT_NE(testing::refused_model("other/model").hint.find("huggingface-cli download other/model"),
            std::string::npos);
  EXPECT_NE(testing::refused_model("some/model@v2").hint.find("--revision v2"), std::string::npos);
}

TEST_F(Catalog, NamesCannotLeaveTheirFolder) {
  for (const char* name : {"..", "../small", "some/..", "some/model@../../x", "a/b/c", ".hidden"}) {
    if (fs::exists(name)) continue;
    EXPECT_EQ(testing::refused_model(name).code, "E_MODEL_MISSING") << name;
  }
  write_file_atomic(repository() / "refs/main", "../../../../etc");
  EXPECT_EQ(testing::refused_model("some/model").code, "E_MODEL_MISSING");
}

TEST_F(Catalog, LinksOutOfARepositoryAreRefused) {
  fs::create_symlink("/etc/passwd", repository() / "snapshots/0123456789abcdef/merges.txt");
  EXPECT_EQ(testing::refused_model("some/model").code, "E_MODEL_LINK");
  fs::remove(repository() / "snapshots/0123456789abcdef/merges.txt");
  ensure_output_folder(repository() / "blobs");
  write_file_atomic(repository() / "blobs/abc", "x");
  fs::create_symlink("../../blobs/abc", repository() / "snapshots/0123456789abcdef/merges.txt");
  EXPECT_NO_THROW(resolve_model("some/model"));
}

TEST_F(Catalog, ListsModelsAndTheirProblems) {
  bool bundled = false, hub = false;
  for (const FoundModel& model : find_models()) {
    if (model.reference.shown_name == "small") {
      bundled = true;
      EXPECT_FALSE(model.problem.empty()) << "its weights are missing";
    }
    hub = hub || model.reference.shown_name == "some/model@fedcba987654";
  }
  EXPECT_TRUE(bundled);
  EXPECT_TRUE(hub);
  const FoundModel tiny = describe_model(resolve_model("test:tiny"));
  EXPECT_EQ(tiny.problem, "");
  EXPECT_EQ(tiny.family, "janus");
  EXPECT_GT(tiny.memory_bytes, 1000000u);
}

}  // namespace
}  // namespace tessera::model_catalog_test
