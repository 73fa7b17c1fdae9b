// LLaVA (Liu et al. 2023, 2024), LLaVA-NeXT and LLaVA-OneVision (Li et al. 2024): CLIP or SigLIP
// with two linear layers after it in front of Vicuna, Mistral or Qwen2. They describe images. Files
// of the port and of the original (liuhaotian/llava-*) name their parts otherwise.
#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/families/family.h"
#include "engine/families/language.h"
#include "engine/families/llava_gguf.h"
#include "engine/families/processor_keys.h"
#include "engine/towers/tower_configs.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

// --- image encoder and projector ---------------------------------------------------------------

constexpr TowerDefaults kVideo = {768, 3072, 12, 12, 224, 32, "quick_gelu", 1e-5};
constexpr TowerDefaults kSiglip = {768, 3072, 12, 12, 224, 16, kSiglipActivation, 1e-6};

TowerLayout layout(const char* tower, const char* projector, std::vector<std::string> layers) {
  TowerLayout out;
  out.vit.prefix = tower;
  out.projector_prefix = projector;
  out.projector_layers = std::move(layers);
  return out;
}

// As releases 4 and 5 of the library save, and as their models name their parts in memory.
std::vector<TowerLayout> port_layouts() {
  const std::vector<std::string> layers = {"linear_1", "linear_2"};
  return {layout("vision_tower.vision_model.", "multi_modal_projector.", layers),
          layout("vision_tower.", "multi_modal_projector.", layers),
          layout("model.vision_tower.vision_model.", "model.multi_modal_projector.", layers),
          layout("model.vision_tower.", "model.multi_modal_projector.", layers)};
}

// The tower within the model's files, or in CLIP's own as releases 4 and 5 save them. Linear layers have the even numbers of a
// sequence; a single one may be none.
std::vector<TowerLayout> original_layouts(std::int64_t layers, bool sequence) {
  std::vector<std::string> stems;
  for (std::int64_t i = 0; i < layers; ++i) stems.push_back(std::to_string(2 * i));
  const char* prefix = sequence ? "model.mm_projector." : "model.mm_projector";
  if (!sequence) stems = {""};
  return {layout("model.vision_tower.vision_tower.vision_model.", prefix, stems),
          layout("vision_model.", prefix, stems), layout("", prefix, stems)};
}

std::vector<TowerLayout> joined(std::vector<TowerLayout> first, std::vector<TowerLayout> second) {
  for (TowerLayout& one : second) first.push_back(std::move(one));
  return first;
}

// Entry 0 of the reference's hidden states is what enters layer 0; -1 the output of the last layer,
// without the norm after it. Several entries are joined on the channels.
void read_feature_layers(const JsonReader& config, const char* key, std::int64_t fallback,
                         VitSpec& vit) {
  const std::int64_t low = -vit.layers - 1, high = vit.layers;
  std::vector<std::int64_t> entries;
  if (config.has(key) && config.raw(key).is_array()) {
    entries = config.integers(key, low, high, 64);
    if (entries.empty()) config.fail(key, "at least one layer", "none");
  } else {
    entries = {config.integer_or(key, fallback, low, high)};
  }
  vit.run_layers = 0;
  for (std::int64_t& entry : entries) {
    if (entry < 0) entry += vit.layers + 1;
    vit.run_layers = std::max(vit.run_layers, entry);
  }
  if (entries.size() > 1) vit.taps = entries;
}

void read_text_width(const JsonReader& config, ProjectorSpec& projector) {
  std::int64_t out = 4096;
  if (config.has("text_config")) {
    out = config.object("text_config").integer_or("hidden_size", 4096, 1, kMaxTowerWidth);
  }
  projector.widths = {out, out};
}

VisionTower port_tower(const JsonReader& config, std::int64_t feature_layer,
                       const char* strategy_fallback) {
  static constexpr std::array<std::string_view, 2> kTowers = {"clip_vision_model",
                                                              "siglip_vision_model"};
  static constexpr const char* kStrategy = "vision_feature_select_strategy";
  const JsonReader vision = config.object("vision_config");
  const bool video = vision.choice("model_type", kTowers) == kTowers[0];
  VisionTower tower;
  VitSpec& vit = tower.vit;
  read_tower_sizes(vision, video ? kVideo : kSiglip, vit);
  vit.class_token = vit.first_norm = video;
  vit.patch_bias = !video;
  vit.final_norm = VitFinalNorm::kUnused;
  read_feature_layers(config, "vision_feature_layer", feature_layer, vit);
  const std::string strategy = config.string_or(kStrategy, strategy_fallback);
  if (strategy != "default" && strategy != "full") {
    config.fail(kStrategy, "default or full", strategy);
  }
  // "default" drops the first row whatever it is: of SigLIP that is a patch.
  if (!video && strategy == "default") {
    config.fail(kStrategy, "full, as SigLIP has no class token to drop", strategy);
  }
  vit.class_token_feature = video && strategy == "full";
  read_text_width(config, tower.projector);
  tower.projector.bias = config.boolean_or("multimodal_projector_bias", true);
  tower.projector.activation = activation_of(config, "projector_hidden_act", "gelu");
  tower.layouts = joined(port_layouts(), original_layouts(2, true));
  tower.ignored = {"embeddings.position_ids", "head.*"};
  return tower;
}

constexpr std::string_view kTowerKey = "mm_vision_tower";

// The encoder's folder by the last part of its name, in the model's or next to it; or none.
fs::path tower_folder(const JsonReader& config) {
  std::string name = config.string(kTowerKey);
  name = name.substr(name.find_last_of('/') + 1);
  if (name.empty() || name.starts_with('.')) config.fail(kTowerKey, "a model's name", name);
  const fs::path folder = fs::path(config.file()).parent_path();
  for (const fs::path& place : {folder / name, folder.parent_path() / name}) {
    if (file_exists(place / "config.json")) return place;
  }
  return {};
}

// CLIP's own configuration: of its encoder, or of both its halves.
void read_clip_folder(const fs::path& folder, VitSpec& vit) {
  static constexpr std::array<std::string_view, 2> kTypes = {"clip_vision_model", "clip"};
  const std::string file = (folder / "config.json").string();
  const Json json = parse_json(read_file(file, std::size_t{1} << 20), file);
  const JsonReader clip(json, file);
  const bool whole = clip.choice("model_type", kTypes) == kTypes[1];
  read_tower_sizes(whole ? sub_config(clip, "vision_config") : clip, kVideo, vit);
}

// mm_projector_type: one linear layer, or N of them with GELU in between (mlpNx_gelu).
void read_original_projector(const JsonReader& config, VisionTower& tower) {
  static constexpr std::string_view kKey = "mm_projector_type", kStem = "mlp", kEnd = "x_gelu";
  constexpr std::int64_t kMaxLayers = 8;
  const std::string kind = config.string_or(kKey, "linear");
  std::int64_t layers = kind == "linear" ? 1 : 0;
  if (kind.size() == kStem.size() + 1 + kEnd.size() && kind.starts_with(kStem) &&
      kind.ends_with(kEnd)) {
    layers = kind[kStem.size()] - '0';
  }
  if (layers < 1 || layers > kMaxLayers) {
    config.fail(kKey, "linear, or mlp1x_gelu to mlp8x_gelu", kind);
  }
  const std::int64_t out = config.integer("hidden_size", 1, kMaxTowerWidth);
  tower.projector.widths.assign(to_size(layers), out);
  tower.layouts = original_layouts(layers, kind != "linear");
  if (layers == 2) tower.layouts = joined(std::move(tower.layouts), port_layouts());
}

// The original names its encoder and gives no sizes: they are in the encoder's own folder, or those
// of the published CLIP-L.
VisionTower original_tower(const JsonReader& config) {
  static constexpr std::array<std::string_view, 2> kTowers = {"openai/clip-vit-large-patch14-336",
                                                              "openai/clip-vit-large-patch14"};
  static constexpr std::array<std::string_view, 2> kFeatures = {"patch", "cls_patch"};
  VisionTower tower;
  VitSpec& vit = tower.vit;
  tower.folder = tower_folder(config);
  if (!tower.folder.empty()) {
    read_clip_folder(tower.folder, vit);
  } else {
    vit.grid = config.choice(kTowerKey, kTowers) == kTowers[0] ? 24 : 16;
  }
  vit.class_token = vit.first_norm = true;
  vit.final_norm = VitFinalNorm::kUnused;
  config.integer_or("mm_hidden_size", vit.width, vit.width, vit.width);
  read_feature_layers(config, "mm_vision_select_layer", -2, vit);
  vit.class_token_feature = config.has("mm_vision_select_feature") &&
                            config.choice("mm_vision_select_feature", kFeatures) == kFeatures[1];
  constexpr const char* kFrame = "mm_use_im_start_end";
  if (config.boolean_or(kFrame, false)) config.fail(kFrame, "no tokens around images", "true");
  read_original_projector(config, tower);
  tower.ignored = {"embeddings.position_ids"};
  return tower;
}

VisionTower llava_tower(const JsonReader& config) {
  return config.has(kTowerKey) ? original_tower(config) : port_tower(config, -2, "default");
}

// Its SigLIP is published without the last of 27 layers: the output of the 26th is the feature.
VisionTower onevision_tower(const JsonReader& config) { return port_tower(config, -1, "full"); }

// --- preprocessing -------------------------------------------------------------------------------

PreprocessPolicy video(std::string name, ResizeMode mode) {
  PreprocessPolicy out;
  out.name = std::move(name);
  out.mode = mode;
  out.mean = kClipMean;
  out.std = kClipStd;
  return out;
}

PreprocessPolicy llava_pad() {
  PreprocessPolicy out = video("llava-1.5", ResizeMode::kPadToSquare);
  out.background = {122, 116, 104};  // the mean colour, truncated
  return out;
}

PreprocessPolicy llava_crop() { return video("llava-1.5-hf", ResizeMode::kShortestSide); }

PreprocessPolicy llava_next() {
  PreprocessPolicy out = video("llava-next", ResizeMode::kPinpoints);
  out.pinpoints = {{1, 2}, {2, 1}, {2, 2}, {3, 1}, {1, 3}};
  return out;
}

// The authors list widths before heights, so at a tie a square becomes two rows; Hugging Face
// lists heights first, which makes it two columns.
PreprocessPolicy llava_next_authors() {
  PreprocessPolicy out = llava_next();
  out.name = "llava-next-authors";
  for (Tiling& grid : out.pinpoints) std::swap(grid.rows, grid.cols);
  return out;
}

PreprocessPolicy llava_onevision() {
  PreprocessPolicy out;
  out.name = "llava-onevision";
  out.mode = ResizeMode::kPinpoints;
  out.side = 384;
  for (std::int64_t rows = 1; rows <= 6; ++rows) {
    for (std::int64_t cols = 1; cols <= 6; ++cols) out.pinpoints.push_back({rows, cols});
  }
  out.max_map_tiles = 9;
  return out;
}

constexpr PolicyMaker kPolicies[] = {llava_pad, llava_crop, llava_next, llava_next_authors,
                                     llava_onevision};

constexpr std::string_view kLlavaProcessors[] = {"LlavaImageProcessor", "CLIPImageProcessor",
                                                 "SiglipImageProcessor"};
constexpr std::string_view kNextProcessors[] = {"LlavaNextImageProcessor"};
constexpr std::string_view kOneVisionProcessors[] = {"LlavaOnevisionImageProcessor"};

// Of padding to a square, whether or not the mean is taken off afterwards.
Rgb padding_colour(const PreprocessPolicy& policy) {
  return policy.mean_colour.value_or(colour_of(policy.mean));
}

// LLaVA-OneVision cuts no tiles of images that share a prompt: each is padded to a square with
// the mean colour, one view, one newline after it.
PreprocessPolicy whole_views(PreprocessPolicy policy) {
  policy.mode = ResizeMode::kPadToSquare;
  policy.newline_at_end = true;
  policy.background = padding_colour(policy);
  return policy;
}

// "anyres_max_9": maps of more tiles than that are shrunk.
void finish_onevision(const JsonReader& config, DescribeSpec& spec) {
  static constexpr std::string_view kKey = "vision_aspect_ratio", kStem = "anyres_max_";
  const std::string ratio = config.string_or(kKey, "anyres_max_9");
  const std::string number = ratio.starts_with(kStem) ? ratio.substr(kStem.size()) : "";
  std::int64_t tiles = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), tiles);
  if (error != std::errc{} || end != number.data() + number.size() || tiles < 1 || tiles > 4096) {
    config.fail(kKey, "anyres_max_ and a number of tiles", ratio);
  }
  spec.policy.max_map_tiles = tiles;
  spec.together = whole_views(spec.policy);
  spec.video.halved = spec.video.newline_at_end = true;
}

// --- prompts -------------------------------------------------------------------------------------

constexpr std::string_view kVicunaUser =
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the user's questions.";
constexpr std::string_view kVicunaHuman =
    "A chat between a curious human and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the human's questions.";

constexpr std::string_view kVicunaSpecial[] = {"</s>", "<image>"};
constexpr std::string_view kChatMlSpecial[] = {"<|im_start|>", "<|im_end|>", "<image>", "<video>"};

constexpr ChatForm kVicuna = {.layout = ChatLayout::kImagesFirst,
                              .user_open = "USER: ",
                              .assistant_open = "ASSISTANT: ",
                              .text_close = " ",
                              .generation = "ASSISTANT:",
                              .image = "<image>",
                              .special = kVicunaSpecial};

constexpr ChatForm with_name(ChatForm form, std::string_view name) {
  form.name = name;
  return form;
}

// With the authors' system sentence; answers end </s>.
constexpr ChatForm vicuna_original(std::string_view name, std::string_view system) {
  ChatForm form = with_name(kVicuna, name);
  form.implied_system = system;
  form.system_close = " ";
  form.user_close = " ";
  form.assistant_close = "</s>";
  form.text_close = "";
  return form;
}

constexpr ChatForm kMistral = {.name = "llava-1.6-mistral",
                               .layout = ChatLayout::kImagesFirst,
                               .system_open = "<<SYS>>\n",
                               .system_close = "\n<</SYS>>\n\n",
                               .user_open = "[INST] ",
                               .user_close = " [/INST]",
                               .assistant_open = " ",
                               .assistant_close = "</s> ",
                               .image = "<image>",
                               .special = kVicunaSpecial};

constexpr ChatForm kOneVision = {.name = "llava-onevision",
                                 .layout = ChatLayout::kImagesAbove,
                                 .system_open = "<|im_start|>system ",
                                 .system_close = "<|im_end|>",
                                 .user_open = "<|im_start|>user ",
                                 .user_close = "<|im_end|>",
                                 .assistant_open = "<|im_start|>assistant ",
                                 .assistant_close = "<|im_end|>",
                                 .generation = "<|im_start|>assistant\n",
                                 .image = "<image>",
                                 .video = "<video>",
                                 .special = kChatMlSpecial};

// ChatML without line breaks after turns.
constexpr ChatForm yi() {
  ChatForm form = with_name(kOneVision, "llava-1.6-yi");
  form.layout = ChatLayout::kImagesFirst;
  form.implied_system = "Answer the questions.";
  form.system_open = "<|im_start|>system\n";
  form.user_open = "<|im_start|>user\n";
  form.assistant_open = "<|im_start|>assistant\n";
  form.video = "";
  return form;
}

// llava-interleave and LLaVA-NeXT on Qwen.
constexpr ChatForm qwen() {
  ChatForm form = with_name(kOneVision, "llava-qwen");
  form.system_open = "<|im_start|>system\n";
  form.user_open = "<|im_start|>user\n";
  form.assistant_open = "<|im_start|>assistant\n";
  form.system_close = form.user_close = form.assistant_close = "<|im_end|>\n";
  form.video = "";
  return form;
}

constexpr std::string_view kLlama3Token = "<|start_header_id|>";
constexpr std::string_view kLlama3Special[] = {kLlama3Token, "<|end_header_id|>", "<|eot_id|>",
                                               "<image>"};
constexpr ChatForm kLlama3 = {.name = "llava-llama3",
                              .layout = ChatLayout::kImagesAbove,
                              .system_open = "<|start_header_id|>system<|end_header_id|>\n\n",
                              .user_open = "<|start_header_id|>user<|end_header_id|>\n\n",
                              .assistant_open = "<|start_header_id|>assistant<|end_header_id|>\n\n",
                              .text_close = "<|eot_id|>",
                              .generation = "<|start_header_id|>assistant<|end_header_id|>\n\n",
                              .image = "<image>",
                              .special = kLlama3Special};

// The authors' code renders Llama 3's own template, and others wrote ChatML each in their way.
constexpr ChatForm kOtherForm = {
    .name = "llava-other", .image = "<image>", .needs_template = true, .special = kVicunaSpecial};

enum {
  kLlava15,
  kLlava15Original,
  kVicuna16,
  kVicuna16Original,
  kMistral16,
  kYi16,
  kOneVisionChat,
  kQwenChat,
  kLlama3Chat
};
constexpr ChatForm kForms[] = {with_name(kVicuna, "llava-1.5"),
                               vicuna_original("llava-1.5-original", kVicunaUser),
                               with_name(kVicuna, "llava-1.6-vicuna"),
                               vicuna_original("llava-1.6-vicuna-original", kVicunaHuman),
                               kMistral,
                               yi(),
                               kOneVision,
                               qwen(),
                               kLlama3};
constexpr std::string_view kChatMlToken = "<|im_start|>";
constexpr ChatChoice kLlavaChats[] = {
    {kLlama3Token, &kForms[kLlama3Chat]}, {kChatMlToken, &kOtherForm}, {"", &kForms[kLlava15]}};
constexpr ChatChoice kNextChats[] = {
    {kLlama3Token, &kForms[kLlama3Chat]}, {kChatMlToken, &kForms[kYi16]}, {"", &kForms[kVicuna16]}};
constexpr ChatChoice kOneVisionChats[] = {{"", &kForms[kOneVisionChat]}};

void finish_llava(const JsonReader& config, DescribeSpec& spec) {
  const std::string text = sub_config(config, "text_config").string_or("model_type", "");
  if (text == "qwen2") spec.chats = {{"", &kForms[kQwenChat]}};
}

// The tiles of an image are joined row by row: there is no place for class tokens.
void refuse_class_tokens(const JsonReader& config, const DescribeSpec& spec, const char* key,
                         const char* expected) {
  if (spec.tower.vit.class_token_feature && spec.policy.mode == ResizeMode::kPinpoints) {
    config.fail(key, std::string(expected) + ", as images are cut into tiles",
                config.string(key));
  }
}

void finish_next(const JsonReader& config, DescribeSpec& spec) {
  finish_llava(config, spec);
  refuse_class_tokens(config, spec, "vision_feature_select_strategy", "default");
  const std::string text = sub_config(config, "text_config").string_or("model_type", "");
  if (text == "mistral") spec.chats = {{"", &kForms[kMistral16]}};
}

// The authors' policies are keys of the model's configuration; grids are widths by heights there.
PreprocessPolicy original_policy(const JsonReader& config, std::int64_t side) {
  static constexpr const char* kGrids = "image_grid_pinpoints";
  static constexpr std::array<std::string_view, 3> kRatios = {"pad", "square", "anyres"};
  static constexpr std::array<std::string_view, 1> kMerges = {"spatial_unpad"};
  const bool said = config.has("image_aspect_ratio");
  const std::string ratio = said ? config.choice("image_aspect_ratio", kRatios) : "square";
  if (ratio != "anyres") return ratio == "pad" ? llava_pad() : llava_crop();
  config.choice("mm_patch_merge_type", kMerges);
  PreprocessPolicy policy = llava_next_authors();
  policy.pinpoints.clear();
  for (const Json& pair : config.raw(kGrids)) {
    const auto tiles = [&](std::size_t at) {
      const bool number = pair.is_array() && pair.size() == 2 && pair[at].is_number_integer();
      const std::int64_t pixels = number ? pair[at].get<std::int64_t>() : 0;
      if (pixels < side || pixels % side != 0 || pixels / side > 64) {
        config.fail(kGrids, "pairs of multiples of " + std::to_string(side), pair.dump());
      }
      return pixels / side;
    };
    policy.pinpoints.push_back({tiles(1), tiles(0)});
    if (policy.pinpoints.size() > 256) config.fail(kGrids, "at most 256 pairs", "more");
  }
  if (policy.pinpoints.empty()) config.fail(kGrids, "at least one pair", "none");
  return policy;
}

void finish_original(const JsonReader& config, DescribeSpec& spec) {
  PreprocessPolicy& policy = spec.policy;
  const PreprocessPolicy asked = original_policy(config, policy.side);
  policy.name = asked.name;
  policy.pinpoints = asked.pinpoints;
  // A processor that scales both sides alike keeps doing so.
  const bool stretches =
      policy.mode == ResizeMode::kStretch && asked.mode == ResizeMode::kShortestSide;
  if (!stretches) policy.mode = asked.mode;
  policy.background = Rgb{0, 0, 0};
  if (policy.mode == ResizeMode::kPadToSquare) policy.background = padding_colour(policy);
  if (policy.mode == ResizeMode::kPinpoints && policy.resize_height != 0 &&
      (policy.resize_height != policy.side || policy.resize_width != policy.side)) {
    config.fail("image_aspect_ratio",
                "pad or square, as the image processor scales to " +
                    std::to_string(policy.resize_height) + " pixels before it cuts " +
                    std::to_string(policy.side),
                "anyres");
  }
  spec.video.frame = frame_policy(spec.policy);
  refuse_class_tokens(config, spec, "mm_vision_select_feature", "patch");
  if (spec.policy.mode == ResizeMode::kPinpoints) {
    // Their code fits images to the grid itself, before the processor, whatever that resizes with.
    spec.policy.filter = ResampleFilter::kBicubic;
    spec.chats.back() = {"", &kForms[kVicuna16Original]};
  }
}

void finish_original_mistral(const JsonReader& config, DescribeSpec& spec) {
  finish_original(config, spec);
  spec.chats = {{"", &kForms[kMistral16]}};
}

// --- the rows ------------------------------------------------------------------------------------

constexpr std::string_view kLlavaText[] = {"llama", "mistral", "qwen2"};
constexpr std::string_view kQwen2Text[] = {"qwen2"};
// The last: a model without its head, which is the table then.
constexpr LayoutNames kLayouts[] = {{"language_model.model.", "language_model.lm_head.weight"},
                                    {"model.language_model.", "lm_head.weight"},
                                    {"language_model.", "lm_head.weight"}};

constexpr LayoutNames kOriginalLayouts[] = {{"model.", "lm_head.weight"}};
constexpr std::string_view kOriginalProcessors[] = {"CLIPImageProcessor"};
constexpr ChatChoice kOriginalChats[] = {
    {kLlama3Token, &kOtherForm}, {kChatMlToken, &kForms[kYi16]}, {"", &kForms[kLlava15Original]}};

// The authors' own folders.
constexpr Describer original(std::string_view type, std::string_view language,
                             void (*finish)(const JsonReader&, DescribeSpec&)) {
  return {.type = type,
          .key = kTowerKey,
          .title = "LLaVA",
          .tower = llava_tower,
          .languages = kLlavaText,
          .language = language,
          .layouts = kOriginalLayouts,
          .policy = llava_pad,
          .processors = kOriginalProcessors,
          .chats = kOriginalChats,
          .image_id = kNoToken,
          .image_token = "<image>",
          .finish = finish};
}

constexpr Describer kDescribers[] = {
    original("llava", "llama", finish_original),
    original("llava_llama", "llama", finish_original),
    original("llava_mistral", "mistral", finish_original_mistral),
    {.type = "llava",
     .title = "LLaVA",
     .tower = llava_tower,
     .text_key = "text_config",
     .languages = kLlavaText,
     .layouts = kLayouts,
     .policy = llava_crop,
     .processors = kLlavaProcessors,
     .chats = kLlavaChats,
     .image_key = "image_token_index",
     .image_id = 32000,
     .image_token = "<image>",
     .finish = finish_llava},
    {.type = "llava_next",
     .title = "LLaVA-NeXT",
     .tower = llava_tower,
     .text_key = "text_config",
     .languages = kLlavaText,
     .layouts = kLayouts,
     .policy = llava_next,
     .processors = kNextProcessors,
     .chats = kNextChats,
     .image_key = "image_token_index",
     .image_id = 32000,
     .image_token = "<image>",
     .head_tie = HeadTie::kWhole,
     .finish = finish_next},
    {.type = "llava_onevision",
     .title = "LLaVA-OneVision",
     .tower = onevision_tower,
     .text_key = "text_config",
     .languages = kQwen2Text,
     .layouts = kLayouts,
     .policy = llava_onevision,
     .processors = kOneVisionProcessors,
     .video_frames = {.rule = FrameRule::kUniform},
     .chats = kOneVisionChats,
     .image_key = "image_token_index",
     .image_id = 151646,
     .image_token = "<image>",
     .video_id = 151647,
     .finish = finish_onevision},
};

// Other folders of the authors.
constexpr std::string_view kNoLanguage = "its language model is not read here";
constexpr UnreadType kUnread[] = {
    {"llava_qwen", "take a port of the same weights: model_type llava_onevision or llava_next"},
    {"llava_mixtral", kNoLanguage},
    {"llava_gemma", kNoLanguage},
    {"llava_mpt", kNoLanguage}};

// --- pairs of GGUF files -------------------------------------------------------------------------

constexpr std::string_view kGgufText[] = {"llama", "qwen2"};
constexpr std::string_view kGgufLayers[] = {"0", "2"};
constexpr GgufProjector kProjectors[] = {{.type = "mlp",
                                          .architectures = kGgufText,
                                          .read = gguf_llava,
                                          .last = "mm.2",
                                          .layers = kGgufLayers}};

}  // namespace

extern constinit const Family kLlavaFamily = {.name = "llava",
                                              .describers = kDescribers,
                                              .policies = kPolicies,
                                              .forms = kForms,
                                              .unread = kUnread,
                                              .projectors = kProjectors};

}  // namespace tessera
