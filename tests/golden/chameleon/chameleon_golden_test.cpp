// Parity of Chameleon and Lumina-mGPT with `transformers` (assets/recipes/fixtures_chameleon.py):
// hidden states and logits over a whole stream, the guided greedy stream, codes of an image and the
// decoded one; in the port's layout with norm rows of each head or of several, with the decoder in
// a file of its own or under older names, and in the authors' layout. That a tensor off by 1e-3 or
// swapped is noticed. And from a text to an image, by the folder's tokenizer.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/runtime/caption_model.h"
#include "apps/runtime/generate_task.h"
#include "engine/decoding/method_parts.h"
#include "engine/families/folder_files.h"
#include "tests/golden/chameleon/chameleon_folder.h"
#include "tests/support/chosen_backend.h"
#include "tests/support/stream_run.h"
#include "tokenizers/visual/vq_tokenizer.h"
#include "vision/image/preprocess.h"

namespace tessera::chameleon_golden_test {
namespace {

namespace fs = std::filesystem;
using Tensors = NamedTensors;

struct Branch {
  std::vector<std::vector<float>> layers;
  std::vector<float> final, logits;
};

class Fixture : public ChameleonRecord {
 public:
  using ChameleonRecord::ChameleonRecord;

  Backend& backend() const { return *backend_; }

  static Branch run(const StreamModel& model, const std::vector<std::int32_t>& prompt,
                    std::vector<std::int32_t> stream) {
    stream.pop_back();
    ModelRunner runner(model, 1, 64);
    Branch out;
    out.final = runner.forward({{0, joined(runner.prompt_rows(prompt), runner.token_rows(stream))}},
                               &out.layers);
    out.logits = runner.logits(out.final);
    return out;
  }

  // The recorded stream in local ids.
  static std::vector<std::int32_t> local(const StreamModelConfig& model,
                                         const std::vector<std::int32_t>& codes) {
    std::vector<std::int32_t> out = model.grammar().stream_of(codes);
    out.push_back(model.grammar().image_end_id());
    return out;
  }

  double worst(const StreamModel& model) const {
    const std::vector<std::int32_t> stream = local(model.config(), ints("codes"));
    double most = 0;
    for (const auto& [name, prompt] : {std::pair(std::string("cond"), ints("prompt")),
                                       std::pair(std::string("uncond"), ints("other"))}) {
      const Branch got = run(model, prompt, stream);
      most = std::max(most, relative_difference(got.layers.at(1), floats(name + ".hidden")));
      most = std::max(most, relative_difference(got.final, floats(name + ".final")));
      most = std::max(most, relative_difference(got.logits, floats(name + ".logits")));
    }
    return most;
  }

  std::vector<std::int32_t> generated(const StreamModel& model, const std::string& method_name,
                                      const std::string& stem, double guidance) const {
    DecodeAids aids;
    aids.grammar = model.config().grammar();
    const DecodeMethod method = settle_method(decode_method(method_name), aids, 8);
    const OwnedParts<float, KeyedRandom> parts(method, aids);
    StreamLoop loop(
        model, image_limits(model, {.prompt_rows = 96, .window = method.window, .dists = true}),
        parts.parts());
    Stream item;
    item.prompt.ids = ints(stem + "prompt");
    item.unconditional.ids = model.unconditional_prompt(item.prompt.ids, 0);
    EXPECT_EQ(item.unconditional.ids, ints(stem + "other"));
    item.dist.guidance = guidance;
    item.dist.temperature = 0;
    const auto results = run_streams(loop, {&item, 1});
    EXPECT_EQ(results[0].status, StreamStatus::kDone);
    return model.config().grammar().image_codes(results[0].tokens);
  }

  void expect_parity(OpenedModel& opened) const {
    const StreamModel model = load_stream_model(opened, *backend_, DType::kF32);
    EXPECT_LE(worst(model), 1e-5);
    EXPECT_EQ(generated(model, "plain", "", 3.0), ints("codes"));
    EXPECT_EQ(generated(model, "gumbel", "", 3.0), ints("codes"));
    expect_pixels(opened, "");
  }

  void expect_pixels(const OpenedModel& opened, const std::string& stem) const {
    const VqTokenizer vq(*backend_, opened.spec.vq, *opened.vq_weights, DType::kF32,
                         TokenizerHalves::kBoth);
    const Tensor image = vq.decode(ints(stem + "codes"), narrow<int>(opened.spec.model.grid_rows),
                                   narrow<int>(opened.spec.model.grid_cols));
    EXPECT_LE(relative_difference(floats_of(image.view()), floats(stem + "pixels")), 1e-5);
    if (!stem.empty()) return;
    const std::int64_t side = opened.spec.image_width();
    Tensor given = Tensor::host(DType::kF32, {side, side, 3});
    const std::vector<float> values = hashed_values("image", side * side * 3);
    std::copy(values.begin(), values.end(), given.f32());
    EXPECT_EQ(vq.encode(given.view()), ints("encoded"));
  }

 private:
  std::unique_ptr<Backend> backend_ = chosen_backend({.threads = 2});
};

class ChameleonGolden : public ::testing::TestWithParam<const char*> {
 protected:
  ChameleonGolden() : fixture_(GetParam()) {
    write_chameleon(folder_, GetParam(), chameleon_config(GetParam()));
  }

  TempFolder folder_;
  Fixture fixture_;
};

TEST_P(ChameleonGolden, PortEqualsTheReference) {
  OpenedModel opened = open_model(folder_.path().string());
  EXPECT_EQ(opened.spec.family, "chameleon");
  EXPECT_EQ(opened.spec.title, "Chameleon 2x32");
  EXPECT_EQ(opened.spec.model.image_tokens(), 26);
  EXPECT_EQ(opened.spec.model.max_prompt, 128 - 26);
  EXPECT_EQ(opened.spec.model.transformer.result_norms, std::string(GetParam()) == "swin");
  for (const std::string& line : opened.spec.account->warnings()) ADD_FAILURE() << line;
  fixture_.expect_parity(opened);
}

std::vector<std::string> loaded_names(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const auto& [name, view] : checkpoint.tensors()) {
    if (name.find("vqmodel") == std::string::npos) names.push_back(name);
  }
  return names;
}

TEST_P(ChameleonGolden, OneTensorOffByAThousandthIsNoticed) {
  const OpenedModel opened = open_model(folder_.path().string());
  const std::vector<std::string> names = loaded_names(*opened.weights);
  ASSERT_EQ(names.size(), 2u * 13 + 3);
  for (const std::string& name : names) {
    const StreamModel model = load_edited(opened.spec, *opened.weights, fixture_.backend(),
                                          [&](Tensors& tensors) { perturb(tensors.at(name)); });
    EXPECT_GT(fixture_.worst(model), 1e-5) << name;
  }
}

TEST_P(ChameleonGolden, TwoSwappedTensorsAreNoticed) {
  const OpenedModel opened = open_model(folder_.path().string());
  const std::vector<std::string> names = loaded_names(*opened.weights);
  int pairs = 0;
  for (std::size_t a = 0; a < names.size(); ++a) {
    for (std::size_t b = a + 1; b < names.size(); ++b) {
      if (opened.weights->find(names[a])->shape != opened.weights->find(names[b])->shape) continue;
      ++pairs;
      const StreamModel model = load_edited(
          opened.spec, *opened.weights, fixture_.backend(),
          [&](Tensors& tensors) { std::swap(tensors.at(names[a]), tensors.at(names[b])); });
      EXPECT_GT(fixture_.worst(model), 1e-5) << names[a] << " and " << names[b];
    }
  }
  EXPECT_GT(pairs, 20);
}

TEST_P(ChameleonGolden, ADecoderAmongTheWeightsIsTakenByItsOrderOfLevels) {
  const std::string config = chameleon_config(GetParam()).dump();
  fs::remove(folder_ / "vqgan.safetensors");
  for (const VqNames names : {VqNames::kTaming, VqNames::kHfJanus}) {
    Tensors all =
        copy_tensors(Checkpoint::open(chameleon_golden() / GetParam() / "language.safetensors"));
    all.merge(chameleon_tokenizer(config, names, "model.vqmodel."));
    write_tensors(folder_ / "model.safetensors", all);
    const OpenedModel opened = open_model(folder_.path().string());
    EXPECT_EQ(opened.spec.vq.names, names);
    fixture_.expect_pixels(opened, "");
  }
}

TEST_P(ChameleonGolden, WithoutADecoderTheFolderIsRefusedWithWhatWouldFit) {
  fs::remove(folder_ / "vqgan.safetensors");
  try {
    open_model(folder_.path().string());
    FAIL() << "codes without a way to pixels";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_CHAMELEON_DECODER");
    EXPECT_NE(error.info().expected.find("vqgan.ckpt"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ChameleonGolden, ::testing::Values("plain", "swin"),
                         [](const auto& model) { return std::string(model.param); });

// Every second row of norms, each for two heads, as files of before 2024-07 have them.
void halve_norms(Tensors& tensors) {
  for (auto& [name, tensor] : tensors) {
    if (name.find("_norm.") == std::string::npos || name.find("self_attn") == std::string::npos) {
      continue;
    }
    const Tensor numbers = widened(tensor.view());
    Tensor half = Tensor::host(DType::kF32, {2, 8});
    for (int row = 0; row < 2; ++row) {
      std::copy_n(numbers.f32() + row * 16, 8, half.f32() + row * 8);
    }
    tensor = std::move(half);
  }
}

TEST(ChameleonLayouts, ARowOfNormsMayBeForSeveralHeads) {
  const TempFolder folder;
  write_chameleon(folder, "swin", chameleon_config("swin"));
  Tensors all = copy_tensors(Checkpoint::open(folder / "model.safetensors"));
  halve_norms(all);
  write_tensors(folder / "model.safetensors", all);
  OpenedModel opened = open_model(folder.path().string());
  Fixture("swin").expect_parity(opened);
}

TEST(ChameleonLayouts, RowsThatDoNotDivideTheHeadsAreRefused) {
  const TempFolder folder;
  write_chameleon(folder, "swin", chameleon_config("swin"));
  Tensors all = copy_tensors(Checkpoint::open(folder / "model.safetensors"));
  all.at("model.layers.0.self_attn.k_norm.weight") = Tensor::host(DType::kF32, {3, 8});
  write_tensors(folder / "model.safetensors", all);
  try {
    open_model(folder.path().string());
    FAIL() << "three rows for four heads";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_CHAMELEON_NORM");
    EXPECT_EQ(error.info().where, "model.layers.0.self_attn.k_norm.weight");
  }
}

// As released: data/models/7b next to data/tokenizer.
struct Release {
  TempFolder root;
  fs::path model() const { return root.path() / "models" / "7b"; }
  fs::path tokenizer() const { return root.path() / "tokenizer"; }
};

void write_release(const Release& release) {
  fs::create_directories(release.model());
  fs::create_directories(release.tokenizer());
  for (const char* name : {"consolidated.pth", "params.json"}) {
    put_file(release.model() / name, get_file(chameleon_golden() / "authors" / name));
  }
  write_tensors(release.tokenizer() / "vqgan.safetensors",
                chameleon_tokenizer(chameleon_config("swin").dump(), VqNames::kTaming, ""));
  Json text = parse_json(get_file(chameleon_golden() / "swin" / "tokenizer.json"), "tokenizer");
  text["post_processor"] = nullptr;  // theirs adds no begin
  put_file(release.tokenizer() / "text_tokenizer.json", text.dump());
}

TEST(ChameleonLayouts, TheAuthorsFilesEqualTheReference) {
  const Release release;
  write_release(release);
  const Fixture swin("swin"), authors("authors");
  OpenedModel opened = open_model(release.model().string(), {.width = 20, .height = 20});
  EXPECT_EQ(opened.spec.family, "chameleon");
  EXPECT_EQ(opened.spec.model.transformer.rope.pairing, RopePairing::kInterleaved);
  EXPECT_EQ(opened.spec.tokenizer.filename(), "text_tokenizer.json");
  swin.expect_pixels(opened, "");
  const StreamModel model = load_stream_model(opened, authors.backend(), DType::kF32);
  const Branch got = Fixture::run(model, authors.ints("prompt"),
                                  Fixture::local(model.config(), swin.ints("codes")));
  const std::vector<float> want = authors.floats("logits");  // of the last positions
  EXPECT_LE(relative_difference({got.logits.end() - std::ssize(want), got.logits.end()}, want),
            1e-5);
}

TEST(ChameleonLayouts, KeysOfTheAuthorsFilesAreAccountedForOrRefused) {
  const Release release;
  write_release(release);
  const ModelSpec spec = load_model_spec(release.model(), {.width = 20, .height = 20});
  EXPECT_EQ(spec.image_width(), 20);
  const auto use_of = [&](std::string_view key) {
    for (const KeyAccount& row : spec.account->keys) {
      if (row.file == "params.json" && row.key == key) return row.use;
    }
    return KeyUse::kUnknown;
  };
  EXPECT_EQ(use_of("qk_normalization"), KeyUse::kUsed);
  EXPECT_EQ(use_of("seed"), KeyUse::kWithoutEffect);
  put_file(release.model() / "consolidate_params.json", R"({"model_parallel_size": 4})");
  try {
    load_model_spec(release.model());
    FAIL() << "a quarter of a model was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().where, "model_parallel_size");
    EXPECT_EQ(error.info().found, "4");
  }
}

// Rows [first, first + count) of `axis`.
Tensor part_of(const Tensor& whole, int axis, std::int64_t first, std::int64_t count) {
  const Tensor numbers = widened(whole.view());
  Shape shape = whole.shape();
  const std::int64_t columns = shape[1];
  Tensor out = Tensor::host(DType::kF32, axis == 0 ? Shape{count, columns} : Shape{shape[0], count});
  float* to = out.f32();
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    if (axis == 0 && (row < first || row >= first + count)) continue;
    const std::int64_t begin = axis == 0 ? 0 : first, width = axis == 0 ? columns : count;
    to = std::copy_n(numbers.f32() + row * columns + begin, width, to);
  }
  return out;
}

// consolidated.00 to .03: heads, shares of the feed-forward width and of the head's rows, columns of
// the table; the rest in each.
Tensors cut_into_four(const Tensors& whole, std::int64_t part) {
  Tensors out;
  for (const auto& [name, tensor] : whole) {
    const auto ends = [&](std::initializer_list<std::string_view> list) {
      return std::ranges::any_of(list, [&](std::string_view end) { return name.ends_with(end); });
    };
    const int axis = ends({"tok_embeddings.weight", "wo.weight", "w2.weight"}) ? 1
                     : ends({"wq.weight", "wk.weight", "wv.weight", "w1.weight", "w3.weight",
                             "output.weight"})
                         ? 0
                         : -1;
    const std::int64_t count = axis < 0 ? 0 : tensor.shape()[axis] / 4;
    out.emplace(name, axis < 0 ? widened(tensor.view())
                               : part_of(tensor, axis, part * count, count));
  }
  return out;
}

struct FourParts {
  FourParts() {
    write_release(release);
    whole = copy_tensors(Checkpoint::open(release.model() / "consolidated.pth"));
    put_file(release.model() / "consolidate_params.json", R"({"model_parallel_size": 4})");
    fs::remove(release.model() / "consolidated.pth");
    for (std::int64_t part = 0; part < 4; ++part) write(part, cut_into_four(whole, part));
  }
  fs::path file(std::int64_t part) const {
    return release.model() / ("consolidated.0" + std::to_string(part) + ".safetensors");
  }
  void write(std::int64_t part, const Tensors& tensors) const { write_tensors(file(part), tensors); }
  std::string refusal() const {
    try {
      open_model(release.model().string(), {.width = 20, .height = 20});
    } catch (const Error& error) {
      return error.info().code + " " + error.info().where;
    }
    return "taken";
  }

  Release release;
  Tensors whole;
};

TEST(ChameleonParts, AModelInFourFilesHasTheBitsOfOneInOne) {
  const FourParts four;
  const Release one;
  write_release(one);
  const Fixture authors("authors"), swin("swin");
  std::vector<Branch> got;
  for (const Release* release : {&four.release, &one}) {
    OpenedModel opened = open_model(release->model().string(), {.width = 20, .height = 20});
    for (const std::string& line : opened.spec.account->warnings()) ADD_FAILURE() << line;
    const StreamModel model = load_stream_model(opened, authors.backend(), DType::kF32);
    got.push_back(Fixture::run(model, authors.ints("prompt"),
                               Fixture::local(model.config(), swin.ints("codes"))));
  }
  EXPECT_EQ(got[0].logits, got[1].logits);
  EXPECT_EQ(got[0].layers, got[1].layers);
}

// Each part's heads have its norms.
TEST(ChameleonParts, NormsOfHeadsAreOfEachFile) {
  const FourParts four;
  const char* const name = "layers.1.attention.k_normalization.weight";
  Tensors third = cut_into_four(four.whole, 2);
  third.at(name).f32()[1] += 0.5f;
  four.write(2, third);
  const OpenedModel opened = open_model(four.release.model().string(), {.width = 20, .height = 20});
  const ConstTensorView rows = *opened.weights->find(name);
  ASSERT_EQ(rows.shape, Shape({4, 8}));
  for (std::int64_t row = 0; row < 4; ++row) {
    const float usual = cut_into_four(four.whole, 0).at(name).f32()[1];
    EXPECT_EQ(rows.f32()[row * 8 + 1], usual + (row == 2 ? 0.5f : 0.0f));
  }
}

TEST(ChameleonParts, FilesThatAreNotOfOneModelAreRefused) {
  const FourParts four;
  EXPECT_EQ(four.refusal(), "taken");
  Tensors last = cut_into_four(four.whole, 3);
  last.at("norm.weight").f32()[0] += 1;
  four.write(3, last);
  EXPECT_EQ(four.refusal(), "E_CKPT_PARTS tensor \"norm.weight\"");
  last = cut_into_four(four.whole, 3);
  last.erase("output.weight");
  four.write(3, last);
  EXPECT_EQ(four.refusal().substr(0, 12), "E_CKPT_PARTS");
  last = cut_into_four(four.whole, 3);
  last.at("output.weight") = Tensor::host(DType::kF32, {31, 32});
  four.write(3, last);
  EXPECT_EQ(four.refusal(), "E_CKPT_PARTS tensor \"output.weight\"");
  fs::remove(four.file(3));
  EXPECT_EQ(four.refusal(), "E_JSON_VALUE model_parallel_size");
}

Json lumina_config() {
  Json config = chameleon_config("plain");
  config["architectures"] = {"ChameleonXLLMXForConditionalGeneration"};
  config["mask_image_logits"] = false;
  config["z_loss_weight"] = 1e-5;
  return config;
}

TEST(LuminaGolden, AStreamWithSizesAndRowEndsEqualsTheReference) {
  const TempFolder folder;
  write_chameleon(folder, "plain", lumina_config());
  const Fixture fixture("plain");
  OpenedModel opened = open_model(folder.path().string(), {.width = 12, .height = 8});
  const ModelSpec& spec = opened.spec;
  EXPECT_EQ(spec.title, "Lumina-mGPT 2x32");
  EXPECT_EQ(spec.model.grid_cols, 6);
  EXPECT_EQ(spec.model.grid_rows, 4);
  EXPECT_EQ(spec.model.image_tokens(), 4 * 7 + 1);
  EXPECT_EQ(spec.sampling.top_k, 2000);
  for (const std::string& line : spec.account->warnings()) ADD_FAILURE() << line;
  const StreamModel model = load_stream_model(opened, fixture.backend(), DType::kF32);
  EXPECT_EQ(fixture.generated(model, "plain", "lumina.", 4.0), fixture.ints("lumina.codes"));
  EXPECT_EQ(fixture.generated(model, "gumbel", "lumina.", 4.0), fixture.ints("lumina.codes"));
  fixture.expect_pixels(opened, "lumina.");
}

TEST(LuminaGolden, SizesWithoutATokenOrRoomAreRefusedBeforeWeightsAreRead) {
  const std::string config = lumina_config().dump();
  const ModelSpec usual = parse_family_config(config, "c");
  EXPECT_EQ(usual.image_width(), 12);  // the largest square that leaves a prompt its room
  EXPECT_EQ(usual.image_height(), 12);
  EXPECT_EQ(parse_family_config(config, "c", {.width = 16, .height = 4}).model.grid_cols, 8);
  for (const auto& [width, height] : {std::pair{13, 12}, {16, 16}, {20, 8}, {0, 40}, {2, 2}}) {
    try {
      parse_family_config(config, "c", {.width = width, .height = height});
      ADD_FAILURE() << width << "x" << height;
    } catch (const Error& error) {
      EXPECT_EQ(error.info().code, "E_GEOMETRY");
      EXPECT_EQ(error.info().hint, "for instance --size 12x12");
    }
  }
}

// Cells of 4 pixels, 9 of them at most; the authors' code draws the place of the cut, which is in the
// middle here (assets/recipes/check_authors_lumina.py compares texts with theirs).
TEST(LuminaGolden, AnImageIsSeenInItsAspectWithSizesAndRowEnds) {
  const TempFolder folder;
  Json config = lumina_config();
  config.erase("image_token_id");
  write_chameleon(folder, "plain", config);
  fs::remove(folder / "processor_config.json");
  const std::unique_ptr<CaptionModel> model = CaptionModel::open(folder.path());
  EXPECT_EQ(model->describe().title, "Lumina-mGPT 2x32");
  for (const std::string& line : model->describe().account->warnings()) ADD_FAILURE() << line;
  const auto id = [&](const char* token) { return *model->tokenizer().id_of(token); };
  DecodedImage picture(41, 20, 3, "PNG");
  for (std::size_t i = 0; i < picture.pixels.size(); ++i) {
    picture.pixels[i] = static_cast<std::uint8_t>(i * 11 % 253);
  }
  const PreprocessedImage image = preprocess(model->describe().policy, picture);
  EXPECT_EQ(image.plan.view_width, 16);
  EXPECT_EQ(image.plan.view_height, 8);
  EXPECT_EQ(image.plan.halvings, 1);
  EXPECT_EQ(image.plan.tokens, 4 * 9);
  std::vector<std::int32_t> want = {id("<s>"), id("<racm3:break>"), id("<reserved08802>"),
                                    id("<reserved08804>")};
  want.insert(want.end(), 36, model->describe().image_id);
  for (const char* token : {"<eoss>", "\u0120", "a", "\u0120", "b", "<reserved08706>"}) {
    want.push_back(id(token));
  }
  EXPECT_EQ(model->prompt_ids("a b", {&image.plan, 1}), want);
  EXPECT_EQ(model->describe().stops.back(), id("<reserved08706>"));
  const auto backend = chosen_backend({.threads = 2});
  model->load(*backend, DType::kF32);
  const std::vector<std::int32_t> ids = model->images().ids(image);
  ASSERT_EQ(ids.size(), 36u);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(ids[i] == id("<reserved08799>"), i % 9 == 8) << i;
  }
  const VisualRows rows = model->images().encode(image, false, nullptr);
  Tensor table = Tensor::host(DType::kF32, {36, model->text().width()});
  model->text().embed_prompt(ids, table.view());
  EXPECT_EQ(rows.rows, floats_of(table.view()));
}

struct Kept final : GenerateListener {
  GeneratedImage image;
  void on_image(GeneratedImage&& done) override { image = std::move(done); }
};

void expect_image(const fs::path& model, std::int64_t width, std::int64_t height,
                  const std::string& stem, const Fixture& fixture) {
  GenerateOptions options;
  options.model = model.string();
  options.device = "cpu";
  options.threads = 1;
  options.storage = DType::kF32;
  options.width = width;
  options.height = height;
  Runtime runtime;
  GenerateTask task(runtime, options);
  GenerateRequest request{.prompt = "a red cube"};
  request.sampling.set(setting::kTemperature, 0.0);
  const PreparedRequest prepared = task.prepare(request);
  EXPECT_EQ(prepared.item.prompt.ids, fixture.ints(stem + "prompt"));
  EXPECT_EQ(prepared.item.unconditional.ids, fixture.ints(stem + "other"));
  Kept kept;
  ASSERT_TRUE(task.run({prepared}, kept));
  EXPECT_EQ(kept.image.codes, fixture.ints(stem + "codes"));
  EXPECT_EQ(kept.image.image.width, width);
  EXPECT_EQ(kept.image.image.height, height);
}

TEST(ChameleonTask, ATextBecomesTheImageOfTheReference) {
  for (const std::string name : {"plain", "swin"}) {
    const TempFolder folder;
    write_chameleon(folder, name, chameleon_config(name));
    const std::int64_t side = name == "plain" ? 10 : 20;
    expect_image(folder.path(), side, side, "", Fixture(name));
  }
  const TempFolder folder;
  write_chameleon(folder, "plain", lumina_config());
  expect_image(folder.path(), 12, 8, "lumina.", Fixture("plain"));
}

TEST(ChameleonTask, PromptsOfTheAuthorsTokenizerBeginAlike) {
  const Release release;
  write_release(release);
  GenerateOptions options;
  options.model = release.model().string();
  options.device = "cpu";
  options.width = options.height = 20;
  Runtime runtime;
  GenerateTask task(runtime, options);
  EXPECT_EQ(task.prepare({.prompt = "a red cube"}).item.prompt.ids,
            Fixture("authors").ints("prompt"));
}

}  // namespace
}  // namespace tessera::chameleon_golden_test
