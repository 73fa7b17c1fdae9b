// Emu3-Gen by name and shape (assets/recipes/fixtures_names.py), in the port's layout and in the
// authors' with its tokenizer in a folder of its own.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/core/json.h"
#include "engine/families/memory_plan.h"
#include "engine/families/open_model.h"
#include "tests/support/published_names.h"
#include "tests/support/temp_folder.h"

namespace tessera::emu3_names_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLanguage = 8'492'011'520, kTokenizer = 270'740'287;

PublishedNames published(const std::string& stem) {
  return read_published_names(fs::path(TESSERA_SOURCE_DIR) / "tests" / "golden" / "names" /
                              (stem + ".txt"));
}

// The port's configuration with the part of its vocabulary that is read.
std::string port_config(std::int64_t shift_last = 0) {
  Json config = parse_json(published("emu3-port").config, "emu3-port");
  Json map = {{"<|extra_200|>", 151846}, {"<|extra_201|>", 151847},   {"<|extra_203|>", 151849},
              {"<|extra_204|>", 151850}, {"<|image token|>", 151851}, {"<|image start|>", 151852},
              {"<|image end|>", 151853}, {"<image>", 151646}};
  for (std::int64_t code = 0; code < 32768; ++code) {
    const std::string number = std::to_string(code);
    map["<|visual token " + std::string(6 - number.size(), '0') + number + "|>"] =
        151854 + code + (code == 32767 ? shift_last : 0);
  }
  config["vocabulary_map"] = map;
  return config.dump();
}

void write_port(const TempFolder& folder, const std::vector<TensorSpec>& tensors) {
  put_file(folder / "config.json", port_config());
  write_sparse_safetensors(folder / "model.safetensors", tensors);
}

void write_original(const TempFolder& folder, const std::vector<TensorSpec>& tensors,
                    const std::vector<TensorSpec>& tokenizer) {
  put_file(folder / "config.json", published("emu3-original").config);
  write_sparse_safetensors(folder / "model.safetensors", tensors);
  fs::create_directory(folder / "vision_tokenizer");
  put_file(folder / "vision_tokenizer" / "config.json", published("emu3-tokenizer").config);
  write_sparse_safetensors(folder / "vision_tokenizer" / "model.safetensors", tokenizer);
}

void expect_spec(const ModelSpec& spec) {
  EXPECT_EQ(spec.title, "Emu3 8B");
  EXPECT_EQ(spec.model.transformer.kv_heads, 8);
  EXPECT_EQ(spec.model.transformer.head_dim, 128);
  EXPECT_DOUBLE_EQ(spec.model.transformer.rope.theta, 1e6);
  EXPECT_EQ(spec.model.grid_rows, 90);
  EXPECT_EQ(spec.image_width(), 720);
  EXPECT_EQ(spec.model.image_tokens(), 90 * 91 + 3);
  EXPECT_EQ(spec.model.codes, 32768);
  EXPECT_EQ(spec.model.prompt_vocab, 151854);
  ASSERT_EQ(spec.names.code_rows.size(), 5u);
  EXPECT_EQ(spec.names.code_rows[0].first, 151854);
  const std::int64_t controls[] = {151846, 151853, 151847, 151850};  // row, image, grid, stream
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(spec.names.code_rows[i + 1].first, controls[i]);
}

std::int64_t elements(const std::vector<TensorSpec>& tensors) {
  std::int64_t sum = 0;
  for (const TensorSpec& tensor : tensors) sum += tensor.shape.elements();
  return sum;
}

// Learned numbers: what is listed less the batch norms' running statistics.
constexpr std::int64_t kRunning = 8 * 2 * 4;

TEST(Emu3Names, ThePortIsRecognisedCheckedAndPlanned) {
  const TempFolder folder;
  write_port(folder, published("emu3-port").tensors);
  const OpenedModel model = open_model(folder.path().string());
  expect_spec(model.spec);
  EXPECT_EQ(elements(model.spec.tensors), kLanguage + kTokenizer + kRunning);
  EXPECT_EQ(elements(movq_tensors(*model.spec.movq)), kTokenizer + kRunning);
  const auto backend = make_backend("cpu", {.threads = 1});
  const MemoryPlan plan = plan_memory(model.spec, *backend, {.storage = DType::kBF16});
  // Of the vocabulary the head has the codes alone.
  const double unused = 151854.0 * 4096;
  EXPECT_NEAR(static_cast<double>(plan.weights), 2 * (double{kLanguage} - unused), 64e6);
}

TEST(Emu3Names, TheAuthorsLayoutIsRecognisedAndChecked) {
  const TempFolder folder;
  write_original(folder, published("emu3-original").tensors, published("emu3-tokenizer").tensors);
  const OpenedModel model = open_model(folder.path().string());
  expect_spec(model.spec);
  EXPECT_EQ(elements(model.spec.tensors), kLanguage);
  EXPECT_EQ(elements(model.spec.vq_tensors), kTokenizer + kRunning);
}

void expect_refused(const TempFolder& folder, const std::string& name) {
  try {
    open_model(folder.path().string());
    ADD_FAILURE() << "accepted without " << name;
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 4);
    EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
  }
}

TEST(Emu3Names, OneNameLessIsRefused) {
  const auto port = published("emu3-port").tensors;
  for (std::size_t at = 5; at < port.size(); at += port.size() / 4) {
    if (port[at].name.ends_with("num_batches_tracked")) continue;
    std::vector<TensorSpec> fewer = port;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(at));
    const TempFolder folder;
    write_port(folder, fewer);
    expect_refused(folder, port[at].name);
  }
  std::vector<TensorSpec> tokenizer = published("emu3-tokenizer").tensors;
  const std::string gone = tokenizer[100].name;
  tokenizer.erase(tokenizer.begin() + 100);
  const TempFolder folder;
  write_original(folder, published("emu3-original").tensors, tokenizer);
  expect_refused(folder, gone);
}

TEST(Emu3Names, VisualTokensOutOfOrderAreRefused) {
  EXPECT_NO_THROW(parse_family_config(port_config(), "port"));
  try {
    parse_family_config(port_config(1), "port");
    FAIL() << "a gap in the visual tokens was accepted";
  } catch (const Error& error) {
    EXPECT_NE(error.info().where.find("<|visual token 032767|>"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::emu3_names_test
