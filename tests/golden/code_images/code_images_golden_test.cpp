// Models that see images as codes, where folders_golden_test.cpp does not look: other types of
// weights, copies of their folders, both uses of one folder at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "apps/runtime/caption_model.h"
#include "apps/runtime/caption_prompt.h"
#include "apps/runtime/describe_task.h"
#include "apps/runtime/generate_task.h"
#include "apps/runtime/quantize.h"
#include "apps/runtime/token_walk.h"
#include "tests/support/folder_corpus.h"
#include "vision/image/preprocess.h"

namespace tessera::code_images_golden_test {
namespace {

namespace fs = std::filesystem;

const FolderCorpus& corpus() {
  static const FolderCorpus corpus(fs::path(TESSERA_SOURCE_DIR) / "tests/golden/code_images");
  return corpus;
}

const Json& row_of(std::string_view name) {
  return *std::ranges::find_if(corpus().folders(),
                               [&](const Json& row) { return row["name"] == name; });
}

void edit(const fs::path& file, const std::function<void(Json&)>& change) {
  Json json = fs::exists(file) ? Json::parse(get_file(file)) : Json::object();
  change(json);
  put_file(file, json.dump());
}

// A folder's first image, its prompt, and the logits after it, in one type of weights.
class Seen {
 public:
  Seen(const fs::path& folder, const Json& row, DType storage)
      : model_(CaptionModel::open(folder)), backend_(make_backend("cpu", {.threads = 1})) {
    text_.emplace(model_->load_text(*backend_, storage));
    model_->load(*backend_, storage, &text_->space(TokenSpace::kText));
    const Json& size = row["images"][0];
    const PreprocessedImage image =
        preprocess(model_->describe().policy,
                   corpus_image(size[0].get<std::int64_t>(), size[1].get<std::int64_t>(),
                                size[2].get<std::int64_t>()));
    visual_ = model_->images().encode(image, false, nullptr);
    ids_ = model_->prompt_ids(row["question"].get<std::string>(), {&image.plan, 1});
  }

  const VisualRows& visual() const { return visual_; }

  std::vector<float> logits(VisualRows visual) const {
    std::vector<PromptImage> images;
    images.push_back({std::move(visual)});
    const PromptRows prompt =
        build_prompt(model_->text(), ids_, model_->describe().image_id, std::move(images));
    TokenWalk walk(model_->text(), prompt.rows.shape()[0]);
    std::vector<float> out(to_size(model_->text().logit_ids()));
    walk.last_logits(walk.pass(prompt.rows.view(), prompt.places), out.data());
    return out;
  }

 private:
  std::unique_ptr<CaptionModel> model_;
  std::unique_ptr<Backend> backend_;
  std::optional<StreamModel> text_;
  VisualRows visual_;
  std::vector<std::int32_t> ids_;
};

double norm(std::span<const float> a) {
  double sum = 0;
  for (const float value : a) sum += double{value} * value;
  return std::sqrt(sum);
}

double distance(std::span<const float> a, std::span<const float> b) {
  std::vector<float> apart(a.begin(), a.end());
  for (std::size_t i = 0; i < apart.size(); ++i) apart[i] -= b[i];
  return norm(apart) / norm(b);
}

// Visual tokens whose row is another one's.
std::int64_t other_codes(const VisualRows& a, const VisualRows& b) {
  std::int64_t out = 0;
  const auto width = to_size(a.width);
  for (std::size_t at = 0; at < a.rows.size(); at += width) {
    out += distance({&a.rows[at], width}, {&b.rows[at], width}) > 0.02 ? 1 : 0;
  }
  return out;
}

struct Bound {
  DType storage;
  double codes;   // share of visual tokens that may be others
  double logits;  // relative distance, with the codes of f32
};

// Rounded weights move a latent over the border between two codes now and then.
TEST(CodeFolders, WeightsOfFewerBitsStayNear) {
  for (const char* name : {"emu3-1-v5", "emu3-9-v5", "chameleon-0-v4", "chameleon-13-v5"}) {
    const TempFolder folder;
    const Json& row = row_of(name);
    corpus().write(row, folder.path());
    const Seen exact(folder.path(), row, DType::kF32);
    const std::vector<float> wanted = exact.logits(exact.visual());
    for (const Bound& bound : {Bound{DType::kBF16, 0.1, 0.03}, Bound{DType::kQ8, 0.1, 0.04}}) {
      SCOPED_TRACE(std::string(name) + " " + std::string(dtype_name(bound.storage)));
      const Seen other(folder.path(), row, bound.storage);
      ASSERT_EQ(other.visual().rows.size(), exact.visual().rows.size());
      const std::int64_t tokens = exact.visual().total;
      EXPECT_LE(to_double(other_codes(other.visual(), exact.visual())),
                bound.codes * to_double(tokens));
      const double apart = distance(other.logits(exact.visual()), wanted);
      EXPECT_LT(apart, bound.logits);
      EXPECT_GT(apart, 0.0) << "no weight was rounded";
    }
  }
}

class Notices final : public QuantizeListener {
 public:
  void on_notice(std::string_view text) override { text_ += text; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Neither folder can generate: there is no decoder, and no room for an image.
TEST(CodeFolders, WhatOnlyDescribesIsQuantisedForDescribing) {
  for (const char* name : {"emu3-1-v5", "chameleon-0-v4"}) {
    SCOPED_TRACE(name);
    const TempFolder folder;
    const Json& row = row_of(name);
    const fs::path source = folder / "model", copy = folder / "copy";
    corpus().write(row, source);
    Notices notices;
    const QuantizeReport report =
        quantize({.model = source.string(), .output = copy, .type = "q8"}, notices);
    EXPECT_TRUE(report.finished);
    EXPECT_GT(report.types.at("Q8_0").tensors, 0u);
    EXPECT_NE(notices.text().find("made to describe images"), std::string::npos) << notices.text();
    const Seen wanted(source, row, DType::kQ8), own(copy, row, DType::kQ8);
    EXPECT_EQ(CaptionModel::open(copy)->stored(), DType::kQ8);
    EXPECT_EQ(own.visual().rows, wanted.visual().rows);
    EXPECT_EQ(own.logits(own.visual()), wanted.logits(wanted.visual()));
  }
}

// What generating reads of the files is not what describing reads.
TEST(CodeFolders, GuidanceOfTextsIsRefused) {
  for (const char* name : {"emu3-1-v5", "chameleon-0-v4"}) {
    const TempFolder folder;
    corpus().write(row_of(name), folder.path());
    edit(folder / "generation_config.json", [](Json& json) { json["guidance_scale"] = 3.0; });
    try {
      CaptionModel::open(folder.path());
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.info().where, "guidance_scale") << error.what();
    }
  }
}

// A head in the file is the head, whatever tie_word_embeddings says.
TEST(CodeFolders, AHeadOfItsOwnIsNotTied) {
  for (const char* name : {"emu3-1-v5", "chameleon-0-v4"}) {
    SCOPED_TRACE(name);
    const TempFolder folder;
    const Json& row = row_of(name);
    corpus().write(row, folder.path());
    const Seen wanted(folder.path(), row, DType::kF32);
    edit(folder / "config.json", [](Json& json) {
      json["tie_word_embeddings"] = true;
      if (json.contains("text_config")) json["text_config"]["tie_word_embeddings"] = true;
    });
    const Seen tied(folder.path(), row, DType::kF32);
    EXPECT_EQ(tied.logits(tied.visual()), wanted.logits(wanted.visual()));
  }
}

struct Images final : GenerateListener {
  void on_image(GeneratedImage&& image) override { rgb = std::move(image.image.rgb); }
  std::vector<std::uint8_t> rgb;
};

struct Texts final : DescribeListener {
  void on_caption(Caption&& caption) override {
    EXPECT_FALSE(caption.failed) << caption.error.code;
    text = std::move(caption.text);
  }
  std::string text;
};

DescribeRequest question() {
  auto image = std::make_shared<Image>(40, 24);
  for (std::size_t i = 0; i < image->rgb.size(); ++i) {
    image->rgb[i] = static_cast<std::uint8_t>(i * 7 % 256);
  }
  DescribeRequest out{.id = "x", .prompt = "what?"};
  out.images.push_back({.image = std::move(image), .name = "x"});
  return out;
}

// Emu3's two uses are read apart: both tasks of a runtime load what each needs.
TEST(CodeFolders, GeneratingAndDescribingWorkInOneRuntime) {
  const TempFolder folder;
  corpus().write(row_of("emu3-1-v5"), folder.path());
  edit(folder / "config.json", [](Json& json) {
    json["image_area"] = 32 * 32;
    json["text_config"]["max_position_embeddings"] = 4096;
  });
  GenerateOptions generating;
  generating.model = folder.path().string();
  generating.device = "cpu";
  generating.threads = 1;
  DescribeOptions describing;
  describing.model = folder.path().string();
  describing.device = "cpu";
  describing.threads = 1;
  describing.max_tokens = 4;
  Images alone_image, image;
  Texts alone_text, text;
  {
    Runtime runtime;
    GenerateTask task(runtime, generating);
    EXPECT_TRUE(task.run({task.prepare({.prompt = "a", .seed = 5})}, alone_image));
  }
  {
    Runtime runtime;
    DescribeTask task(runtime, describing);
    runtime.finish(task.submit({question()}, alone_text));
  }
  Runtime runtime;
  GenerateTask generator(runtime, generating);
  DescribeTask describer(runtime, describing);
  runtime.finish(describer.submit({question()}, text));
  EXPECT_TRUE(generator.run({generator.prepare({.prompt = "a", .seed = 5})}, image));
  EXPECT_FALSE(image.rgb.empty());
  EXPECT_EQ(image.rgb, alone_image.rgb);
  EXPECT_FALSE(text.text.empty());
  EXPECT_EQ(text.text, alone_text.text);
}

}  // namespace
}  // namespace tessera::code_images_golden_test
