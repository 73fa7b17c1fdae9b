// Text models from GGUF files and folders against transformers: ids, logits, greedy texts, alone
// and together, with drafts; and files of other or broken models, refused by file, key and value.
#include "apps/runtime/complete_task.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/decoding/decode_settings.h"
#include "engine/families/folder_files.h"
#include "tests/support/devices.h"
#include "tests/support/model_runner.h"
#include "tests/support/temp_folder.h"

namespace tessera::completion_test {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(TESSERA_SOURCE_DIR) / "tests/golden/gguf_text";

Json goldens() { return parse_json(read_file(kGolden / "texts.json", 1 << 20), "texts.json"); }

class Listener final : public CompleteListener {
 public:
  void on_text(std::size_t number, std::string_view more) override { grown[number] += more; }
  void on_completion(Completion&& completion) override {
    done.emplace(completion.number, std::move(completion));
  }
  void on_over(bool all) override { finished = all; }
  std::map<std::size_t, Completion> done;
  std::map<std::size_t, std::string> grown;
  bool finished = false;
};

struct Choice {
  bool chat = false;
  std::int64_t batch = 1;
  std::string decode = "plain", draft;
  std::string cache = "auto";
};

std::vector<Completion> write(const fs::path& model, const std::vector<std::string>& prompts,
                              const Choice& choice) {
  CompleteOptions options;
  options.model = model.string();
  options.batch_size = choice.batch;
  options.max_tokens = 24;
  options.threads = 2;
  options.storage = DType::kF32;  // as the reference computes
  options.method = text_method(choice.decode);
  options.method.set(setting::kCache, {0, choice.cache});
  options.draft = choice.draft;
  std::vector<CompleteRequest> requests;
  for (const std::string& prompt : prompts) requests.push_back({.prompt = prompt, .chat = choice.chat});
  Runtime runtime;
  CompleteTask task(runtime, options);
  Listener listener;
  runtime.finish(task.submit(std::move(requests), listener));
  EXPECT_TRUE(listener.finished);
  std::vector<Completion> out;
  for (auto& [number, completion] : listener.done) {
    EXPECT_FALSE(completion.failed) << format_error(completion.error);
    if (completion.text.find("\xef\xbf\xbd") == std::string::npos) {
      EXPECT_EQ(completion.text, listener.grown[number]);
    }
    out.push_back(std::move(completion));
  }
  EXPECT_EQ(out.size(), prompts.size());
  return out;
}

std::vector<std::string> prompts_of(const Json& rows, bool chat) {
  std::vector<std::string> out;
  for (const Json& row : rows) {
    if (row["chat"] == chat) out.push_back(row["prompt"]);
  }
  return out;
}

std::vector<std::string> texts_of(const Json& rows, bool chat) {
  std::vector<std::string> out;
  for (const Json& row : rows) {
    if (row["chat"] == chat) out.push_back(row["text"]);
  }
  return out;
}

std::vector<std::string> texts_of(const std::vector<Completion>& written) {
  std::vector<std::string> out;
  for (const Completion& completion : written) out.push_back(completion.text);
  return out;
}

std::vector<fs::path> places_of(const Json& model) {
  std::vector<fs::path> out = {kGolden / model["file"].get<std::string>()};
  if (model["folder"] != "") out.push_back(kGolden / model["folder"].get<std::string>());
  return out;
}

TEST(Completion, PromptIdsAreThoseOfTransformers) {
  for (const Json& model : goldens()) {
    for (const fs::path& place : places_of(model)) {
      const auto opened = CompletionModel::open(place);
      for (const Json& row : model["rows"]) {
        if (row["chat"] && !opened->spec().folder.empty()) continue;
        EXPECT_EQ(opened->prompt_ids(row["prompt"].get<std::string>(), row["chat"]),
                  row["ids"].get<std::vector<std::int32_t>>())
            << place << " " << row["prompt"];
      }
    }
  }
}

// What a model makes of the first prompt: rows of its table, and logits of the token that follows.
struct FirstPrompt {
  std::vector<float> rows, logits;
};

FirstPrompt first_prompt(const fs::path& place, const Json& model, DType storage,
                         std::unique_ptr<Backend> backend = make_backend("cpu", {.threads = 2},
                                                                         {})) {
  const auto opened = CompletionModel::open(place);
  const StreamModel loaded = opened->load(*backend, storage);
  const auto ids = model["rows"][0]["ids"].get<std::vector<std::int32_t>>();
  const auto count = std::ssize(ids), width = loaded.transformer().config().width;
  FirstPrompt out{std::vector<float>(to_size(count * width)),
                  std::vector<float>(to_size(loaded.logit_ids()))};
  const auto fetch = [&](const Tensor& from, std::vector<float>& to) {
    backend->download(from.view(), {DType::kF32, from.shape(), to.data(), Device{}});
    backend->synchronize();
  };
  Tensor rows = backend->allocate(DType::kF32, {count, width});
  loaded.embed_prompt(ids, rows.view());
  fetch(rows, out.rows);
  ModelRunner runner(loaded, 1, count);
  const std::vector<float> hidden = runner.forward({{.sequence = 0, .rows = out.rows}});
  Tensor last = backend->allocate(DType::kF32, {1, width});
  backend->upload({DType::kF32, {1, width}, hidden.data() + (count - 1) * width, Device{}},
                  last.view());
  Tensor logits = backend->allocate(DType::kF32, {1, loaded.logit_ids()});
  Arena arena = make_arena(*backend, loaded.scratch_bytes(1) + 4096);
  loaded.logits(last.view(), arena, logits.view());
  fetch(logits, out.logits);
  return out;
}

TEST(Completion, LogitsAreThoseOfTransformers) {
  for (const Json& model : goldens()) {
    for (const fs::path& place : places_of(model)) {
      EXPECT_LT(relative_difference(first_prompt(place, model, DType::kF32).logits,
                                    model["logits"].get<std::vector<float>>()),
                2e-5)
          << place;
    }
  }
}

// As files have them, tables have exactly their numbers; products round their inputs to 8 bits
// where weights are in blocks.
TEST(Completion, WeightsInBlocksStayAsTheirFilesHaveThem) {
  int blocks = 0;
  for (const Json& model : goldens()) {
    const fs::path place = places_of(model)[0];
    const DType stored = CompletionModel::open(place)->stored();
    const FirstPrompt exact = first_prompt(place, model, DType::kF32);
    const FirstPrompt kept = first_prompt(place, model, stored);
    EXPECT_EQ(kept.rows, exact.rows) << place;
    if (stored != DType::kFile) {
      EXPECT_TRUE(stored == DType::kBF16 || kept.logits == exact.logits) << place;
      continue;
    }
    ++blocks;
    const auto off = [&](const FirstPrompt& other) {
      return relative_difference(other.logits, exact.logits);
    };
    EXPECT_GT(off(kept), 1e-3) << place;
    EXPECT_LT(off(kept), 0.04) << place;
    EXPECT_LT(off(kept), off(first_prompt(place, model, DType::kQ8))) << place;
  }
  EXPECT_EQ(blocks, 4);
}

// CUDA takes inputs as they are: products with blocks are those with their numbers.
TEST(Completion, CudaTakesBlocksAsTheirNumbers) {
  for (const testing::TestDevice& device : testing::cuda_devices()) {
    if (device.open() == nullptr) continue;
    int blocks = 0;
    for (const Json& model : goldens()) {
      const fs::path place = places_of(model)[0];
      if (CompletionModel::open(place)->stored() != DType::kFile) continue;
      const auto on_device = [&](DType storage) {
        return first_prompt(place, model, storage, device.open());
      };
      const FirstPrompt exact = on_device(DType::kF32), kept = on_device(DType::kFile);
      EXPECT_EQ(kept.rows, exact.rows) << place;
      EXPECT_EQ(kept.logits, exact.logits) << place;
      EXPECT_LT(relative_difference(kept.logits, first_prompt(place, model, DType::kF32).logits),
                2e-5)
          << place;
      ++blocks;
    }
    EXPECT_EQ(blocks, 4) << device;
  }
}

TEST(Completion, GreedyTextsAreThoseOfTransformers) {
  for (const Json& model : goldens()) {
    const Json& rows = model["rows"];
    for (const fs::path& place : places_of(model)) {
      const auto prompts = prompts_of(rows, false);
      EXPECT_EQ(texts_of(write(place, prompts, {.batch = 3})), texts_of(rows, false)) << place;
      EXPECT_EQ(texts_of(write(place, {prompts[2]}, {}))[0], texts_of(rows, false)[2]) << place;
      EXPECT_EQ(texts_of(write(place, prompts, {.batch = 2, .decode = "lookup"})),
                texts_of(rows, false))
          << place;
    }
    if (const auto chats = prompts_of(rows, true); !chats.empty()) {
      EXPECT_EQ(texts_of(write(places_of(model)[0], chats, {.chat = true})), texts_of(rows, true));
    }
  }
}

// A copy of a folder, one of whose files has other keys.
class ChangedFolder {
 public:
  ChangedFolder() {
    for (const auto& file : fs::directory_iterator(kGolden / "llama_f32")) {
      fs::copy_file(file, folder_.path() / file.path().filename());
    }
  }
  void change(const char* file, const Json& keys) const {
    const fs::path path = folder_.path() / file;
    Json whole =
        fs::exists(path) ? parse_json(read_file(path, 1 << 20), path.string()) : Json::object();
    whole.update(keys);
    put_file(path, whole.dump());
  }
  std::string warnings() const {
    std::string out;
    for (const std::string& line :
         CompletionModel::open(folder_.path())->text().account->warnings()) {
      out += line + "\n";
    }
    return out;
  }

 private:
  TempFolder folder_;
};

TEST(Completion, WhatOfATokenizersFilesIsNotFollowedIsNamed) {
  const ChangedFolder folder;
  // Of a SentencePiece model alone: what release 5 reads otherwise than 4.
  EXPECT_NE(folder.warnings().find("legacy (absent)"), std::string::npos) << folder.warnings();
  EXPECT_EQ(folder.warnings().find("not known"), std::string::npos) << folder.warnings();
  folder.change("tokenizer_config.json", {{"luck", 1}});
  EXPECT_NE(folder.warnings().find("not known: luck"), std::string::npos) << folder.warnings();
  const std::string corrupts =
      "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output";
  folder.change("tokenizer_config.json", {{corrupts, true}});
  EXPECT_NE(folder.warnings().find(corrupts), std::string::npos) << folder.warnings();
  folder.change("tokenizer_config.json", {{"add_eos_token", true}});
  EXPECT_NE(folder.warnings().find("add_eos_token"), std::string::npos) << folder.warnings();
}

// As one that lists a vocabulary.
TEST(Completion, AConfigurationMayBeLarge) {
  const ChangedFolder folder;
  Json names = Json::object();
  for (int i = 0; i < 400; ++i) names[std::string(4000, 'a') + std::to_string(i)] = i;
  folder.change("config.json", {{"words", names}});
  EXPECT_NE(folder.warnings().find("not known: words"), std::string::npos);
}

TEST(Completion, FilesSayHowTheyAreKept) {
  const auto stored = [](const char* file) {
    return CompletionModel::open(kGolden / file)->stored();
  };
  EXPECT_EQ(stored("llama3_q8-00001-of-00003.gguf"), DType::kFile);
  EXPECT_EQ(stored("llama_mixed.gguf"), DType::kFile);
  EXPECT_EQ(stored("llama_f32.gguf"), DType::kF32);
  EXPECT_EQ(stored("qwen2_f16.gguf"), DType::kF16);
  EXPECT_EQ(stored("qwen2_tied_bf16.gguf"), DType::kBF16);
}

// Over keys and values in 8 bits, too, a text depends neither on those next to it nor on drafts.
TEST(Completion, ACacheOfEightBitsKeepsTextsApart) {
  const auto prompts = prompts_of(goldens()[0]["rows"], false);
  const fs::path model = kGolden / "llama_f32.gguf";
  const auto texts = texts_of(write(model, prompts, {.cache = "q8"}));
  EXPECT_EQ(texts_of(write(model, prompts, {.batch = 3, .cache = "q8"})), texts);
  EXPECT_EQ(texts_of(write(model, prompts, {.decode = "lookup", .cache = "q8"})), texts);
  EXPECT_EQ(texts_of(write(model, prompts,
                           {.batch = 2,
                            .decode = "draft",
                            .draft = (kGolden / "llama_f32").string(),
                            .cache = "q8"})),
            texts);
}

TEST(Completion, ADraftModelChangesPassesAlone) {
  const Json model = goldens()[0];
  ASSERT_EQ(model["folder"], "llama_f32");
  const auto prompts = prompts_of(model["rows"], false);
  const auto plain = write(kGolden / "llama_f32.gguf", prompts, {});
  const auto drafted = write(kGolden / "llama_f32.gguf", prompts,
                             {.decode = "draft", .draft = (kGolden / "llama_f32").string()});
  EXPECT_EQ(texts_of(drafted), texts_of(plain));
  std::int64_t passes = 0, tokens = 0;
  for (const Completion& completion : drafted) {
    passes += completion.passes;
    tokens += completion.tokens;
  }
  EXPECT_LT(2 * passes, tokens);  // the same model drafts
}

// --- bad files
// ------------------------------------------------------------------------------------

struct Patch {
  std::string name;  // of the model
  std::string from, to;
  std::string where, found;  // in the message
};

std::string little(std::uint32_t value) {
  std::string out(4, '\0');
  std::memcpy(out.data(), &value, 4);
  return out;
}
std::string key_u32(const std::string& key, std::uint32_t value) {
  return key + little(4) + little(value);
}

Error refusal_of(const fs::path& path) {
  try {
    CompletionModel::open(path);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << path << " was not refused";
  return Error({});
}

TEST(Completion, BadKeysAreRefusedByName) {
  const std::string eps(("llama.attention.layer_norm_rms_epsilon"));
  const Patch patches[] = {
      {"llama_f32", "llama.block_count", "llama.block_xount", "llama.block_count", "no such key"},
      {"llama_f32", key_u32("llama.block_count", 2), key_u32("llama.block_count", 0),
       "llama.block_count", "0"},
      {"llama_f32", key_u32("llama.block_count", 2), key_u32("llama.block_count", 3),
       "model.layers.2", "missing"},
      {"llama_f32", key_u32("llama.block_count", 2), key_u32("llama.block_count", 1),
       "model.layers.1", "surplus"},
      {"llama_f32", key_u32("llama.block_count", 2), key_u32("llama.block_count", 4000000000u),
       "llama.block_count", "4000000000"},
      {"llama_f32", key_u32("llama.embedding_length", 32), key_u32("llama.embedding_length", 64),
       "rope.dimension_count", "8"},
      {"llama_f32", key_u32("llama.attention.head_count", 4),
       key_u32("llama.attention.head_count", 5), "llama.attention.head_count", "5"},
      {"llama_f32", key_u32("llama.attention.head_count_kv", 2),
       key_u32("llama.attention.head_count_kv", 3), "llama.attention.head_count_kv", "3"},
      {"llama_f32", "llama.feed_forward_length" + little(4),
       "llama.feed_forward_length" + little(6), "llama.feed_forward_length", "f32"},
      {"llama_f32", eps, "llama.attention.layer_norm_rms_epsilom", "layer_norm_rms_epsilon",
       "no such key"},
      {"llama_f32", "llama.rope.freq_base", "llama.rope.freq_bass", "llama.rope.freq_bass", ""},
      {"llama_f32", "llama.rope.dimension_count" + little(4) + little(8),
       "llama.rope.dimension_count" + little(4) + little(4), "rope.dimension_count", "4"},
      {"llama_f32", "blk.1.attn_v.weight", "blk.1.attn_w.weight", "model.layers.1", "missing"},
      {"llama_f32", "general.architecture", "general.architectuse", "general.architecture",
       "no such key"},
      {"qwen2_f16", "tokenizer.ggml.pre" + little(8) + little(5) + little(0) + "qwen2",
       "tokenizer.ggml.pre" + little(8) + little(5) + little(0) + "qwenX", "tokenizer.ggml.pre",
       "qwenX"},
      {"qwen2_f16", "tokenizer.ggml.model" + little(8) + little(4) + little(0) + "gpt2",
       "tokenizer.ggml.model" + little(8) + little(4) + little(0) + "gptX", "tokenizer.ggml.model",
       "gptX"},
      {"qwen2_f16", "tokenizer.ggml.merges", "tokenizer.ggml.mergez", "tokenizer.ggml.merges",
       "no such key"},
      {"qwen2_f16", key_u32("tokenizer.ggml.eos_token_id", 1002),
       key_u32("tokenizer.ggml.eos_token_id", 1024), "tokenizer.ggml.eos_token_id", "1024"},
      {"qwen2_f16", "tokenizer.ggml.padding_token_id", "tokenizer.ggml.padding_token_ix",
       "tokenizer.ggml.padding_token_ix", ""},
      {"qwen3_f32", "blk.1.attn_q_norm.weight", "blk.1.attn_q_norx.weight", "model.layers.1",
       "missing"},
      {"qwen3_f32", key_u32("qwen3.attention.key_length", 16),
       key_u32("qwen3.attention.key_length", 8), "qwen3.attention.value_length", "16"},
      {"llama_f32", "tokenizer.ggml.scores", "tokenizer.ggml.scorez", "tokenizer.ggml.scores",
       "no such key"},
  };
  TempFolder folder;
  for (const Patch& patch : patches) {
    std::string bytes = read_file(kGolden / (patch.name + ".gguf"), 1 << 20);
    const std::size_t at = bytes.find(patch.from);
    ASSERT_NE(at, std::string::npos) << patch.from;
    ASSERT_EQ(patch.from.size(), patch.to.size());
    bytes.replace(at, patch.from.size(), patch.to);
    const fs::path path = folder / "model.gguf";
    put_file(path, bytes);
    const ErrorInfo info = refusal_of(path).info();
    EXPECT_EQ(info.kind, ErrorKind::kModel);
    EXPECT_EQ(info.file, path.string()) << patch.to;
    EXPECT_NE(info.where.find(patch.where), std::string::npos)
        << patch.to << ": " << format_error(info);
    EXPECT_NE(info.found.find(patch.found), std::string::npos)
        << patch.to << ": " << format_error(info);
    EXPECT_FALSE(info.expected.empty());
  }
}

// A safetensors file without its first tensor.
std::string without_first(const std::string& bytes, const std::string& name) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  Json header = Json::parse(bytes.substr(8, length));
  const auto gone = header.at(name).at("data_offsets").at(1).get<std::uint64_t>();
  EXPECT_EQ(header.at(name).at("data_offsets").at(0), 0);
  header.erase(name);
  for (auto& [key, tensor] : header.items()) {
    if (key == "__metadata__") continue;
    for (Json& offset : tensor.at("data_offsets")) offset = offset.get<std::uint64_t>() - gone;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t written = text.size();
  std::string out(8, 0);
  std::memcpy(out.data(), &written, sizeof written);
  return out + text + bytes.substr(8 + length + gone);
}

TEST(Completion, AMissingHeadIsTheTableWhereTheConfigurationSaysSo) {
  const TempFolder folder;
  const fs::path model = folder / "model";
  fs::copy(kGolden / "llama_f32", model, fs::copy_options::recursive);
  put_file(model / "model.safetensors",
           without_first(read_file(model / "model.safetensors", 1 << 20), "lm_head.weight"));
  const ErrorInfo info = refusal_of(model).info();
  EXPECT_EQ(info.code, "E_TIED_HEAD");
  EXPECT_EQ(info.where, "tie_word_embeddings");
  Json config = parse_json(read_file(model / "config.json", 1 << 20), "config.json");
  config["tie_word_embeddings"] = true;
  put_file(model / "config.json", config.dump());
  EXPECT_TRUE(CompletionModel::open(model)->spec().model.tied_head);
  config.erase("tie_word_embeddings");
  put_file(model / "config.json", config.dump());
  EXPECT_EQ(refusal_of(model).info().code, "E_TIED_HEAD") << "absent is false";
}

TEST(Completion, OtherArchitecturesSayWhatIsMissing) {
  std::string bytes = read_file(kGolden / "llama_f32.gguf", 1 << 20);
  const std::string from = "general.architecture" + little(8) + little(5) + little(0);
  bytes.replace(bytes.find(from) + from.size(), 5, "gemma");
  TempFolder folder;
  put_file(folder / "model.gguf", bytes);
  const ErrorInfo info = refusal_of(folder / "model.gguf").info();
  EXPECT_EQ(info.code, "E_GGUF_ARCHITECTURE");
  EXPECT_EQ(info.expected, "llama or qwen2 or qwen2vl or qwen3 or gemma3");
  EXPECT_NE(info.found.find("GELU"), std::string::npos);
}

TEST(Completion, PartsOfAnotherModelAreRefused) {
  TempFolder folder;
  const auto part = [](int number) {
    return "llama3_q8-0000" + std::to_string(number) + "-of-00003.gguf";
  };
  const auto copy = [&](int from, int to) {
    put_file(folder / part(to), read_file(kGolden / part(from), 1 << 20));
  };
  copy(1, 1);
  copy(2, 2);
  EXPECT_EQ(refusal_of(folder / part(1)).info().file, (folder / part(3)).string());
  copy(2, 3);
  EXPECT_EQ(refusal_of(folder / part(1)).info().code, "E_GGUF_PARTS");
  copy(3, 3);
  EXPECT_NO_THROW(CompletionModel::open(folder / part(2)));  // any of them names the model
  put_file(folder / "alone.gguf", read_file(kGolden / part(1), 1 << 20));
  EXPECT_EQ(refusal_of(folder / "alone.gguf").info().where, "key \"split.count\"");
}

TEST(Completion, LongPromptsFailAlone) {
  CompleteOptions options;
  options.model = (kGolden / "llama_f32.gguf").string();
  options.max_tokens = 4;
  options.method = text_method("plain");
  std::string longest;
  for (int i = 0; i < 600; ++i) longest += " cat";
  Runtime runtime;
  CompleteTask task(runtime, options);
  Listener listener;
  runtime.finish(task.submit({{.prompt = "The"}, {.prompt = longest}, {.prompt = "A"}}, listener));
  ASSERT_EQ(listener.done.size(), 3u);
  EXPECT_FALSE(listener.done.at(0).failed);
  EXPECT_EQ(listener.done.at(1).error.code, "E_TEXT_LENGTH");
  EXPECT_FALSE(listener.done.at(2).failed);
}

}  // namespace
}  // namespace tessera::completion_test
