// NBP (Ren et al. 2025, "Next block prediction"): a GPT with learned positions over one vocabulary
// of special tokens, condition tokens and image codes, which writes a row of 16 codes at a time.
// Published as Lightning checkpoints without a configuration, so sizes are read off shapes; a
// config.json of model_type "nbp" says them otherwise, and may come with a video tokenizer. The
// video tokenizer of the published models is not read, so that those are checked and looked at
// alone.
//
// Ids, as the authors' program lays them out: for models that begin by themselves (hybrid) the
// begin token and the placeholders of a first block, then the condition's vocabulary, then the
// codes; for models that go on from given frames the codes alone.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/io.h"
#include "engine/families/family.h"
#include "engine/families/published_sizes.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr const char* kTokens = "transformer.tok_emb.weight";
constexpr std::string_view kLayers = "transformer.blocks.";
constexpr std::int64_t kPublishedCodes = 64000, kPublishedBlock = 16;
constexpr std::int64_t kMaxSide = 16384, kMaxGrids = 4096;

[[noreturn]] void refuse(const std::string& file, std::string where, std::string expected,
                         std::string found, std::string hint = "") {
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_NBP_SHAPE",
               .file = file,
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

bool is_pickle(const fs::path& path) {
  return path.extension() == ".ckpt" || path.extension() == ".pt";
}

// The one file of weights: model.safetensors, or the one pickle of the folder.
fs::path find_weights(const ModelSource& source) {
  if (!source.file.empty()) return source.file;
  if (source.folder.empty()) return {};
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (file_exists(source.folder / name)) return source.folder;
  }
  const std::vector<fs::path> all = list_folder(source.folder);
  if (std::count_if(all.begin(), all.end(), is_pickle) != 1) return {};
  return *std::find_if(all.begin(), all.end(), is_pickle);
}

// --- sizes --------------------------------------------------------------------------------------

// Ids: special ones, conditions, codes.
void settle_vocabulary(BlockModelConfig& model) {
  const std::int64_t special = model.start == BlockStart::kHybrid ? model.block : 0;
  model.first_condition = special;
  model.first_code = special + model.conditions;
  model.vocabulary = model.first_code + model.codes;
}

void read_config(const JsonReader& config, ModelSpec& spec) {
  BlockModelConfig& model = *spec.blocks;
  model.layers = config.integer("n_layer", 1, 1024);
  model.width = config.integer("n_embd", 1, 65536);
  model.heads = config.integer("n_head", 1, 1024);
  if (model.width % model.heads != 0) {
    config.fail("n_head", "a divisor of " + std::to_string(model.width),
                std::to_string(model.heads));
  }
  model.positions = config.integer_or("block_size", 5120, 1, std::int64_t{1} << 24);
  model.block = config.integer_or("token_number_per_step", kPublishedBlock, 1, 65536);
  model.start = config.boolean_or("hybrid", false) ? BlockStart::kHybrid : BlockStart::kGiven;
  model.conditions = config.integer_or("cond_vocab_size", 0, 0, kMaxCodes);
  model.codes = config.integer_or("codes", kPublishedCodes, 1, kMaxCodes);
  settle_vocabulary(model);
  const JsonReader video = config.object("clip_config");
  spec.model.grids = video.integer("grids", 1, kMaxGrids);
  spec.model.grid_rows = video.integer("grid_rows", 1, kMaxSide);
  spec.model.grid_cols = video.integer("grid_cols", 1, kMaxSide);
  spec.video = VideoSpec{.rate = video.integer_or("fps", 8, 1, 1000),
                         .from_frames = model.start == BlockStart::kGiven};
  if (!config.has("vq_config")) return;
  spec.movq = parse_movq(config.object("vq_config"), MovqNames::kHfEmu3);
  spec.movq->frame.prefix = "model.vqmodel.";
  spec.vq = spec.movq->frame;
  spec.video->first_grid = spec.video->further_grid = spec.movq->frames();
  if (spec.vq.codes != model.codes) {
    config.fail("vq_config.codebook_size", std::to_string(model.codes) + " codes, as the model has",
                std::to_string(spec.vq.codes));
  }
}

const ConstTensorView& tensor(const Checkpoint& weights, const std::string& file,
                              const std::string& name, int rank) {
  const ConstTensorView* view = weights.find(name);
  if (view == nullptr) refuse(file, name, "this tensor", "nothing of that name");
  if (view->shape.rank() != rank) {
    refuse(file, name, "rank " + std::to_string(rank), view->shape.to_string());
  }
  return *view;
}

// A checkpoint without configuration: 17 frames of 128x128 pixels, five grids of 16x16 codes.
void read_shapes(const Checkpoint& weights, const std::string& file, ModelSpec& spec) {
  BlockModelConfig& model = *spec.blocks;
  const ConstTensorView& tokens = tensor(weights, file, kTokens, 2);
  model.width = tokens.shape[1];
  model.positions = tensor(weights, file, kNbpPositions, 3).shape[1];
  model.layers = layer_count(weights, kLayers);
  const auto row = std::find_if(kNbpSizes.begin(), kNbpSizes.end(), [&](const PublishedSize& size) {
    return size.layers == model.layers && size.width == model.width;
  });
  if (row == kNbpSizes.end()) {
    refuse(file, "", "a published size (base, xl, 3B)",
           std::to_string(model.layers) + " layers of width " + std::to_string(model.width),
           "put a config.json with n_layer, n_embd, n_head next to it");
  }
  model.heads = row->heads;
  model.block = kPublishedBlock;
  model.codes = kPublishedCodes;
  const std::int64_t others = tokens.shape[0] - model.codes;
  if (others != 0 && others <= model.block) {
    refuse(file, kTokens,
           "64000 rows, or more than " + std::to_string(model.codes + model.block) +
               " with special and condition tokens",
           std::to_string(tokens.shape[0]));
  }
  model.start = others == 0 ? BlockStart::kGiven : BlockStart::kHybrid;
  model.conditions = others == 0 ? 0 : others - model.block;
  settle_vocabulary(model);
  spec.model.grids = 5;
  spec.model.grid_rows = spec.model.grid_cols = 16;
  spec.video = VideoSpec{.rate = 8,
                         .first_grid = 1,
                         .further_grid = 4,
                         .from_frames = model.start == BlockStart::kGiven};
  spec.vq.multipliers = {1, 1, 1, 1};  // 8 pixels a code
  spec.vq.codes = model.codes;
}

// --- the spec -----------------------------------------------------------------------------------

void fill_model(ModelSpec& spec) {
  const BlockModelConfig& blocks = *spec.blocks;
  StreamModelConfig& model = spec.model;
  ModelConfig& sizes = model.transformer;
  sizes.layers = blocks.layers;
  sizes.width = blocks.width;
  sizes.heads = sizes.kv_heads = blocks.heads;
  sizes.head_dim = blocks.head_dim();
  sizes.ffn_width = 4 * blocks.width;
  sizes.norm_eps = blocks.norm_eps;
  sizes.rope.positions = blocks.positions;
  model.codes = blocks.codes;
  model.prompt_vocab = blocks.conditions;
  model.max_prompt =
      std::max<std::int64_t>(0, blocks.positions - blocks.cache_rows(0, model.image_tokens()));
}

void check_fit(const ModelSpec& spec, const std::string& file) {
  const BlockModelConfig& blocks = *spec.blocks;
  for (const std::int64_t side : {spec.image_height(), spec.image_width()}) {
    if (side <= kMaxSide) continue;
    refuse(file, "clip_config", "images of at most 16384 pixels a side", std::to_string(side));
  }
  if (spec.model.grid_rows * spec.model.grid_cols % blocks.block != 0) {
    refuse(file, "token_number_per_step", "a divisor of a grid's codes",
           std::to_string(blocks.block));
  }
  const std::int64_t least = blocks.conditions > 0 ? 4 : 0;  // tokens of a prompt
  const std::int64_t rows = blocks.cache_rows(least, spec.model.image_tokens());
  if (blocks.positions < rows) {
    refuse(file, "block_size", "at least " + std::to_string(rows) + " positions",
           std::to_string(blocks.positions));
  }
}

void fill_names(ModelSpec& spec) {
  WeightNames& names = spec.names;
  names.layer_prefix = std::string(kLayers) + "{}.";
  names.qkv = {"attn.query.weight", "attn.key.weight", "attn.value.weight"};
  names.qkv_bias = {"attn.query.bias", "attn.key.bias", "attn.value.bias"};
  names.out = "attn.proj.weight";
  names.gate_up = {"mlp.0.weight"};
  names.down = "mlp.2.weight";
  names.prompt_table = names.code_table = kTokens;
  names.head_out = "transformer.head";
  names.head_bias = false;
  names.head_rows = {{spec.blocks->first_code, spec.blocks->codes}};
  names.prompt_rows = {{spec.blocks->first_condition, spec.blocks->conditions}};
}

void list_tensors(ModelSpec& spec) {
  const BlockModelConfig& model = *spec.blocks;
  TensorList list;
  list.add(kTokens, {model.vocabulary, model.width});
  list.add(kNbpPositions, {1, model.positions, model.width});
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const std::string layer = layer_name(spec.names.layer_prefix, i);
    list.norm(layer + "ln1", model.width);
    for (const char* part : {"query", "key", "value", "proj"}) {
      list.linear(layer + "attn." + part, model.width, model.width);
    }
    list.norm(layer + "ln2", model.width);
    list.linear(layer + "mlp.0", 4 * model.width, model.width);
    list.linear(layer + "mlp.2", model.width, 4 * model.width);
    spec.ignored.push_back(layer + "attn.mask");
  }
  list.norm("transformer.ln_f", model.width);
  list.add("transformer.head.weight", {model.vocabulary, model.width});
  spec.tensors = list.take();
  // Training's own parts: the frozen tokenizer, the vector of a dropped condition.
  spec.ignored.insert(spec.ignored.end(), {"first_stage_model.*", "cond_stage_model.*",
                                           "transformer.uncond_embedding"});
  if (!spec.movq) return;
  for (TensorSpec& tensor : movq_tensors(*spec.movq)) spec.tensors.push_back(std::move(tensor));
  for (std::string& name : movq_counters(*spec.movq)) spec.ignored.push_back(std::move(name));
}

// A prompt is text in front of "<|image token|>", where there is a tokenizer for it.
void fill_prompt(const ModelSource& source, ModelSpec& spec) {
  const bool text = spec.blocks->conditions > 0 && spec.movq;
  spec.prompt.kind = spec.model.prompt = text ? PromptKind::kText : PromptKind::kFrames;
  if (!text) {
    spec.model.max_prompt = 0;
    return;
  }
  spec.prompt.forms = {{"", "", "<|image token|>"}};
  spec.prompt.begin_image_token = "<|image token|>";
  if (!source.folder.empty()) spec.tokenizer = source.folder / "tokenizer.json";
}

void fill_identity(ModelSpec& spec) {
  const ModelConfig& model = spec.model.transformer;
  spec.size = size_label(model);
  for (const PublishedSize& row : kNbpSizes) {
    if (row.layers == model.layers && row.width == model.width) spec.size = row.name;
  }
  spec.title = "NBP " + spec.size;
  spec.licence = "the folder's own licence file rules";
}

bool detect(const ModelSource& source) {
  if (source.config != nullptr) {
    const auto type = source.config->find("model_type");
    return type != source.config->end() && *type == "nbp";
  }
  if (source.config_only) return false;
  const fs::path path = find_weights(source);
  if (path.empty()) return false;
  const Checkpoint weights = Checkpoint::open(path);
  return weights.find(kTokens) != nullptr && weights.find(kNbpPositions) != nullptr;
}

ModelSpec parse(const ModelSource& source) {
  ModelSpec spec;
  spec.blocks.emplace();
  if (!source.config_only) {
    spec.weights = find_weights(source);
    if (spec.weights.empty()) {
      refuse(source.folder.string(), "", "model.safetensors, or one .ckpt or .pt",
             "none, or several");
    }
  }
  const std::string file = source.config != nullptr ? source.config_file : spec.weights.string();
  if (source.config != nullptr) {
    read_config(config_reader(source), spec);
  } else {
    read_shapes(Checkpoint::open(spec.weights), file, spec);
  }
  fill_model(spec);
  check_fit(spec, file);
  fill_names(spec);
  fill_prompt(source, spec);
  fill_identity(spec);
  read_sampling(source, {.guidance = 1.0, .temperature = 1.0, .top_k = 16000, .top_p = 0.9}, spec);
  list_tensors(spec);
  return spec;
}

}  // namespace

extern constinit const Family kNbpFamily = {.name = "nbp", .detect = detect, .parse = parse};

}  // namespace tessera
