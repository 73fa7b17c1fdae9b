// A language model and its image encoder in two GGUF files: captions and prompts are those of the
// folder with the same weights, by path and from a store, and files that do not fit each other are
// refused by file, key or tensor, with both figures.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "apps/runtime/describe_task.h"
#include "apps/runtime/model_catalog.h"
#include "apps/runtime/model_digest.h"
#include "engine/checkpoint/gguf_write.h"
#include "engine/core/block_types.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/temp_folder.h"

namespace tessera::gguf_pair_test {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(TESSERA_SOURCE_DIR) / "tests/golden";

fs::path pair_of(const std::string& name) { return kGolden / "gguf_vision" / name; }

// The folder of the same weights and tokens.
fs::path folder_of(const TempFolder& folder, const std::string& name) {
  const fs::path out = folder / name;
  fs::create_directories(out);
  for (const char* file : {"config.json", "model.safetensors", "preprocessor_config.json"}) {
    fs::copy_file(kGolden / "lmm" / name / file, out / file);
  }
  for (const char* file : {"tokenizer.json", "chat_template.jinja"}) {
    if (fs::exists(pair_of(name) / file)) fs::copy_file(pair_of(name) / file, out / file);
  }
  const bool qwen = name.starts_with("qwen");  // <|im_end|> ends answers
  put_file(out / "generation_config.json",
           qwen ? R"({"eos_token_id": [2, 95]})" : R"({"eos_token_id": 2})");
  return out;
}

struct Heard final : DescribeListener {
  std::map<std::string, std::string> texts;
  std::int64_t tokens = 0;
  void on_caption(Caption&& caption) override {
    EXPECT_FALSE(caption.failed) << format_error(caption.error);
    texts[caption.id] = caption.text;
    tokens += caption.tokens;
  }
};

DescribeOptions options_of(const std::string& model, const fs::path& projector,
                           std::optional<DType> storage) {
  DescribeOptions options;
  options.model = model;
  options.projector = projector.string();
  options.device = "cpu";
  options.threads = 1;
  options.max_tokens = 12;
  options.batch_size = 2;
  options.storage = storage;
  options.method = text_method("plain");
  return options;
}

Heard describe(const std::string& model, const fs::path& projector = {},
               std::optional<DType> storage = DType::kF32) {
  Runtime runtime;
  DescribeTask task(runtime, options_of(model, projector, storage));
  std::vector<DescribeRequest> requests;
  for (int number = 0; number < 2; ++number) {
    auto image = std::make_shared<Image>(30 + 10 * number, 24);
    for (std::size_t i = 0; i < image->rgb.size(); ++i) {
      image->rgb[i] = static_cast<std::uint8_t>(i * (3 + 4 * static_cast<std::size_t>(number)) / 5);
    }
    DescribeRequest& request = requests.emplace_back();
    request.id = std::to_string(number);
    request.images.emplace_back().image = std::move(image);
    request.prompt = "What is this?";
  }
  Heard heard;
  runtime.finish(task.submit(std::move(requests), heard));
  return heard;
}

std::string test_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
  return name;
}

class GgufPair : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufPair, WritesWhatItsFolderWrites) {
  const TempFolder scratch;
  const fs::path folder = folder_of(scratch, GetParam()), pair = pair_of(GetParam());
  const auto from_folder = CaptionModel::open(folder),
             from_pair = CaptionModel::open(pair / "model.gguf");
  const PreprocessPlan images[] = {plan_preprocess(from_folder->describe().policy, 30, 24)};
  const PreprocessPlan same[] = {plan_preprocess(from_pair->describe().policy, 30, 24)};
  EXPECT_EQ(from_pair->prompt_ids("What is this?", same),
            from_folder->prompt_ids("What is this?", images));
  const Heard wanted = describe(folder.string());
  ASSERT_EQ(wanted.texts.size(), 2u);
  if (GetParam() != std::string("smolvlm")) {
    EXPECT_NE(wanted.texts.at("0"), wanted.texts.at("1")) << "the images show";
  }
  const Heard found = describe((pair / "model.gguf").string());  // with the encoder next to it
  EXPECT_EQ(found.texts, wanted.texts);
  EXPECT_EQ(found.tokens, wanted.tokens);
  // Matrices are bf16, patches f32: each stays as it is.
  EXPECT_EQ(from_pair->stored(), DType::kFile);
}

INSTANTIATE_TEST_SUITE_P(All, GgufPair,
                         ::testing::Values("llava-1.5", "llava-next", "qwen2-vl", "qwen2.5-vl",
                                           "idefics3", "smolvlm"),
                         test_name);

TEST(GgufPairs, AStoreKnowsThePair) {
  const TempFolder store;
  const std::string digests[] = {std::string(64, 'a'), std::string(64, 'b')};
  const char* const files[] = {"model.gguf", "mmproj-model.gguf"};
  const char* const kinds[] = {"model", "projector"};
  std::string layers;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string bytes = get_file(pair_of("smolvlm") / files[i]);
    fs::create_directories(store / "blobs");
    put_file(store / "blobs" / ("sha256-" + digests[i]), bytes);
    layers += std::string(i == 0 ? "" : ",") + R"({"mediaType":"application/vnd.ollama.image.)" +
              kinds[i] + R"(","digest":"sha256:)" + digests[i] + R"(","size":)" +
              std::to_string(bytes.size()) + "}";
  }
  const fs::path at = store / "manifests" / "registry.ollama.ai" / "library" / "eyes";
  fs::create_directories(at);
  put_file(at / "latest", R"({"layers":[)" + layers + "]}");
  setenv("OLLAMA_MODELS", store.path().c_str(), 1);
  const FoundModel listed = describe_model(resolve_model("eyes"));
  EXPECT_EQ(listed.problem, "");
  EXPECT_TRUE(listed.describes && listed.texts);
  EXPECT_EQ(listed.family, "smolvlm");
  const Heard found = describe("eyes");
  unsetenv("OLLAMA_MODELS");
  EXPECT_EQ(found.texts, describe((pair_of("smolvlm") / "model.gguf").string()).texts);
}

// LLaVA's images are padded to a square where the file says nothing of their shape.
TEST(GgufPairs, LlavaPadsUnlessTheFileSaysSquare) {
  const auto square = CaptionModel::open(pair_of("llava-1.5") / "model.gguf");
  EXPECT_EQ(square->describe().policy.mode, ResizeMode::kShortestSide);
  const TempFolder scratch;
  std::string bytes = get_file(pair_of("llava-1.5") / "mmproj-model.gguf");
  const std::string key = gguf_key("clip.vision.image_aspect_ratio", 8, gguf_text("square"));
  const std::size_t place = bytes.find(key);
  ASSERT_NE(place, std::string::npos);
  bytes.replace(place, key.size(),
                gguf_key("general.aspect_ratio_of_others", 8, gguf_text("square")));
  put_file(scratch / "mmproj.gguf", bytes);
  const auto padded =
      CaptionModel::open(pair_of("llava-1.5") / "model.gguf", {}, scratch / "mmproj.gguf");
  EXPECT_EQ(padded->describe().policy.mode, ResizeMode::kPadToSquare);
  EXPECT_EQ(padded->describe().policy.background, (Rgb{122, 116, 104}));
  EXPECT_NE(model_digest(*padded), model_digest(*square));
}

// --- types of encoders ---------------------------------------------------------------------------

// The file with another type for its matrices, and f16 where rows are no whole blocks of it.
// Positions and vectors stay, as converters leave them.
fs::path rewritten(const fs::path& from, std::uint32_t type, const fs::path& to) {
  constexpr std::uint32_t kHalf = 1;
  const MappedFile file(from);
  const GgufFile gguf = parse_gguf(file.bytes(), from.string());
  GgufKeys keys;
  for (const auto& [name, value] : gguf.keys) keys.copy(name, value);
  std::vector<GgufPlanned> planned;
  for (const GgufTensor& tensor : gguf.tensors) {
    const bool kept = tensor.shape.rank() == 1 || tensor.name.find("position") != std::string::npos;
    const BlockType* own = kept ? tensor.type : find_block_type(type);
    if (!fits_gguf(tensor.shape, *own)) own = find_block_type(kHalf);
    planned.push_back({tensor.name, own, tensor.shape});
  }
  GgufWriter out(to, keys, planned);
  for (std::size_t i = 0; i < planned.size(); ++i) {
    std::vector<float> numbers(to_size(gguf.tensors[i].numbers()));
    read_gguf_tensor(gguf.tensors[i], file.bytes(), numbers.data());
    std::vector<std::byte> bytes(planned[i].bytes());
    block_writer (*planned[i].type)(numbers.data(), std::ssize(numbers) / planned[i].type->numbers,
                                    bytes.data());
    out.append(bytes);
  }
  out.publish();
  return to;
}

std::size_t tower_bytes(const fs::path& model, const fs::path& projector,
                        std::optional<DType> storage) {
  Runtime runtime;
  const DescribeTask task(runtime, options_of(model.string(), projector, storage));
  return task.plan("What is this?", {}).tower;
}

// The usual published encoder is f16, or Q8_0 where rows have whole blocks.
class GgufEncoderType : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufEncoderType, WritesWhatItsNumbersWrite) {
  constexpr std::uint32_t kSingle = 0, kHalf = 1, kEight = 8;
  const TempFolder scratch;
  const fs::path model = pair_of(GetParam()) / "model.gguf";
  const fs::path own = pair_of(GetParam()) / "mmproj-model.gguf";
  const fs::path half = rewritten(own, kHalf, scratch / "mmproj-half.gguf");
  const fs::path eight = rewritten(own, kEight, scratch / "mmproj-eight.gguf");
  EXPECT_LT(fs::file_size(half), fs::file_size(own));
  EXPECT_LT(fs::file_size(eight), fs::file_size(half));
  for (const fs::path& encoder : {half, eight}) {
    const fs::path same = rewritten(encoder, kSingle, scratch / "mmproj-same.gguf");
    const Heard wanted = describe(model.string(), same), found = describe(model.string(), encoder);
    EXPECT_EQ(found.texts, wanted.texts) << encoder;
    EXPECT_GT(found.tokens, 0);
    EXPECT_EQ(tower_bytes(model, encoder, DType::kF32), tower_bytes(model, same, DType::kF32));
    EXPECT_EQ(CaptionModel::open(model, {}, encoder)->stored(), DType::kFile);
  }
  // Kept as f16 where nothing else is asked for: the same numbers in about half of the memory.
  const fs::path wide = rewritten(half, kSingle, scratch / "mmproj-wide.gguf");
  EXPECT_EQ(describe(model.string(), half, std::nullopt).texts,
            describe(model.string(), wide, std::nullopt).texts);
  const std::size_t narrow = tower_bytes(model, half, std::nullopt);
  const std::size_t all = tower_bytes(model, wide, std::nullopt);
  EXPECT_GT(all, 0u);
  EXPECT_LT(narrow, all * 3 / 4);
  EXPECT_GT(describe(model.string(), eight, std::nullopt).tokens, 0);
  EXPECT_LE(tower_bytes(model, eight, std::nullopt), narrow);
}

INSTANTIATE_TEST_SUITE_P(All, GgufEncoderType,
                         ::testing::Values("llava-1.5", "llava-next", "qwen2.5-vl"), test_name);

// --- what is refused -----------------------------------------------------------------------------

ErrorInfo refusal_of(const fs::path& model, const fs::path& projector) {
  try {
    CaptionModel::open(model, {}, projector);
  } catch (const Error& error) {
    return error.info();
  }
  ADD_FAILURE() << model << " and " << projector << " were opened";
  return {};
}

void expect_refusal(const ErrorInfo& error, const char* code, const std::string& where,
                    const std::string& expected, const std::string& found) {
  EXPECT_EQ(error.code, code) << format_error(error);
  EXPECT_NE(error.where.find(where), std::string::npos) << format_error(error);
  EXPECT_NE(error.expected.find(expected), std::string::npos) << format_error(error);
  EXPECT_NE(error.found.find(found), std::string::npos) << format_error(error);
  EXPECT_FALSE(error.file.empty());
}

class GgufRefusal : public ::testing::Test {
 protected:
  // A copy of a pair's file with other bytes in place of some.
  fs::path patched(const std::string& name, const char* file, const std::string& from,
                   const std::string& to) const {
    std::string bytes = get_file(pair_of(name) / file);
    const std::size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos) << name;
    EXPECT_EQ(from.size(), to.size());
    bytes.replace(at, from.size(), to);
    put_file(scratch_ / file, bytes);
    return scratch_ / file;
  }
  fs::path model(const std::string& name) const { return pair_of(name) / "model.gguf"; }
  fs::path encoder(const std::string& name) const { return pair_of(name) / "mmproj-model.gguf"; }

  TempFolder scratch_;
};

TEST_F(GgufRefusal, FilesInEachOthersPlace) {
  expect_refusal(refusal_of(encoder("smolvlm"), model("smolvlm")), "E_GGUF_PAIR",
                 "general.architecture", "a language model", "clip");
  expect_refusal(refusal_of(model("smolvlm"), model("smolvlm")), "E_GGUF_PAIR",
                 "general.architecture", "clip", "llama");
}

TEST_F(GgufRefusal, ProjectorsOfOtherArchitecturesAndUnknownOnes) {
  expect_refusal(refusal_of(model("smolvlm"), encoder("qwen2-vl")), "E_GGUF_PAIR",
                 "clip.projector_type", "for llama", "qwen2vl_merger, which is for qwen2vl");
  const fs::path other =
      patched("smolvlm", "mmproj-model.gguf", gguf_text("idefics3"), gguf_text("internvl"));
  expect_refusal(refusal_of(model("smolvlm"), other), "E_GGUF_PAIR", "clip.projector_type",
                 "mlp, qwen2vl_merger, qwen2.5vl_merger, idefics3", "internvl");
}

TEST_F(GgufRefusal, OtherWidths) {
  const fs::path key = patched("smolvlm", "mmproj-model.gguf",
                               gguf_key("clip.vision.projection_dim", 4, gguf_number(32, 4)),
                               gguf_key("clip.vision.projection_dim", 4, gguf_number(48, 4)));
  expect_refusal(refusal_of(model("smolvlm"), key), "E_GGUF_PAIR", "clip.vision.projection_dim",
                 "32, as llama.embedding_length of", "48");
  const std::string name = gguf_text("mm.2.weight") + gguf_number(2, 4) + gguf_number(32, 8);
  const fs::path rows = patched("llava-1.5", "mmproj-model.gguf", name + gguf_number(32, 8),
                                name + gguf_number(16, 8));
  expect_refusal(refusal_of(model("llava-1.5"), rows), "E_GGUF_PAIR", "mm.2.weight",
                 "32, as llama.embedding_length of", "16");
}

TEST_F(GgufRefusal, LanguageModelsWithoutTheTokenOfImages) {
  const fs::path other = patched("qwen2.5-vl", "model.gguf", "<|image_pad|>", "<|imago_pad|>");
  expect_refusal(refusal_of(other, encoder("qwen2.5-vl")), "E_GGUF_PAIR", "clip.projector_type",
                 "<|image_pad|>", "none");
}

TEST_F(GgufRefusal, KeysAndTensorsThatNobodyKnows) {
  const fs::path key = patched("smolvlm", "mmproj-model.gguf", "clip.vision.preproc_image_size",
                               "clip.vision.preproc_imago_size");
  expect_refusal(refusal_of(model("smolvlm"), key), "E_GGUF_PAIR", "preproc_imago_size",
                 "known to change nothing", "this key");
  const fs::path tensor =
      patched("smolvlm", "mmproj-model.gguf", "v.blk.1.ln2.bias", "v.blk.1.lnx.bias");
  const ErrorInfo error = refusal_of(model("smolvlm"), tensor);
  expect_refusal(error, "E_TENSORS", "v.blk.1.ln2.bias", "image encoder", "1 surplus");
  EXPECT_EQ(error.file, tensor.string());
}

TEST_F(GgufRefusal, CutAndMissingEncoders) {
  const std::string whole = get_file(encoder("smolvlm"));
  for (const std::size_t share : {1, 20, 60, 99}) {
    const fs::path cut = scratch_ / "mmproj-cut.gguf";
    put_file(cut, whole.substr(0, whole.size() * share / 100));
    const ErrorInfo error = refusal_of(model("smolvlm"), cut);
    EXPECT_EQ(error.file, cut.string()) << format_error(error);
    EXPECT_EQ(error.kind, ErrorKind::kModel);
  }
  const ErrorInfo error = refusal_of(model("smolvlm"), scratch_ / "none.gguf");
  EXPECT_EQ(error.file, (scratch_ / "none.gguf").string()) << format_error(error);
}

// An encoder alone says what it is, whatever its name and whatever stands next to it.
TEST_F(GgufRefusal, EncodersWithoutModel) {
  for (const char* name : {"a.gguf", "mmproj-a.gguf"}) {
    fs::copy_file(encoder("smolvlm"), scratch_ / name);
    expect_refusal(refusal_of(scratch_ / name, {}), "E_GGUF_PAIR", "general.architecture",
                   "a language model", "clip");
  }
}

// Older converters of Qwen2-VL: a table of positions for readers that want one, and their own keys.
TEST_F(GgufRefusal, NotWhatOlderConvertersPutIn) {
  const MappedFile file(encoder("qwen2-vl"));
  const GgufFile gguf = parse_gguf(file.bytes(), "");
  GgufKeys keys;
  for (const auto& [name, value] : gguf.keys) keys.copy(name, value);
  keys.boolean("clip.has_qwen2vl_merger", true);
  std::vector<GgufPlanned> planned;
  for (const GgufTensor& tensor : gguf.tensors) {
    planned.push_back({tensor.name, tensor.type, tensor.shape});
  }
  planned.push_back({"v.position_embd.weight", find_block_type(0), Shape{10, 10}});
  GgufWriter out(scratch_ / "mmproj-older.gguf", keys, planned);
  for (const GgufTensor& tensor : gguf.tensors) {
    out.append(file.bytes().subspan(tensor.begin, tensor.end - tensor.begin));
  }
  out.append(std::vector<std::byte>(400));
  out.publish();
  const std::string path = model("qwen2-vl").string();
  EXPECT_EQ(describe(path, scratch_ / "mmproj-older.gguf").texts, describe(path).texts);
}

TEST_F(GgufRefusal, NoneOrSeveralNextToTheModel) {
  fs::copy_file(model("smolvlm"), scratch_ / "a.gguf");
  expect_refusal(refusal_of(scratch_ / "a.gguf", {}), "E_GGUF_PAIR", "image encoder",
                 "mmproj*.gguf", "0");
  for (const char* name : {"mmproj-f16.gguf", "mmproj-f32.gguf"}) {
    fs::copy_file(encoder("smolvlm"), scratch_ / name);
  }
  const ErrorInfo error = refusal_of(scratch_ / "a.gguf", {});
  expect_refusal(error, "E_GGUF_PAIR", "image encoder", "mmproj*.gguf", "mmproj-f32.gguf");
  EXPECT_NE(error.hint.find("--mmproj"), std::string::npos);
  EXPECT_NO_THROW(CaptionModel::open(scratch_ / "a.gguf", {}, scratch_ / "mmproj-f16.gguf"));
}

TEST_F(GgufRefusal, AnEncoderNextToAFolder) {
  const ErrorInfo error = refusal_of(folder_of(scratch_, "smolvlm"), encoder("smolvlm"));
  EXPECT_EQ(error.code, "E_FLAG_CONFLICT");
  EXPECT_EQ(error.kind, ErrorKind::kUsage);
}

}  // namespace
}  // namespace tessera::gguf_pair_test
