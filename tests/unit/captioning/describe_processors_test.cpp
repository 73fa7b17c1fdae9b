// Logits processors of texts: those that a folder's generation_config.json switches on hold unless
// something else is asked for, whoever drafts, and what cannot be is refused by file and key or by
// flag.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "apps/runtime/describe_task.h"
#include "engine/sampling/processor_settings.h"
#include "engine/sampling/sampling_settings.h"
#include "tests/support/temp_folder.h"

namespace tessera::describe_processors_test {
namespace {

namespace fs = std::filesystem;
using Texts = std::map<std::string, std::string>;

// The bundled captioner with another generation_config.json.
fs::path folder_with(const TempFolder& folder, const std::string& generation) {
  const fs::path own = fs::path(TESSERA_SOURCE_DIR) / "assets/models/tabletop-llava";
  const fs::path out = folder.path() / "model";
  fs::remove_all(out);
  fs::create_directories(out);
  for (const auto& entry : fs::directory_iterator(own)) {
    if (entry.path().filename() == "generation_config.json") continue;
    fs::create_symlink(entry.path(), out / entry.path().filename());
  }
  put_file(out / "generation_config.json", R"({"eos_token_id": 2, )" + generation + "}");
  return out;
}

struct Heard final : DescribeListener {
  Texts texts;
  void on_caption(Caption&& caption) override {
    EXPECT_FALSE(caption.failed) << format_error(caption.error);
    texts[caption.id] = caption.text;
  }
};

Texts describe(const fs::path& model, const SettingValues& sampling = {},
               const char* method = "plain") {
  DescribeOptions options;
  options.model = model.string();
  options.device = "cpu";
  options.threads = 1;
  options.max_tokens = 20;
  options.batch_size = 2;
  options.sampling = sampling;
  options.method = text_method(method);
  Runtime runtime;
  DescribeTask task(runtime, options);
  std::vector<DescribeRequest> requests;
  for (int number = 0; number < 2; ++number) {
    auto image = std::make_shared<Image>(64, 64);
    for (std::size_t i = 0; i < image->rgb.size(); ++i) {
      image->rgb[i] = static_cast<std::uint8_t>(i * (3 + static_cast<std::size_t>(number)) / 50);
    }
    DescribeRequest& request = requests.emplace_back();
    request.id = std::to_string(number);
    request.images.emplace_back().image = std::move(image);
    request.prompt = "Describe the picture.";
  }
  Heard heard;
  runtime.finish(task.submit(std::move(requests), heard));
  EXPECT_EQ(heard.texts.size(), 2u);
  return heard.texts;
}

ErrorInfo describe_error(const fs::path& model, const SettingValues& sampling = {}) {
  try {
    describe(model, sampling);
  } catch (const Error& error) {
    return error.info();
  }
  return {};
}

SettingValues with(const Setting& row, SettingValue value) {
  SettingValues out;
  out.set(row, std::move(value));
  return out;
}

TEST(DescribeProcessors, AreThoseOfTheFolderUnlessAskedOtherwise) {
  const TempFolder folder;
  const fs::path bare = fs::path(TESSERA_SOURCE_DIR) / "assets/models/tabletop-llava";
  const Texts plain = describe(bare);
  const fs::path once = folder_with(folder, R"("no_repeat_ngram_size": 1)");
  const Texts changed = describe(once);
  EXPECT_NE(changed, plain);
  EXPECT_EQ(describe(bare, with(setting::kNoRepeatNgram, {1})), changed)
      << "the flag says the same";
  EXPECT_EQ(describe(once, with(setting::kNoRepeatNgram, {0})), plain) << "a flag comes first";
  for (const char* method : {"lookup", "recycle", "gumbel-tree", "auto"}) {
    EXPECT_EQ(describe(once, {}, method), changed) << method;
  }
}

TEST(DescribeProcessors, CutsOfTheFolderHoldForTextsThatAreDrawn) {
  const TempFolder folder;
  const fs::path bare = fs::path(TESSERA_SOURCE_DIR) / "assets/models/tabletop-llava";
  const SettingValues hot = with(setting::kTemperature, {5});
  const Texts drawn = describe(bare, hot);
  EXPECT_NE(drawn, describe(bare));
  const fs::path likeliest = folder_with(folder, R"("top_k": 1)");
  EXPECT_EQ(describe(likeliest, hot), describe(bare));
  SettingValues all = hot;
  all.set(setting::kTopK, 0);
  EXPECT_EQ(describe(likeliest, all), drawn) << "a flag comes first";
  const fs::path entropy = folder_with(folder, R"("top_h": 0.5)");
  EXPECT_EQ(describe(entropy), describe(bare));
  EXPECT_EQ(describe_error(entropy, hot).where, "top_h");
  EXPECT_EQ(describe_error(folder_with(folder, R"("num_beams": 4)")).where, "num_beams");
}

TEST(DescribeProcessors, SamplingKeysChangeNoGreedyText) {
  const TempFolder folder;
  EXPECT_EQ(describe(folder_with(folder, R"("do_sample": true, "temperature": 0.3, "top_k": 1,
                                            "top_p": 0.5, "num_beams": 1)")),
            describe(fs::path(TESSERA_SOURCE_DIR) / "assets/models/tabletop-llava"));
}

TEST(DescribeProcessors, WhatCannotBeIsRefusedByName) {
  const TempFolder folder;
  const ErrorInfo file = describe_error(folder_with(folder, R"("repetition_penalty": 0)"));
  EXPECT_NE(file.file.find("generation_config.json"), std::string::npos) << format_error(file);
  EXPECT_NE(file.where.find("repetition_penalty"), std::string::npos);
  const ErrorInfo flag =
      describe_error(fs::path(TESSERA_SOURCE_DIR) / "assets/models/tabletop-llava",
                     with(setting::kSuppressTokens, {0, "5,900000"}));
  EXPECT_EQ(flag.code, "E_TOKEN_ID");
  EXPECT_EQ(flag.where, "--suppress-tokens");
  EXPECT_EQ(flag.found, "900000");
}

}  // namespace
}  // namespace tessera::describe_processors_test
