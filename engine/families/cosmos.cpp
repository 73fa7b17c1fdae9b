// Cosmos autoregressive models (NVIDIA 2025): 4B and 12B go on with a video's first frames; 5B and
// 13B read a text next to them. A Llama over the codes of videos with RMSNorm of queries and keys
// and 3-D rotary places; YaRN on each axis (12B, 13B), sine and cosine of the places added before
// every layer and attention to a text encoder's rows in every layer (5B, 13B), which also have one
// token before the stream. Published as model.pt; the video tokenizer is a folder of its own.
//
// config.json has the fields of the authors' ModelConfig. What it lacks is read off the shapes of
// the weights, or is as the authors' inference code sets it.
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/families/family.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxSide = 16384;  // pixels
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 24;
constexpr const char* kTable = "tok_embeddings.weight";
constexpr const char* kQNorm = "layers.0.attention.q_norm.weight";
constexpr const char* kTokenizerPrefix = "tokenizer.";  // where it is in the same file
constexpr const char* kTokenizerProbe = "decoder.conv_in.0.conv3d.weight";
constexpr std::array<const char*, 4> kTokenizerFolders = {
    "tokenizer", "Cosmos-Tokenize1-DV8x16x16-720p", "Cosmos-1.0-Tokenizer-DV8x16x16",
    "Cosmos-0.1-Tokenizer-DV8x16x16"};

struct Geometry {
  ModelConfig model;
  std::int64_t codes = 0;
  std::int64_t table_rows = 0;            // codes, and more where a token stands before the stream
  bool begins = false;                    // it does
  std::array<std::int64_t, 3> grid = {};  // grids, rows, columns
  std::string root;                       // before every name
};

[[noreturn]] void refuse(const std::string& file, const std::string& where, std::string expected,
                         std::string found, std::string hint = "") {
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_COSMOS_SHAPE",
               .file = file,
               .where = where,
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

// --- files --------------------------------------------------------------------------------------

fs::path find_weights(const fs::path& folder) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (file_exists(folder / name)) return folder;
  }
  const fs::path pickle = folder / "model.pt";
  return file_exists(pickle) ? pickle : fs::path();
}

fs::path weights_of(const ModelSource& source) {
  return source.file.empty() ? find_weights(source.folder) : source.file;
}

// Weights in a tokenizer's folder.
fs::path weights_in(const fs::path& folder) {
  if (file_exists(folder / "model.safetensors")) return folder;
  for (const char* name : {"model.pt", "tokenizer.pt"}) {
    if (file_exists(folder / name)) return folder / name;
  }
  return {};
}

// The tokenizer is published as TorchScript programs alone.
fs::path find_tokenizer(const ModelSource& source) {
  std::string found = "neither";
  for (const fs::path& parent : {source.folder, source.folder / ".."}) {
    for (const char* name : kTokenizerFolders) {
      const fs::path folder = parent / name;
      if (const fs::path weights = weights_in(folder); !weights.empty()) return weights;
      for (const char* program : {"autoencoder.jit", "ema.jit", "encoder.jit"}) {
        if (file_exists(folder / program))
          found = "only the TorchScript program " + (folder / program).string();
      }
    }
  }
  throw Error(
      {.kind = ErrorKind::kModel,
       .code = "E_COSMOS_TOKENIZER",
       .file = source.folder.string(),
       .where = "video tokenizer",
       .expected = "the state dict of DV8x16x16 as model.safetensors or model.pt in a folder "
                   "tokenizer/ inside, or in " +
                   std::string(kTokenizerFolders[1]) + " next to this one",
       .found = found,
       .hint = "load autoencoder.jit (or ema.jit) in PyTorch and save its state_dict()"});
}

// --- geometry -----------------------------------------------------------------------------------

// What the file says of itself; a file of unknown names says nothing.
class Shapes {
 public:
  Shapes(const Checkpoint* weights, std::string root) : weights_(weights), root_(std::move(root)) {}

  bool has(const std::string& name) const { return view(name) != nullptr; }
  // Along an axis of a tensor, or `otherwise`.
  std::int64_t extent(const std::string& name, int axis, std::int64_t otherwise) const {
    const ConstTensorView* found = view(name);
    return found != nullptr && found->shape.rank() > axis ? found->shape[axis] : otherwise;
  }
  std::int64_t layers(std::int64_t otherwise) const {
    return weights_ == nullptr ? otherwise : layer_count(*weights_, root_ + "layers.");
  }

 private:
  const ConstTensorView* view(const std::string& name) const {
    return weights_ == nullptr ? nullptr : weights_->find(root_ + name);
  }
  const Checkpoint* weights_;
  std::string root_;
};

void read_sizes(const JsonReader& config, const Shapes& shapes, Geometry& g) {
  ModelConfig& model = g.model;
  model.width = config.integer_or("dim", shapes.extent(kTable, 1, 4096), 1, 65536);
  model.layers = config.integer_or("n_layers", shapes.layers(32), 1, 1024);
  const std::int64_t norm = shapes.extent(kQNorm, 0, 0);
  const std::int64_t heads =
      norm > 0 ? shapes.extent("layers.0.attention.wq.weight", 0, 32 * norm) / norm : 32;
  model.heads = config.integer_or("n_heads", heads, 1, 1024);
  const std::int64_t kv =
      norm > 0 ? shapes.extent("layers.0.attention.wk.weight", 0, 8 * norm) / norm : 8;
  model.kv_heads = config.integer_or("n_kv_heads", kv, 1, 1024);
  if (model.heads % model.kv_heads != 0) {
    config.fail("n_kv_heads", "a divisor of " + std::to_string(model.heads),
                std::to_string(model.kv_heads));
  }
  const std::int64_t widest = std::min<std::int64_t>(4096, (std::int64_t{1} << 18) / model.heads);
  const std::int64_t head = norm > 0 ? norm : model.width / model.heads;
  model.head_dim = config.integer_or("head_dim", head, 6, widest);
  if (model.head_dim < 6 || model.head_dim > widest || model.head_dim % 2 != 0) {
    config.fail("head_dim", "an even number from 6 to " + std::to_string(widest),
                std::to_string(model.head_dim));
  }
  model.ffn_width = config.integer_or("ffn_hidden_size",
                                      shapes.extent("layers.0.feed_forward.w1.weight", 0, 14336), 1,
                                      std::int64_t{1} << 20);
  model.norm_eps = to_float(config.number_or("norm_eps", 1e-5, 1e-12, 0.1));
  g.codes = config.integer_or("vocab_size", shapes.extent("output.weight", 0, 64000), 1, kMaxCodes);
}

void read_kind(const JsonReader& config, const Shapes& shapes, Geometry& g) {
  const std::string norm = config.string_or("norm_type", "rmsnorm");
  if (norm != "rmsnorm" && norm != "fused_rmsnorm") config.fail("norm_type", "\"rmsnorm\"", norm);
  if (!config.boolean_or("causal_mask", true)) config.fail("causal_mask", "true", "false");
  g.model.qk_norm = config.boolean_or("use_qk_normalization", true);
  g.model.qk_norm_eps = 1e-5f;  // the authors' attention has its own, whatever norm_eps says
  const bool cross =
      config.boolean_or("insert_cross_attn", shapes.has("layers.0.cross_attention.wq.weight"));
  if (cross) {
    g.model.context_width = config.integer_or("context_dim", 1024, 1, 65536);
    const std::int64_t every = config.integer_or("insert_cross_attn_every_k_layers", 1, 1, 1024);
    if (every != 1) {
      config.fail("insert_cross_attn_every_k_layers", "1 (every layer)", std::to_string(every));
    }
  }
  g.model.added_places = config.boolean_or("apply_abs_pos_emb", cross);
  if (g.model.added_places && (g.model.width < 6 || g.model.width % 2 != 0)) {
    config.fail("dim", "an even width of at least 6, for places that are added",
                std::to_string(g.model.width));
  }
  // Models that read a text are trained with one token before the stream; only their table has it.
  g.begins = cross;
  const std::int64_t with_token = (g.codes + 1 + 63) / 64 * 64;
  g.table_rows = shapes.extent(kTable, 0, g.begins ? with_token : g.codes);
}

// The video's grids, told or counted from its frames.
void read_grid(const JsonReader& config, const FsqVideoSpec& fsq, Geometry& g) {
  if (config.has("video_latent_shape")) {
    const auto shape = config.integers("video_latent_shape", 1, kMaxSide, 3);
    if (shape.size() != 3) {
      config.fail("video_latent_shape", "grids, rows and columns",
                  std::to_string(shape.size()) + " numbers");
    }
    std::copy(shape.begin(), shape.end(), g.grid.begin());
  } else {
    const std::int64_t frames = config.integer_or("num_video_frames", 33, 1, 65536);
    const std::int64_t height = config.integer_or("video_height", 640, 1, kMaxSide);
    const std::int64_t width = config.integer_or("video_width", 1024, 1, kMaxSide);
    g.grid = {1 + (frames - 1) / fsq.temporal, height / fsq.spatial, width / fsq.spatial};
  }
  const std::array<const char*, 2> keys = {"video_height", "video_width"};
  for (std::size_t axis = 0; axis < 2; ++axis) {
    const std::int64_t pixels = g.grid[axis + 1] * fsq.spatial;
    if (pixels >= 1 && pixels <= kMaxSide) continue;
    config.fail(keys[axis], "frames of 1 to 16384 pixels a side", std::to_string(pixels));
  }
  if (g.grid[0] * g.grid[1] * g.grid[2] >= kMaxPositions) {
    config.fail("video_latent_shape", "fewer than 2^24 codes",
                std::to_string(g.grid[0] * g.grid[1] * g.grid[2]));
  }
}

RopeYarn read_yarn(const JsonReader& config, const ModelConfig& model) {
  RopeYarn yarn;
  // Those whose heads are not as wide as the model.
  const bool stretched = model.q_width() != model.width;
  if (!config.boolean_or("apply_yarn", stretched)) return yarn;
  yarn.factor = config.number_or("yarn_scale", 2.0, 1.0, 1e6);
  yarn.fast = config.number_or("yarn_beta_fast", 4.0, 1e-3, 1e6);
  yarn.slow = config.number_or("yarn_beta_slow", 1.0, 1e-3, 1e6);
  if (yarn.fast <= yarn.slow) {
    config.fail("yarn_beta_fast", "more than yarn_beta_slow", std::to_string(yarn.fast));
  }
  std::vector<std::int64_t> shape = {3, 40, 64};
  if (config.has("original_latent_shape")) {
    shape = config.integers("original_latent_shape", 1, kMaxSide, 3);
    if (shape.size() != 3) {
      config.fail("original_latent_shape", "grids, rows and columns",
                  std::to_string(shape.size()) + " numbers");
    }
  }
  yarn.original_times = shape[0];
  yarn.original_rows = shape[1];
  return yarn;
}

void read_rope(const JsonReader& config, Geometry& g) {
  const std::string axes = config.string_or("rope_dim", "3D");
  if (axes != "3D") config.fail("rope_dim", "\"3D\"", axes);
  const std::string version = config.string_or("pytorch_rope_version", "v2");
  if (version != "v2") config.fail("pytorch_rope_version", "\"v2\"", version);
  const std::string precision = config.string_or("precision", "bfloat16");
  if (precision != "bfloat16" && precision != "float32") {
    config.fail("precision", "\"bfloat16\" or \"float32\"", precision);
  }
  g.model.rope = {.layout = RopeLayout::kGrid3d,
                  .pairing = RopePairing::kHalfSplit,
                  .theta = config.number_or("rope_theta", 500000.0, 1.0, 1e9),
                  .condition_rows = g.begins ? 1 : 0,
                  .grid_times = g.grid[0],
                  .grid_rows = g.grid[1],
                  .grid_cols = g.grid[2],
                  .yarn = read_yarn(config, g.model),
                  .multiple_of = config.integer_or("pad_to_multiple_of", 64, 1, 65536),
                  .rounded = precision == "bfloat16"};
}

Geometry read_geometry(const JsonReader& config, const Checkpoint* weights,
                       const FsqVideoSpec& fsq) {
  Geometry g;
  if (weights != nullptr && weights->find(kTable) == nullptr) g.root = "model.";
  const Shapes shapes(weights, g.root);
  read_sizes(config, shapes, g);
  read_kind(config, shapes, g);
  if (g.codes != fsq.codes()) {
    config.fail("vocab_size", std::to_string(fsq.codes()) + " codes, as the video tokenizer has",
                std::to_string(g.codes));
  }
  if (g.table_rows < g.codes + (g.begins ? 1 : 0)) {
    refuse(config.file(), g.root + kTable,
           "at least " + std::to_string(g.codes + (g.begins ? 1 : 0)) + " rows",
           std::to_string(g.table_rows));
  }
  read_grid(config, fsq, g);
  read_rope(config, g);
  return g;
}

// --- the spec -----------------------------------------------------------------------------------

void fill_model(const Geometry& g, ModelSpec& spec) {
  StreamModelConfig& model = spec.model;
  model.transformer = g.model;
  model.prompt = PromptKind::kFrames;
  model.unconditional = UnconditionalRule::kNone;
  model.prompt_vocab = model.max_prompt = g.begins ? 1 : 0;
  model.codes = g.codes;
  model.grids = g.grid[0];
  model.grid_rows = g.grid[1];
  model.grid_cols = g.grid[2];
  spec.prompt.kind = PromptKind::kFrames;
  if (g.model.context_width > 0) {
    spec.context = ContextSpec{.width = g.model.context_width, .encoders = {"t5", "t5-11b"}};
  }
}

void fill_tokenizer(const FsqVideoSpec& fsq, ModelSpec& spec) {
  spec.fsq = fsq;
  spec.vq.base_channels = fsq.channels;
  spec.vq.multipliers.assign(to_size(fsq.halvings(fsq.spatial)) + 1, 1);
  spec.vq.patch = fsq.patch;
  spec.vq.codes = fsq.codes();
  spec.vq.embed_dim = std::ssize(fsq.levels);
  spec.vq.latent_channels = fsq.latent_channels;
  spec.vq.prefix = fsq.prefix;
  // The authors' inference code writes videos of this rate, and begins with 1 or 9 frames.
  spec.video = VideoSpec{.rate = 25,
                         .first_grid = 1,
                         .further_grid = fsq.temporal,
                         .goes_on = false,
                         .from_frames = true,
                         .max_given = 2};
}

void fill_names(const Geometry& g, ModelSpec& spec) {
  WeightNames& names = spec.names;
  names = original_names(g.root);
  if (g.model.qk_norm) {
    names.q_norm = "attention.q_norm.weight";
    names.k_norm = "attention.k_norm.weight";
  }
  if (g.model.context_width > 0) {
    CrossNames cross;
    cross.norm = "cross_attention_norm.weight";
    cross.q = "cross_attention.wq.weight";
    cross.kv = {"cross_attention.wk.weight", "cross_attention.wv.weight"};
    cross.out = "cross_attention.wo.weight";
    if (g.model.qk_norm) {
      cross.q_norm = "cross_attention.q_norm.weight";
      cross.k_norm = "cross_attention.k_norm.weight";
    }
    names.cross = std::move(cross);
  }
  names.code_table = g.root + kTable;
  names.code_rows = {{0, g.codes}};
  if (g.begins) {
    names.prompt_table = g.root + kTable;
    names.prompt_rows = {{g.codes, 1}};
  }
}

void list_attention(const ModelConfig& model, const std::string& name, std::int64_t from,
                    TensorList& list) {
  list.add(name + ".wq.weight", {model.q_width(), model.width});
  list.add(name + ".wk.weight", {model.kv_width(), from});
  list.add(name + ".wv.weight", {model.kv_width(), from});
  list.add(name + ".wo.weight", {model.width, model.q_width()});
  if (!model.qk_norm) return;
  list.add(name + ".q_norm.weight", {model.head_dim});
  list.add(name + ".k_norm.weight", {model.head_dim});
}

std::vector<TensorSpec> list_tensors(const Geometry& g) {
  const ModelConfig& model = g.model;
  TensorList list;
  list.add(g.root + kTable, {g.table_rows, model.width});
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const std::string layer = g.root + "layers." + std::to_string(i) + ".";
    list_attention(model, layer + "attention", model.width, list);
    list.add(layer + "attention_norm.weight", {model.width});
    if (model.context_width > 0) {
      list_attention(model, layer + "cross_attention", model.context_width, list);
      list.add(layer + "cross_attention_norm.weight", {model.width});
    }
    list.add(layer + "feed_forward.w1.weight", {model.ffn_width, model.width});
    list.add(layer + "feed_forward.w3.weight", {model.ffn_width, model.width});
    list.add(layer + "feed_forward.w2.weight", {model.width, model.ffn_width});
    list.add(layer + "ffn_norm.weight", {model.width});
  }
  list.add(g.root + "norm.weight", {model.width});
  list.add(g.root + "output.weight", {g.codes, model.width});
  return list.take();
}

void fill_identity(ModelSpec& spec) {
  const ModelConfig& model = spec.model.transformer;
  const bool text = model.context_width > 0;
  spec.size = size_label(model);
  if (model.layers == 16 && model.width == 4096) spec.size = text ? "5B" : "4B";
  if (model.layers == 40 && model.width == 5120) spec.size = text ? "13B" : "12B";
  spec.title = "Cosmos autoregressive " + spec.size;
  spec.licence =
      "NVIDIA Open Model License for published weights; a folder's own licence file rules";
}

bool has_model_fields(const ModelSource& source) {
  return source.config != nullptr && source.config->contains("n_layers") &&
         source.config->contains("dim") &&
         (source.config->contains("video_latent_shape") ||
          source.config->contains("use_qk_normalization"));
}

bool names_of_cosmos(const Checkpoint& weights) {
  for (const char* root : {"", "model."}) {
    if (weights.find(std::string(root) + kTable) != nullptr &&
        weights.find(std::string(root) + kQNorm) != nullptr) {
      return true;
    }
  }
  return false;
}

bool detect(const ModelSource& source) {
  if (has_model_fields(source)) return true;
  if (source.config_only) return false;
  for (const char* other : {"model_type", "n_layer"}) {  // other families' keys
    if (source.config != nullptr && source.config->contains(other)) return false;
  }
  const fs::path path = weights_of(source);
  return !path.empty() && names_of_cosmos(Checkpoint::open(path));
}

ModelSpec parse(const ModelSource& source) {
  static const Json kEmpty = Json::object();
  const JsonReader config = config_reader(source);
  ModelSpec spec;
  FsqVideoSpec fsq =
      parse_fsq_video(config.has("video_tokenizer") ? config.object("video_tokenizer")
                                                    : JsonReader(kEmpty, config.file()));
  std::optional<Checkpoint> weights;
  if (!source.config_only) {
    spec.weights = weights_of(source);
    if (spec.weights.empty()) {
      refuse(source.folder.string(), "", "model.pt or model.safetensors", "neither");
    }
    weights.emplace(Checkpoint::open(spec.weights));
  }
  const bool joint =
      !weights || weights->find(std::string(kTokenizerPrefix) + kTokenizerProbe) != nullptr;
  if (joint) {
    fsq.prefix = kTokenizerPrefix;
  } else {
    spec.vq_weights = find_tokenizer(source);
  }
  const Geometry g = read_geometry(config, weights ? &*weights : nullptr, fsq);
  fill_model(g, spec);
  fill_tokenizer(fsq, spec);
  fill_names(g, spec);
  fill_identity(spec);
  read_sampling(source, {.guidance = 1.0, .temperature = 1.0, .top_k = 0, .top_p = 0.8}, spec);
  spec.tensors = list_tensors(g);
  spec.ignored = {"vision_encoder.*", "mm_projector.*", g.root + "vision_encoder.*",
                  g.root + "mm_projector.*"};
  std::vector<TensorSpec> tokenizer = fsq_video_tensors(fsq);
  if (joint) {
    for (TensorSpec& tensor : tokenizer) spec.tensors.push_back(std::move(tensor));
    spec.optional_tensors = fsq_video_unused(fsq);
  } else {
    spec.vq_tensors = std::move(tokenizer);
    spec.vq_optional = fsq_video_unused(fsq);
    // Constants of the wavelet and the quantizer, which the programs carry.
    spec.vq_ignored = {"encoder.patcher3d.*", "decoder.unpatcher3d.*", "quantizer.*",
                       "inv_quant.*"};
  }
  return spec;
}

}  // namespace

extern constinit const Family kCosmosFamily = {.name = "cosmos", .detect = detect, .parse = parse};

}  // namespace tessera
