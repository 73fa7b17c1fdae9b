// Every key of every configuration and processor class of the reference (keys.json, written by
// assets/recipes/fixtures_folders.py under transformers 4 and 5) has its place in the account.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/families/folder_files.h"
#include "engine/families/registry.h"
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
  // Null, but where it is refused.
  static Json value_of(const std::string& key) {
    if (key == "do_rescale" || key == "do_normalize" || key == "do_resize") return true;
    if (key == "resample") return 3;
    if (key == "image_mean" || key == "image_std") return {0.5, 0.5, 0.5};
    return nullptr;
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
