// For whoever has real weights (docs/verify-published.md): generates greedily with a published folder
// and prints the codes. Skipped, visibly, unless an environment variable names the folder:
//   TESSERA_PUBLISHED_JANUS     Janus-Pro-1B: prompt length and first code are checked
//   TESSERA_PUBLISHED_LLAMAGEN  any class-conditional size: class 207
//   TESSERA_PUBLISHED_TOKENS    how many codes (default 16), TESSERA_PUBLISHED_DTYPE f32 or bf16
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "tests/support/model_runner.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera::published_weights_test {
namespace {

std::string setting(const char* name, const std::string& fallback = "") {
  const char* value = std::getenv(name);
  return value != nullptr ? value : fallback;
}

std::vector<std::int32_t> greedy_codes(
    const std::string& folder, float guidance,
    const std::function<std::vector<std::int32_t>(const OpenedModel&)>& make_prompt,
    const std::function<std::int32_t(const OpenedModel&)>& pad) {
  const auto backend = make_backend("cpu");
  OpenedModel opened = open_model(folder);
  const std::vector<std::int32_t> prompt = make_prompt(opened);
  const std::int32_t pad_token = pad(opened);
  const DType storage =
      setting("TESSERA_PUBLISHED_DTYPE", "f32") == "bf16" ? DType::kBF16 : DType::kF32;
  const StreamModel model = load_stream_model(opened, *backend, storage);
  const auto count =
      static_cast<std::int64_t>(std::stoi(setting("TESSERA_PUBLISHED_TOKENS", "16")));
  const auto length = static_cast<std::int64_t>(prompt.size());
  ModelRunner runner(model, 2, length + count, storage);
  const std::vector<float> hidden =
      runner.forward({{0, runner.prompt_rows(prompt)},
                      {1, runner.prompt_rows(model.unconditional_prompt(prompt, pad_token))}});
  std::vector<float> last = joined(row_of(hidden, length - 1, model.width()),
                                   row_of(hidden, 2 * length - 1, model.width()));
  const auto codes = static_cast<std::size_t>(model.config().codes);
  std::vector<std::int32_t> out;
  for (std::int64_t step = 0; step < std::min(count, model.image_token_count()); ++step) {
    const std::vector<float> logits = runner.logits(last);
    const auto guided = [&](std::size_t i) {
      return logits[codes + i] + guidance * (logits[i] - logits[codes + i]);
    };
    std::size_t best = 0;
    for (std::size_t i = 1; i < codes; ++i) best = guided(i) > guided(best) ? i : best;
    out.push_back(static_cast<std::int32_t>(best));
    const std::vector<float> row = runner.token_rows({out.back()});
    last = runner.forward({{0, row}, {1, row}});
  }
  std::cout << folder << ":";
  for (const std::int32_t code : out) std::cout << ' ' << code;
  std::cout << '\n';
  return out;
}

TEST(PublishedWeights, JanusPro1BGreedy) {
  const std::string folder = setting("TESSERA_PUBLISHED_JANUS");
  if (folder.empty()) GTEST_SKIP() << "TESSERA_PUBLISHED_JANUS names no folder";
  std::optional<TextTokenizer> text;
  const auto prompt = [&](const OpenedModel& opened) {
    text = TextTokenizer::from_file(opened.spec.tokenizer);
    const PromptForm& form = opened.spec.prompt.forms.front();
    const std::vector<std::int32_t> ids = text->encode(
        form.before + "A portrait of young girl. masterpiece, film grained, best quality." +
        form.after);
    EXPECT_EQ(ids.size(), 17u);
    EXPECT_EQ(text->id_of(opened.spec.prompt.begin_image_token), ids.back());
    return ids;
  };
  const auto pad = [&](const OpenedModel& opened) {
    return text->id_of(opened.spec.prompt.pad_token).value();
  };
  const std::vector<std::int32_t> codes = greedy_codes(folder, 5.0f, prompt, pad);
  ASSERT_FALSE(codes.empty());
  EXPECT_EQ(codes[0], 4484) << "the reference's first code, on CUDA in bf16";
}

TEST(PublishedWeights, LlamaGenGreedy) {
  const std::string folder = setting("TESSERA_PUBLISHED_LLAMAGEN");
  if (folder.empty()) GTEST_SKIP() << "TESSERA_PUBLISHED_LLAMAGEN names no folder";
  const auto codes = greedy_codes(
      folder, 4.0f, [](const OpenedModel&) { return std::vector<std::int32_t>{207}; },
      [](const OpenedModel&) { return 0; });
  for (const std::int32_t code : codes) EXPECT_LT(code, 16384);
}

}  // namespace
}  // namespace tessera::published_weights_test
