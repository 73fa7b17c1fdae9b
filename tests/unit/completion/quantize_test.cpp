// Quantised text models: what is written with the file is what --dtype of the same type writes with
// the folder; keys, tokenizer and rows come back; what must be refused is refused by name.
#include "apps/runtime/quantize.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/runtime/complete_task.h"
#include "engine/checkpoint/gguf_weights.h"
#include "engine/core/io.h"
#include "engine/core/storage.h"
#include "tests/support/fault_scope.h"
#include "tests/support/temp_folder.h"

namespace tessera::quantize_test {
namespace {

namespace fs = std::filesystem;

const fs::path kModels = fs::path(TESSERA_SOURCE_DIR) / "tests/golden/gguf_text";

class Listener final : public QuantizeListener {
 public:
  bool on_tensor(std::string_view, std::uint64_t written, std::uint64_t all) override {
    EXPECT_LE(written, all);
    ++tensors;
    return tensors != stop_at;
  }
  void on_notice(std::string_view text) override { notices.emplace_back(text); }
  std::vector<std::string> notices;
  int tensors = 0, stop_at = -1;
};

struct Made {
  QuantizeReport report;
  std::vector<std::string> notices;
};

Made make(const fs::path& model, const fs::path& output, const std::string& type,
          std::vector<std::string> keep = {}, bool requantize = false) {
  Listener listener;
  Made out;
  out.report = quantize({.model = model.string(),
                         .output = output,
                         .type = type,
                         .keep = std::move(keep),
                         .requantize = requantize},
                        listener);
  EXPECT_TRUE(out.report.finished);
  EXPECT_GT(listener.tensors, 0);
  out.notices = std::move(listener.notices);
  return out;
}

ErrorInfo refusal_of(const fs::path& model, const fs::path& output, const std::string& type,
                     std::vector<std::string> keep = {}) {
  try {
    make(model, output, type, std::move(keep));
  } catch (const Error& error) {
    return error.info();
  }
  ADD_FAILURE() << "not refused";
  return {};
}

class Writer final : public CompleteListener {
 public:
  void on_completion(Completion&& completion) override {
    EXPECT_FALSE(completion.failed) << format_error(completion.error);
    texts[completion.number] = completion.text;
  }
  std::map<std::size_t, std::string> texts;
};

// Greedy texts; without a storage as the files have it.
std::map<std::size_t, std::string> texts_of(const fs::path& model, std::optional<DType> storage) {
  CompleteOptions options;
  options.model = model.string();
  options.max_tokens = 24;
  options.threads = 2;
  options.storage = storage;
  options.method = text_method("plain");
  std::vector<CompleteRequest> requests;
  for (const char* prompt :
       {"The cat sat on", "Hello, world! 12345", "a", "  two spaces\nand a line",
        "It's 3.14 o'clock", "<s> <|im_end|> written out"}) {
    requests.push_back({.prompt = prompt});
  }
  Runtime runtime;
  CompleteTask task(runtime, options);
  Writer writer;
  runtime.finish(task.submit(std::move(requests), writer));
  EXPECT_EQ(writer.texts.size(), 6u);
  return writer.texts;
}

struct Parsed {
  explicit Parsed(const fs::path& path)
      : file(path), gguf(parse_gguf(file.bytes(), path.string())) {}
  const GgufTensor& tensor(std::string_view name) const {
    for (const GgufTensor& one : gguf.tensors) {
      if (one.name == name) return one;
    }
    ADD_FAILURE() << "no tensor " << name;
    return gguf.tensors.front();
  }
  std::string_view type(std::string_view name) const { return tensor(name).type->name; }
  std::string_view bytes(std::string_view name) const {
    const GgufTensor& one = tensor(name);
    const auto span = file.bytes().subspan(one.begin, one.end - one.begin);
    return {reinterpret_cast<const char*>(span.data()), span.size()};
  }
  MappedFile file;
  GgufFile gguf;
};

TEST(Quantize, AFolderWritesTheTextsOfItsOwnType) {
  const TempFolder folder;
  for (const auto& [name, dtype] :
       {std::pair{"q8", DType::kQ8}, std::pair{"q4", DType::kQ4}, std::pair{"bf16", DType::kBF16},
        std::pair{"f32", DType::kF32}}) {
    const fs::path file = folder / (std::string(name) + ".gguf");
    const Made made = make(kModels / "llama_f32", file, name);
    EXPECT_EQ(made.report.bytes_after, fs::file_size(file));
    const bool blocks = storage_of(dtype).integers;
    EXPECT_EQ(CompletionModel::open(file)->stored(), blocks ? DType::kFile : dtype) << name;
    EXPECT_EQ(texts_of(file, dtype), texts_of(kModels / "llama_f32", dtype)) << name;
  }
}

TEST(Quantize, FoldersOfOtherFamilies) {
  const TempFolder folder;
  make(kModels / "qwen3_f32", folder / "qwen3.gguf", "q8");
  EXPECT_EQ(Parsed(folder / "qwen3.gguf").type("blk.0.attn_q_norm.weight"), "F32");
  EXPECT_EQ(texts_of(folder / "qwen3.gguf", DType::kQ8),
            texts_of(kModels / "qwen3_f32", DType::kQ8));
  const ErrorInfo info = refusal_of(kModels / "gemma3_f32", folder / "gemma3.gguf", "q8");
  EXPECT_EQ(info.code, "E_GGUF_MODEL");
  EXPECT_EQ(info.where, "model_type");
  EXPECT_EQ(info.found, "gemma3_text");
  make(kModels / "gemma3_f32.gguf", folder / "gemma3.gguf", "q8");
  EXPECT_EQ(texts_of(folder / "gemma3.gguf", DType::kQ8),
            texts_of(kModels / "gemma3_f32.gguf", DType::kQ8));
}

// The reference's own file of the same folder: equal keys, names, rows and numbers.
TEST(Quantize, AFolderBecomesWhatTheGgufPackageWrites) {
  const TempFolder folder;
  make(kModels / "llama_f32", folder / "own.gguf", "f32");
  const Parsed own(folder / "own.gguf"), other(kModels / "llama_f32.gguf");
  ASSERT_EQ(own.gguf.tensors.size(), other.gguf.tensors.size());
  for (const GgufTensor& tensor : other.gguf.tensors) {
    EXPECT_EQ(own.tensor(tensor.name).shape, tensor.shape) << tensor.name;
    EXPECT_EQ(own.type(tensor.name), tensor.type->name);
    EXPECT_EQ(own.bytes(tensor.name), other.bytes(tensor.name)) << tensor.name;
  }
  for (const auto& [key, value] : other.gguf.keys) {
    if (key == "tokenizer.ggml.scores") continue;      // an order of merges: others give it too
    if (key == "tokenizer.ggml.token_type") continue;  // that file has pieces of users as others
    const GgufValue* const found = own.gguf.find(key);
    ASSERT_NE(found, nullptr) << key;
    EXPECT_EQ(found->kind(), value.kind()) << key;
    EXPECT_TRUE(std::ranges::equal(found->body(), value.body())) << key;
  }
}

TEST(Quantize, TypesOfRolesAreChosen) {
  const TempFolder folder;
  make(kModels / "llama_f32", folder / "a.gguf", "q4");
  const Parsed usual(folder / "a.gguf");
  EXPECT_EQ(usual.type("token_embd.weight"), "BF16");
  EXPECT_EQ(usual.type("output.weight"), "Q8_0");
  EXPECT_EQ(usual.type("blk.1.attn_k.weight"), "Q4_0");
  EXPECT_EQ(usual.type("blk.0.ffn_down.weight"), "Q4_0");
  EXPECT_EQ(usual.type("blk.0.attn_norm.weight"), "F32");
  EXPECT_EQ(usual.gguf.find("general.file_type")->integer(), 2);
  EXPECT_EQ(usual.gguf.find("general.quantization_version")->integer(), 2);
  const Made made = make(kModels / "llama_f32", folder / "b.gguf", "Q8_0",
                         {"head=f16", "table=f32", "attention=q4", "feed-forward=bf16"});
  const Parsed chosen(folder / "b.gguf");
  EXPECT_EQ(chosen.type("token_embd.weight"), "F32");
  EXPECT_EQ(chosen.type("output.weight"), "F16");
  EXPECT_EQ(chosen.type("blk.0.attn_output.weight"), "Q4_0");
  EXPECT_EQ(chosen.type("blk.1.ffn_up.weight"), "BF16");
  EXPECT_EQ(made.report.types.at("Q4_0").tensors, 8u);
  EXPECT_EQ(chosen.gguf.find("general.file_type")->integer(), 7);
}

TEST(Quantize, AFileIsRetypedWithItsKeys) {
  const TempFolder folder;
  const fs::path from = kModels / "qwen2_f16.gguf";
  make(from, folder / "q8.gguf", "q8");
  const Parsed own(folder / "q8.gguf"), other(from);
  for (const auto& [key, value] : other.gguf.keys) {
    if (key == "general.file_type" || key == "general.alignment") continue;
    const GgufValue* const found = own.gguf.find(key);
    ASSERT_NE(found, nullptr) << key;
    EXPECT_TRUE(std::ranges::equal(found->body(), value.body())) << key;
  }
  EXPECT_EQ(own.gguf.find("general.file_type")->integer(), 7);
  EXPECT_EQ(own.bytes("blk.0.attn_q.bias"), other.bytes("blk.0.attn_q.bias"));
  EXPECT_EQ(texts_of(folder / "q8.gguf", std::nullopt), texts_of(from, DType::kQ8));
}

// Parts become one file; blocks that stay keep their bytes.
TEST(Quantize, PartsAreJoinedAndBlocksThatStayAreCopied) {
  const TempFolder folder;
  const fs::path from = kModels / "llama3_q8-00001-of-00003.gguf";
  make(from, folder / "whole.gguf", "q8");
  const Parsed whole(folder / "whole.gguf");
  EXPECT_EQ(whole.gguf.find("split.count"), nullptr);
  std::size_t tensors = 0;
  for (const fs::path& path : gguf_parts(from)) {
    const Parsed part(path);
    tensors += part.gguf.tensors.size();
    for (const GgufTensor& tensor : part.gguf.tensors) {
      EXPECT_EQ(whole.bytes(tensor.name), part.bytes(tensor.name)) << tensor.name;
    }
  }
  EXPECT_EQ(whole.gguf.tensors.size(), tensors);
  EXPECT_EQ(texts_of(folder / "whole.gguf", DType::kF32), texts_of(from, DType::kF32));
}

TEST(Quantize, BlocksAreRoundedAgainOnlyWhenAsked) {
  const TempFolder folder;
  const fs::path from = kModels / "llama3_q8-00001-of-00003.gguf";
  const ErrorInfo info = refusal_of(from, folder / "q4.gguf", "q4");
  EXPECT_EQ(info.code, "E_QUANTIZE_BLOCKS");
  EXPECT_NE(info.where.find("blk."), std::string::npos) << info.where;
  EXPECT_EQ(info.found, "Q8_0");
  EXPECT_TRUE(fs::is_empty(folder.path()));
  make(from, folder / "q4.gguf", "q4", {}, true);
  EXPECT_EQ(texts_of(folder / "q4.gguf", DType::kQ4), texts_of(from, DType::kQ4));
  make(from, folder / "f32.gguf", "f32", {"head=f32", "table=f32"}, true);
  EXPECT_EQ(texts_of(folder / "f32.gguf", std::nullopt), texts_of(from, DType::kF32));
}

// A table that is the output layer too stays as it is: its logits are those of --dtype.
TEST(Quantize, ATiedTableKeepsItsType) {
  const TempFolder folder;
  const fs::path from = kModels / "qwen2_tied_bf16.gguf";
  make(from, folder / "q4.gguf", "q4");
  const Parsed own(folder / "q4.gguf");
  EXPECT_EQ(own.type("token_embd.weight"), "BF16");
  EXPECT_EQ(texts_of(folder / "q4.gguf", DType::kQ4), texts_of(from, DType::kQ4));
  make(from, folder / "small.gguf", "q4", {"table=q8"});
  EXPECT_EQ(Parsed(folder / "small.gguf").type("token_embd.weight"), "Q8_0");
}

fs::path copy_of(const fs::path& from, const TempFolder& folder, const char* name) {
  fs::copy(from, folder / name, fs::copy_options::recursive);
  return folder / name;
}

Json config_of(const fs::path& model) {
  return parse_json(read_file(model / "config.json", 1 << 20), "config.json");
}

// Each kind of rotary stretching, as the folder computes it.
TEST(Quantize, RotaryStretchesComeBack) {
  const Json stretches[] = {{{"rope_type", "llama3"},
                             {"factor", 8.0},
                             {"low_freq_factor", 1.0},
                             {"high_freq_factor", 4.0},
                             {"original_max_position_embeddings", 64}},
                            {{"rope_type", "linear"}, {"factor", 2.5}},
                            {{"rope_type", "yarn"},
                             {"factor", 4.0},
                             {"beta_fast", 16.0},
                             {"original_max_position_embeddings", 128}}};
  for (const Json& stretch : stretches) {
    const TempFolder folder;
    const fs::path model = copy_of(kModels / "llama_f32", folder, "model");
    Json config = config_of(model);
    config.erase("rope_parameters");
    config["rope_theta"] = 10000.0;
    config["rope_scaling"] = stretch;
    put_file(model / "config.json", config.dump());
    const Made made = make(model, folder / "f32.gguf", "f32");
    EXPECT_TRUE(made.notices.empty()) << made.notices.front();
    const auto expected = texts_of(model, DType::kF32);
    EXPECT_EQ(texts_of(folder / "f32.gguf", DType::kF32), expected) << stretch;
    EXPECT_NE(expected, texts_of(kModels / "llama_f32", DType::kF32)) << "the stretch matters";
  }
}

TEST(Quantize, WhatFilesHaveNoKeyForIsRefused) {
  const TempFolder folder;
  const fs::path model = copy_of(kModels / "llama_f32", folder, "model");
  Json config = config_of(model);
  config.erase("rope_parameters");
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}, {"attention_factor", 2.0}};
  put_file(model / "config.json", config.dump());
  const ErrorInfo info = refusal_of(model, folder / "a.gguf", "q8");
  EXPECT_EQ(info.code, "E_GGUF_MODEL");
  EXPECT_EQ(info.file, (model / "config.json").string());
  EXPECT_EQ(info.where, "rope_scaling.attention_factor");
  EXPECT_FALSE(fs::exists(folder / "a.gguf"));
}

TEST(Quantize, StopsTemplateAndPenaltiesComeAlong) {
  const TempFolder folder;
  const fs::path model = copy_of(kModels / "llama_f32", folder, "model");
  put_file(model / "generation_config.json",
           R"({"eos_token_id": [7, 2, 9, 11], "repetition_penalty": 1.5})");
  put_file(model / "tokenizer_config.json",
           R"({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "unk_token": "<unk>"})");
  put_file(model / "chat_template.jinja",
           "{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}");
  const Made made = make(model, folder / "a.gguf", "q8");
  const auto own = CompletionModel::open(model), read = CompletionModel::open(folder / "a.gguf");
  EXPECT_EQ(read->stops(), own->stops());
  EXPECT_EQ(read->stops().size(), 4u);
  EXPECT_EQ(read->prompt_ids("hi <s>", true), own->prompt_ids("hi <s>", true));
  EXPECT_EQ(texts_of(folder / "a.gguf", DType::kQ8), texts_of(model, DType::kQ8));
  EXPECT_TRUE(read->sampling() == own->sampling());
  EXPECT_FALSE(read->sampling().empty());
  EXPECT_TRUE(made.notices.empty());
  put_file(model / "chat_template.jinja",
           "{% for m in messages %}{{ m.content }}{{ unk_token }}{% endfor %}");
  const Made other = make(model, folder / "b.gguf", "q8");
  ASSERT_EQ(other.notices.size(), 1u);
  EXPECT_NE(other.notices[0].find("unk_token"), std::string::npos);
}

// Rows of 48 numbers are no blocks of 32: such matrices stay, and the listener hears of each.
TEST(Quantize, RowsOfNoWholeBlocksStayAndAreNamed) {
  const TempFolder folder;
  const fs::path model = copy_of(kModels / "llama_f32", folder, "model");
  Json config = config_of(model);
  config["intermediate_size"] = 48;
  put_file(model / "config.json", config.dump());
  const Checkpoint from = Checkpoint::open(kModels / "llama_f32");
  std::map<std::string, Tensor> cut;
  std::map<std::string, ConstTensorView> views;
  for (const auto& [name, view] : from.tensors()) {
    const bool down = name.find("down_proj") != std::string::npos;
    const bool up =
        name.find("gate_proj") != std::string::npos || name.find("up_proj") != std::string::npos;
    const Shape shape = down ? Shape{view.shape[0], 48}
                        : up ? Shape{48, view.shape[1]}
                             : view.shape;
    Tensor tensor = Tensor::host(DType::kF32, shape);
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      const std::int64_t at = down ? i / 48 * view.shape[1] + i % 48 : i;
      tensor.f32()[i] = view.f32()[at];
    }
    cut.emplace(name, std::move(tensor));
  }
  for (const auto& [name, tensor] : cut) views.emplace(name, tensor.view());
  write_safetensors(model / "model.safetensors", views, {{"format", "pt"}});
  const Made made = make(model, folder / "a.gguf", "q8");
  ASSERT_EQ(made.notices.size(), 2u) << "one a layer";
  EXPECT_EQ(made.notices[0], "blk.0.ffn_down.weight is F32: rows of 48 are no whole blocks of 32");
  EXPECT_EQ(texts_of(folder / "a.gguf", DType::kQ8), texts_of(model, DType::kQ8));
}

TEST(Quantize, BadRequestsAreRefusedByName) {
  const TempFolder folder;
  const fs::path model = kModels / "llama_f32", out = folder / "a.gguf";
  ErrorInfo info = refusal_of(model, out, "q3");
  EXPECT_EQ(info.code, "E_QUANTIZE_TYPE");
  EXPECT_NE(info.expected.find("q8"), std::string::npos);
  EXPECT_EQ(info.found, "q3");
  EXPECT_EQ(refusal_of(model, out, "q8", {"tail=f16"}).code, "E_QUANTIZE_ROLE");
  EXPECT_EQ(refusal_of(model, out, "q8", {"head"}).code, "E_QUANTIZE_ROLE");
  EXPECT_EQ(refusal_of(model, out, "q8", {"head=q3"}).code, "E_QUANTIZE_TYPE");
  EXPECT_EQ(refusal_of(model, folder / "a.bin", "q8").code, "E_QUANTIZE_OUTPUT");
  EXPECT_EQ(refusal_of(folder / "none", out, "q8").code, "E_MODEL_MISSING");
  EXPECT_TRUE(fs::is_empty(folder.path()));
  put_file(out, "a person's");
  EXPECT_EQ(refusal_of(model, out, "q8").code, "E_QUANTIZE_OUTPUT");
  EXPECT_EQ(get_file(out), "a person's");
  Listener listener;
  EXPECT_TRUE(
      quantize({.model = model.string(), .output = out, .type = "q8", .force = true}, listener)
          .finished);
  EXPECT_NO_THROW(CompletionModel::open(out));
  EXPECT_EQ(refusal_of(out, out, "f32").expected, "another place");
}

TEST(Quantize, NumbersThatAreNoneAreRefused) {
  const TempFolder folder;
  const fs::path model = copy_of(kModels / "llama_f32", folder, "model");
  std::string bytes = read_file(model / "model.safetensors", 1 << 20);
  const float bad = std::numeric_limits<float>::infinity();
  std::memcpy(bytes.data() + bytes.size() - 4, &bad, 4);
  put_file(model / "model.safetensors", bytes);
  const ErrorInfo info = refusal_of(model, folder / "a.gguf", "q8");
  EXPECT_EQ(info.code, "E_WEIGHT_NOT_FINITE");
  EXPECT_FALSE(fs::exists(folder / "a.gguf"));
}

// A run that goes on: how many tensors it wrote, and its report.
struct GoneOn {
  int tensors = 0;
  QuantizeReport report;
};
GoneOn go_on(const QuantizeOptions& options) {
  Listener listener;
  GoneOn out;
  out.report = quantize(options, listener);
  EXPECT_TRUE(out.report.finished);
  out.tensors = listener.tensors;
  return out;
}
void stop_after(int tensors, const QuantizeOptions& options) {
  Listener listener;
  listener.stop_at = tensors;
  EXPECT_FALSE(quantize(options, listener).finished);
}

TEST(Quantize, AStoppedRunGoesOnToTheSameFile) {
  const TempFolder folder;
  put_file(folder / "text.txt", std::string(400, 'a') + " b c d e\n");
  const QuantizeOptions whole{.model = (kModels / "llama_f32").string(),
                              .output = folder / "whole.gguf",
                              .type = "q4",
                              .calibrate = folder / "text.txt"};
  const GoneOn once = go_on(whole);
  const auto same_as_once = [&](const QuantizeOptions& options, int left) {
    const GoneOn rest = go_on(options);
    EXPECT_EQ(rest.tensors, left);
    EXPECT_EQ(get_file(options.output), get_file(whole.output));
    EXPECT_EQ(rest.report.relative_error(), once.report.relative_error());
    EXPECT_EQ(rest.report.bytes_after, once.report.bytes_after);
    EXPECT_EQ(rest.report.types.at("Q4_0").tensors, once.report.types.at("Q4_0").tensors);
  };
  const auto parts = [&] {
    return std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator{});
  };
  ASSERT_EQ(parts(), 2) << "text and file";
  QuantizeOptions options = whole;
  options.output = folder / "parts.gguf";
  stop_after(3, options);
  EXPECT_FALSE(fs::exists(options.output));
  stop_after(2, options);
  same_as_once(options, once.tensors - 5);
  EXPECT_EQ(parts(), 3) << "nothing is left next to the files";

  // Killed between two marks, with bytes that are no whole tensor.
  fs::remove(options.output);
  stop_after(4, options);
  put_file(folder / "parts.gguf.part", get_file(folder / "parts.gguf.part") + "half a tensor");
  same_as_once(options, once.tensors - 4);

  // What was made from something else, or cannot be believed, is begun anew.
  for (const char* damage : {"type", "cut", "state", "front"}) {
    fs::remove(options.output);
    QuantizeOptions other = options;
    if (damage == std::string("type")) other.type = "q5_0";
    stop_after(4, other);
    const std::string part = folder / "parts.gguf.part";
    if (damage == std::string("cut")) put_file(part, get_file(part).substr(0, 5000));
    if (damage == std::string("state")) put_file(part + ".json", "{\"source\": 3");
    if (damage == std::string("front")) put_file(part, "X" + get_file(part).substr(1));
    SCOPED_TRACE(damage);
    same_as_once(options, once.tensors);
  }
}

TEST(Quantize, AStoppedFolderGoesOnToTheSameFolder) {
  const TempFolder folder;
  QuantizeOptions options{
      .model = std::string(TESSERA_SOURCE_DIR) + "/assets/models/tabletop-draft",
      .output = folder / "whole",
      .type = "q8"};
  const GoneOn once = go_on(options);
  options.output = folder / "parts";
  stop_after(5, options);
  EXPECT_TRUE(fs::exists(folder / "parts.part"));
  EXPECT_EQ(go_on(options).tensors, once.tensors - 5);
  for (const char* name : {"model-blocks.gguf", "model-rest.safetensors", "config.json"}) {
    EXPECT_EQ(get_file(folder / "parts" / name), get_file(folder / "whole" / name)) << name;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator{}), 2);
}

// A child that is killed in the middle of a tensor's write.
TEST(Quantize, AKilledRunGoesOnToTheSameFile) {
  const TempFolder folder;
  QuantizeOptions options{
      .model = (kModels / "llama_f32").string(), .output = folder / "whole.gguf", .type = "q8"};
  options.mark_seconds = 0;
  const GoneOn once = go_on(options);
  options.output = folder / "killed.gguf";
  const ::pid_t child = ::fork();
  if (child == 0) {
    class Killer final : public QuantizeListener {
      bool on_tensor(std::string_view, std::uint64_t, std::uint64_t) override {
        if (++tensors_ == 6) ::raise(SIGKILL);
        return true;
      }
      int tensors_ = 0;
    } killer;
    quantize(options, killer);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(go_on(options).tensors, once.tensors - 5) << "the sixth was not marked";
  EXPECT_EQ(get_file(options.output), get_file(folder / "whole.gguf"));
}

TEST(Quantize, FailedRunsLeaveNothing) {
  const TempFolder folder;
  const QuantizeOptions options{
      .model = (kModels / "llama_f32").string(), .output = folder / "a.gguf", .type = "q8"};
  int faults = 0;
  for (std::uint64_t nth = 1;; nth += 7) {
    const FaultScope full({.op = IoOp::kWrite, .nth = nth, .error = ENOSPC});
    std::string code;
    try {
      make(options.model, options.output, "q8");
    } catch (const Error& error) {
      code = error.info().code;
    }
    if (full.hits() == 0) break;
    ++faults;
    EXPECT_EQ(code, "E_IO_WRITE");
    EXPECT_TRUE(fs::is_empty(folder.path())) << nth;
  }
  EXPECT_GE(faults, 3);
}

TEST(Quantize, NamesAndRowsAreInverse) {
  const Parsed file(kModels / "llama_f32.gguf");
  for (const GgufWeight& weight : gguf_weights(file.gguf, file.gguf, 0, "f.gguf")) {
    EXPECT_EQ(gguf_name(weight.name), weight.tensor.name);
  }
  EXPECT_EQ(gguf_name("model.layers.x.mlp.up_proj.weight"), "");
  EXPECT_EQ(gguf_name("vision.weight"), "");
  for (const std::int64_t width : {2, 8, 64}) {
    for (std::int64_t row = 0; row < 3 * width; ++row) {
      EXPECT_EQ(unpaired_place(paired_place(row, width), width), row);
    }
  }
}

}  // namespace
}  // namespace tessera::quantize_test
