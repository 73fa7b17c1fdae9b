// Cosmos' published transformers by name and shape (assets/recipes/fixtures_names.py): 4B, 5B, 12B,
// 13B with the sizes that their authors give, with config.json and without.
#include <gtest/gtest.h>

#include "engine/families/memory_plan.h"
#include "engine/families/open_model.h"
#include "tests/support/published_names.h"
#include "tests/support/temp_folder.h"

namespace tessera::cosmos_names_test {
namespace {

namespace fs = std::filesystem;

struct Published {
  const char* size;
  double billions;
  std::int64_t layers, width;
  bool text;
};
constexpr Published kPublished[] = {{"4B", 4.01, 16, 4096, false},
                                    {"5B", 4.6, 16, 4096, true},
                                    {"12B", 11.6, 40, 5120, false},
                                    {"13B", 13.3, 40, 5120, true}};

PublishedNames names_of(const std::string& size) {
  return read_published_names(fs::path(TESSERA_SOURCE_DIR) / "tests" / "golden" / "names" /
                              ("cosmos-" + size + ".txt"));
}

void write_tokenizer(const TempFolder& folder) {
  fs::create_directory(folder / "tokenizer");
  std::vector<TensorSpec> list = fsq_video_tensors(FsqVideoSpec{});
  list.push_back({"encoder.patcher3d.wavelets", Shape{2}});
  list.push_back({"quantizer.implicit_codebook", Shape{64000, 6}});
  write_sparse_safetensors(folder / "tokenizer" / "model.safetensors", list);
}

class CosmosNames : public ::testing::TestWithParam<Published> {};

void expect_spec(const ModelSpec& spec, const Published& published) {
  EXPECT_EQ(spec.family, "cosmos");
  EXPECT_EQ(spec.size, published.size);
  const ModelConfig& model = spec.model.transformer;
  EXPECT_EQ(model.layers, published.layers);
  EXPECT_EQ(model.width, published.width);
  EXPECT_EQ(model.heads, 32);
  EXPECT_EQ(model.kv_heads, 8);
  EXPECT_EQ(model.head_dim, 128);
  EXPECT_EQ(model.ffn_width, 14336);
  EXPECT_TRUE(model.qk_norm);
  EXPECT_EQ(model.context_width, published.text ? 1024 : 0);
  EXPECT_EQ(model.added_places, published.text);
  EXPECT_DOUBLE_EQ(model.rope.yarn.factor, published.width == 5120 ? 2.0 : 1.0);
  EXPECT_EQ(model.rope.rows(), published.text ? 12864 : 12800);
  EXPECT_EQ(spec.model.image_tokens(), 12800);
  EXPECT_EQ(spec.model.codes, 64000);
}

TEST_P(CosmosNames, AreRecognisedCheckedAndPlanned) {
  const Published published = GetParam();
  const PublishedNames names = names_of(published.size);
  EXPECT_NEAR(static_cast<double>(names.elements()) / 1e9, published.billions, 0.05);
  for (const bool with_config : {true, false}) {
    const TempFolder folder;
    if (with_config) put_file(folder / "config.json", names.config);
    std::vector<TensorSpec> tensors = names.tensors;
    if (!with_config) {  // and another part that nobody reads
      for (TensorSpec& tensor : tensors) tensor.name = "model." + tensor.name;
      tensors.push_back({"vision_encoder.conv1.weight", Shape{4, 4}});
    }
    write_sparse_safetensors(folder / "model.safetensors", tensors);
    write_tokenizer(folder);
    const OpenedModel model = open_model(folder.path().string());
    expect_spec(model.spec, published);
    EXPECT_EQ(model.spec.parameter_count(), names.elements());
    const auto backend = make_backend("cpu", {.threads = 1});
    const MemoryPlan plan = plan_memory(
        model.spec, *backend, {.storage = DType::kBF16, .guidance = false, .prompt_tokens = 1});
    EXPECT_NEAR(static_cast<double>(plan.weights), 2.0 * static_cast<double>(names.elements()),
                published.text ? 500e6 : 64e6);
    // Keys and values of 12,800 codes: 65,536 bytes a code for 16 layers, 163,840 for 40.
    EXPECT_EQ(plan.kv, static_cast<std::size_t>(12800 * published.layers * 4096));
  }
}

TEST_P(CosmosNames, OneNameLessIsRefused) {
  const PublishedNames names = names_of(GetParam().size);
  const std::size_t last = names.tensors.size() - 1;
  for (const std::size_t at : {std::size_t{3}, last / 2, last}) {
    std::vector<TensorSpec> fewer = names.tensors;
    const std::string gone = fewer[at].name;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(at));
    const TempFolder folder;
    put_file(folder / "config.json", names.config);
    write_sparse_safetensors(folder / "model.safetensors", fewer);
    write_tokenizer(folder);
    try {
      open_model(folder.path().string());
      ADD_FAILURE() << "accepted without " << gone;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 4);
      EXPECT_NE(std::string(error.what()).find(gone), std::string::npos) << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, CosmosNames, ::testing::ValuesIn(kPublished),
                         [](const auto& one) { return "Size" + std::string(one.param.size); });

}  // namespace
}  // namespace tessera::cosmos_names_test
