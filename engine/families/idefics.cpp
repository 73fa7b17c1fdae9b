// Idefics3 (Laurençon et al. 2024) and SmolVLM (Marafioti et al. 2025): SigLIP over tiles, a pixel
// shuffle and one linear layer in front of a Llama. They describe images.
#include <nlohmann/json.hpp>

#include "engine/families/family.h"
#include "engine/families/language.h"
#include "engine/towers/tower_configs.h"

namespace tessera {

namespace {

// --- image encoder and projector ---------------------------------------------------------------

VisionTower tower(const JsonReader& config) {
  const JsonReader vision = config.object("vision_config");
  VisionTower out;
  VitSpec& vit = out.vit;
  read_tower_sizes(vision, {1152, 3072, 12, 16, 224, 32, "gelu_pytorch_tanh", 1e-6}, vit);
  vit.patch_bias = true;
  vit.positions = VitPositions::kBuckets;
  ProjectorSpec& projector = out.projector;
  projector.cell = config.integer_or("scale_factor", 2, 1, 16);
  projector.layers = {"modality_projection.proj"};
  projector.widths = {config.object("text_config").integer("hidden_size", 1, kMaxTowerWidth)};
  projector.bias = false;
  for (const char* root : {"model.", ""}) {  // the second: a model without its head
    TowerLayout& layout = out.layouts.emplace_back();
    layout.vit.prefix = std::string(root) + "vision_model.";
    layout.projector_prefix = std::string(root) + "connector.";
  }
  return out;
}

// --- preprocessing -------------------------------------------------------------------------------

PreprocessPolicy tiles(std::string name, std::int64_t side, std::int64_t patch,
                       std::int64_t merge) {
  PreprocessPolicy out;
  out.name = std::move(name);
  out.mode = ResizeMode::kTiles;
  out.filter = ResampleFilter::kLanczos;
  out.side = side;
  out.patch = patch;
  out.merge = merge;
  out.longest = 4 * side;
  return out;
}

PreprocessPolicy idefics3() { return tiles("idefics3", 364, 14, 2); }
PreprocessPolicy smolvlm() { return tiles("smolvlm", 384, 14, 3); }
PreprocessPolicy smolvlm_500m() { return tiles("smolvlm-500m", 512, 16, 4); }

constexpr PolicyMaker kPolicies[] = {idefics3, smolvlm, smolvlm_500m};
constexpr std::string_view kIdefics3Processors[] = {"Idefics3ImageProcessor",
                                                    "SmolVLMImageProcessor"};
constexpr std::string_view kSmolVlmProcessors[] = {"SmolVLMImageProcessor",
                                                   "Idefics3ImageProcessor"};

// --- prompts -------------------------------------------------------------------------------------

constexpr std::string_view kSpecial[] = {"<|im_start|>",       "<|begin_of_text|>",
                                         "<end_of_utterance>", "<image>",
                                         "<global-img>",       "<fake_token_around_image>"};

constexpr ChatForm form(std::string_view name, std::string_view begin) {
  return {.name = name,
          .begin = begin,
          .system_open = "System: ",
          .system_close = "<end_of_utterance>\n",
          .user_open = "User: ",
          .user_close = "<end_of_utterance>\n",
          .assistant_open = "Assistant: ",
          .assistant_close = "<end_of_utterance>\n",
          .generation = "Assistant:",
          .image = "<image>",
          .tiles = true,
          .tight_images = true,
          .frame_times = name == "smolvlm",
          .special = kSpecial};
}

constexpr ChatForm kForms[] = {form("smolvlm", "<|im_start|>"),
                               form("idefics3", "<|begin_of_text|>")};
constexpr ChatChoice kSmolVlmChats[] = {{"", &kForms[0]}};
constexpr ChatChoice kIdefics3Chats[] = {{"", &kForms[1]}};

// --- the rows ------------------------------------------------------------------------------------

constexpr std::string_view kText[] = {"llama"};
constexpr LayoutNames kLayouts[] = {{"model.text_model.", "lm_head.weight"},
                                    {"text_model.", "lm_head.weight"}};

// Idefics3Processor adds these as special tokens; SmolVLMProcessor does not.
constexpr std::string_view kIdefics3Again[] = {"<fake_token_around_image>", "<image>",
                                               "<end_of_utterance>"};

constexpr Describer kDescribers[] = {
    {.type = "idefics3",
     .title = "Idefics3",
     .tower = tower,
     .text_key = "text_config",
     .languages = kText,
     .layouts = kLayouts,
     .policy = idefics3,
     .processors = kIdefics3Processors,
     .chats = kIdefics3Chats,
     .image_key = "image_token_id",
     .image_id = 128257,
     .image_token = "<image>",
     .head_tie = HeadTie::kWhole,
     .tokens_again = kIdefics3Again},
    {.type = "smolvlm",
     .title = "SmolVLM",
     .tower = tower,
     .text_key = "text_config",
     .languages = kText,
     .layouts = kLayouts,
     .policy = smolvlm,
     .processors = kSmolVlmProcessors,
     .video_frames = {.rule = FrameRule::kRate, .rate = 1},
     .chats = kSmolVlmChats,
     .image_key = "image_token_id",
     .image_id = 128257,
     .image_token = "<image>"},
};

// --- pairs of GGUF files -------------------------------------------------------------------------

// Files do not say which of the two it is: the tokens of Idefics3 are those of Llama 3.
void gguf_idefics(GgufEncoder& encoder, Json& config, Json& processor) {
  constexpr std::int64_t kMaxSide = 16384;
  GgufKeyReader& keys = encoder.keys;
  Json vision = clip_sizes(encoder);
  if (clip_activation(encoder) != "gelu") keys.fail("use_gelu", "true", "false, or no such key");
  vision["hidden_act"] = "gelu_pytorch_tanh";
  const std::int64_t side = vision["image_size"].get<std::int64_t>();
  const std::int64_t longest =
      keys.integer("vision.preproc_image_size", 1, kMaxSide).value_or(4 * side);
  const bool idefics = encoder.token(kForms[1].begin) >= 0;
  config = {{"model_type", idefics ? "idefics3" : "smolvlm"},
            {"vision_config", std::move(vision)},
            {"scale_factor", keys.wanted("vision.projector.scale_factor", 1, 16)}};
  processor = {{"image_processor_type", idefics ? kIdefics3Processors[0] : kSmolVlmProcessors[0]},
               {"size", {{"longest_edge", longest}}},
               {"max_image_size", {{"longest_edge", side}}}};
  clip_levels(encoder, processor);
}

constexpr std::string_view kGgufText[] = {"llama"};
constexpr std::string_view kGgufLayers[] = {"model.fc"};
constexpr GgufProjector kProjectors[] = {{.type = "idefics3",
                                          .architectures = kGgufText,
                                          .read = gguf_idefics,
                                          .last = "mm.model.fc",
                                          .layers = kGgufLayers,
                                          .token = "<image>"}};

}  // namespace

extern constinit const Family kIdeficsFamily = {.name = "idefics",
                                                .describers = kDescribers,
                                                .policies = kPolicies,
                                                .forms = kForms,
                                                .projectors = kProjectors};

}  // namespace tessera
