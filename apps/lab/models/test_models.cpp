// Models that exist only in memory.
#include "apps/lab/models/test_models.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "apps/lab/models/random_weights.h"
#include "engine/core/index.h"
#include "engine/core/json.h"
#include "engine/core/utf8.h"
#include "engine/families/family.h"
#include "engine/families/published_sizes.h"

namespace tessera {

namespace {

constexpr std::array<const char*, 8> kSpecials = {
    "<\xef\xbd\x9c"
    "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
    "<\xef\xbd\x9c"
    "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
    "<\xef\xbd\x9c\xe2\x96\x81pad\xe2\x96\x81\xef\xbd\x9c>",
    "<begin_of_image>",
    "<end_of_image>",
    "<image_placeholder>",
    "<|User|>",
    "<|Assistant|>"};
constexpr std::array<const char*, 7> kClipSpecials = {
    "<|extra_203|>",   "<|extra_204|>",   "<|extra_200|>", "<|extra_201|>",
    "<|image start|>", "<|image token|>", "<|image end|>"};
constexpr std::int64_t kTestVocab = 256 + std::ssize(kSpecials);

Json janus_config(const ModelConfig& text, std::int64_t vocab, std::int64_t max_positions,
                  const VqSpec& vq, std::int64_t grid) {
  return Json{{"model_type", "janus"},
              {"text_config",
               {{"hidden_size", text.width},
                {"intermediate_size", text.ffn_width},
                {"num_hidden_layers", text.layers},
                {"num_attention_heads", text.heads},
                {"num_key_value_heads", text.kv_heads},
                {"max_position_embeddings", max_positions},
                {"vocab_size", vocab}}},
              {"vision_config", nullptr},
              {"vq_config",
               {{"base_channels", vq.base_channels},
                {"channel_multiplier", vq.multipliers},
                {"num_res_blocks", vq.res_blocks},
                {"latent_channels", vq.latent_channels},
                {"embed_dim", vq.embed_dim},
                {"num_embeddings", vq.codes},
                {"num_patches", grid},
                {"projection_dim", text.width},
                {"image_token_embed_dim", text.width}}}};
}

Json tiny_config() {
  ModelConfig text;
  text.layers = 2;
  text.width = 64;
  text.heads = text.kv_heads = 4;
  text.ffn_width = 128;
  VqSpec vq;
  vq.base_channels = 32;
  vq.multipliers = {1, 1, 2};
  vq.res_blocks = 1;
  vq.latent_channels = 32;
  vq.codes = 64;
  return janus_config(text, kTestVocab, 1024, vq, 8);
}

Json null_config() {
  ModelConfig text;
  text.layers = 1;
  text.width = 8;
  text.heads = text.kv_heads = 1;
  text.ffn_width = 16;
  VqSpec vq;
  vq.base_channels = 32;
  vq.multipliers = {1, 1};
  vq.res_blocks = 1;
  vq.latent_channels = 4;
  vq.embed_dim = 4;
  vq.codes = 16;
  return janus_config(text, kTestVocab, 512, vq, 2);
}

struct VideoSize {
  std::int64_t layers, width, heads, kv_heads, ffn_width;
  std::int64_t codes, grid_rows, grid_cols, positions;
  std::vector<int> multipliers;  // of the video tokenizer's levels, each but the last halves frames
};

// The control ids are in the vocabulary either way.
Json video_config(const VideoSize& size, bool controls) {
  const std::int64_t first = 256 + std::ssize(kClipSpecials);
  Json map = Json::object();
  for (std::size_t i = 0; i < kClipSpecials.size(); ++i) map[kClipSpecials[i]] = 256 + i;
  for (std::int64_t code = 0; code < size.codes; ++code) {
    const std::string number = std::to_string(code);
    map["<|visual token " + std::string(6 - number.size(), '0') + number + "|>"] = first + code;
  }
  return Json{{"model_type", "emu3"},
              {"vocabulary_map", map},
              {"text_config",
               {{"model_type", "emu3_text_model"},
                {"hidden_size", size.width},
                {"intermediate_size", size.ffn_width},
                {"num_hidden_layers", size.layers},
                {"num_attention_heads", size.heads},
                {"num_key_value_heads", size.kv_heads},
                {"max_position_embeddings", size.positions},
                {"vocab_size", first + size.codes}}},
              {"vq_config",
               {{"codebook_size", size.codes},
                {"embed_dim", 4},
                {"latent_channels", 4},
                {"base_channels", 32},
                {"channel_multiplier", size.multipliers},
                {"num_res_blocks", 1},
                {"attn_resolutions", {size.multipliers.size() - 1}},
                {"hidden_size", 32 * size.multipliers.back()}}},
              {"clip_config",
               {{"grids", 4},
                {"grid_rows", size.grid_rows},
                {"grid_cols", size.grid_cols},
                {"fps", 8},
                {"row_tokens", controls},
                {"grid_tokens", controls},
                {"end_tokens", controls}}}};
}

Json video_config(bool controls) {
  return video_config({.layers = 2,
                      .width = 64,
                      .heads = 4,
                      .kv_heads = 2,
                      .ffn_width = 128,
                      .codes = 64,
                      .grid_rows = 4,
                      .grid_cols = 6,
                      .positions = 1024,
                      .multipliers = {1, 1, 2}},
                     controls);
}

Json cosmos_config(bool text) {
  return Json{{"dim", 64},
              {"n_layers", 2},
              {"n_heads", 4},
              {"n_kv_heads", 2},
              {"ffn_hidden_size", 96},
              {"vocab_size", 60},
              {"use_qk_normalization", true},
              {"insert_cross_attn", text},
              {"apply_abs_pos_emb", text},
              {"context_dim", 24},
              {"video_latent_shape", {3, 2, 3}},
              {"video_tokenizer",
               {{"channels", 8},
                {"channels_mult", {1, 2, 2}},
                {"num_res_blocks", 1},
                {"z_channels", 4},
                {"levels", {5, 4, 3}}}}};
}

// A row of a grid is a block; the video tokenizer is that of the video model.
Json nbp_config(bool hybrid) {
  constexpr std::int64_t kText = 256 + kClipSpecials.size();
  Json out = {{"model_type", "nbp"},
              {"n_layer", 2},
              {"n_embd", 64},
              {"n_head", 4},
              {"block_size", 512},
              {"token_number_per_step", 6},
              {"hybrid", hybrid},
              {"cond_vocab_size", hybrid ? kText : 0},
              {"codes", 64},
              {"vq_config", video_config(false)["vq_config"]},
              {"clip_config", {{"grids", 4}, {"grid_rows", 4}, {"grid_cols", 6}, {"fps", 8}}}};
  return out;
}

// Draws a tensor when it is asked for and frees it when it is packed.
class RandomSource : public TensorSource {
 public:
  RandomSource(std::string label, const std::vector<TensorSpec>& tensors, RandomWeightRule rule)
      : label_(std::move(label)), rule_(rule) {
    for (const TensorSpec& tensor : tensors) shapes_.emplace(tensor.name, tensor.shape);
  }

  ConstTensorView get(const std::string& name) override {
    const auto found = shapes_.find(name);
    expects(found != shapes_.end(), "the family lists every tensor it loads");
    Tensor& made = made_[name];
    made = random_weight(name, found->second, rule_);
    return made.view();
  }
  void done(const std::string& name) override { made_.erase(name); }
  std::string file_of(const std::string&) const override { return label_; }

 private:
  std::string label_;
  RandomWeightRule rule_;
  std::map<std::string, Shape> shapes_;
  std::map<std::string, Tensor> made_;
};

std::shared_ptr<const Checkpoint> draw_all(const std::string& label,
                                           const std::vector<TensorSpec>& list,
                                           const RandomWeightRule& rule) {
  std::map<std::string, Tensor> tensors;
  for (const TensorSpec& tensor : list) {
    tensors.emplace(tensor.name, random_weight(tensor.name, tensor.shape, rule));
  }
  return std::make_shared<const Checkpoint>(Checkpoint::from_tensors(label, std::move(tensors)));
}

// No config of the family speaks of control ids: they are added to what one says.
void add_control_ids(ModelSpec& spec) {
  const std::int64_t codes = spec.model.image_tokens();
  spec.model.row_end = spec.model.image_end = true;
  spec.model.transformer.rope.positions += spec.model.image_tokens() - codes;
  for (TensorSpec& tensor : spec.tensors) {
    if (tensor.name != spec.names.code_table) continue;
    tensor.shape = {spec.model.image_vocabulary(), tensor.shape[1]};
  }
}

struct TestModel {
  std::string_view name;  // after "test:"
  Json (*config)();
  bool control_ids = false;
};
constexpr TestModel kTestModels[] = {
    {"tiny", [] { return tiny_config(); }},
    {"rows", [] { return tiny_config(); }, true},
    {"null", [] { return null_config(); }},
    {"clip", [] { return video_config(false); }},
    {"clip-rows", [] { return video_config(true); }},
    {"cosmos", [] { return cosmos_config(false); }},
    {"cosmos-text", [] { return cosmos_config(true); }},
    {"nbp", [] { return nbp_config(true); }},
    {"nbp-frames", [] { return nbp_config(false); }},
};

const TestModel* find_test_model(std::string_view name) {
  const auto is = [&](const TestModel& model) { return model.name == name; };
  const auto at = std::find_if(std::begin(kTestModels), std::end(kTestModels), is);
  return at == std::end(kTestModels) ? nullptr : at;
}

OpenedModel make_test_model(const std::string& name, const TestModel& made) {
  OpenedModel model;
  model.spec = parse_family_config(made.config().dump(), name);
  model.spec.title = name;
  model.spec.size = made.name;
  model.spec.licence = "seeded random weights";
  if (made.control_ids) add_control_ids(model.spec);
  model.weights = draw_all(name, model.spec.tensors, {.seed = 7, .matrix_std = 0.0f});
  check_tensors(model.spec, *model.weights);
  model.vq_weights = model.weights;
  model.source = source_of(model.weights);
  if (model.spec.prompt.kind == PromptKind::kText) {
    model.tokenizer_json = model.spec.video ? test_clip_tokenizer_json() : test_tokenizer_json();
  }
  return model;
}

// --- published dimensions -----------------------------------------------------------------------

std::string random_llamagen(std::string_view size) {
  for (const PublishedSize& row : kLlamaGenSizes) {
    if (row.name != size) continue;
    return Json{{"model_type", "c2i"},
                {"dim", row.width},
                {"n_layer", row.layers},
                {"n_head", row.heads},
                {"block_size", 24 * 24}}
        .dump();
  }
  return {};
}

// LlamaGen's transformers and codes, a window of four grids of 16x16 codes, frames of 128x128.
std::string random_video(std::string_view size) {
  for (const PublishedSize& row : kLlamaGenSizes) {
    if (row.name != size || row.layers > 24 || row.width > 1024) continue;
    const std::int64_t ffn_width = (row.width * 8 / 3 + 255) / 256 * 256;
    return video_config({.layers = row.layers,
                        .width = row.width,
                        .heads = row.heads,
                        .kv_heads = row.heads,
                        .ffn_width = ffn_width,
                        .codes = 16384,
                        .grid_rows = 16,
                        .grid_cols = 16,
                        .positions = 2048,
                        .multipliers = {1, 1, 2, 2}},
                       /*controls=*/false)
        .dump();
  }
  return {};
}

std::string random_janus(std::string_view size) {
  for (const PublishedSize& row : kJanusSizes) {
    if (row.name != size) continue;
    ModelConfig text;
    text.layers = row.layers;
    text.width = row.width;
    text.heads = text.kv_heads = row.heads;
    text.ffn_width = row.width == 2048 ? 5632 : 11008;
    return janus_config(text, 102400, 16384, VqSpec{}, 24).dump();
  }
  return {};
}

struct RandomModel {
  std::string_view family;
  std::string (*config)(std::string_view size);  // none of another size
  std::string_view sizes;
};
constexpr RandomModel kRandomModels[] = {
    {"llamagen", random_llamagen, "B,L,XL,XXL,XXXL,1B,3B,7B"},
    {"clip", random_video, "B,L"},
    {"janus-pro", random_janus, "1B,7B"},
};

[[noreturn]] void refuse(const std::string& name) {
  std::string known;
  for (const TestModel& model : kTestModels) known += "test:" + std::string(model.name) + ", ";
  for (const RandomModel& model : kRandomModels) {
    known += &model == std::end(kRandomModels) - 1 ? "or " : "";
    known += "random:" + std::string(model.family) + ":{" + std::string(model.sizes) + "} ";
  }
  known.pop_back();
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_MODEL_MISSING",
               .file = name,
               .expected = known,
               .found = "no such model"});
}

std::string random_config(const std::string& name) {
  const std::string_view wanted = std::string_view(name).substr(7);
  const std::size_t colon = wanted.find(':');
  if (colon == std::string::npos) refuse(name);
  for (const RandomModel& model : kRandomModels) {
    if (model.family != wanted.substr(0, colon)) continue;
    std::string config = model.config(wanted.substr(colon + 1));
    if (!config.empty()) return config;
  }
  refuse(name);
}

OpenedModel make_random_model(const std::string& name, const FamilyOptions& options) {
  const std::string config = random_config(name);
  const RandomWeightRule rule{.seed = 1, .matrix_std = 0.02f};
  OpenedModel model;
  model.spec = parse_family_config(config, name, options);
  model.spec.title = name;
  model.spec.licence = "seeded random weights";
  model.source = std::make_unique<RandomSource>(name, model.spec.tensors, rule);
  model.vq_weights = draw_all(
      name, model.spec.movq ? movq_tensors(*model.spec.movq) : vq_tensors(model.spec.vq), rule);
  if (model.spec.prompt.kind == PromptKind::kText) {
    model.tokenizer_json = model.spec.video ? test_clip_tokenizer_json() : test_tokenizer_json();
  }
  return model;
}

// The byte of GPT-2's visible alphabet: printable Latin-1 stands for itself, the rest follows 255.
std::string visible_byte(int byte) {
  static const std::array<char32_t, 256> kTable = [] {
    std::array<char32_t, 256> table{};
    char32_t next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
      nth(table, b) = plain ? static_cast<char32_t>(b) : next++;
    }
    return table;
  }();
  std::string out;
  append_utf8(out, nth(kTable, byte));
  return out;
}

}  // namespace

bool is_made_up_model(std::string_view name) {
  return name.starts_with("test:") || name.starts_with("random:");
}

std::string test_model_config(std::string_view name) {
  const TestModel* model = find_test_model(name);
  expects(model != nullptr, "a test model's name");
  return model->config().dump();
}

OpenedModel make_up_model(const std::string& name, const FamilyOptions& options) {
  if (options.use == ModelUse::kDescribe) return make_up_captioner(name);
  if (name.starts_with("test:")) {
    const TestModel* model = find_test_model(std::string_view(name).substr(5));
    if (model != nullptr) return make_test_model(name, *model);
  }
  if (name.starts_with("random:")) return make_random_model(name, options);
  refuse(name);
}

namespace {

// `begins`: the first special token stands before every text.
std::string byte_tokenizer_json(std::span<const char* const> specials_list, bool begins) {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[visible_byte(byte)] = byte;
  Json added = Json::array();
  for (std::size_t i = 0; i < specials_list.size(); ++i) {
    added.push_back({{"id", 256 + i},
                     {"content", specials_list[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json bos = {{"SpecialToken", {{"id", specials_list[0]}, {"type_id", 0}}}};
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json second = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  Json specials = Json::object();
  specials[specials_list[0]] = {{"id", specials_list[0]},
                                {"ids", Json::array({256})},
                                {"tokens", Json::array({specials_list[0]})}};
  const Json begin = {{"type", "TemplateProcessing"},
                      {"single", Json::array({bos, text})},
                      {"pair", Json::array({bos, text, second})},
                      {"special_tokens", specials}};
  return Json{{"version", "1.0"},
              {"truncation", nullptr},
              {"padding", nullptr},
              {"added_tokens", added},
              {"normalizer", nullptr},
              {"pre_tokenizer", byte_level},
              {"post_processor", begins ? begin : Json()},
              {"decoder", byte_level},
              {"model",
               {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", false},
                {"vocab", vocab},
                {"merges", Json::array()}}}}
      .dump();
}

}  // namespace

std::string test_tokenizer_json() { return byte_tokenizer_json(kSpecials, true); }
std::string test_clip_tokenizer_json() { return byte_tokenizer_json(kClipSpecials, false); }

}  // namespace tessera
