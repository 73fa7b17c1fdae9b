// Every key of every configuration and processor class of the reference (keys.json, written by
// assets/recipes/fixtures_folders.py under transformers 4 and 5) has its place in the account.
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "engine/families/folder_files.h"
#include "engine/families/generation_defaults.h"
#include "engine/families/language.h"
#include "engine/families/registry.h"
#include "engine/families/text_encoder.h"
#include "tests/golden/chameleon/chameleon_folder.h"
#include "tests/support/folder_corpus.h"

namespace tessera::folder_keys_test {
namespace {

std::filesystem::path golden() {
  return std::filesystem::path(TESSERA_SOURCE_DIR) / "tests" / "golden" / "folders";
}

Json read_document(const std::filesystem::path& path, std::size_t bytes = std::size_t{1} << 20) {
  return parse_json(read_file(path, bytes), path.string(),
                    {.max_bytes = bytes, .large_integers = true});
}

// Null, but where it is refused.
Json value_of(const std::string& key) {
  if (key == "do_rescale" || key == "do_normalize" || key == "do_resize") return true;
  if (key == "resample") return 3;
  if (key == "rope_theta") return 10000.0;
  if (key == "image_mean" || key == "image_std") return {0.5, 0.5, 0.5};
  return nullptr;
}

// A folder of the corpus to which keys are added, without a value: absent to every reader.
class Base {
 public:
  Base(const FolderCorpus& corpus, std::string_view family, std::string_view layout) {
    for (const Json& row : corpus.folders()) {
      const auto name = row["name"].get<std::string>();
      if (name.substr(0, name.find('-')) != family || !name.ends_with(layout)) continue;
      corpus.write(row, folder_.path());
      if (readable()) return;
      for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
        std::filesystem::remove(entry.path());
      }
    }
    ADD_FAILURE() << "no folder of " << family << layout;
  }

  // `inside` is a JSON pointer to the object that the keys belong to.
  void add(const char* file, const std::string& inside, const Json& keys) {
    const std::filesystem::path path = folder_ / file;
    Json whole = std::filesystem::exists(path) ? read_document(path) : Json::object();
    if (!whole.contains(Json::json_pointer(inside))) return;
    for (const Json& key : keys) put(whole[Json::json_pointer(inside)], key.get<std::string>());
    put_file(path, whole.dump());
  }
  bool has(const char* file, const std::string& inside) const {
    return std::filesystem::exists(folder_ / file) &&
           read_document(folder_ / file).contains(Json::json_pointer(inside));
  }
  KeyUse use_of(std::string_view file, std::string_view key) const {
    const ModelSpec spec = load_model_spec(folder_.path(), {.use = ModelUse::kDescribe});
    for (const KeyAccount& one : spec.describe->account->keys) {
      if (one.file == file && one.key == key) return one.use;
    }
    return KeyUse::kUnknown;
  }
  void set(const char* file, const std::string& key, const Json& value) {
    Json whole =
        std::filesystem::exists(folder_ / file) ? read_document(folder_ / file) : Json::object();
    whole[key] = value;
    put_file(folder_ / file, whole.dump());
  }
  void remove(const char* file) { std::filesystem::remove(folder_ / file); }
  const std::filesystem::path& path() const { return folder_.path(); }
  std::vector<std::string> unknown() const {
    std::vector<std::string> out;
    const ModelSpec spec = load_model_spec(folder_.path(), {.use = ModelUse::kDescribe});
    for (const KeyAccount& key : spec.describe->account->keys) {
      if (key.use == KeyUse::kUnknown) out.push_back(key.file + " " + key.key);
    }
    return out;
  }

 private:
  bool readable() const {
    try {
      load_model_spec(folder_.path(), {.use = ModelUse::kDescribe});
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  static void put(Json& object, const std::string& path) {
    const std::size_t dot = path.find('.');
    if (dot == std::string::npos) {
      if (!object.contains(path)) object[path] = value_of(path);
      return;
    }
    const auto part = object.find(path.substr(0, dot));
    if (part != object.end() && part->is_object()) put(*part, path.substr(dot + 1));
  }

  TempFolder folder_;
};

struct Row {
  const char* family;
  std::vector<const char*> texts, images;
};

TEST(FolderKeys, OfEveryReferenceClassAreKnown) {
  const FolderCorpus corpus(golden());
  const Json keys = read_document(golden() / "keys.json");
  const Row rows[] = {{"llava", {"llama", "mistral", "qwen2"}, {"llava", "clip", "siglip"}},
                      {"llava_next", {"llama", "mistral", "qwen2"}, {"llava_next"}},
                      {"llava_onevision", {"qwen2"}, {"llava_onevision"}},
                      {"qwen2_vl", {}, {"qwen2_vl"}},
                      {"qwen2_5_vl", {}, {"qwen2_vl"}},
                      {"idefics3", {"llama"}, {"idefics3"}},
                      {"smolvlm", {"llama"}, {"smolvlm"}},
                      {"janus", {"llama"}, {"janus"}}};
  for (const Row& row : rows) {
    for (const char* layout : {"-v4", "-v5"}) {
      SCOPED_TRACE(std::string(row.family) + layout);
      Base base(corpus, row.family, layout);
      base.add("config.json", "", keys["config"]);
      base.add("config.json", "", keys[std::string("config ") + row.family]);
      for (const char* text : row.texts) {
        base.add("config.json", "/text_config", keys[std::string("text_config ") + text]);
      }
      if (std::string_view(row.family).starts_with("llava")) {
        for (const char* vision : {"clip_vision_model", "siglip_vision_model"}) {
          base.add("config.json", "/vision_config", keys[std::string("vision_config ") + vision]);
        }
      }
      const bool nested = base.has("processor_config.json", "/image_processor");
      for (const char* image : row.images) {
        const Json& list = keys[std::string("image ") + image];
        if (nested) base.add("processor_config.json", "/image_processor", list);
        if (!nested) base.add("preprocessor_config.json", "", list);
        if (const auto found = keys.find(std::string("video ") + image); found != keys.end()) {
          if (nested) base.add("processor_config.json", "/video_processor", *found);
          if (!nested) base.add("video_preprocessor_config.json", "", *found);
        }
      }
      base.add("processor_config.json", "", keys[std::string("processor ") + row.images[0]]);
      base.add("generation_config.json", "", keys["generation"]);
      EXPECT_EQ(base.unknown(), std::vector<std::string>{});
    }
  }
}

// The same of models that write texts alone.
TEST(FolderKeys, OfModelsOfTextsAreKnown) {
  const Json keys = read_document(golden() / "keys.json");
  for (const std::string_view type : {"llama", "mistral", "qwen2", "qwen3", "gemma3_text"}) {
    SCOPED_TRACE(type);
    Json config = {{"model_type", type},       {"hidden_size", 32},        {"num_hidden_layers", 2},
                   {"num_attention_heads", 2}, {"num_key_value_heads", 1}, {"vocab_size", 96}};
    const Json& list = keys[std::string("text ") + std::string(type)];
    ASSERT_GT(list.size(), 30u);
    for (const Json& key : list) {
      const auto name = key.get<std::string>();
      if (name.find('.') == name.npos && !config.contains(name)) config[name] = nullptr;
    }
    for (const char* name : {"rope_theta", "rope_local_base_freq"}) config.erase(name);  // no null
    if (type == "gemma3_text") config.erase("sliding_window");  // the same
    FolderFiles files(golden(), std::make_shared<const Json>(config));
    parse_language(files.reader(FolderFile::kConfig), std::array{type});
    for (const KeyAccount& key : files.account(FolderHalf::kDescribing).keys) {
      EXPECT_NE(key.use, KeyUse::kUnknown) << key.key;
    }
  }
}

// Adds what is missing, without a value, to the objects that are there.
void add_keys(Json& whole, const Json& keys) {
  for (const Json& key : keys) {
    Json* object = &whole;
    std::string rest = key.get<std::string>();
    for (std::size_t dot; (dot = rest.find('.')) != rest.npos; rest = rest.substr(dot + 1)) {
      const auto part = object->find(rest.substr(0, dot));
      if (part == object->end() || !part->is_object()) break;
      object = &*part;
    }
    // Readers of rotary embeddings take an absent number, and no null.
    if (rest.find('.') == rest.npos && rest != "rope_theta" && !object->contains(rest)) {
      (*object)[rest] = nullptr;
    }
  }
}

std::vector<std::string> unknown_of(const FolderAccount& account) {
  std::vector<std::string> out;
  for (const KeyAccount& key : account.keys) {
    if (key.use == KeyUse::kUnknown) out.push_back(key.file + " " + key.key);
  }
  return out;
}

TEST(FolderKeys, OfModelsThatGenerateAreKnown) {
  const Json keys = read_document(golden() / "keys.json");
  const std::vector<std::string> none;
  {
    const FolderCorpus corpus(golden().parent_path() / "generators");
    const TempFolder folder;
    for (const Json& row : corpus.folders()) {
      if (!row["name"].get<std::string>().starts_with("emu3-")) continue;
      corpus.write(row, folder.path());
      break;
    }
    Json config = read_document(folder / "config.json");
    config["text_config"]["max_position_embeddings"] = 9216;  // room for an image of usual size
    add_keys(config, keys["generating emu3"]);
    put_file(folder / "config.json", config.dump());
    EXPECT_EQ(unknown_of(*load_model_spec(folder.path()).account), none);
    config["vq_config"]["number_of_eyes"] = 2;
    put_file(folder / "config.json", config.dump());
    EXPECT_EQ(unknown_of(*load_model_spec(folder.path()).account),
              std::vector<std::string>{"config.json vq_config.number_of_eyes"});
  }
  for (const std::filesystem::path& one : list_folder(chameleon_golden())) {
    if (!std::filesystem::exists(one / "language.safetensors")) continue;
    SCOPED_TRACE(one.filename());
    const TempFolder folder;
    Json config = chameleon_config(one.filename().string());
    add_keys(config, keys["generating chameleon"]);
    write_chameleon(folder, one.filename().string(), config);
    EXPECT_EQ(unknown_of(*load_model_spec(folder.path()).account), none);
  }
  const TempFolder folder;
  const std::filesystem::path t5 = folder / "t5";
  std::filesystem::copy(golden().parent_path() / "t5" / "gated", t5);
  Json config = read_document(t5 / "config.json");
  add_keys(config, keys["generating t5"]);
  put_file(t5 / "config.json", config.dump());
  EXPECT_EQ(unknown_of(open_text_encoder(t5).account), none);
}

TEST(FolderKeys, OfModelsThatSeeCodesAreKnown) {
  const Json keys = read_document(golden() / "keys.json");
  const FolderCorpus corpus(golden().parent_path() / "code_images");
  std::set<std::string> seen;
  for (const Json& row : corpus.folders()) {
    const auto name = row["name"].get<std::string>();
    const std::string family = name.substr(0, name.find('-'));
    if (!seen.insert(family + name.substr(name.rfind('-'))).second) continue;
    SCOPED_TRACE(name);
    const TempFolder folder;
    corpus.write(row, folder.path());
    const auto add = [&](const char* file, const char* inside, const std::string& list) {
      if (!std::filesystem::exists(folder / file)) return;
      Json whole = read_document(folder / file);
      const Json::json_pointer place(inside);
      if (!whole.contains(place)) return;
      Json& object = whole[place];
      for (const Json& key : keys[list]) {
        const auto path = key.get<std::string>();
        if (path.find('.') == path.npos && !object.contains(path)) object[path] = value_of(path);
      }
      put_file(folder / file, whole.dump());
    };
    Json config = read_document(folder / "config.json");
    add_keys(config, keys["generating " + family]);
    put_file(folder / "config.json", config.dump());
    add("preprocessor_config.json", "", "image " + family);
    add("processor_config.json", "/image_processor", "image " + family);
    add("processor_config.json", "", "processor " + family);
    add("generation_config.json", "", "generation");
    const ModelSpec spec = load_model_spec(folder.path(), {.use = ModelUse::kDescribe});
    EXPECT_EQ(unknown_of(*spec.describe->account), std::vector<std::string>{});
  }
  EXPECT_EQ(seen.size(), 4u);
}

TEST(FolderKeys, OfTokenizersAreKnown) {
  const Json keys = read_document(golden() / "keys.json");
  ASSERT_GT(keys["tokenizer"].size(), 20u);
  for (const Json& key : keys["tokenizer"]) {
    EXPECT_NE(known_key(FolderHalf::kDescribing, FolderFile::kTokenizerConfig,
                        key.get<std::string>()),
              nullptr)
        << key;
  }
  EXPECT_EQ(known_key(FolderHalf::kDescribing, FolderFile::kTokenizerConfig, "luck"), nullptr);
}

// What each key of GenerationConfig does to the reference's texts (effects.json, written by
// assets/recipes/fixtures_processors.py): a key that changes them is used, or refused by file, key
// and value.
TEST(FolderKeys, OfGenerationThatChangeTextsAreUsedOrRefused) {
  // Lengths, greedy or drawn, and heat are flags' (docs/cli.md); guesses of the text are lossless:
  // the reference draws other numbers under them.
  const std::set<std::string> flags = {"max_length", "max_new_tokens", "do_sample", "temperature"};
  const std::set<std::string> lossless = {"prompt_lookup_num_tokens", "assistant_early_exit"};
  const std::set<std::string> drawn = {"top_h", "epsilon_cutoff", "eta_cutoff"};
  const FolderCorpus corpus(golden());
  const Json effects =
      read_document(golden().parent_path() / "processors" / "effects.json").at("keys");
  std::size_t used = 0, refused = 0;
  for (const auto& [key, row] : effects.items()) {
    SCOPED_TRACE(key);
    Base base(corpus, "llava", "-v5");
    base.set("generation_config.json", key, row.at("value"));
    KeyUse use = KeyUse::kRefused;
    try {
      use = base.use_of("generation_config.json", key);
    } catch (const Error& error) {
      EXPECT_TRUE(error.info().file.ends_with("generation_config.json"));
      EXPECT_EQ(error.info().where, key);
      EXPECT_EQ(error.info().found, row.at("value").dump());
      EXPECT_FALSE(error.info().expected.empty() || error.info().hint.empty());
      ++refused;
    }
    EXPECT_NE(use, KeyUse::kUnknown);
    EXPECT_NE(use, KeyUse::kNotFollowed);
    used += use == KeyUse::kUsed ? 1 : 0;
    if (flags.contains(key)) continue;
    const Json both = {row.at("greedy"), row.at("sampled")};
    if (both[0] == "changes" || (both[1] == "changes" && !lossless.contains(key))) {
      EXPECT_TRUE(use == KeyUse::kUsed || use == KeyUse::kRefused || drawn.contains(key));
    }
    if (drawn.contains(key)) {
      const Json own = {{key, row.at("value")}};
      EXPECT_THROW(read_cuts(JsonReader(own, "generation_config.json")), Error);
    }
  }
  EXPECT_GT(used, 15u);
  EXPECT_GT(refused, 8u);
}

// Every key of the reference's class has a place in the list of effects, or returns and pads only.
TEST(FolderKeys, OfGenerationAreAllTried) {
  const std::set<std::string> idle = {
      "_commit_hash",      "_from_model_config",      "transformers_version",
      "bos_token_id",      "decoder_start_token_id",  "pad_token_id",
      "cache_config",      "compile_config",          "continuous_batching_config",
      "output_attentions", "output_hidden_states",    "output_logits",
      "output_scores",     "return_dict_in_generate", "return_legacy_cache",
      "speculation_type"};
  const Json effects =
      read_document(golden().parent_path() / "processors" / "effects.json").at("keys");
  for (const Json& key : read_document(golden() / "keys.json").at("generation")) {
    EXPECT_TRUE(effects.contains(key.get<std::string>()) || idle.contains(key.get<std::string>()))
        << key;
  }
}

// The reference reads them from config.json where there is no generation_config.json.
TEST(FolderKeys, OfGenerationInAModelsConfigurationAreRefusedWhereTheyWouldHold) {
  const FolderCorpus corpus(golden());
  Base base(corpus, "llava", "-v5");
  base.set("config.json", "repetition_penalty", 1.5);
  base.set("generation_config.json", "eos_token_id", 2);
  EXPECT_EQ(base.use_of("config.json", "repetition_penalty"), KeyUse::kWithoutEffect);
  base.remove("generation_config.json");
  EXPECT_THROW(base.use_of("config.json", "repetition_penalty"), Error);
  base.set("config.json", "repetition_penalty", 1.0);
  EXPECT_EQ(base.use_of("config.json", "repetition_penalty"), KeyUse::kWithoutEffect);
}

// The program's own flags choose frames: a folder that would choose them itself is named.
TEST(FolderKeys, OfFramesThatAFolderWouldChooseAreNamed) {
  const FolderCorpus corpus(golden());
  for (const auto& [layout, file, key] :
       {std::tuple{"-v4", "video_preprocessor_config.json", "do_sample_frames"},
        std::tuple{"-v5", "processor_config.json", "video_processor.do_sample_frames"}}) {
    Base base(corpus, "qwen2_vl", layout);
    const std::string place = std::string(key).substr(0, std::string(key).find("do_"));
    const auto set = [&](bool value) {
      Json whole = read_document(base.path() / file);
      (place.empty() ? whole : whole["video_processor"])["do_sample_frames"] = value;
      put_file(base.path() / file, whole.dump());
    };
    set(false);
    EXPECT_EQ(base.use_of(file, key), KeyUse::kWithoutEffect);
    set(true);
    EXPECT_EQ(base.use_of(file, key), KeyUse::kNotFollowed);
  }
}

TEST(FolderKeys, AKeyThatNoClassHasIsFound) {
  const FolderCorpus corpus(golden());
  Base base(corpus, "llava", "-v5");
  base.add("config.json", "/vision_config", Json::array({"number_of_eyes"}));
  base.add("generation_config.json", "", Json::array({"luck"}));
  EXPECT_EQ(base.unknown(), (std::vector<std::string>{"config.json vision_config.number_of_eyes",
                                                      "generation_config.json luck"}));
}

}  // namespace
}  // namespace tessera::folder_keys_test
