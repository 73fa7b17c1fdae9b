// Folders drawn at random from the legal space of the reference's classes, in the layouts of
// transformers 4 and 5: prompt, pixels and text are those of the reference. None is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "apps/runtime/caption_model.h"
#include "apps/runtime/caption_prompt.h"
#include "engine/decoding/method_parts.h"
#include "engine/families/folder_files.h"
#include "tests/support/folder_corpus.h"
#include "tests/support/stream_run.h"
#include "vision/image/preprocess.h"

namespace tessera::folders_golden_test {
namespace {

const std::filesystem::path kGolden = std::filesystem::path(TESSERA_SOURCE_DIR) / "tests" / "golden";

const FolderCorpus& corpus() {
  static const FolderCorpus corpus(kGolden / "folders");
  return corpus;
}

std::vector<std::int32_t> expanded(const Json& runs) {
  std::vector<std::int32_t> out;
  for (const Json& run : runs) {
    out.insert(out.end(), run[1].get<std::size_t>(), run[0].get<std::int32_t>());
  }
  return out;
}

// `unwritten`: ids that are never chosen.
std::vector<std::int32_t> greedy_tokens(const StreamModel& model, PromptRows rows,
                                        std::size_t count,
                                        std::span<const std::int32_t> unwritten) {
  struct Keep final : StreamListener {
    std::vector<std::int32_t> tokens;
    void on_done(std::size_t, StreamResult&& result) override { tokens = result.tokens; }
  } keep;
  const OwnedParts<float, KeyedRandom> parts(DecodeMethod{}, DecodeAids{});
  const auto total = static_cast<std::int64_t>(rows.places.size());
  StreamLoop loop(
      model, text_limits(model, 64, {.items = 1, .prompt_rows = total + 64, .budget = total + 64}),
      parts.parts());
  Stream stream = greedy_text(std::move(rows.rows), std::move(rows.places), rows.next_place,
                              nullptr, static_cast<std::int64_t>(count));
  for (const std::int32_t id : unwritten) {
    stream.dist.suppress_tokens += (id == unwritten.front() ? "" : ",") + std::to_string(id);
  }
  loop.add(stream);
  while (!loop.idle()) loop.step(keep);
  return keep.tokens;
}

class Folder {
 public:
  Folder(const Json& row, const std::filesystem::path& path)
      : row_(row), model_(CaptionModel::open(path)) {}

  void expect_no_warnings() const {
    ASSERT_NE(model_->describe().account, nullptr);
    for (const std::string& line : model_->describe().account->warnings()) ADD_FAILURE() << line;
  }

  void expect_prompt_and_pixels() {
    const DescribeSpec& describe = model_->describe();
    const Json& images = row_["images"];
    const PreprocessPolicy& policy = describe.policy_of(images.size());
    std::vector<PreprocessPlan> plans;
    std::vector<float> pixels;
    for (const Json& image : images) {
      prepared_.push_back(preprocess(
          policy, corpus_image(image[0].get<std::int64_t>(), image[1].get<std::int64_t>(),
                               image[2].get<std::int64_t>())));
      plans.push_back(prepared_.back().plan);
      for (const EncoderView& view : prepared_.back().views) {
        const bool patches = policy.mode == ResizeMode::kMultiples && !describe.tower.codes;
        const std::vector<float> values = patches
                                              ? patch_rows(policy, view, describe.tower.vit.frames)
                                              : view.values;
        pixels.insert(pixels.end(), values.begin(), values.end());
      }
    }
    EXPECT_EQ(pixels.size(), row_["numbers"].get<std::size_t>());
    EXPECT_EQ(word_digest(pixels), row_["pixels"].get<std::string>());
    ids_ = model_->prompt_ids(row_["question"].get<std::string>(), plans);
    EXPECT_EQ(ids_, expanded(row_["ids"]));
  }

  void expect_text() {
    const auto backend = make_backend("cpu", {.threads = 1});
    const StreamModel text = model_->load_text(*backend, DType::kF32);
    model_->load(*backend, DType::kF32, &text.space(TokenSpace::kText));
    std::vector<PromptImage> visual;
    for (const PreprocessedImage& image : prepared_) {
      visual.push_back({model_->images().encode(image, model_->spec().three_axes(), nullptr)});
    }
    PromptRows rows =
        build_prompt(model_->text(), ids_, model_->describe().image_id, std::move(visual));
    const auto want = row_["greedy"].get<std::vector<std::int32_t>>();
    EXPECT_EQ(
        greedy_tokens(text, std::move(rows), want.size(), model_->describe().unwritten), want);
  }

 private:
  const Json& row_;
  std::unique_ptr<CaptionModel> model_;
  std::vector<PreprocessedImage> prepared_;
  std::vector<std::int32_t> ids_;
};

// How many of the family's folders are not refused.
int expect_same(const FolderCorpus& all, const std::string& family) {
  int same = 0;
  for (const Json& row : all.folders()) {
    const auto name = row["name"].get<std::string>();
    if (name.substr(0, name.find('-')) != family) continue;
    SCOPED_TRACE(name);
    const TempFolder folder;
    all.write(row, folder.path());
    try {
      Folder one(row, folder.path());
      one.expect_no_warnings();
      one.expect_prompt_and_pixels();
      one.expect_text();
      ++same;
    } catch (const Error& error) {
      ADD_FAILURE() << "refused: " << error.what();
    }
  }
  return same;
}

class FoldersOf : public ::testing::TestWithParam<const char*> {};

TEST_P(FoldersOf, AreWhatTheReferenceMakesOfThem) {
  EXPECT_GE(expect_same(corpus(), GetParam()), 20);
}

// LLaVA's authors': a folder within theirs says how images are prepared
// (assets/recipes/fixtures_authors_llava.py).
TEST(AuthorsFolders, AreWhatTheirCodeMakesOfThem) {
  EXPECT_EQ(expect_same(FolderCorpus(kGolden / "authors_llava"), "authors"), 24);
}

// Of models that see images as codes (assets/recipes/fixtures_code_images.py).
TEST(CodeFolders, AreWhatTheReferenceMakesOfThem) {
  const FolderCorpus codes(kGolden / "code_images");
  for (const char* family : {"emu3", "chameleon"}) EXPECT_EQ(expect_same(codes, family), 10);
}

INSTANTIATE_TEST_SUITE_P(Families, FoldersOf,
                         ::testing::Values("llava", "llava_next", "llava_onevision", "qwen2_vl",
                                           "qwen2_5_vl", "idefics3", "smolvlm", "janus"),
                         [](const auto& test) { return std::string(test.param); });

// The reference gives a token another id than the file says; here the files must agree.
TEST(Folders, TokensThatOtherFilesNameOtherwiseAreRefused) {
  const auto row =
      std::find_if(corpus().folders().begin(), corpus().folders().end(), [](const Json& one) {
        return one["name"].get<std::string>().starts_with("qwen2_vl-") &&
               one["files"].contains("tokenizer_config.json");
      });
  ASSERT_NE(row, corpus().folders().end());
  for (const auto& [file, text, key] :
       {std::tuple{"tokenizer_config.json",
                   R"({"added_tokens_decoder": {"300": {"content": "<new>"}}})",
                   "id 300, \"<new>\""},
        std::tuple{"added_tokens.json", R"({"<|image_pad|>": 7})", "id 7, \"<|image_pad|>\""}}) {
    const TempFolder folder;
    corpus().write(*row, folder.path());
    // With an added_tokens_decoder, the older files are not read.
    put_file(folder / "tokenizer_config.json", "{}");
    put_file(folder / file, text);
    try {
      CaptionModel::open(folder.path());
      ADD_FAILURE() << file;
    } catch (const Error& error) {
      EXPECT_EQ(error.info().where, key);
      EXPECT_EQ(error.info().file, (folder / file).string());
    }
  }
}

// Idefics3's processor adds its own tokens again: white space before them stays.
TEST(Folders, TokensThatTheProcessorAddsAgainHaveNoFlags) {
  for (const char* family : {"idefics3-", "smolvlm-"}) {
    const Json& row = *std::ranges::find_if(corpus().folders(), [&](const Json& one) {
      return one["name"].get<std::string>().starts_with(family);
    });
    const TempFolder folder;
    corpus().write(row, folder.path());
    Json tokenizer = Json::parse(get_file(folder / "tokenizer.json"));
    for (Json& token : tokenizer["added_tokens"]) {
      if (token["content"] == "<image>") token["lstrip"] = true;
    }
    put_file(folder / "tokenizer.json", tokenizer.dump());
    put_file(folder / "tokenizer_config.json", "{}");
    const auto model = CaptionModel::open(folder.path());
    const std::vector<std::int32_t> ids = model->tokenizer().encode("a <image>", false);
    const bool again = std::string_view(family) == "idefics3-";
    EXPECT_EQ(ids.size(), again ? 3u : 2u) << family;
  }
}

// Tokenizers of the corpus know ChatML's tokens, so that LLaVA-1.5's form is nobody's.
TEST(Folders, WithoutATemplateThePublishedFormAsksOrATemplateIsWanted) {
  const std::map<std::pair<std::string, std::string>, std::string> forms = {
      {{"llava", "llama"}, ""},
      {{"llava", "mistral"}, ""},
      {{"llava", "qwen2"}, "llava-qwen"},
      {{"llava_next", "llama"}, "llava-1.6-yi"},
      {{"llava_next", "mistral"}, "llava-1.6-mistral"},
      {{"llava_next", "qwen2"}, "llava-qwen"}};
  std::set<std::pair<std::string, std::string>> seen;
  for (const Json& row : corpus().folders()) {
    const auto name = row["name"].get<std::string>();
    const std::string family = name.substr(0, name.find('-'));
    if (family != "llava" && family != "llava_next") continue;
    SCOPED_TRACE(name);
    const TempFolder folder;
    corpus().write(row, folder.path());
    for (const char* file : {"chat_template.jinja", "chat_template.json"}) {
      std::filesystem::remove(folder / file);
    }
    for (const char* file : {"processor_config.json", "tokenizer_config.json"}) {
      if (!std::filesystem::exists(folder / file)) continue;
      Json json = Json::parse(get_file(folder / file));
      json.erase("chat_template");
      put_file(folder / file, json.dump());
    }
    const Json config = Json::parse(get_file(folder / "config.json"));
    const std::pair<std::string, std::string> kind = {
        family, config["text_config"]["model_type"].get<std::string>()};
    if (!seen.insert(kind).second) continue;
    std::string form;
    try {
      form = CaptionModel::open(folder.path())->chat().form().name;
    } catch (const Error& error) {
      EXPECT_EQ(error.info().code, "E_TEMPLATE_MISSING") << error.what();
      EXPECT_EQ(error.info().file, (folder / "chat_template.jinja").string());
      EXPECT_NE(error.info().hint.find("--chat-template"), std::string::npos);
    }
    EXPECT_EQ(form, forms.at(kind)) << kind.second;
  }
  EXPECT_EQ(seen.size(), forms.size());
}

TEST(Folders, AreOfBothLayoutsAndEnough) {
  std::set<std::string> layouts;
  for (const Json& row : corpus().folders()) {
    const auto name = row["name"].get<std::string>();
    layouts.insert(name.substr(name.rfind('-')));
  }
  EXPECT_EQ(layouts, (std::set<std::string>{"-v4", "-v5"}));
  EXPECT_GE(corpus().folders().size(), 150u);
}

TEST(Folders, StaySmall) {
  std::uintmax_t bytes = 0;
  for (const char* name : {"folders", "generators", "authors_llava", "code_images"}) {
    for (const auto& file : std::filesystem::directory_iterator(kGolden / name)) {
      bytes += file.file_size();
    }
  }
  EXPECT_LT(bytes, std::uintmax_t{4} << 20);
}

}  // namespace
}  // namespace tessera::folders_golden_test
