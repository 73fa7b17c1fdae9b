// Chameleon's describing half: an image is the rows of the table that belong to its codes. Of the port,
// and of the authors' release, whose levels of pixels are others and whose prompts are encoded in the
// pieces around images.
#include "engine/families/chameleon_describe.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/families/chameleon_tokenizer.h"
#include "engine/families/language.h"
#include "engine/families/lumina_sizes.h"

namespace tessera {

bool is_lumina(const JsonReader& config) {
  if (config.has("z_loss_weight")) return true;
  if (!config.has("architectures")) return false;
  const std::vector<std::string> classes = config.strings("architectures", 16);
  return std::any_of(classes.begin(), classes.end(),
                     [](const std::string& name) { return name.starts_with("ChameleonXLLMX"); });
}

namespace fs = std::filesystem;

fs::path find_next_to_chameleon(const fs::path& folder, const char* name) {
  for (const fs::path& place :
       {folder, folder / "tokenizer", folder / "..", folder / ".." / "tokenizer",
        folder / ".." / ".." / "tokenizer", folder / ".." / "chameleon" / "tokenizer"}) {
    if (file_exists(place / name)) return (place / name).lexically_normal();
  }
  return {};
}

fs::path find_chameleon_tokenizer(const fs::path& folder) {
  const fs::path found = find_next_to_chameleon(folder, "vqgan.ckpt");
  return found.empty() ? find_next_to_chameleon(folder, "vqgan.safetensors") : found;
}

namespace {

std::vector<std::int32_t> ids_of(const std::vector<RowRange>& ranges) {
  std::vector<std::int32_t> out;
  for (const RowRange& rows : ranges) {
    for (std::int64_t i = 0; i < rows.count; ++i) {
      out.push_back(narrow<std::int32_t>(rows.first + i));
    }
  }
  return out;
}

VisionTower code_tower(const JsonReader& config) {
  VisionTower out;
  CodeTower& codes = out.codes.emplace();
  const ChameleonTokenizer tokenizer = parse_chameleon_tokenizer(sub_config(config, "vq_config"));
  codes.vq = tokenizer.vq;
  const std::int64_t vocab = config.integer_or("vocab_size", kAuthorsVocab, 1, kMaxVocab);
  const JsonReader map = config.object("vocabulary_map");
  codes.ids = ids_of(chameleon_code_rows(map, config.raw("vocabulary_map"), codes.vq.codes, vocab));
  const std::int64_t factor = codes.vq.downsample();
  out.vit = {.patch = factor, .width = 0, .layers = 0, .run_layers = 0};
  out.vit.grid = tokenizer.resolution / factor;
  out.projector.widths = {config.integer_or("hidden_size", 4096, 1, kMaxHidden)};
  out.layouts.emplace_back().vit.prefix = "model.vqmodel.";
  out.ignored = {"decoder.*", "post_quant_conv.*"};
  return out;
}

// Rows of codes have ends. Their code reads the release's image tokenizer, whatever stands next to the
// language model.
VisionTower lumina_tower(const JsonReader& config) {
  VisionTower out = code_tower(config);
  const JsonReader map = config.object("vocabulary_map");
  out.codes->row_end = narrow<std::int32_t>(map.integer(kRowEnd, 0, kMaxVocab));
  out.folder = find_chameleon_tokenizer(fs::path(config.file()).parent_path());
  if (!out.folder.empty()) out.layouts.front().vit.prefix.clear();
  out.ignored.emplace_back("loss.*");
  return out;
}

PreprocessPolicy describing_policy() {
  PreprocessPolicy out;
  out.name = "chameleon";
  out.mode = ResizeMode::kShortestSide;
  out.filter = ResampleFilter::kLanczos;
  out.side = kAuthorsSide;
  out.patch = 16;
  out.rescale = 0.0078;
  out.mean = out.std = {1, 1, 1};
  return out;
}

// The class masks the logits of image tokens.
void mask_codes(const JsonReader&, DescribeSpec& spec) { spec.unwritten = spec.tower.codes->ids; }

// As the authors' code: sides to the nearest pixel, levels 2 x / 255 - 1.
PreprocessPolicy release_policy() {
  PreprocessPolicy out = describing_policy();
  out.name = "chameleon-authors";
  out.rounding = SideRounding::kHalfToEven;
  out.rescale = 1.0 / 255.0;
  out.mean = out.std = {0.5, 0.5, 0.5};
  return out;
}

// Cells of 32 pixels, 768 x 768 of them at most; the authors' code draws where it cuts.
PreprocessPolicy lumina_policy() {
  PreprocessPolicy out = release_policy();
  out.name = "lumina-mgpt";
  out.mode = ResizeMode::kNearestAspect;
  out.filter = ResampleFilter::kBicubic;
  out.side = 32;
  out.max_pixels = kLuminaSide * kLuminaSide;
  out.max_size_aspect = kLuminaRatio;
  out.newline_each_row = true;
  return out;
}

// A text has no images in it, and ends with its turn.
void finish_lumina(const JsonReader& config, DescribeSpec& spec) {
  mask_codes(config, spec);
  const JsonReader map = config.object("vocabulary_map");
  spec.unwritten.push_back(narrow<std::int32_t>(map.integer(kBeginImage, 0, kMaxVocab)));
  spec.turn_end = kTurnEnd;
  spec.policy.side = kCellCodes * spec.policy.patch;
  const std::int64_t positions = parse_language(config, kChameleonLanguages).max_positions;
  const std::int64_t square = LuminaSizes(map, spec.policy.patch, positions).square();
  spec.policy.max_pixels = square * square;
}

bool is_not_lumina(const JsonReader& config) { return !is_lumina(config); }

void describe_release(const ModelSpec& text, DescribeSpec& spec) {
  CodeTower& codes = spec.tower.codes.emplace();
  codes.vq = text.vq;
  codes.ids = ids_of(text.names.head_rows);
  const std::int64_t factor = codes.vq.downsample();
  spec.tower.vit = {.patch = factor, .width = 0, .layers = 0, .run_layers = 0};
  spec.tower.vit.grid = kAuthorsSide / factor;
  spec.tower.projector.widths = {text.model.transformer.width};
  spec.tower.layouts.emplace_back();
  spec.tower.folder = text.vq_weights;
  spec.tower.ignored = {"decoder.*", "post_quant_conv.*", "loss.*"};
  spec.policy.patch = factor;
  spec.unwritten = text.interleave->unwritten;
  spec.unwritten.insert(spec.unwritten.end(), codes.ids.begin(), codes.ids.end());
}

constexpr std::string_view kPortProcessors[] = {"ChameleonImageProcessor"};
constexpr std::string_view kPortSpecial[] = {"<image>", kBeginImage, kEndImage, kTurnEnd};
constexpr ChatForm kPortForms[] = {{.name = "chameleon",
                                .layout = ChatLayout::kInOrder,
                                .user_close = kTurnEnd,
                                .image = "<image>",
                                .image_open = kBeginImage,
                                .image_close = kEndImage,
                                .frames_itself = true,
                                .special = kPortSpecial}};
constexpr ChatChoice kPortChats[] = {{"", &kPortForms[0]}};
constexpr std::string_view kReleaseSpecial[] = {kBegin, "<image>", kBeginImage, kEndImage, kTurnEnd};
constexpr ChatForm kReleaseForms[] = {{.name = "chameleon-authors",
                                       .layout = ChatLayout::kInOrder,
                                       .begin = kBegin,
                                       .user_close = kTurnEnd,
                                       .image = "<image>",
                                       .image_open = kBeginImage,
                                       .image_close = kEndImage,
                                       .special = kReleaseSpecial}};
constexpr ChatChoice kReleaseChats[] = {{"", &kReleaseForms[0]}};
constexpr ChatForm kLuminaForms[] = {{.name = "lumina-mgpt",
                                      .layout = ChatLayout::kSpaced,
                                      .begin = kBegin,
                                      .user_close = kTurnEnd,
                                      .assistant_close = kTurnEnd,
                                      .image = "<image>",
                                      .image_open = kBeginImage,
                                      .image_close = kEndImage,
                                      .image_size_token = kSizeTokens,
                                      .special = kReleaseSpecial}};
constexpr ChatChoice kLuminaChats[] = {{"", &kLuminaForms[0]}};
constexpr FixedToken kPortFixed[] = {
    {"sep_token", kTurnEnd}, {"boi_token", kBeginImage}, {"eoi_token", kEndImage}};

}  // namespace

constexpr PolicyMaker kChameleonPolicies[] = {describing_policy, release_policy, lumina_policy};

constexpr Describer kChameleonDescribers[] = {
    {.type = "chameleon",
     .key = "vocabulary_map",
     .fits = is_not_lumina,
     .apart = true,
     .own_text = true,
     .title = "Chameleon",
     .tower = code_tower,
     .languages = kChameleonLanguages,
     .policy = describing_policy,
     .processors = kPortProcessors,
     .chats = kPortChats,
     .image_key = "image_token_id",
     .image_token = "<image>",
     .fixed_tokens = kPortFixed,
     .count_key = "image_seq_length",
     .default_count = 1024,
     .finish = mask_codes},
    {.type = "chameleon",
     .key = "vocabulary_map",
     .fits = is_lumina,
     .apart = true,
     .own_text = true,
     .title = "Lumina-mGPT",
     .tower = lumina_tower,
     .languages = kChameleonLanguages,
     .policy = lumina_policy,
     .chats = kLuminaChats,
     .image_id = kNoToken,
     .image_token = "<image>",
     .finish = finish_lumina},
    {.type = "chameleon",
     .own_text = true,
     .policy = release_policy,
     .chats = kReleaseChats,
     .image_id = kNoToken,
     .image_token = "<image>",
     .end_token = kEnd,
     .release = describe_release}};

}  // namespace tessera
