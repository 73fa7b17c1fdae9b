// LlamaGen (Sun et al. 2024): a Llama over image codes with 2-D rotary positions, after one class
// token or after the rows of a text encoder; its VQ tokenizer is a file of its own. Published as .pt
// without a configuration, so sizes are read off tensor shapes; a config.json with the fields of
// the original ModelArgs (as the Hugging Face mixin writes it) is used when it is there.
//
// A text's rows stand at the end of as many places as the longest has. Places before them are
// padding, which nobody sees; and no place is turned, all rotary rows there being zero. So a shorter
// text is a prompt of its own rows alone, in front of the same rotary rows of the image.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/families/family.h"
#include "engine/families/published_sizes.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxSide = 16384;  // pixels
constexpr const char* kTokens = "tok_embeddings.weight";
constexpr const char* kClasses = "cls_embedding.embedding_table.weight";
constexpr const char* kLearned = "cls_embedding.uncond_embedding";
constexpr const char* kProjection = "cls_embedding.cap_proj.";

// Everything the parser needs, wherever it came from.
struct Geometry {
  std::int64_t layers = 0, width = 0, heads = 0, kv_heads = 0, ffn = 0;
  std::int64_t codes = 0, classes = 0;  // classes without the null row; 0 = reads a text
  std::int64_t condition = 1;           // places in front of the image
  std::int64_t caption_width = 0;       // of the text encoder's rows
  std::int64_t grid = 0;                // 0 = not known yet
  double rope_base = 10000.0;
  double norm_eps = 1e-5;

  bool text() const { return classes == 0; }
};

[[noreturn]] void refuse(const std::string& file, const std::string& where, std::string expected,
                         std::string found, std::string hint = "") {
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_LLAMAGEN_SHAPE",
               .file = file,
               .where = where,
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

// --- files --------------------------------------------------------------------------------------

bool is_pickle(const fs::path& path) {
  const std::string ending = path.extension().string();
  return ending == ".pt" || ending == ".pth" || ending == ".bin" || ending == ".ckpt";
}

bool is_vq_file(const fs::path& path) { return path.filename().string().starts_with("vq"); }

// The transformer's weights in a folder: model.safetensors (or its index), or the one pickle there
// that is not the tokenizer.
fs::path find_weights(const fs::path& folder) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (file_exists(folder / name)) return folder;
  }
  std::vector<fs::path> pickles;
  for (const fs::path& path : list_folder(folder)) {
    if (is_pickle(path) && !is_vq_file(path)) pickles.push_back(path);
  }
  if (pickles.size() == 1) return pickles.front();
  return {};
}

fs::path find_vq(const fs::path& folder, bool text) {
  const auto published = text ? std::vector<const char*>{"vq_ds16_t2i.pt"}
                              : std::vector<const char*>{"vq_ds16_c2i.pt", "vq_ds8_c2i.pt"};
  for (const char* name : published) {
    if (file_exists(folder / name)) return folder / name;
  }
  for (const char* name : {"vq.safetensors", "vq.pt"}) {
    if (file_exists(folder / name)) return folder / name;
  }
  std::error_code error;
  const fs::path inner = folder / "vq";
  if (!fs::is_directory(inner, error)) return {};
  if (file_exists(inner / "model.safetensors")) return inner;
  for (const fs::path& path : list_folder(inner)) {
    if (is_pickle(path)) return path;
  }
  return {};
}

// --- geometry -----------------------------------------------------------------------------------

std::int64_t square_side(const JsonReader& reader, std::int64_t places) {
  const auto side = std::int64_t{std::llround(std::sqrt(to_double(places)))};
  if (side * side != places) {
    reader.fail("block_size", "a square number of image tokens", std::to_string(places));
  }
  return side;
}

std::int64_t rounded_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

// Fields and defaults of the original's ModelArgs.
Geometry geometry_of_config(const JsonReader& config) {
  const std::string kind = config.string_or("model_type", "c2i");
  const bool text = kind == "t2i";
  if (kind != "c2i" && !text) {
    config.fail("model_type", "\"c2i\" (class-conditional) or \"t2i\" (text to image)", kind);
  }
  Geometry g;
  g.width = config.integer_or("dim", 4096, 1, 65536);
  g.layers = config.integer_or("n_layer", 32, 1, 1024);
  g.heads = config.integer_or("n_head", 32, 1, 1024);
  g.kv_heads = config.integer_or("n_kv_head", g.heads, 1, 1024);
  if (g.heads % g.kv_heads != 0) {
    config.fail("n_kv_head", "a divisor of " + std::to_string(g.heads), std::to_string(g.kv_heads));
  }
  if (g.width % g.heads != 0 || g.width / g.heads % 4 != 0) {
    config.fail("dim", "heads of a width that is a multiple of 4",
                std::to_string(g.width) + " / " + std::to_string(g.heads));
  }
  const std::int64_t multiple = config.integer_or("multiple_of", 256, 1, 65536);
  const double factor = config.number_or("ffn_dim_multiplier", 1.0, 0.01, 64.0);
  const std::int64_t plain = 2 * (4 * g.width) / 3;
  g.ffn = rounded_up(truncate<std::int64_t>(to_double(plain) * factor), multiple);
  if (g.ffn < 1 || g.ffn > (std::int64_t{1} << 20)) {
    config.fail("ffn_dim_multiplier", "a feed-forward width of 1 to 1048576",
                std::to_string(g.ffn));
  }
  g.codes = config.integer_or("vocab_size", 16384, 1, std::int64_t{1} << 20);
  g.condition = config.integer_or("cls_token_num", text ? 120 : 1, 1, 4096);
  if (text) {
    g.caption_width = config.integer_or("caption_dim", 2048, 1, 65536);
  } else {
    g.classes = config.integer_or("num_classes", 1000, 1, std::int64_t{1} << 20);
    if (config.number_or("class_dropout_prob", 0.1, 0.0, 1.0) == 0.0) {
      config.fail("class_dropout_prob", "above 0 (a model with a null class)", "0");
    }
    if (g.condition != 1) {
      config.fail("cls_token_num", "1 for a class", std::to_string(g.condition));
    }
  }
  g.rope_base = config.number_or("rope_base", 10000.0, 1.0, 1e9);
  g.norm_eps = config.number_or("norm_eps", 1e-5, 1e-12, 0.1);
  g.grid = square_side(config, config.integer_or("block_size", 256, 1, std::int64_t{1} << 24));
  return g;
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

// What a .pt without configuration says about itself.
Geometry geometry_of_shapes(const Checkpoint& weights, const std::string& file) {
  Geometry g;
  const ConstTensorView& tokens = tensor(weights, file, kTokens, 2);
  g.codes = tokens.shape[0];
  g.width = tokens.shape[1];
  if (weights.find(kLearned) != nullptr) {
    const ConstTensorView& learned = tensor(weights, file, kLearned, 2);
    g.condition = learned.shape[0];
    g.caption_width = learned.shape[1];
  } else {
    g.classes = tensor(weights, file, kClasses, 2).shape[0] - 1;
    if (g.classes < 1) refuse(file, kClasses, "a class and the null class", "fewer rows");
  }
  g.layers = layer_count(weights, "layers.");
  const auto row = std::find_if(
      kLlamaGenSizes.begin(), kLlamaGenSizes.end(),
      [&](const PublishedSize& size) { return size.layers == g.layers && size.width == g.width; });
  if (row == kLlamaGenSizes.end()) {
    refuse(file, "", "a published size (B, L, XL, XXL, XXXL, 1B, 3B, 7B)",
           std::to_string(g.layers) + " layers of width " + std::to_string(g.width),
           "put a config.json with dim, n_layer, n_head next to it");
  }
  g.heads = row->heads;
  const std::int64_t head_dim = g.width / g.heads;
  const std::int64_t rows = tensor(weights, file, "layers.0.attention.wqkv.weight", 2).shape[0];
  g.kv_heads = (rows / head_dim - g.heads) / 2;
  if (g.kv_heads < 1 || (g.heads + 2 * g.kv_heads) * head_dim != rows ||
      g.heads % g.kv_heads != 0) {
    refuse(file, "layers.0.attention.wqkv.weight", std::to_string(3 * g.width) + " rows",
           std::to_string(rows));
  }
  g.ffn = tensor(weights, file, "layers.0.feed_forward.w1.weight", 2).shape[0];
  if (g.codes < 1 || g.condition < 1 || (g.text() && g.caption_width < 1) || g.ffn < 1) {
    refuse(file, "", "codes, a prompt and a feed-forward width", "an empty tensor");
  }
  const ConstTensorView* table = weights.find("freqs_cis");
  if (table != nullptr && table->shape.rank() >= 2 && table->shape[0] > g.condition) {
    const std::int64_t places = table->shape[0] - g.condition;
    const auto side = std::int64_t{std::llround(std::sqrt(to_double(places)))};
    if (side * side == places) g.grid = side;
  }
  return g;
}

// Pixels a side that a published file name tells ("c2i_L_384.pt"), or 0.
std::int64_t side_in_name(const fs::path& path) {
  const std::string stem = path.stem().string();
  for (const std::int64_t side : {256, 384, 512}) {
    if (stem.find("_" + std::to_string(side)) != std::string::npos) return side;
  }
  return 0;
}

void settle_grid(const ModelSource& source, const fs::path& weights, Geometry& g,
                 std::int64_t downsample) {
  std::int64_t side = source.options.side();
  if (side == 0 && g.grid == 0) side = side_in_name(weights);
  if (side == 0 && g.grid == 0) side = 256;
  if (side != 0) {
    if (side < downsample || side > kMaxSide || side % downsample != 0) {
      throw Error({.kind = ErrorKind::kUsage,
                   .code = "E_MODEL_GEOMETRY",
                   .file = weights.string(),
                   .where = "image size",
                   .expected = "a multiple of " + std::to_string(downsample) + " up to " +
                               std::to_string(kMaxSide),
                   .found = std::to_string(side)});
    }
    g.grid = side / downsample;
  }
  if (g.grid * downsample > kMaxSide) {
    refuse(source.config_file, "block_size", "images of at most 16384 pixels a side",
           std::to_string(g.grid * downsample));
  }
}

// --- the spec -----------------------------------------------------------------------------------

void fill_model(const Geometry& g, ModelSpec& spec) {
  ModelConfig& model = spec.model.transformer;
  model.layers = g.layers;
  model.width = g.width;
  model.heads = g.heads;
  model.kv_heads = g.kv_heads;
  model.head_dim = g.width / g.heads;
  model.ffn_width = g.ffn;
  model.norm_eps = to_float(g.norm_eps);
  model.rope = {.layout = RopeLayout::kGrid2d,
                .pairing = RopePairing::kInterleaved,
                .theta = g.rope_base,
                .condition_rows = g.condition,
                .grid_rows = g.grid,
                .grid_cols = g.grid};
  spec.model.max_prompt = g.condition;
  if (g.text()) {
    spec.model.prompt = PromptKind::kText;
    spec.context = ContextSpec{
        .rows = g.condition,
        .width = g.caption_width,
        .caption = CaptionNames{std::string(kProjection) + "fc1", std::string(kProjection) + "fc2",
                                kLearned},
        .encoders = {"t5", "flan-t5-xl", "t5-v1_1-xl"},
        .cleaned = true};
  } else {
    spec.model.prompt = PromptKind::kClass;
    spec.model.unconditional = UnconditionalRule::kNullClass;
    spec.model.prompt_vocab = g.classes + 1;
    spec.model.null_class = narrow<std::int32_t>(g.classes);
  }
  spec.model.codes = g.codes;
  spec.model.code_width = 0;
  spec.model.grid_rows = spec.model.grid_cols = g.grid;
}

void fill_names(const Geometry& g, ModelSpec& spec) {
  WeightNames& names = spec.names;
  names = original_names("");
  names.qkv = {"attention.wqkv.weight"};
  if (!g.text()) names.prompt_table = kClasses;
  names.code_table = kTokens;
}

std::vector<TensorSpec> list_tensors(const Geometry& g) {
  const std::int64_t head_dim = g.width / g.heads;
  TensorList list;
  list.add(kTokens, {g.codes, g.width});
  if (g.text()) {
    list.add(std::string(kProjection) + "fc1.weight", {g.width, g.caption_width});
    list.add(std::string(kProjection) + "fc2.weight", {g.width, g.width});
    list.add(kLearned, {g.condition, g.caption_width});
  } else {
    list.add(kClasses, {g.classes + 1, g.width});
  }
  for (std::int64_t i = 0; i < g.layers; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".";
    list.add(layer + "attention.wqkv.weight", {(g.heads + 2 * g.kv_heads) * head_dim, g.width});
    list.add(layer + "attention.wo.weight", {g.width, g.heads * head_dim});
    list.add(layer + "feed_forward.w1.weight", {g.ffn, g.width});
    list.add(layer + "feed_forward.w3.weight", {g.ffn, g.width});
    list.add(layer + "feed_forward.w2.weight", {g.width, g.ffn});
    list.add(layer + "attention_norm.weight", {g.width});
    list.add(layer + "ffn_norm.weight", {g.width});
  }
  list.add("norm.weight", {g.width});
  list.add("output.weight", {g.codes, g.width});
  return list.take();
}

void fill_identity(const Geometry& g, ModelSpec& spec) {
  const ModelConfig& model = spec.model.transformer;
  spec.size = size_label(model);
  for (const PublishedSize& row : kLlamaGenSizes) {
    if (row.layers == model.layers && row.width == model.width) spec.size = row.name;
  }
  spec.title = "LlamaGen " + spec.size + (g.text() ? ", text to image" : "");
  spec.licence = "MIT for published weights; a folder's own licence file rules";
  spec.prompt.kind = spec.model.prompt;
  spec.prompt.classes = g.classes;
  spec.sampling = {.guidance = 4.0, .temperature = 1.0, .top_k = 2000, .top_p = 1.0};
  if (g.text()) {
    spec.sampling.guidance = 7.5;
    spec.sampling.top_k = 1000;
  }
  spec.ignored = {"freqs_cis"};
}

bool has_model_args(const ModelSource& source) {
  return source.config != nullptr && source.config->contains("n_layer") &&
         source.config->contains("dim");
}

VqSpec published_vq16() {
  VqSpec vq;
  vq.pixels = PixelRule::kLlamaGenEval;
  return vq;
}

// The authors' mixin writes their ModelArgs next to a tokenizer of its own folder: nothing else
// says whether rows of its codebook have length 1.
bool has_unit_rows(const ModelSource& source, const fs::path& weights) {
  const fs::path folder = source.folder / "vq", file = folder / "config.json";
  if ((weights != folder && weights.parent_path() != folder) || !file_exists(file)) return true;
  const Json args = parse_json(read_file(file, std::size_t{1} << 20), file.string());
  return JsonReader(args, file.string()).boolean_or("codebook_l2_norm", true);
}

VqSpec read_vq(const ModelSource& source, const Geometry& g, ModelSpec& spec) {
  spec.vq_weights = find_vq(source.folder, g.text());
  if (spec.vq_weights.empty()) {
    refuse(spec.weights.string(), "VQ tokenizer",
           std::string(g.text() ? "vq_ds16_t2i.pt" : "vq_ds16_c2i.pt") +
               " (or vq.safetensors, or a folder vq/) next to the weights",
           "none");
  }
  const Checkpoint checkpoint = Checkpoint::open(spec.vq_weights);
  VqSpec vq = infer_vq_spec(checkpoint, "");
  vq.pixels = PixelRule::kLlamaGenEval;
  vq.l2_normalize = has_unit_rows(source, spec.vq_weights);
  if (vq.codes != g.codes) {
    refuse(spec.vq_weights.string(), "quantize.embedding.weight",
           std::to_string(g.codes) + " codes, as the transformer has", std::to_string(vq.codes));
  }
  return vq;
}

bool detect(const ModelSource& source) {
  if (has_model_args(source)) return true;
  if (source.config != nullptr || source.config_only) return false;
  const fs::path path = source.file.empty() ? find_weights(source.folder) : source.file;
  if (path.empty()) return false;
  const Checkpoint weights = Checkpoint::open(path);
  return weights.find(kClasses) != nullptr || weights.find(kTokens) != nullptr;
}

ModelSpec parse(const ModelSource& source) {
  ModelSpec spec;
  Geometry g;
  if (source.config_only) {
    const JsonReader config = config_reader(source);
    g = geometry_of_config(config);
    spec.vq = published_vq16();
    spec.vq.codes = g.codes;
  } else {
    spec.weights = source.file.empty() ? find_weights(source.folder) : source.file;
    if (spec.weights.empty()) {
      refuse(source.folder.string(), "", "model.safetensors or one .pt next to the VQ tokenizer",
             "none, or several");
    }
    if (has_model_args(source)) {
      g = geometry_of_config(config_reader(source));
    } else {
      g = geometry_of_shapes(Checkpoint::open(spec.weights), spec.weights.string());
    }
    spec.vq = read_vq(source, g, spec);
  }
  settle_grid(source, spec.weights, g, spec.vq.downsample());
  fill_model(g, spec);
  fill_names(g, spec);
  fill_identity(g, spec);
  spec.tensors = list_tensors(g);
  spec.vq_tensors = vq_tensors(spec.vq);
  return spec;
}

}  // namespace

extern constinit const Family kLlamaGenFamily = {
    .name = "llamagen", .detect = detect, .parse = parse};

}  // namespace tessera
