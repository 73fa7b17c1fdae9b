// Folders of models that generate, drawn at random from the legal space of the reference's classes
// (assets/recipes/fixtures_generators.py), in the layouts of transformers 4 and 5: both prompts,
// the settings that generate() takes from the folder, greedy image tokens and levels of pixels. And
// folders of authors, by their own code (fixtures_authors_janus.py, _emu3.py, _chameleon.py).
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "apps/runtime/generate_task.h"
#include "apps/runtime/tokenizer_account.h"
#include "engine/families/folder_files.h"
#include "engine/families/registry.h"
#include "tests/support/folder_corpus.h"

namespace tessera::generators_golden_test {
namespace {

const std::filesystem::path kGolden =
    std::filesystem::path(TESSERA_SOURCE_DIR) / "tests" / "golden";

const FolderCorpus& corpus() {
  static const FolderCorpus corpus(kGolden / "generators");
  return corpus;
}

std::string family_of(const Json& row) {
  const auto name = row["name"].get<std::string>();
  return name.substr(0, name.find('-'));
}

struct Kept final : GenerateListener {
  GeneratedImage image;
  void on_image(GeneratedImage&& done) override { image = std::move(done); }
};

std::vector<std::uint8_t> from_base64(std::string_view text) {
  static constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::uint8_t> out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<std::uint32_t>(kLetters.find(c));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out.push_back(static_cast<std::uint8_t>(bits >> count));
  }
  return out;
}

class Folder {
 public:
  Folder(const Json& row, const std::filesystem::path& path)
      : row_(row), task_(runtime_, options_of(row, path)) {}

  void expect_no_warnings() const {
    ASSERT_NE(task_.spec().account, nullptr);
    for (const std::string& line : task_.spec().account->warnings()) ADD_FAILURE() << line;
  }

  // A file without do_sample is sampled from here, which the reference's generate() does not.
  void expect_settings() const {
    const Json& want = row_["settled"];
    const SamplingDefaults& got = task_.spec().sampling;
    if (!want["guidance"].is_null()) {
      EXPECT_DOUBLE_EQ(got.guidance, want["guidance"].get<double>());
    }
    if (!row_["says_do_sample"].get<bool>()) return;
    if (!want["do_sample"].get<bool>()) {
      EXPECT_EQ(got.temperature, 0);
      return;
    }
    EXPECT_DOUBLE_EQ(got.temperature, want["temperature"].get<double>());
    EXPECT_EQ(got.top_k, want["top_k"].get<std::int64_t>());
    EXPECT_DOUBLE_EQ(got.top_p, want["top_p"].get<double>());
  }

  void expect_image() {
    GenerateRequest request{.prompt = row_["prompt"].get<std::string>()};
    if (!row_.contains("negative")) {
      if (family_of(row_) == "emu3") request.negative_prompt = "blurry";
    } else if (!row_["negative"].is_null()) {
      request.negative_prompt = row_["negative"].get<std::string>();
    }
    request.sampling.set(setting::kTemperature, 0.0);
    if (row_.contains("guidance") && !row_["guidance"].is_null()) {
      request.sampling.set(setting::kGuidance, row_["guidance"].get<double>());
    }
    const PreparedRequest prepared = task_.prepare(request);
    EXPECT_EQ(prepared.item.prompt.ids, row_["ids"].get<std::vector<std::int32_t>>());
    if (prepared.item.dist.guided()) {
      EXPECT_EQ(prepared.item.unconditional.ids, row_["other"].get<std::vector<std::int32_t>>());
    }
    Kept kept;
    ASSERT_TRUE(task_.run({prepared}, kept));
    EXPECT_EQ(kept.image.codes, row_["tokens"].get<std::vector<std::int32_t>>());
    expect_levels(kept.image.image);
  }

 private:
  static GenerateOptions options_of(const Json& row, const std::filesystem::path& path) {
    GenerateOptions options;
    options.model = path.string();
    options.device = "cpu";
    options.threads = 1;
    options.storage = DType::kF32;
    if (row.value("asked", family_of(row) == "emu3")) {
      options.width = row["size"][1].get<std::int64_t>();
      options.height = row["size"][0].get<std::int64_t>();
    }
    return options;
  }

  // The decoder's sums have another order: a level that is cut at an edge may differ by one.
  void expect_levels(const Image& image) const {
    const std::vector<std::uint8_t> want = from_base64(row_["levels"].get<std::string>());
    EXPECT_EQ(image.height, row_["size"][0].get<std::int64_t>());
    ASSERT_EQ(image.rgb.size(), want.size());
    std::size_t off = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const int difference = std::abs(int{image.rgb[i]} - int{want[i]});
      EXPECT_LE(difference, 1) << "level " << i;
      off += difference != 0 ? 1 : 0;
    }
    EXPECT_LE(off, want.size() / 50);
  }

  const Json& row_;
  Runtime runtime_;
  GenerateTask task_;
};

class GeneratorsOf : public ::testing::TestWithParam<const char*> {};

TEST_P(GeneratorsOf, AreWhatTheReferenceMakesOfThem) {
  int same = 0;
  std::set<std::string> layouts;
  for (const Json& row : corpus().folders()) {
    if (family_of(row) != GetParam()) continue;
    const auto name = row["name"].get<std::string>();
    SCOPED_TRACE(name);
    const TempFolder folder;
    corpus().write(row, folder.path());
    try {
      Folder one(row, folder.path());
      one.expect_no_warnings();
      one.expect_settings();
      one.expect_image();
      ++same;
      layouts.insert(name.substr(name.rfind('-')));
    } catch (const Error& error) {
      ADD_FAILURE() << "refused: " << error.what();
    }
  }
  EXPECT_GE(same, 12);
  EXPECT_EQ(layouts, (std::set<std::string>{"-v4", "-v5"}));
}

INSTANTIATE_TEST_SUITE_P(Families, GeneratorsOf, ::testing::Values("janus", "emu3"),
                         [](const auto& family) { return std::string(family.param); });

class AuthorsOf : public ::testing::TestWithParam<const char*> {};

// What no option says is the release's own default.
TEST_P(AuthorsOf, AreWhatTheirCodeMakesOfThem) {
  int same = 0;
  for (const FolderCorpus own(kGolden / ("authors_" + std::string(GetParam())));
       const Json& row : own.folders()) {
    SCOPED_TRACE(row["name"].get<std::string>());
    const TempFolder folder;
    own.write(row, folder.path());
    try {
      Folder one(row, folder.path());
      one.expect_no_warnings();
      one.expect_image();
      ++same;
    } catch (const Error& error) {
      ADD_FAILURE() << "refused: " << error.what();
    }
  }
  EXPECT_EQ(same, 8);
}

INSTANTIATE_TEST_SUITE_P(Authors, AuthorsOf, ::testing::Values("janus", "emu3", "chameleon"),
                         [](const auto& family) { return std::string(family.param); });

// The first folder of an authors' corpus.
class AuthorsFolder {
 public:
  explicit AuthorsFolder(const std::string& family)
      : corpus_(kGolden / ("authors_" + family)), row_(corpus_.folders().front()) {
    corpus_.write(row_, folder_.path());
  }
  void replace(const char* file, std::string_view old, std::string_view by) {
    std::string text = read_file((folder_ / file).string(), std::size_t{1} << 20);
    const std::size_t at = text.find(old);
    ASSERT_NE(at, std::string::npos) << old;
    put_file(folder_ / file, text.replace(at, old.size(), by));
  }
  PreparedRequest prepare(const std::string& prompt, const std::array<std::int64_t, 2>& size = {}) {
    GenerateOptions options;
    options.model = folder_.path().string();
    options.device = "cpu";
    options.width = size[0];
    options.height = size[1];
    return GenerateTask(runtime_, options).prepare({.prompt = prompt});
  }
  std::string refusal(const std::string& prompt, const std::array<std::int64_t, 2>& size = {}) {
    try {
      prepare(prompt, size);
    } catch (const Error& error) {
      return error.info().code;
    }
    return "";
  }

 private:
  FolderCorpus corpus_;
  const Json& row_;
  TempFolder folder_;
  Runtime runtime_;
};

TEST(Authors, JanusPadsTheOtherBranchWithTheProcessorsToken) {
  AuthorsFolder folder("janus");
  const PreparedRequest before = folder.prepare("a cat");
  folder.replace("processor_config.json", "{", R"({"pad_tag":"<end_of_image>",)");
  const PreparedRequest after = folder.prepare("a cat");
  EXPECT_EQ(before.item.prompt.ids, after.item.prompt.ids);
  EXPECT_NE(before.item.unconditional.ids, after.item.unconditional.ids);
  EXPECT_EQ(before.item.unconditional.ids.back(), after.item.unconditional.ids.back());
  folder.replace("processor_config.json", "<end_of_image>", "<nothing>");
  EXPECT_EQ(folder.refusal("a cat"), "E_TOKENIZER_TOKEN");
}

TEST(Authors, TextsThatSpellTokensOfImagesAreRefusedWhereTheirLoopReadsThem) {
  AuthorsFolder folder("chameleon");
  EXPECT_EQ(folder.refusal("a </s> cat", {10, 10}), "");
  for (const char* text : {"<s>a cat", "a <racm3:break>", "<eoss> cat", "a <s>"}) {
    EXPECT_EQ(folder.refusal(text, {10, 10}), "E_PROMPT_TEXT") << text;
  }
}

TEST(Authors, Emu3WritesImagesOfOtherShapes) {
  AuthorsFolder folder("emu3");
  EXPECT_EQ(folder.refusal("a cat", {16, 8}), "");
  EXPECT_EQ(folder.refusal("a cat", {16, 7}), "E_GEOMETRY");
}

TEST(Authors, Emu3sCodesAreWhereTheTokenizerHasThem) {
  AuthorsFolder folder("emu3");
  for (const char* const swap : {"000000|>000009", "000001|>000000", "000009|>000001"}) {
    const std::string names = swap;
    folder.replace("tokenizer.json", "<|visual token " + names.substr(0, 8),
                   "<|visual token " + names.substr(8) + "|>");
  }
  EXPECT_EQ(folder.refusal("a cat"), "E_TOKENIZER_VOCAB");
}

// The first folder of a family, with one key of a file set.
class Changed {
 public:
  Changed(std::string_view family, const char* file, const char* pointer, const Json& value) {
    for (const Json& row : corpus().folders()) {
      if (family_of(row) != family || !row["files"].contains(file)) continue;
      corpus().write(row, folder_.path());
      break;
    }
    const std::string path = (folder_ / file).string();
    Json whole = parse_json(read_file(path, std::size_t{1} << 20), path);
    whole[Json::json_pointer(pointer)] = value;
    put_file(path, whole.dump());
  }
  ModelSpec read() const { return load_model_spec(folder_.path(), {.width = 8, .height = 8}); }
  std::vector<std::string> warnings() const { return read().account->warnings(); }
  // Key and value of the refusal.
  std::pair<std::string, std::string> refusal() const {
    try {
      read();
    } catch (const Error& error) {
      EXPECT_TRUE(error.info().file.starts_with(folder_.path().string())) << error.what();
      return {error.info().where, error.info().found};
    }
    return {};
  }

 private:
  TempFolder folder_;
};

TEST(Generators, RefuseWhatTheReferenceCannotDoByFileKeyAndValue) {
  using Refusal = std::pair<std::string, std::string>;
  const char* const generation = "generation_config.json";
  EXPECT_EQ(Changed("janus", generation, "/pad_token_id", 320).refusal(),
            Refusal("pad_token_id", "320"));
  EXPECT_EQ(Changed("janus", generation, "/generation_kwargs/boi_token_id", 99999).refusal(),
            Refusal("generation_kwargs.boi_token_id", "99999"));
  for (const char* family : {"janus", "emu3"}) {
    EXPECT_EQ(Changed(family, generation, "/num_beams", 4).refusal(), Refusal("num_beams", "4"));
    const bool nested = [&] {
      for (const Json& row : corpus().folders()) {
        if (family_of(row) == family) return !row["files"].contains("preprocessor_config.json");
      }
      return false;
    }();
    const char* const file = nested ? "processor_config.json" : "preprocessor_config.json";
    const char* const key = nested ? "/image_processor/do_rescale" : "/do_rescale";
    EXPECT_EQ(Changed(family, file, key, false).refusal(),
              Refusal(nested ? "image_processor.do_rescale" : "do_rescale", "false"));
  }
  EXPECT_EQ(Changed("janus", "config.json", "/vq_config/num_patches", 7).refusal(),
            Refusal("vq_config.num_patches", "7"));
}

TEST(Generators, NameTheKeysThatAreNotKnownOrNotFollowed) {
  const char* const file = "generation_config.json";
  using Lines = std::vector<std::string>;
  for (const char* family : {"janus", "emu3"}) {
    EXPECT_EQ(Changed(family, file, "/luck", 1).warnings(),
              Lines{"1 key of generation_config.json is not known: luck"});
    EXPECT_EQ(Changed(family, file, "/repetition_penalty", 1.3).warnings(),
              Lines{"1 key of generation_config.json is not followed: repetition_penalty"});
    EXPECT_EQ(Changed(family, file, "/suppress_tokens", Json::array({3})).warnings(),
              Lines{"1 key of generation_config.json is not followed: suppress_tokens"});
    EXPECT_EQ(Changed(family, file, "/repetition_penalty", 1.0).warnings(), Lines{});
    EXPECT_EQ(Changed(family, file, "/max_length", 5).warnings(), Lines{});
    EXPECT_EQ(Changed(family, "config.json", "/vq_config/number_of_eyes", 2).warnings(),
              Lines{"1 key of config.json is not known: vq_config.number_of_eyes"});
  }
}

TEST(Generators, BundledFoldersHaveNoKeyThatIsNotKnownOrNotFollowed) {
  for (const char* name : {"tabletop-janus", "tabletop-draft", "tabletop-video"}) {
    const auto folder = std::filesystem::path(TESSERA_SOURCE_DIR) / "assets" / "models" / name;
    const ModelSpec spec = load_model_spec(folder);
    ASSERT_NE(spec.account, nullptr);
    const auto whole = with_notes(spec.account, TextTokenizer::from_folder(folder));
    EXPECT_EQ(whole->warnings(), std::vector<std::string>{}) << name;
  }
}

}  // namespace
}  // namespace tessera::generators_golden_test
