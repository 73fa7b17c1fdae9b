// Qwen2-VL (Wang et al. 2024) and Qwen2.5-VL (Bai et al. 2025): an image encoder with rotary
// positions for any size, patches two frames deep, a merger of two by two patches, and a language
// model with three rotary axes. They describe images.
#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/families/family.h"
#include "engine/families/processor_keys.h"
#include "engine/families/language.h"
#include "engine/towers/tower_configs.h"

namespace tessera {

namespace {

// --- image encoder and projector ---------------------------------------------------------------

// Newer files name the rotary base, older ones have the class default.
void read_tower_rope(const JsonReader& vision, VitSpec& vit) {
  static constexpr std::array<std::string_view, 2> kKinds = {"axial", "default"};
  const JsonReader rope = sub_config(vision, "rope_parameters");
  if (rope.has("rope_type")) rope.choice("rope_type", kKinds);
  vit.rope_theta = rope.number_or("rope_theta", vit.rope_theta, 1.0, 1e9);
}

void read_qwen_shared(const JsonReader& vision, VisionTower& tower) {
  VitSpec& vit = tower.vit;
  vit.layers = vit.run_layers = vision.integer_or("depth", 32, 1, 1024);
  vit.heads = vision.integer_or("num_heads", 16, 1, 1024);
  vit.patch = vision.integer_or("patch_size", 14, 1, 256);
  vit.frames = vision.integer_or("temporal_patch_size", 2, 1, 16);
  vit.merge = vision.integer_or("spatial_merge_size", 2, 1, 8);
  for (const char* key : {"in_channels", "in_chans"}) vision.integer_or(key, 3, 3, 3);
  vit.positions = VitPositions::kRotary2d;
  read_tower_rope(vision, vit);
  vit.final_norm = VitFinalNorm::kNone;
  vit.norm_eps = 1e-6f;
  tower.projector.cell = vit.merge;
  tower.projector.norm = "ln_q";
  tower.projector.layers = {"mlp.0", "mlp.2"};
  for (const char* prefix : {"visual.", "model.visual."}) {
    TowerLayout layout;
    layout.vit.prefix = prefix;
    layout.vit.patch = "patch_embed.proj";
    layout.vit.layer = "blocks.{}.";
    layout.vit.norm1 = "norm1";
    layout.vit.norm2 = "norm2";
    layout.vit.qkv = {"attn.qkv"};
    layout.vit.out = "attn.proj";
    layout.projector_prefix = std::string(prefix) + "merger.";
    tower.layouts.push_back(layout);
  }
}

VisionTower qwen2_tower(const JsonReader& config) {
  const JsonReader vision = config.object("vision_config");
  VisionTower tower;
  read_qwen_shared(vision, tower);
  VitSpec& vit = tower.vit;
  vit.width = vision.integer_or("embed_dim", 1280, 1, kMaxTowerWidth);
  vit.mlp_width = vit.width * vision.integer_or("mlp_ratio", 4, 1, 64);
  vit.activation = activation_of(vision, "hidden_act", "quick_gelu");
  const std::int64_t joined = vit.merge * vit.merge * vit.width;
  tower.projector.widths = {joined, vision.integer_or("hidden_size", 3584, 1, kMaxTowerWidth)};
  return tower;
}

VisionTower qwen2_5_tower(const JsonReader& config) {
  static constexpr std::array<std::string_view, 1> kActivations = {"silu"};
  const JsonReader vision = config.object("vision_config");
  VisionTower tower;
  read_qwen_shared(vision, tower);
  VitSpec& vit = tower.vit;
  vit.width = vision.integer("hidden_size", 1, kMaxTowerWidth);
  vit.mlp_width = vision.integer_or("intermediate_size", 3420, 1, kMaxTowerWidth);
  if (vision.has("hidden_act")) vision.choice("hidden_act", kActivations);
  vit.activation = VitActivation::kSiluGated;
  vit.norm = tower.projector.norm_kind = VitNorm::kRms;
  const std::int64_t pixels = vision.integer_or("window_size", 112, 1, 16384);
  vit.window = pixels / vit.merge / vit.patch;
  if (vit.window < 1)
    vision.fail("window_size", "at least one merged patch", std::to_string(pixels));
  vit.full_layers = vision.has("fullatt_block_indexes")
                        ? vision.integers("fullatt_block_indexes", 0, vit.layers - 1, 1024)
                        : std::vector<std::int64_t>{7, 15, 23, 31};
  for (TowerLayout& layout : tower.layouts) layout.vit.mlp_in = {"mlp.gate_proj", "mlp.up_proj"};
  for (TowerLayout& layout : tower.layouts) layout.vit.mlp_out = "mlp.down_proj";
  const std::int64_t joined = vit.merge * vit.merge * vit.width;
  tower.projector.widths = {joined, vision.integer_or("out_hidden_size", 3584, 1, kMaxTowerWidth)};
  return tower;
}

// --- preprocessing -------------------------------------------------------------------------------

PreprocessPolicy qwen2_vl() {
  PreprocessPolicy out;
  out.name = "qwen2-vl";
  out.mode = ResizeMode::kMultiples;
  out.mean = kClipMean;
  out.std = kClipStd;
  out.side = 0;
  out.merge = 2;
  out.min_pixels = 4 * 28 * 28;
  out.max_pixels = 16384 * 28 * 28;
  return out;
}

constexpr PolicyMaker kPolicies[] = {qwen2_vl};
constexpr std::string_view kProcessors[] = {"Qwen2VLImageProcessor"};

void finish_qwen2_5(const JsonReader& config, DescribeSpec& spec) {
  const JsonReader vision = sub_config(config, "vision_config");
  spec.video.ids_per_second = vision.number_or("tokens_per_second", 4, 0, 1000);
}

// --- prompts -------------------------------------------------------------------------------------

constexpr std::string_view kSpecial[] = {"<|im_start|>",  "<|im_end|>",    "<|vision_start|>",
                                         "<|image_pad|>", "<|video_pad|>", "<|vision_end|>"};
constexpr ChatForm kForms[] = {{.name = "qwen2-vl",
                                .implied_system = "You are a helpful assistant.",
                                .system_open = "<|im_start|>system\n",
                                .system_close = "<|im_end|>\n",
                                .user_open = "<|im_start|>user\n",
                                .user_close = "<|im_end|>\n",
                                .assistant_open = "<|im_start|>assistant\n",
                                .assistant_close = "<|im_end|>\n",
                                .generation = "<|im_start|>assistant\n",
                                .image = "<|image_pad|>",
                                .image_open = "<|vision_start|>",
                                .image_close = "<|vision_end|>",
                                .video = "<|video_pad|>",
                                .special = kSpecial}};
constexpr ChatChoice kChats[] = {{"", &kForms[0]}};

// --- the rows ------------------------------------------------------------------------------------

constexpr std::string_view kQwen2Text[] = {"qwen2_vl", "qwen2_vl_text"};
constexpr std::string_view kQwen25Text[] = {"qwen2_5_vl", "qwen2_5_vl_text"};
constexpr LayoutNames kLayouts[] = {{"model.", "lm_head.weight"},
                                    {"model.language_model.", "lm_head.weight"},
                                    {"language_model.", "lm_head.weight"}};

constexpr Describer kDescribers[] = {
    {.type = "qwen2_vl",
     .title = "Qwen2-VL",
     .tower = qwen2_tower,
     .languages = kQwen2Text,
     .layouts = kLayouts,
     .policy = qwen2_vl,
     .processors = kProcessors,
     .video_frames = {.rule = FrameRule::kQwen},
     .chats = kChats,
     .image_key = "image_token_id",
     .image_id = 151655,
     .image_token = "<|image_pad|>",
     .video_id = 151656},
    {.type = "qwen2_5_vl",
     .title = "Qwen2.5-VL",
     .tower = qwen2_5_tower,
     .languages = kQwen25Text,
     .layouts = kLayouts,
     .policy = qwen2_vl,
     .processors = kProcessors,
     .video_frames = {.rule = FrameRule::kQwen},
     .chats = kChats,
     .image_key = "image_token_id",
     .image_id = 151655,
     .image_token = "<|image_pad|>",
     .video_id = 151656,
     .finish = finish_qwen2_5},
};

// --- pairs of GGUF files -------------------------------------------------------------------------

// What both have. The published processors' limits where the file names none.
void gguf_qwen_shared(GgufEncoder& encoder, std::string_view type, Json& config, Json& processor) {
  constexpr const char* kEps = "vision.attention.layer_norm_epsilon";
  GgufKeyReader& keys = encoder.keys;
  const double eps = keys.wanted_number(kEps, 1e-12, 0.1);
  if (std::abs(eps - 1e-6) > 1e-9) keys.fail(kEps, "1e-6", Json(eps).dump());
  const std::int64_t patch = keys.wanted("vision.patch_size", 1, 256);
  const std::int64_t merge = keys.integer("vision.spatial_merge_size", 1, 8).value_or(2);
  config = {{"model_type", type},
            {"text_config", {{"model_type", std::string(type) + "_text"}}},
            {"vision_config",
             {{"depth", keys.wanted("vision.block_count", 1, 1024)},
              {"num_heads", keys.wanted("vision.attention.head_count", 1, 1024)},
              {"patch_size", patch},
              {"spatial_merge_size", merge}}}};
  const PreprocessPolicy usual = qwen2_vl();
  processor = {{"image_processor_type", kProcessors[0]},
               {"patch_size", patch},
               {"temporal_patch_size", 2},
               {"merge_size", merge},
               {"min_pixels",
                keys.integer("vision.image_min_pixels", 1, kMaxPixels).value_or(usual.min_pixels)},
               {"max_pixels",
                keys.integer("vision.image_max_pixels", 1, kMaxPixels).value_or(usual.max_pixels)}};
  clip_levels(encoder, processor);
}

void gguf_qwen2(GgufEncoder& encoder, Json& config, Json& processor) {
  gguf_qwen_shared(encoder, "qwen2_vl", config, processor);
  Json& vision = config["vision_config"];
  const std::int64_t width = encoder.keys.wanted("vision.embedding_length", 1, kMaxTowerWidth);
  // vision.feed_forward_length of published files is the language model's width.
  const std::int64_t up =
      std::max(encoder.rows("v.blk.0.ffn_up.weight"), encoder.rows("v.blk.0.ffn_down.weight"));
  vision["embed_dim"] = width;
  vision["mlp_ratio"] = up / width;
  vision["hidden_size"] = encoder.text_width;
  const std::string activation = clip_activation(encoder);
  if (activation == "silu") encoder.keys.fail("use_silu", "false", "true");
  vision["hidden_act"] = activation;
}

void gguf_qwen2_5(GgufEncoder& encoder, Json& config, Json& processor) {
  constexpr std::string_view kPattern = "vision.n_wa_pattern";
  GgufKeyReader& keys = encoder.keys;
  gguf_qwen_shared(encoder, "qwen2_5_vl", config, processor);
  Json& vision = config["vision_config"];
  if (clip_activation(encoder) != "silu") keys.fail("use_silu", "true", "false, or no such key");
  for (const char* key : {"use_glu_mlp", "use_rms_norm"}) {
    if (!keys.boolean(key).value_or(true)) keys.fail(key, "true", "false");
  }
  vision["hidden_size"] = keys.wanted("vision.embedding_length", 1, kMaxTowerWidth);
  vision["intermediate_size"] = encoder.rows("v.blk.0.ffn_up.weight");
  vision["out_hidden_size"] = encoder.text_width;
  vision["tokens_per_second"] = 2;  // of all that are published
  if (const auto window = keys.integer("vision.window_size", 1, 16384)) {
    vision["window_size"] = *window;
  }
  const std::int64_t depth = vision["depth"].get<std::int64_t>();
  // Every so many layers one sees all, or those that are named do.
  auto layers = keys.integers("vision.wa_layer_indexes", 0, depth - 1, 1024);
  const auto older = keys.integers("vision.fullatt_block_indexes", 0, depth - 1, 1024);
  if (!layers) layers = older;
  if (layers) {
    vision["fullatt_block_indexes"] = *layers;
  } else {
    const std::int64_t step = keys.wanted(kPattern, 1, 1024);
    Json full = Json::array();
    for (std::int64_t layer = step - 1; layer < depth; layer += step) full.push_back(layer);
    vision["fullatt_block_indexes"] = std::move(full);
  }
}

constexpr std::string_view kGgufText[] = {"qwen2vl"};
constexpr std::string_view kGgufLayers[] = {"0", "2"};
constexpr GgufProjector qwen_projector(std::string_view type, decltype(GgufProjector::read) read) {
  return {.type = type,
          .architectures = kGgufText,
          .read = read,
          .last = "mm.2",
          .norm = "v.post_ln",
          .layers = kGgufLayers,
          .token = "<|image_pad|>",
          .video_token = "<|video_pad|>",
          .placeholder = "position_embd.weight"};
}
constexpr GgufProjector kProjectors[] = {qwen_projector("qwen2vl_merger", gguf_qwen2),
                                         qwen_projector("qwen2.5vl_merger", gguf_qwen2_5)};

}  // namespace

extern constinit const Family kQwenVlFamily = {.name = "qwen-vl",
                                               .describers = kDescribers,
                                               .policies = kPolicies,
                                               .forms = kForms,
                                               .projectors = kProjectors};

}  // namespace tessera
