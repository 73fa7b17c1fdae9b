// Janus and Janus-Pro (Wu et al. 2024, Chen et al. 2025): a Llama language model with a text head,
// an understanding tower, and a generation half of its own (small code table, aligner, image
// head, VQ-16 tokenizer). Two layouts of the same weights: the Hugging Face port (model_type
// "janus") and the original (model_type "multi_modality"). `"vision_config": null` in the port's
// layout means that the checkpoint has no understanding half, `"draft_config": {...}` that it only
// drafts for another model and holds neither text head nor VQ tensors.
//
// Both halves share the language model: one generates over image codes, the other describes what
// the tower sees, in text.
#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/core/index.h"
#include "engine/families/family.h"
#include "engine/families/language.h"
#include "engine/families/published_sizes.h"
#include "engine/towers/tower_configs.h"

namespace tessera {

namespace {

constexpr std::int64_t kMaxSide = 16384;  // pixels
// The rotary table is built for this many prompt rows at most; published prompts are far shorter.
constexpr std::int64_t kMaxPrompt = 4096;

constexpr std::string_view kLanguages[] = {"llama"};
constexpr std::string_view kPortProcessors[] = {"JanusImageProcessor"};

void require_equal(const JsonReader& reader, std::string_view key, std::int64_t found,
                   std::int64_t wanted, const char* what) {
  if (found == wanted) return;
  reader.fail(key, std::to_string(wanted) + " (" + what + ")", std::to_string(found));
}

// --- tensors of the understanding half, as the generating one checks them ------------------------

struct Vision {
  std::int64_t width = 1024, layers = 24, mlp = 4096, patch = 16, image = 384, aligner_depth = 2;
  std::int64_t places() const { return (image / patch) * (image / patch); }
};

std::int64_t mlp_width(const JsonReader& reader, std::int64_t width) {
  const double ratio = reader.number_or("mlp_ratio", 4.0, 0.01, 64.0);
  return truncate<std::int64_t>(to_double(width) * ratio);
}

Vision parse_hf_vision(const JsonReader& reader, std::int64_t hidden) {
  Vision vision;
  vision.width = reader.integer_or("hidden_size", 1024, 1, kMaxHidden);
  vision.layers = reader.integer_or("num_hidden_layers", 24, 1, kMaxLayers);
  const std::int64_t heads = reader.integer_or("num_attention_heads", 16, 1, kMaxHeads);
  if (vision.width % heads != 0) {
    reader.fail("num_attention_heads", "a divisor of " + std::to_string(vision.width),
                std::to_string(heads));
  }
  vision.patch = reader.integer_or("patch_size", 16, 1, 1024);
  vision.image = read_image_side(reader, 384, vision.patch, kMaxSide);
  vision.mlp = mlp_width(reader, vision.width);
  vision.aligner_depth = reader.integer_or("depth", 2, 1, 16);
  const std::string act = reader.string_or("hidden_act", "gelu");
  if (act != "gelu") reader.fail("hidden_act", "\"gelu\"", act);
  if (!reader.boolean_or("attention_bias", true)) reader.fail("attention_bias", "true", "false");
  if (reader.boolean_or("use_qk_norm", false)) reader.fail("use_qk_norm", "false", "true");
  require_equal(reader, "projection_dim", reader.integer_or("projection_dim", 2048, 1, kMaxHidden),
                hidden, "the language model's width");
  require_equal(reader, "num_image_tokens",
                reader.integer_or("num_image_tokens", 576, 1, kMaxSide * kMaxSide), vision.places(),
                "image places of this size");
  return vision;
}

void list_hf_vision(const Vision& vision, std::int64_t hidden, TensorList& list) {
  const std::string root = "model.vision_model.";
  list.add(root + "embeddings.patch_embedding.weight",
           {vision.width, 3, vision.patch, vision.patch});
  list.add(root + "embeddings.patch_embedding.bias", {vision.width});
  list.add(root + "embeddings.position_embedding.weight", {vision.places(), vision.width});
  for (std::int64_t i = 0; i < vision.layers; ++i) {
    const std::string layer = root + "encoder.layers." + std::to_string(i) + ".";
    list.norm(layer + "layer_norm1", vision.width);
    list.norm(layer + "layer_norm2", vision.width);
    for (const char* part : {"q_proj", "k_proj", "v_proj", "projection_layer"}) {
      list.linear(layer + "self_attn." + part, vision.width, vision.width);
    }
    list.linear(layer + "mlp.fc1", vision.mlp, vision.width);
    list.linear(layer + "mlp.fc2", vision.width, vision.mlp);
  }
  list.norm(root + "post_layernorm", vision.width);
  list.linear("model.aligner.fc1", hidden, vision.width);
  for (std::int64_t i = 1; i < vision.aligner_depth; ++i) {
    list.linear("model.aligner.hidden_layers." + std::to_string(i - 1), hidden, hidden);
  }
}

void list_original_vision(const Vision& vision, std::int64_t hidden, TensorList& list) {
  const std::string root = "vision_model.vision_tower.";
  list.add(root + "patch_embed.proj.weight", {vision.width, 3, vision.patch, vision.patch});
  list.add(root + "patch_embed.proj.bias", {vision.width});
  list.add(root + "pos_embed", {1, vision.places(), vision.width});
  for (std::int64_t i = 0; i < vision.layers; ++i) {
    const std::string block = root + "blocks." + std::to_string(i) + ".";
    list.norm(block + "norm1", vision.width);
    list.norm(block + "norm2", vision.width);
    list.linear(block + "attn.qkv", 3 * vision.width, vision.width);
    list.linear(block + "attn.proj", vision.width, vision.width);
    list.linear(block + "mlp.fc1", vision.mlp, vision.width);
    list.linear(block + "mlp.fc2", vision.width, vision.mlp);
  }
  list.norm(root + "norm", vision.width);
  list.linear("aligner.layers.0", hidden, vision.width);
  for (std::int64_t i = 1; i < vision.aligner_depth; ++i) {
    list.linear("aligner.layers." + std::to_string(2 * i), hidden, hidden);
  }
}

// --- the VQ tokenizer ---------------------------------------------------------------------------

void check_groups(const JsonReader& reader, std::string_view key, const VqSpec& vq) {
  for (const std::int64_t multiplier : vq.multipliers) {
    if (vq.base_channels * multiplier % vq.norm_groups != 0) {
      reader.fail(key, "channels in whole groups of 32",
                  std::to_string(vq.base_channels) + " x " + std::to_string(multiplier));
    }
  }
}

VqSpec parse_hf_vq(const JsonReader& reader, std::int64_t hidden) {
  VqSpec vq;
  vq.base_channels = reader.integer_or("base_channels", 128, 1, 4096);
  if (reader.has("channel_multiplier")) {
    vq.multipliers = reader.integers("channel_multiplier", 1, 64, 8);
    if (vq.multipliers.empty()) reader.fail("channel_multiplier", "1 to 8 levels", "none");
  }
  check_groups(reader, "base_channels", vq);
  vq.res_blocks = reader.integer_or("num_res_blocks", 2, 1, 16);
  vq.latent_channels = reader.integer_or("latent_channels", 256, 1, 8192);
  vq.embed_dim = reader.integer_or("embed_dim", 8, 1, 8192);
  vq.codes = reader.integer_or("num_embeddings", 16384, 1, kMaxCodes);
  require_equal(reader, "in_channels", reader.integer_or("in_channels", 3, 1, 64), 3, "RGB");
  require_equal(reader, "out_channels", reader.integer_or("out_channels", 3, 1, 64), 3, "RGB");
  if (reader.boolean_or("double_latent", false)) reader.fail("double_latent", "false", "true");
  require_equal(reader, "num_hidden_layers", reader.integer_or("num_hidden_layers", 2, 1, 64), 2,
                "an aligner of two layers");
  const std::string act = reader.string_or("hidden_act", "gelu");
  if (act != "gelu") reader.fail("hidden_act", "\"gelu\"", act);
  for (const char* key : {"projection_dim", "image_token_embed_dim"}) {
    require_equal(reader, key, reader.integer_or(key, 2048, 1, kMaxHidden), hidden,
                  "the language model's width");
  }
  vq.names = VqNames::kHfJanus;
  vq.prefix = "model.vqmodel.";
  return vq;
}

// --- what both layouts share --------------------------------------------------------------------

void finish_geometry(const JsonReader& reader, std::string_view key, std::int64_t grid,
                     std::int64_t max_positions, ModelSpec& spec) {
  const std::int64_t side = grid * spec.vq.downsample();
  if (grid < 1 || side > kMaxSide) {
    reader.fail(key, "images of 1 to 16384 pixels a side", std::to_string(side));
  }
  StreamModelConfig& model = spec.model;
  model.grid_rows = model.grid_cols = grid;
  model.codes = spec.vq.codes;
  model.code_width = spec.vq.embed_dim;
  model.prompt = PromptKind::kText;
  model.unconditional = UnconditionalRule::kPadBetweenEnds;
  model.max_prompt = std::min(max_positions - model.image_tokens(), kMaxPrompt);
  if (model.max_prompt < 3) {
    reader.fail(key,
                "fewer image tokens than max_position_embeddings " + std::to_string(max_positions),
                std::to_string(model.image_tokens()));
  }
  model.transformer.rope.positions = model.max_prompt + model.image_tokens();
}

void finish_identity(const ModelSource& source, ModelSpec& spec) {
  spec.size = size_label(spec.model.transformer);
  for (const PublishedSize& row : kJanusSizes) {
    if (row.layers == spec.model.transformer.layers && row.width == spec.model.transformer.width) {
      spec.size = row.name;
    }
  }
  spec.title = "Janus " + spec.size;
  spec.weights = source.file.empty() ? source.folder : source.file;
  if (!source.folder.empty()) spec.tokenizer = source.folder / "tokenizer.json";
  spec.licence = "DeepSeek Model License for published weights; a folder's own licence file rules";
  spec.prompt.kind = PromptKind::kText;
  spec.prompt.forms = {
      {"<|User|>", "<|User|>: ", "\n\n<|Assistant|>:<begin_of_image>", true},
      {"", "User: ", "\n\nAssistant:<begin_of_image>", true},
  };
  spec.prompt.pad_token = "<\xef\xbd\x9c\xe2\x96\x81pad\xe2\x96\x81\xef\xbd\x9c>";
  spec.prompt.begin_image_token = "<begin_of_image>";
  spec.vq.pixels = PixelRule::kJanusTruncate;
}

// Code table, aligner and head, all under the names already set in spec.names.
void list_generation(const ModelSpec& spec, TensorList& list) {
  const std::int64_t width = spec.model.transformer.width;
  list.add(spec.names.code_table, {spec.vq.codes, spec.vq.embed_dim});
  list.linear(spec.names.align_in, width, spec.vq.embed_dim);
  list.linear(spec.names.align_out, width, width);
  list.linear(spec.names.head_in, width, width);
  list.linear(spec.names.head_out, spec.vq.codes, width);
}

// --- the Hugging Face port ----------------------------------------------------------------------

// Prompts and levels are the processor's, the other branch's tokens those of generate().
void follow_processor(const ModelSource& source, std::int64_t vocab, ModelSpec& spec) {
  if (source.config_only) return;
  spec.prompt.of_folder = true;
  spec.prompt.begin_image_token = named_token(source, "boi_token", spec.prompt.begin_image_token);
  const JsonReader generation = file_reader(source, FolderFile::kGeneration);
  const auto id = [&](const JsonReader& reader, std::string_view key) {
    return narrow<std::int32_t>(reader.integer_or(key, -1, 0, vocab - 1));
  };
  const std::int32_t pad = id(generation, "pad_token_id"), begin = id(generation, "bos_token_id");
  const std::int32_t image = id(sub_config(generation, "generation_kwargs"), "boi_token_id");
  if (pad >= 0 && image >= 0) spec.prompt.kept = KeptIds{pad, image, begin};
  follow_levels(*source.files, kPortProcessors, spec);
}

ModelSpec parse_hf(const ModelSource& source) {
  const JsonReader config = config_reader(source);
  ModelSpec spec;
  const LanguageConfig llama = parse_language(sub_config(config, "text_config"), kLanguages);
  const std::int64_t hidden = llama.model.width;
  spec.model.transformer = llama.model;
  spec.model.prompt_vocab = llama.vocab;
  const JsonReader vq = sub_config(config, "vq_config");
  spec.vq = parse_hf_vq(vq, hidden);
  std::optional<Vision> vision;
  if (!config.is_null("vision_config")) {
    const JsonReader reader = sub_config(config, "vision_config");
    vision = parse_hf_vision(reader, hidden);
    finish_geometry(reader, "image_size", vision->image / vision->patch, llama.max_positions, spec);
    // The decoder's own square.
    if (vq.has("num_patches")) {
      require_equal(vq, "num_patches", vq.integer("num_patches", 1, kMaxSide), spec.model.grid_rows,
                    "patches of an image along a side");
    }
  } else {
    const std::int64_t grid = vq.integer_or("num_patches", 32, 1, kMaxSide);
    finish_geometry(vq, "num_patches", grid, llama.max_positions, spec);
  }
  finish_identity(source, spec);
  read_sampling(source, {}, spec);
  follow_do_sample(source, spec);
  follow_processor(source, llama.vocab, spec);
  spec.names = language_names(llama.model, "model.language_model.");
  spec.names.code_table = "model.generation_embeddings.weight";
  spec.names.align_in = "model.generation_aligner.fc1";
  spec.names.align_out = "model.generation_aligner.hidden_layers.0";
  spec.names.head_in = "model.generation_head.proj_out";
  spec.names.head_out = "model.generation_head.vision_head";
  TensorList list;
  if (vision) list_hf_vision(*vision, hidden, list);
  list_generation(spec, list);
  list_language(llama.model, llama.vocab, "model.language_model.", list);
  if (config.has("draft_config")) {
    const JsonReader draft = config.object("draft_config");
    spec.draft = DraftSpec{draft.number_or("guidance", 0.0, 0.0, 1000.0)};
    spec.tensors = list.take();
    return spec;
  }
  list.add("lm_head.weight", {llama.vocab, hidden});
  list.append(vq_tensors(spec.vq));
  spec.tensors = list.take();
  if (llama.tied || config.boolean_or("tie_word_embeddings", false)) {
    spec.optional_tensors = {"lm_head.weight"};
  }
  return spec;
}

// --- the original -------------------------------------------------------------------------------

// SigLIP towers that the original code knows by name.
struct NamedTower {
  std::string_view name;
  std::int64_t width, layers, patch, mlp;
};
constexpr std::array<NamedTower, 5> kTowers = {{
    {"siglip_large_patch16_384", 1024, 24, 16, 4096},
    {"siglip_large_patch16_256", 1024, 24, 16, 4096},
    {"siglip_base_patch16_384", 768, 12, 16, 3072},
    {"siglip_base_patch16_256", 768, 12, 16, 3072},
    {"siglip_so400m_patch14_384", 1152, 27, 14, 4304},
}};

// Width, layers, patch_size and mlp_width may be given next to or instead of a known name;
// published files never do, small test models must.
Vision parse_original_vision(const JsonReader& config) {
  const JsonReader params = sub_config(sub_config(config, "vision_config"), "params");
  Vision vision;
  const std::string name = params.string_or("model_name", "siglip_large_patch16_384");
  const auto row = std::find_if(kTowers.begin(), kTowers.end(),
                                [&](const NamedTower& tower) { return tower.name == name; });
  if (row != kTowers.end()) {
    vision = {row->width, row->layers, row->mlp, row->patch};
  } else if (!params.has("width")) {
    params.fail("model_name", "a SigLIP tower, for instance siglip_large_patch16_384", name);
  }
  vision.width = params.integer_or("width", vision.width, 1, kMaxHidden);
  vision.layers = params.integer_or("layers", vision.layers, 1, kMaxLayers);
  vision.patch = params.integer_or("patch_size", vision.patch, 1, 1024);
  vision.mlp = params.integer_or("mlp_width", vision.mlp, 1, kMaxFfn);
  vision.image = read_image_side(params, 384, vision.patch, kMaxSide);
  const JsonReader aligner = sub_config(sub_config(config, "aligner_config"), "params");
  vision.aligner_depth = aligner.integer_or("depth", 2, 1, 16);
  const std::string kind = aligner.string_or("projector_type", "mlp_gelu");
  if (kind != "mlp_gelu") aligner.fail("projector_type", "\"mlp_gelu\"", kind);
  require_equal(aligner, "input_dim", aligner.integer_or("input_dim", 1024, 1, kMaxHidden),
                vision.width, "the vision tower's width");
  return vision;
}

// VQ-16 is one graph; a small one may be described by encoder_ch_mult, z_channels, base_channels
// and num_res_blocks in params.
VqSpec parse_original_vq(const JsonReader& config) {
  const JsonReader outer = sub_config(config, "gen_vision_config");
  const std::string kind = outer.string_or("cls", "VQ-16");
  if (kind != "VQ-16") outer.fail("cls", "\"VQ-16\"", kind);
  const JsonReader params = sub_config(outer, "params");
  VqSpec vq;
  vq.codes = params.integer_or("image_token_size", 16384, 1, kMaxCodes);
  vq.embed_dim = params.integer_or("n_embed", 8, 1, 8192);
  vq.base_channels = params.integer_or("base_channels", 128, 1, 4096);
  if (params.has("encoder_ch_mult")) {
    vq.multipliers = params.integers("encoder_ch_mult", 1, 64, 8);
    if (vq.multipliers.empty()) params.fail("encoder_ch_mult", "1 to 8 levels", "none");
  }
  check_groups(params, "base_channels", vq);
  vq.res_blocks = params.integer_or("num_res_blocks", 2, 1, 16);
  vq.latent_channels = params.integer_or("z_channels", 256, 1, 8192);
  vq.names = VqNames::kLlamaGen;
  vq.prefix = "gen_vision_model.";
  return vq;
}

void check_original_widths(const JsonReader& config, std::int64_t hidden, const VqSpec& vq) {
  const JsonReader aligner = sub_config(sub_config(config, "aligner_config"), "params");
  require_equal(aligner, "n_embed", aligner.integer_or("n_embed", hidden, 1, kMaxHidden), hidden,
                "the language model's width");
  const JsonReader gen = sub_config(sub_config(config, "gen_aligner_config"), "params");
  require_equal(gen, "depth", gen.integer_or("depth", 2, 1, 64), 2, "an aligner of two layers");
  require_equal(gen, "input_dim", gen.integer_or("input_dim", vq.embed_dim, 1, kMaxHidden),
                vq.embed_dim, "the code width");
  require_equal(gen, "n_embed", gen.integer_or("n_embed", hidden, 1, kMaxHidden), hidden,
                "the language model's width");
  const JsonReader head = sub_config(sub_config(config, "gen_head_config"), "params");
  for (const char* key : {"n_embed", "image_token_embed"}) {
    require_equal(head, key, head.integer_or(key, hidden, 1, kMaxHidden), hidden,
                  "the language model's width");
  }
  require_equal(head, "image_token_size",
                head.integer_or("image_token_size", vq.codes, 1, kMaxCodes), vq.codes,
                "the number of codes");
}

ModelSpec parse_original(const ModelSource& source) {
  const JsonReader config = config_reader(source);
  ModelSpec spec;
  const LanguageConfig llama = parse_language(sub_config(config, "language_config"), kLanguages);
  const std::int64_t hidden = llama.model.width;
  spec.model.transformer = llama.model;
  spec.model.prompt_vocab = llama.vocab;
  const Vision vision = parse_original_vision(config);
  spec.vq = parse_original_vq(config);
  check_original_widths(config, hidden, spec.vq);
  const JsonReader params = sub_config(sub_config(config, "vision_config"), "params");
  finish_geometry(params, "image_size", vision.image / spec.vq.downsample(), llama.max_positions,
                  spec);
  finish_identity(source, spec);
  spec.prompt.pad_token =
      file_reader(source, FolderFile::kProcessor).string_or("pad_tag", spec.prompt.pad_token);
  read_sampling(source, {}, spec);
  spec.names = language_names(llama.model, "language_model.model.");
  spec.names.code_table = "gen_embed.weight";
  spec.names.align_in = "gen_aligner.layers.0";
  spec.names.align_out = "gen_aligner.layers.2";
  spec.names.head_in = "gen_head.output_mlp_projector";
  spec.names.head_out = "gen_head.vision_head";
  TensorList list;
  list_original_vision(vision, hidden, list);
  list_generation(spec, list);
  list_language(llama.model, llama.vocab, "language_model.model.", list);
  list.add("language_model.lm_head.weight", {llama.vocab, hidden});
  list.append(vq_tensors(spec.vq));
  spec.tensors = list.take();
  if (llama.tied) spec.optional_tensors = {"language_model.lm_head.weight"};
  spec.ignored = {"vision_model.vision_tower.attn_pool.*",
                  "gen_vision_model.quantize.codebook_used"};
  for (std::int64_t i = 0; i < llama.model.layers; ++i) {
    spec.ignored.push_back("language_model.model.layers." + std::to_string(i) +
                           ".self_attn.rotary_emb.inv_freq");
  }
  return spec;
}

bool detect(const ModelSource& source) {
  const std::string type = model_type(source);
  return type == "janus" || type == "multi_modality";
}

ModelSpec parse(const ModelSource& source) {
  return model_type(source) == "janus" ? parse_hf(source) : parse_original(source);
}

// --- describing: image encoder and aligner
// ------------------------------------------------------

VitNames janus_port_names() {
  VitNames names;
  names.prefix = "model.vision_model.";
  names.out = "self_attn.projection_layer";
  return names;
}

VitNames janus_original_names() {
  VitNames names;
  names.prefix = "vision_model.vision_tower.";
  names.patch = "patch_embed.proj";
  names.positions = "pos_embed";
  names.positions_batched = true;
  names.layer = "blocks.{}.";
  names.norm1 = "norm1";
  names.norm2 = "norm2";
  names.qkv = {"attn.qkv"};
  names.out = "attn.proj";
  names.final_norm = "norm";
  return names;
}

VisionTower port_tower(const JsonReader& config) {
  const JsonReader vision = config.object("vision_config");
  VisionTower tower;
  VitSpec& vit = tower.vit;
  read_tower_sizes(vision, {1024, 0, 24, 16, 384, 16, "gelu", 1e-6}, vit);
  const double ratio = vision.number_or("mlp_ratio", 4.0, 0.01, 64.0);
  vit.mlp_width = truncate<std::int64_t>(to_double(vit.width) * ratio);
  vit.patch_bias = true;
  if (vision.boolean_or("use_qk_norm", false)) vision.fail("use_qk_norm", "false", "true");
  if (!vision.boolean_or("attention_bias", true)) vision.fail("attention_bias", "true", "false");
  const std::int64_t out = vision.integer_or("projection_dim", 2048, 1, kMaxTowerWidth);
  const std::int64_t depth = vision.integer_or("depth", 2, 1, 8);
  ProjectorSpec& projector = tower.projector;
  projector.layers = {"fc1"};
  for (std::int64_t i = 1; i < depth; ++i) {
    projector.layers.push_back("hidden_layers." + std::to_string(i - 1));
  }
  projector.widths.assign(projector.layers.size(), out);
  projector.activation = vit.activation;
  tower.layouts.push_back({janus_port_names(), "model.aligner.", {}});
  return tower;
}

// The original names a fixed encoder, SigLIP-L with the exact GELU.
VisionTower original_tower(const JsonReader& config) {
  static constexpr std::array<std::string_view, 1> kEncoders = {"siglip_large_patch16_384"};
  static constexpr std::array<std::string_view, 1> kProjectors = {"mlp_gelu"};
  const JsonReader params = config.object("vision_config").object("params");
  params.choice("model_name", kEncoders);
  params.integer_or("image_size", 384, 384, 384);
  params.integer_or("select_layer", -1, -1, -1);
  VisionTower tower;
  VitSpec& vit = tower.vit;
  vit.patch = 16;
  vit.activation = VitActivation::kGelu;
  vit.norm_eps = 1e-6f;
  vit.patch_bias = true;
  const JsonReader aligner = config.object("aligner_config").object("params");
  aligner.choice("projector_type", kProjectors);
  const std::int64_t out = aligner.integer("n_embed", 1, kMaxTowerWidth);
  const std::int64_t depth = aligner.integer_or("depth", 2, 1, 8);
  for (std::int64_t i = 0; i < depth; ++i) {
    tower.projector.layers.push_back("layers." + std::to_string(2 * i));
    tower.projector.widths.push_back(out);
  }
  tower.layouts.push_back({janus_original_names(), "aligner.", {}});
  tower.ignored = {"attn_pool.*"};
  return tower;
}

// --- describing: preprocessing -------------------------------------------------------------------

PreprocessPolicy longest_side(std::string name, SideRounding rounding) {
  PreprocessPolicy out;
  out.name = std::move(name);
  out.mode = ResizeMode::kLongestSide;
  out.side = 384;
  out.patch = 16;
  out.shortest = 14;
  out.rounding = rounding;
  out.background = {127, 127, 127};
  return out;
}

PreprocessPolicy original_policy() { return longest_side("janus", SideRounding::kTruncate); }
PreprocessPolicy port_policy() { return longest_side("janus-hf", SideRounding::kHalfToEven); }

constexpr PolicyMaker kPolicies[] = {original_policy, port_policy};
constexpr std::string_view kOriginalProcessors[] = {"VLMImageProcessor"};

// --- describing: prompts -------------------------------------------------------------------------

constexpr std::string_view kSystem =
    "You are a helpful language and vision assistant. You are able to understand the visual "
    "content that the user provides, and assist the user with a variety of tasks using natural "
    "language.";
constexpr std::string_view kEnd = "<\uff5cend\u2581of\u2581sentence\uff5c>";
constexpr std::string_view kSpecial[] = {
    "<image_placeholder>", "<begin_of_image>", "<end_of_image>", "<|User|>", "<|Assistant|>", kEnd};

constexpr ChatForm form(std::string_view name, std::string_view user, std::string_view assistant,
                        std::string_view generation) {
  return {.name = name,
          .layout = ChatLayout::kJanus,
          .implied_system = kSystem,
          .system_close = "\n\n",
          .user_open = user,
          .user_close = "\n\n",
          .assistant_open = assistant,
          .assistant_close = kEnd,
          .generation = generation,
          .image = "<image_placeholder>",
          .image_open = "<begin_of_image>",
          .image_close = "<end_of_image>",
          .frames_itself = true,
          .special = kSpecial};
}

constexpr ChatForm kForms[] = {
    form("janus", "User: ", "Assistant: ", "Assistant:"),
    form("janus-pro", "<|User|>: ", "<|Assistant|>: ", "<|Assistant|>:")};
constexpr ChatChoice kChats[] = {{"<|User|>", &kForms[1]}, {"", &kForms[0]}};

// --- describing: the rows ------------------------------------------------------------------------

constexpr LayoutNames kPortLayouts[] = {{"model.language_model.", "lm_head.weight"}};
constexpr LayoutNames kOriginalLayouts[] = {
    {"language_model.model.", "language_model.lm_head.weight"}};

constexpr Describer kDescribers[] = {
    {.type = "janus",
     .title = "Janus",
     .tower = port_tower,
     .text_key = "text_config",
     .languages = kLanguages,
     .layouts = kPortLayouts,
     .policy = port_policy,
     .processors = kPortProcessors,
     .chats = kChats,
     .image_key = "image_token_id",
     .image_id = 100581,
     .image_token = "<image_placeholder>",
     .head_tie = HeadTie::kWholeOrAbsent,
     .guides_images = true},
    {.type = "multi_modality",
     .title = "Janus",
     .tower = original_tower,
     .text_key = "language_config",
     .languages = kLanguages,
     .layouts = kOriginalLayouts,
     .policy = original_policy,
     .processors = kOriginalProcessors,
     .size_key = "params",
     .chats = kChats,
     .image_key = "image_token_id",
     .image_token = "<image_placeholder>",
     .guides_images = true,
     .end_token = kEnd},
};

}  // namespace

extern constinit const Family kJanusFamily = {.name = "janus",
                                              .detect = detect,
                                              .parse = parse,
                                              .describers = kDescribers,
                                              .policies = kPolicies,
                                              .forms = kForms};

}  // namespace tessera
