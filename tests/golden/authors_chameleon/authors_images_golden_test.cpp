// Releases of Chameleon's authors with images in prompts, by the authors' own code
// (assets/recipes/fixtures_authors_chameleon_images.py).
#include <gtest/gtest.h>

#include "engine/decoding/method_parts.h"
#include "engine/families/open_model.h"
#include "tests/support/folder_corpus.h"
#include "tests/support/stream_run.h"

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

}  // namespace
}  // namespace tessera::authors_images_golden_test
