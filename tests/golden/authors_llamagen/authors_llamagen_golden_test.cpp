// LlamaGen drawn at random, by class and by text: greedy codes are those of the authors' code,
// levels of the image within 1 (assets/recipes/fixtures_authors_llamagen.py).
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "apps/runtime/generate_task.h"
#include "engine/core/io.h"
#include "engine/families/folder_files.h"
#include "tests/golden/llamagen/text_folder.h"

namespace tessera::authors_llamagen_golden_test {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = source_folder() / "tests" / "golden";

const Json& rows() {
  static const Json rows = [] {
    const fs::path file = kGolden / "authors_llamagen" / "models.json";
    return parse_json(read_file(file, std::size_t{1} << 20), file.string());
  }();
  return rows;
}

// A folder of a row's model; the image tokenizer in a folder of its own where its keys say more
// than shapes do, as the authors' mixin writes it.
void write_model(const Json& row, const fs::path& root) {
  const std::string config = row["keys"].dump();
  put_file(root / "config.json", config);
  write_hashed(root / "model.safetensors", parse_family_config(config, "c").tensors);
  const Json& vq = row["vq"];
  VqSpec spec;
  spec.base_channels = vq["channels"].get<std::int64_t>();
  spec.multipliers = vq["multipliers"].get<std::vector<std::int64_t>>();
  spec.res_blocks = vq["blocks"].get<std::int64_t>();
  spec.latent_channels = vq["latent"].get<std::int64_t>();
  spec.embed_dim = vq["embed_dim"].get<std::int64_t>();
  spec.codes = row["keys"]["vocab_size"].get<std::int64_t>();
  if (vq.contains("codebook_l2_norm")) {
    fs::create_directory(root / "vq");
    write_hashed(root / "vq" / "model.safetensors", vq_tensors(spec));
    put_file(root / "vq" / "config.json", Json{{"codebook_l2_norm", false}}.dump());
  } else {
    write_hashed(root / "vq.safetensors", vq_tensors(spec));
  }
  if (row.contains("encoder")) {
    fs::copy(kGolden / "t5" / row["encoder"].get<std::string>(), root / "t5");
  }
}

struct Kept final : GenerateListener {
  void on_image(GeneratedImage&& image) override { images.push_back(std::move(image)); }
  std::vector<GeneratedImage> images;
};

GeneratedImage generated(const Json& row, const fs::path& root) {
  GenerateOptions options;
  options.model = root.string();
  options.device = "cpu";
  options.threads = 2;
  options.storage = DType::kF32;
  GenerateRequest request{.prompt = row["prompt"].get<std::string>()};
  request.sampling.set(setting::kTemperature, 0);
  request.sampling.set(setting::kGuidance, row["guidance"].get<double>());
  Runtime runtime;
  GenerateTask task(runtime, options);
  Kept kept;
  EXPECT_TRUE(task.run({task.prepare(request)}, kept));
  expects(kept.images.size() == 1, "one image");
  return std::move(kept.images.front());
}

int largest_difference(const std::vector<std::uint8_t>& got, const Json& want) {
  if (got.size() != want.size()) return 256;
  int out = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    out = std::max(out, std::abs(int{got[i]} - want[i].get<int>()));
  }
  return out;
}

TEST(AuthorsLlamaGen, CodesAndLevelsAreTheAuthors) {
  int texts = 0, classes = 0, plain_books = 0, shared_keys = 0;
  for (const Json& row : rows()) {
    SCOPED_TRACE(row["number"].dump());
    const TempFolder root;
    write_model(row, root.path());
    const GeneratedImage image = generated(row, root.path());
    ASSERT_EQ(image.status, ImageStatus::kDone) << image.error.code;
    EXPECT_EQ(image.codes, row["tokens"].get<std::vector<std::int32_t>>());
    EXPECT_LE(largest_difference(image.image.rgb, row["pixels"]), 1);
    row.contains("encoder") ? ++texts : ++classes;
    plain_books += row["vq"].contains("codebook_l2_norm") ? 1 : 0;
    shared_keys += row["keys"].contains("n_kv_head") ? 1 : 0;
  }
  EXPECT_GE(texts, 4);
  EXPECT_GE(classes, 4);
  EXPECT_GE(plain_books, 1);
  EXPECT_GE(shared_keys, 2);
}

// A wrong code shows in the levels.
TEST(AuthorsLlamaGen, AnotherImageIsNoticed) {
  const Json& row = rows().front();
  const TempFolder root;
  write_model(row, root.path());
  Json other = row;
  other["guidance"] = row["guidance"].get<double>() + 3.0;
  const GeneratedImage image = generated(other, root.path());
  EXPECT_NE(image.codes, row["tokens"].get<std::vector<std::int32_t>>());
  EXPECT_GT(largest_difference(image.image.rgb, row["pixels"]), 1);
}

// Every key that the authors' mixin writes is read or known to change nothing.
TEST(AuthorsLlamaGen, KeysOfTheirConfigurationAreKnown) {
  const Json& row = rows().front();
  const TempFolder root;
  write_model(row, root.path());
  Json config = row["keys"];
  for (const char* key : {"token_dropout_p", "attn_dropout_p", "resid_dropout_p", "ffn_dropout_p",
                          "drop_path_rate", "initializer_range", "class_dropout_prob"}) {
    config[key] = 0.125;
  }
  for (const char* key : {"max_batch_size", "max_seq_len", "caption_dim"}) config[key] = 2048;
  put_file(root / "config.json", config.dump());
  const ModelSpec spec = load_model_spec(root.path(), {});
  ASSERT_NE(spec.account, nullptr);
  for (const std::string& line : spec.account->warnings()) ADD_FAILURE() << line;
}

}  // namespace
}  // namespace tessera::authors_llamagen_golden_test
