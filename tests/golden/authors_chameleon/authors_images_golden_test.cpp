// Releases of Chameleon's authors with images in prompts, by the authors' own code
// (assets/recipes/fixtures_authors_chameleon_images.py).
#include <gtest/gtest.h>

#include "apps/runtime/caption_model.h"
#include "apps/runtime/caption_prompt.h"
#include "engine/decoding/method_parts.h"
#include "engine/families/folder_files.h"
#include "engine/families/open_model.h"
#include "tests/support/folder_corpus.h"
#include "tests/support/model_runner.h"
#include "tests/support/stream_run.h"
#include "vision/image/preprocess.h"

namespace tessera::authors_images_golden_test {
namespace {

using Ids = std::vector<std::int32_t>;

const FolderCorpus& corpus() {
  static const FolderCorpus corpus(std::filesystem::path(TESSERA_SOURCE_DIR) / "tests" / "golden" /
                                   "authors_chameleon" / "images");
  return corpus;
}

Ids expanded(const Json& runs) {
  Ids out;
  for (const Json& run : runs) {
    out.insert(out.end(), run[1].get<std::size_t>(), run[0].get<std::int32_t>());
  }
  return out;
}

Ids ids_of(const Json& row, const char* key) { return row[key].get<Ids>(); }

// An image after a prompt with an image, until it has so many tokens.
Ids first_codes(const StreamModel& model, const std::string& method_name, Stream stream,
                std::size_t count) {
  struct Keep final : StreamListener {
    void on_tokens(std::size_t, std::span<const std::int32_t> more) override {
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
    void on_done(std::size_t, StreamResult&&) override {}
    Ids tokens;
  } keep;
  DecodeAids aids;
  aids.grammar = model.config().grammar();
  const DecodeMethod method = settle_method(decode_method(method_name), aids, 8);
  const OwnedParts<float, KeyedRandom> parts(method, aids);
  StreamLoop loop(model,
                  image_limits(model, {.prompt_rows = stream.prompt.length(),
                                       .window = method.window,
                                       .images_apart = true,
                                       .dists = true}),
                  parts.parts());
  const std::size_t slot = loop.add(std::move(stream));
  while (keep.tokens.size() < count) loop.step(keep);
  loop.drop(slot);
  keep.tokens.resize(count);
  return keep.tokens;
}

TEST(AuthorsImages, ThreeBranchesGuideAnImageAfterAnImage) {
  const auto backend = make_backend("cpu", {.threads = 2});
  int others = 0;
  for (const Json& row : corpus().folders()) {
    SCOPED_TRACE(row["name"].get<std::string>());
    const TempFolder folder;
    corpus().write(row, folder.path());
    OpenedModel opened = open_model(folder.path().string(), {.use = ModelUse::kAll});
    const StreamModel model = load_stream_model(opened, *backend, DType::kF32);
    const double guidance = row["guidance"].get<double>();
    Stream stream;
    stream.prompt.ids = expanded(row["ids"]);
    stream.images.ids = expanded(row["images"]);
    stream.prompt.ids.push_back(stream.images.ids.back());
    stream.unconditional.ids = model.unconditional_prompt(stream.prompt.ids, 0);
    EXPECT_EQ(stream.unconditional.ids,
              (Ids{stream.images.ids.front(), stream.images.ids.back()}));
    stream.images_share = (guidance - *opened.spec.interleave->images_guidance) / (guidance - 1);
    stream.dist.guidance = guidance;
    stream.dist.temperature = 0;
    const Ids want = ids_of(row, "after");
    EXPECT_EQ(first_codes(model, "plain", stream, want.size()), want);
    EXPECT_EQ(first_codes(model, "gumbel", stream, want.size()), want);
    stream.images.ids.clear();
    others += first_codes(model, "plain", stream, want.size()) == want ? 0 : 1;
  }
  EXPECT_GE(others, 1) << "two branches would do";
}

// A greedy text, without what their code lets no text have.
Ids text_of(const CaptionModel& model, const StreamModel& text, PromptRows rows,
                std::size_t count) {
  struct Keep final : StreamListener {
    void on_done(std::size_t, StreamResult&& result) override { tokens = result.tokens; }
    Ids tokens;
  } keep;
  const OwnedParts<float, KeyedRandom> parts(DecodeMethod{}, DecodeAids{});
  const auto total = static_cast<std::int64_t>(rows.places.size());
  StreamLoop loop(
      text, text_limits(text, 64, {.items = 1, .prompt_rows = total + 64, .budget = total + 64}),
      parts.parts());
  Stream stream = greedy_text(std::move(rows.rows), std::move(rows.places), rows.next_place,
                              nullptr, static_cast<std::int64_t>(count));
  for (const std::int32_t id : model.describe().unwritten) {
    stream.dist.suppress_tokens += (stream.dist.suppress_tokens.empty() ? "" : ",") + std::to_string(id);
  }
  loop.add(stream);
  while (!loop.idle()) loop.step(keep);
  return keep.tokens;
}

TEST(AuthorsImages, AnImageIsDescribedAsByTheirCode) {
  const auto backend = make_backend("cpu", {.threads = 2});
  for (const Json& row : corpus().folders()) {
    SCOPED_TRACE(row["name"].get<std::string>());
    const TempFolder folder;
    corpus().write(row, folder.path());
    EXPECT_TRUE(describes_images(folder.path()));
    const std::unique_ptr<CaptionModel> model = CaptionModel::open(folder.path());
    for (const std::string& line : model->describe().account->warnings()) ADD_FAILURE() << line;
    const Json& size = row["image"];
    const PreprocessedImage image =
        preprocess(model->describe().policy,
                   corpus_image(size[0].get<std::int64_t>(), size[1].get<std::int64_t>(),
                                size[2].get<std::int64_t>()));
    const Ids ids = model->prompt_ids(row["question"].get<std::string>(), {&image.plan, 1});
    Ids want = expanded(row["ids"]);
    const Ids seen(want.begin() + 2, want.begin() + 2 + 1024);
    std::fill(want.begin() + 2, want.begin() + 2 + 1024, model->describe().image_id);
    EXPECT_EQ(ids, want);
    const StreamModel text = model->load_text(*backend, DType::kF32);
    model->load(*backend, DType::kF32, &text.space(TokenSpace::kText));
    std::vector<PromptImage> visual;
    visual.push_back({model->images().encode(image, false, nullptr)});
    Tensor rows = Tensor::host(DType::kF32, {1024, text.width()});
    text.space(TokenSpace::kText).embed_prompt(seen, rows.view());
    EXPECT_EQ(visual.front().visual.rows, floats_of(rows.view())) << "other codes";
    PromptRows prompt =
        build_prompt(model->text(), ids, model->describe().image_id, std::move(visual));
    const Ids greedy = ids_of(row, "greedy");
    EXPECT_EQ(text_of(*model, text, std::move(prompt), greedy.size()), greedy);
  }
}

}  // namespace
}  // namespace tessera::authors_images_golden_test
