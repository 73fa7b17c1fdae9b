// Folders that other tools quantised against plain readings of the formats and transformers: every
// number of every matrix, and greedy texts. Recipe: fixtures_quantised_folders.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/runtime/complete_task.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/families/folder_files.h"
#include "engine/families/text_model.h"
#include "tests/support/model_runner.h"
#include "tests/support/temp_folder.h"

namespace tessera::quantised_test {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(TESSERA_SOURCE_DIR) / "tests/golden";

Json goldens() {
  return parse_json(read_file(kGolden / "quantised/tokens.json", 1 << 20), "tokens.json");
}

fs::path folder_of(const Json& model) {
  return kGolden / "quantised" / model["folder"].get<std::string>();
}

std::string digest(const ConstTensorView& view) {
  const float* numbers = view.f32();
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (std::int64_t i = 0; i < view.shape.elements(); ++i) {
    hash = (hash ^ std::bit_cast<std::uint32_t>(numbers[i])) * 0x100000001b3u;
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

TEST(QuantisedFolders, EveryNumberIsThatOfTheFormat) {
  for (const Json& model : goldens()) {
    SCOPED_TRACE(model["folder"].get<std::string>());
    TextSpec spec;
    const OpenedModel opened = open_text_model(folder_of(model), spec);
    const Checkpoint& weights = *opened.weights;
    EXPECT_TRUE(weights.dequantised());
    std::size_t count = 0;
    for (const auto& [name, wanted] : model["digests"].items()) {
      const ConstTensorView* view = weights.find(name);
      ASSERT_NE(view, nullptr) << name;
      EXPECT_EQ(digest(*view), wanted) << name;
      weights.release(name);
      EXPECT_TRUE(weights.tensors().find(name)->second.empty()) << "one matrix stands at a time";
      ++count;
    }
    EXPECT_EQ(count, 7u);
  }
}

// The reference's tokens in one pass: each must be the likeliest after those before it.
TEST(QuantisedFolders, GreedyTokensAreThoseOfTransformers) {
  for (const Json& model : goldens()) {
    SCOPED_TRACE(model["folder"].get<std::string>());
    TextSpec spec;
    OpenedModel opened = open_text_model(folder_of(model), spec);
    const auto backend = make_backend("cpu", {.threads = 2}, {});
    const StreamModel loaded = load_stream_model(opened, *backend, DType::kF32);
    const std::int64_t width = loaded.transformer().config().width;
    Arena arena = make_arena(*backend, loaded.scratch_bytes(1) + 4096);
    for (const Json& row : model["rows"]) {
      auto ids = row["ids"].get<std::vector<std::int32_t>>();
      const auto tokens = row["tokens"].get<std::vector<std::int32_t>>();
      const std::int64_t prompt = std::ssize(ids);
      ids.insert(ids.end(), tokens.begin(), tokens.end());
      std::vector<float> rows(to_size(std::ssize(ids) * width));
      loaded.embed_prompt(ids, {DType::kF32, Shape{std::ssize(ids), width}, rows.data(), Device{}});
      ModelRunner runner(loaded, 1, std::ssize(ids));
      std::vector<float> hidden = runner.forward({{.sequence = 0, .rows = rows}});
      std::vector<float> logits(to_size(loaded.logit_ids()));
      for (std::int64_t i = 0; i < std::ssize(tokens); ++i) {
        float* const last = hidden.data() + (prompt + i - 1) * width;
        loaded.logits({DType::kF32, Shape{1, width}, last, Device{}}, arena,
                      {DType::kF32, Shape{1, loaded.logit_ids()}, logits.data(), Device{}});
        const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
        ASSERT_EQ(best, tokens[to_size(i)]) << "token " << i;
      }
    }
  }
}

class Listener final : public CompleteListener {
 public:
  void on_completion(Completion&& completion) override {
    EXPECT_FALSE(completion.failed) << format_error(completion.error);
    text = completion.text;
  }
  void on_over(bool) override {}
  std::string text;
};

// With the tokenizer of other fixtures.
TEST(QuantisedFolders, TheyAreKeptInEightBitsUnlessAskedOtherwise) {
  const TempFolder folder;
  const auto from = [](const fs::path& source, const fs::path& to) {
    fs::copy(source, to, fs::copy_options::recursive);
  };
  from(folder_of(goldens()[0]), folder.path());
  for (const char* file : {"tokenizer.model", "tokenizer_config.json"}) {
    from(kGolden / "text_folders/llama_legacy" / file, folder / file);
  }
  const auto write = [&](std::optional<DType> storage) {
    CompleteOptions options;
    options.model = folder.path().string();
    options.max_tokens = 16;
    options.storage = storage;
    options.method = text_method("plain");
    Runtime runtime;
    CompleteTask task(runtime, options);
    EXPECT_EQ(task.storage(), storage.value_or(DType::kQ8));
    EXPECT_NE(task.model().spec().title.find("(fp8)"), std::string::npos);
    Listener listener;
    runtime.finish(task.submit({{.prompt = "The cat sat on"}}, listener));
    return listener.text;
  };
  const std::string text = write(std::nullopt);
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(text, write(DType::kQ8));
}

TEST(QuantisedFolders, EveryKeyIsAccountedFor) {
  for (const Json& model : goldens()) {
    SCOPED_TRACE(model["folder"].get<std::string>());
    TextSpec spec;
    open_text_model(folder_of(model), spec);
    std::size_t used = 0;
    for (const KeyAccount& key : spec.account->keys) {
      EXPECT_NE(key.use, KeyUse::kUnknown) << key.file << " " << key.key;
      if (key.key.starts_with("quantization_config.") && key.use == KeyUse::kUsed) ++used;
    }
    EXPECT_GE(used, 1u);
  }
}

}  // namespace
}  // namespace tessera::quantised_test
