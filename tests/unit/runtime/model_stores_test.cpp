// Models in the stores of other programs: made-up stores of each kind, whole and broken, what is
// listed of them, and which names mean what.
#include "apps/runtime/model_stores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "apps/runtime/complete_task.h"
#include "apps/runtime/model_catalog.h"
#include "engine/core/io.h"
#include "tests/support/temp_folder.h"

namespace tessera::model_stores_test {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(TESSERA_SOURCE_DIR) / "tests/golden/gguf_text";

std::string digest(char digit) { return std::string(64, digit); }

std::string layer(const std::string& kind, const std::string& hex, std::uint64_t size) {
  return R"({"mediaType":"application/vnd.ollama.image.)" + kind + R"(","digest":"sha256:)" + hex +
         R"(","size":)" + std::to_string(size) + "}";
}

std::string manifest(const std::vector<std::string>& layers) {
  std::string list;
  for (const std::string& one : layers) list += (list.empty() ? "" : ",") + one;
  return R"({"schemaVersion":2,"layers":[)" + list + "]}";
}

class Stores : public ::testing::Test {
 protected:
  Stores() {
    setenv("HOME", folder_.path().c_str(), 1);
    setenv("TESSERA_ASSETS", (folder_.path() / "assets").c_str(), 1);
    setenv("HF_HUB_CACHE", (folder_.path() / "hub").c_str(), 1);
    setenv("OLLAMA_MODELS", ollama().c_str(), 1);
    fs::create_directories(folder_.path() / "assets/models");
  }
  ~Stores() override {
    for (const char* name : {"TESSERA_ASSETS", "HF_HUB_CACHE", "OLLAMA_MODELS"}) unsetenv(name);
    setenv("HOME", home_.c_str(), 1);
  }

  fs::path ollama() const { return folder_.path() / "ollama"; }
  fs::path lm_studio() const { return folder_.path() / ".lmstudio/models"; }

  static std::uint64_t put(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    put_file(path, text);
    return text.size();
  }
  // A copy of a fixture; its size.
  static std::uint64_t put_model(const fs::path& path, const char* name = "llama_f32.gguf") {
    return put(path, get_file(kGolden / name));
  }
  std::uint64_t put_blob(char digit, const std::string& text) const {
    return put(ollama() / "blobs" / ("sha256-" + digest(digit)), text);
  }
  void put_manifest(const std::string& place, const std::vector<std::string>& layers) const {
    put(ollama() / "manifests" / place, manifest(layers));
  }
  // "small:1b", of a model, a template, parameters and a licence.
  void put_small() const {
    const std::uint64_t model = put_blob('a', get_file(kGolden / "llama_f32.gguf"));
    const std::uint64_t text = put_blob('b', "{{ .Prompt }}");
    const std::uint64_t keys = put_blob('c', R"({"stop":["</s>"],"temperature":0.5})");
    put_manifest("registry.ollama.ai/library/small/1b",
                 {layer("model", digest('a'), model), layer("template", digest('b'), text),
                  layer("params", digest('c'), keys), layer("license", digest('d'), 7)});
  }

  static const FoundModel& found(const std::vector<FoundModel>& models, const std::string& name) {
    for (const FoundModel& model : models) {
      if (model.reference.shown_name == name) return model;
    }
    ADD_FAILURE() << name << " is not listed";
    static const FoundModel kNone;
    return kNone;
  }
  static ErrorInfo refused(const std::string& name) {
    try {
      resolve_model(name);
    } catch (const Error& error) {
      return error.info();
    }
    ADD_FAILURE() << name << " was found";
    return {};
  }
  // What a name writes after a prompt, greedily.
  static std::string written(const std::string& model) {
    class Listener final : public CompleteListener {
     public:
      void on_completion(Completion&& completion) override { text = completion.text; }
      std::string text;
    };
    CompleteOptions options;
    options.model = model;
    options.max_tokens = 8;
    options.threads = 1;
    Runtime runtime;
    CompleteTask task(runtime, options);
    Listener listener;
    runtime.finish(task.submit({{.prompt = "The cat sat on"}}, listener));
    return listener.text;
  }

  TempFolder folder_;
  std::string home_ = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
};

TEST_F(Stores, OllamaModelsAreListedAndWriteByTheirNames) {
  put_small();
  const std::vector<FoundModel> models = find_models();
  const FoundModel& small = found(models, "small:1b");
  EXPECT_EQ(small.problem, "");
  EXPECT_EQ(small.reference.origin, ModelOrigin::kOllama);
  EXPECT_TRUE(small.texts);
  EXPECT_EQ(small.family, "llama");
  EXPECT_EQ(small.positions, 512);
  EXPECT_GT(small.parameters, 30'000u);
  EXPECT_EQ(small.file_bytes, fs::file_size(kGolden / "llama_f32.gguf"));
  EXPECT_GT(small.memory_bytes, small.file_bytes);
  ASSERT_EQ(small.reference.notes.size(), 2u) << "the licence changes nothing";
  EXPECT_NE(small.reference.notes[0].find("template is not followed"), std::string::npos);
  EXPECT_NE(small.reference.notes[1].find("parameters are not followed: stop, temperature"),
            std::string::npos);

  const std::string expected = written((kGolden / "llama_f32.gguf").string());
  EXPECT_FALSE(expected.empty());
  for (const char* name : {"small:1b", "ollama:small:1b", "registry.ollama.ai/library/small:1b"}) {
    EXPECT_EQ(written(name), expected) << name;
  }
  EXPECT_EQ(refused("small").code, "E_MODEL_MISSING") << "the tag is 1b, not latest";
  EXPECT_NE(refused("small:7b").hint.find("ollama pull small:7b"), std::string::npos);
}

TEST_F(Stores, OllamaNamesLeaveOutWhatIsUsual) {
  const std::uint64_t size = put_blob('a', get_file(kGolden / "llama_f32.gguf"));
  for (const char* place : {"registry.ollama.ai/library/one/latest", "registry.ollama.ai/me/two/q8",
                            "hf.co/some/three-GGUF/Q4_K_M"}) {
    put_manifest(place, {layer("model", digest('a'), size)});
  }
  const std::vector<FoundModel> models = find_models();
  for (const char* name : {"one:latest", "me/two:q8", "hf.co/some/three-GGUF:Q4_K_M"}) {
    EXPECT_EQ(found(models, name).problem, "") << name;
    EXPECT_EQ(resolve_model(name).shown_name, name);
  }
  EXPECT_EQ(resolve_model("one").shown_name, "one:latest");
}

TEST_F(Stores, OllamaProjectorsBelongToTheirModel) {
  const std::uint64_t model = put_blob('a', get_file(kGolden / "llama_f32.gguf"));
  const std::uint64_t projector = put_blob('e', "an image encoder");
  put_manifest("registry.ollama.ai/library/eyes/7b",
               {layer("model", digest('a'), model), layer("projector", digest('e'), projector)});
  EXPECT_EQ(resolve_model("eyes:7b").projector,
            (ollama() / "blobs" / ("sha256-" + digest('e'))).string());
}

struct BrokenEntry {
  const char* name;
  const char* code;
  const char* says;
};

TEST_F(Stores, BrokenOllamaEntriesAreReportedAndHideNoOthers) {
  put_small();
  const std::uint64_t bytes = fs::file_size(kGolden / "llama_f32.gguf");
  const std::string at = "registry.ollama.ai/library/";
  put(ollama() / "manifests" / at / "text/1", "no JSON");
  put(ollama() / "manifests" / at / "list/1", "[]");
  put(ollama() / "manifests" / at / "bare/1", "{}");
  put_manifest(at + "empty/1", {});
  put_manifest(at + "gone/1", {layer("model", digest('9'), 5)});
  put_manifest(at + "cut/1", {layer("model", digest('a'), bytes + 1)});
  put_manifest(at + "two/1",
               {layer("model", digest('a'), bytes), layer("model", digest('a'), bytes)});
  put_manifest(at + "tuned/1",
               {layer("model", digest('a'), bytes), layer("adapter", digest('b'), 1)});
  put_manifest(at + "up/1",
               {layer("model", "../../../../../../../../../../../../../../etc/passwd", bytes)});
  put(folder_.path() / "elsewhere.gguf", get_file(kGolden / "llama_f32.gguf"));
  fs::create_symlink(folder_.path() / "elsewhere.gguf",
                     ollama() / "blobs" / ("sha256-" + digest('8')));
  put_manifest(at + "out/1", {layer("model", digest('8'), bytes)});
  fs::create_directory_symlink("..", ollama() / "manifests" / at / "loop");

  const BrokenEntry entries[] = {
      {"text:1", "E_JSON", "byte"},
      {"list:1", "E_OLLAMA_MANIFEST", "an object"},
      {"bare:1", "E_JSON_MISSING", "layers"},
      {"empty:1", "E_OLLAMA_MANIFEST", "a layer of kind model"},
      {"gone:1", "E_OLLAMA_BLOB", "no such file"},
      {"cut:1", "E_OLLAMA_BLOB", "bytes"},
      {"two:1", "E_OLLAMA_MANIFEST", "two"},
      {"tuned:1", "E_OLLAMA_MANIFEST", "adapter"},
      {"up:1", "E_JSON_VALUE", "64 digits"},
      {"out:1", "E_MODEL_LINK", "a target inside"},
  };
  const std::vector<FoundModel> models = find_models();
  EXPECT_EQ(found(models, "small:1b").problem, "");
  for (const BrokenEntry& entry : entries) {
    const FoundModel& model = found(models, entry.name);
    EXPECT_NE(model.problem.find(entry.says), std::string::npos)
        << entry.name << ": " << model.problem;
    const ErrorInfo error = refused(entry.name);
    EXPECT_EQ(error.code, entry.code) << entry.name;
    EXPECT_EQ(error.kind, ErrorKind::kModel);
  }
  EXPECT_GE(std::ranges::count_if(models, [](const FoundModel& one) { return !one.problem.empty(); }),
            std::ssize(entries) + 1)
      << "the folder that leads back is reported too";
}

TEST_F(Stores, LmStudioModelsAreListedAndFoundByFile) {
  put_model(lm_studio() / "maker/small-GGUF/small-f32.gguf");
  put_model(lm_studio() / "maker/pair-GGUF/pair-a.gguf");
  put_model(lm_studio() / "maker/pair-GGUF/pair-b.gguf");
  put(lm_studio() / "maker/small-GGUF/mmproj-small.gguf", "an image encoder");
  for (int i = 1; i <= 3; ++i) {
    const std::string part = "llama3_q8-0000" + std::to_string(i) + "-of-00003.gguf";
    put_model(lm_studio() / "maker/parts-GGUF" / part, part.c_str());
  }
  const std::vector<FoundModel> models = find_models();
  const std::string name = "maker/small-GGUF/small-f32.gguf";
  EXPECT_EQ(found(models, name).problem, "");
  EXPECT_EQ(found(models, name).reference.origin, ModelOrigin::kLmStudio);
  EXPECT_TRUE(found(models, name).reference.projector.ends_with("mmproj-small.gguf"));
  const FoundModel& parts = found(models, "maker/parts-GGUF/llama3_q8-00001-of-00003.gguf");
  EXPECT_EQ(parts.problem, "");
  EXPECT_EQ(parts.file_bytes, 42368u + 10688u + 6912u);
  EXPECT_EQ(std::ranges::count_if(models,
                                  [](const FoundModel& model) {
                                    return model.reference.origin == ModelOrigin::kLmStudio;
                                  }),
            4)
      << "one of three parts, and no image encoder";

  for (const char* alias : {"maker/small-GGUF", "small-f32.gguf", "lmstudio:small-f32.gguf"}) {
    EXPECT_EQ(resolve_model(alias).shown_name, name) << alias;
  }
  const ErrorInfo error = refused("maker/pair-GGUF");
  EXPECT_EQ(error.code, "E_MODEL_AMBIGUOUS");
  EXPECT_NE(error.found.find("maker/pair-GGUF/pair-a.gguf"), std::string::npos);
  EXPECT_EQ(refused("ollama:small-f32.gguf").code, "E_MODEL_MISSING");
}

TEST_F(Stores, FilesOfTheHubCacheAreModelsOfTheirOwn) {
  const fs::path repository = folder_.path() / "hub/models--some--tiny-GGUF";
  const fs::path snapshot = repository / "snapshots/0123456789abcdef";
  put_model(repository / "blobs/beef");
  fs::create_directories(snapshot / "Q8_0");
  fs::create_symlink("../../blobs/beef", snapshot / "tiny-f32.gguf");
  put(repository / "refs/main", "0123456789abcdef\n");
  const std::string name = "some/tiny-GGUF@0123456789ab/tiny-f32.gguf";
  EXPECT_EQ(found(find_models(), name).problem, "");
  for (const char* asked : {"some/tiny-GGUF", "some/tiny-GGUF/tiny-f32.gguf",
                            "hub:some/tiny-GGUF@0123456789abcdef/tiny-f32.gguf"}) {
    EXPECT_EQ(resolve_model(asked).shown_name, name) << asked;
  }
  EXPECT_EQ(refused("some/tiny-GGUF/other.gguf").code, "E_MODEL_MISSING");

  // A second one makes the repository's name mean two; its own name stays its own.
  put_model(snapshot / "Q8_0/tiny-other.gguf", "qwen2_tied_bf16.gguf");
  EXPECT_EQ(refused("some/tiny-GGUF").code, "E_MODEL_AMBIGUOUS");
  EXPECT_EQ(resolve_model("some/tiny-GGUF/Q8_0/tiny-other.gguf").shown_name,
            "some/tiny-GGUF@0123456789ab/Q8_0/tiny-other.gguf");

  // The same name in two stores means neither.
  put_model(lm_studio() / "some/tiny-GGUF/tiny-f32.gguf");
  const ErrorInfo error = refused("some/tiny-GGUF/tiny-f32.gguf");
  EXPECT_EQ(error.code, "E_MODEL_AMBIGUOUS");
  EXPECT_EQ(resolve_model("lmstudio:some/tiny-GGUF/tiny-f32.gguf").origin, ModelOrigin::kLmStudio);
}

TEST_F(Stores, LinksThatLeaveAFolderAreReported) {
  put_model(folder_.path() / "elsewhere.gguf");
  fs::create_directories(lm_studio() / "maker/links");
  fs::create_symlink(folder_.path() / "elsewhere.gguf", lm_studio() / "maker/links/out.gguf");
  fs::create_directory_symlink(folder_.path(), lm_studio() / "maker/links/all");
  put_model(lm_studio() / "maker/links/own.gguf");
  const std::vector<FoundModel> models = find_models();
  EXPECT_NE(found(models, "maker/links/out.gguf").problem.find("a target inside"),
            std::string::npos);
  EXPECT_NE(found(models, "maker/links/all").problem.find("a target inside"), std::string::npos);
  EXPECT_EQ(found(models, "maker/links/own.gguf").problem, "");
  EXPECT_EQ(refused("maker/links/out.gguf").code, "E_MODEL_LINK");
}

TEST_F(Stores, BundledFilesAndFoldersThatWriteTextsAreListed) {
  put_model(folder_.path() / "assets/models/loose.gguf");
  for (const fs::path& file : list_folder(kGolden / "llama_f32")) {
    put(folder_.path() / "assets/models/folder" / file.filename(), get_file(file));
  }
  put(folder_.path() / "assets/models/broken.gguf", "GGUF");
  const std::vector<FoundModel> models = find_models();
  for (const char* name : {"loose.gguf", "folder"}) {
    const FoundModel& model = found(models, name);
    EXPECT_EQ(model.problem, "") << name;
    EXPECT_TRUE(model.texts) << name;
    EXPECT_EQ(model.reference.origin, ModelOrigin::kBundled);
  }
  EXPECT_NE(found(models, "broken.gguf").problem.find("24 bytes"), std::string::npos);
  EXPECT_EQ(written("loose.gguf"), written("folder"));
}

}  // namespace
}  // namespace tessera::model_stores_test
