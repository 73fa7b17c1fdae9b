// Chameleon, Anole and Lumina-mGPT by name and shape (assets/recipes/fixtures_names.py): the port's
// layout in both sizes, with one row of norms for all heads, and the authors' files.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/core/json.h"
#include "engine/families/memory_plan.h"
#include "engine/families/open_model.h"
#include "tests/support/published_names.h"
#include "tests/support/temp_folder.h"

namespace tessera::chameleon_names_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSmall = 7'013'666'816, kLarge = 34'294'308'864, kTokenizer = 68'718'467;

PublishedNames published(const std::string& stem) {
  return read_published_names(fs::path(TESSERA_SOURCE_DIR) / "tests" / "golden" / "names" /
                              (stem + ".txt"));
}

// The part of the published vocabulary that is read.
Json vocabulary() {
  Json map = {{"<s>", 0}, {"<pad>", 1}, {"</s>", 2}, {"<eoss>", 8196}, {"<racm3:break>", 8197}};
  for (int i = 8700; i < 8900; ++i) map["<reserved0" + std::to_string(i) + ">"] = i + 4;
  for (int code = 0; code < 8192; ++code) {
    std::string name = "IMGIMG";
    for (const char digit : std::to_string(code)) name += static_cast<char>('A' + (digit - '0'));
    map[name + "Z"] = 4 + code;
  }
  return map;
}

void write_port(const TempFolder& folder, const std::string& stem,
                const std::vector<TensorSpec>& tensors) {
  Json config = parse_json(published(stem).config, stem);
  config["vocabulary_map"] = vocabulary();
  put_file(folder / "config.json", config.dump());
  write_sparse_safetensors(folder / "model.safetensors", tensors);
  write_sparse_safetensors(folder / "vqgan.safetensors", published("chameleon-vqgan").tensors);
}

void expect_ids(const ModelSpec& spec, bool rows) {
  EXPECT_EQ(spec.model.codes, 8192);
  EXPECT_EQ(spec.model.prompt_vocab, 65536);
  std::vector<std::int64_t> firsts;
  for (const RowRange& range : spec.names.code_rows) firsts.push_back(range.first);
  EXPECT_EQ(firsts, rows ? (std::vector<std::int64_t>{4, 8803, 8196})
                         : (std::vector<std::int64_t>{4, 8196}));
  EXPECT_EQ(spec.names.code_rows.front().count, 8192);
}

std::int64_t elements(const std::vector<TensorSpec>& tensors) {
  std::int64_t sum = 0;
  for (const TensorSpec& tensor : tensors) sum += tensor.shape.elements();
  return sum;
}

std::int64_t learned_of_language(const ModelSpec& spec) {
  std::int64_t sum = 0;
  for (const TensorSpec& tensor : spec.tensors) {
    if (tensor.name.find("vqmodel") == std::string::npos) sum += tensor.shape.elements();
  }
  return sum;
}

TEST(ChameleonNames, BothSizesOfThePortAreRecognisedCheckedAndPlanned) {
  for (const auto& [stem, title, learned] :
       {std::tuple("chameleon-7b-port", "Chameleon 7B", kSmall),
        std::tuple("chameleon-30b-port", "Chameleon 30B", kLarge)}) {
    const TempFolder folder;
    write_port(folder, stem, published(stem).tensors);
    const OpenedModel model = open_model(folder.path().string());
    EXPECT_EQ(model.spec.title, title);
    EXPECT_EQ(model.spec.image_width(), 512);
    EXPECT_EQ(model.spec.model.image_tokens(), 1025);
    EXPECT_EQ(model.spec.model.max_prompt, 4096 - 1025);
    expect_ids(model.spec, false);
    EXPECT_EQ(learned_of_language(model.spec), learned);
    EXPECT_EQ(elements(model.spec.vq_tensors), kTokenizer);
    const auto backend = make_backend("cpu", {.threads = 1});
    const MemoryPlan plan = plan_memory(model.spec, *backend, {.storage = DType::kBF16});
    // Of the vocabulary the head has the codes alone.
    const double unused =
        (65536.0 - 2 * 8192) * static_cast<double>(model.spec.model.transformer.width);
    EXPECT_NEAR(static_cast<double>(plan.weights), 2 * (static_cast<double>(learned) - unused),
                0.003 * static_cast<double>(plan.weights));
  }
}

TEST(ChameleonNames, LuminaHasOneRowOfNormsAndImagesOfSeveralSizes) {
  const TempFolder folder;
  write_port(folder, "lumina-mgpt-7b", published("lumina-mgpt-7b").tensors);
  const OpenedModel model = open_model(folder.path().string());
  EXPECT_EQ(model.spec.title, "Lumina-mGPT 7B");
  EXPECT_EQ(model.spec.image_width(), 768);
  EXPECT_EQ(model.spec.model.image_tokens(), 48 * 49 + 1);
  expect_ids(model.spec, true);
  EXPECT_EQ(model.spec.prompt.forms.front().after,
            "<reserved08706><racm3:break><reserved08824><reserved08824>");
  const ModelSpec wide = load_model_spec(folder.path(), {.width = 1024, .height = 576});
  EXPECT_EQ(wide.model.grid_cols, 64);
  EXPECT_EQ(wide.model.grid_rows, 36);
  EXPECT_EQ(wide.prompt.forms.front().before,
            "Generate an image of 1024x576 according to the following prompt:\n");
  EXPECT_EQ(wide.prompt.begin_image_token, "<reserved08832>");
  EXPECT_EQ(load_model_spec(folder.path(), {.width = 1024, .height = 1024}).model.image_tokens(),
            64 * 65 + 1);
}

TEST(ChameleonNames, TheAuthorsFilesAreRecognisedAndChecked) {
  const TempFolder folder;
  const PublishedNames names = published("chameleon-7b-authors");
  put_file(folder / "params.json", names.config);
  write_sparse_safetensors(folder / "consolidated.safetensors", names.tensors);
  fs::create_directory(folder / "tokenizer");
  write_sparse_safetensors(folder / "tokenizer" / "vqgan.safetensors",
                           published("chameleon-vqgan").tensors);
  put_file(folder / "tokenizer" / "text_tokenizer.json",
           Json{{"model", {{"vocab", vocabulary()}}}}.dump());
  const OpenedModel model = open_model(folder.path().string());
  EXPECT_EQ(model.spec.title, "Chameleon 7B");
  EXPECT_EQ(model.spec.image_width(), 512);
  expect_ids(model.spec, false);
  EXPECT_EQ(elements(model.spec.tensors) + 64, names.elements());
  EXPECT_FALSE(model.spec.vq.attention_last_level);
  EXPECT_TRUE(model.spec.vq.attention_mid);
}

TEST(ChameleonNames, TheLargeReleaseIsInFourFiles) {
  const TempFolder folder;
  const PublishedNames names = published("chameleon-30b-authors");
  put_file(folder / "params.json", names.config);
  for (int part = 0; part < 4; ++part) {
    write_sparse_safetensors(folder / ("consolidated.0" + std::to_string(part) + ".safetensors"),
                             names.tensors);
  }
  write_sparse_safetensors(folder / "vqgan.safetensors", published("chameleon-vqgan").tensors);
  put_file(folder / "text_tokenizer.json", Json{{"model", {{"vocab", vocabulary()}}}}.dump());
  const OpenedModel model = open_model(folder.path().string());
  EXPECT_EQ(model.spec.title, "Chameleon 30B");
  EXPECT_TRUE(model.spec.model.transformer.result_norms);
  // Norms of heads have a row a file here, a row a head there.
  const std::int64_t norms = 48 * 2 * 128 * (64 + 8 - 2 * 4);
  EXPECT_EQ(elements(model.spec.tensors), kLarge - norms);
  expect_ids(model.spec, false);
}

TEST(ChameleonNames, OneNameLessIsRefused) {
  const std::vector<TensorSpec> port = published("chameleon-7b-port").tensors;
  for (const std::size_t at : {std::size_t{0}, std::size_t{40}, std::size_t{300}}) {
    if (port[at].name.find("vqmodel") != std::string::npos) continue;
    std::vector<TensorSpec> fewer = port;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(at));
    const TempFolder folder;
    write_port(folder, "chameleon-7b-port", fewer);
    try {
      open_model(folder.path().string());
      ADD_FAILURE() << "accepted without " << port[at].name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(port[at].name), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace tessera::chameleon_names_test
