// Emu3 (Wang et al. 2024): a Llama with grouped keys over one vocabulary of text and visual tokens,
// and a video tokenizer, four frames a grid of codes. Two layouts: the Hugging Face port
// (model_type "emu3", tokenizer in the same files, ids in `vocabulary_map`), under its newer and
// older tensor names, and the authors' (model_type "Emu3", ids in the configuration, tokenizer in a
// folder next to). Visual tokens are the last ids of the vocabulary.
//
// An image's stream: every row of codes and a row end, then grid end, image end, stream end.
// `"clip_config": {"grids", "grid_rows", "grid_cols", "fps", ...}` in the port's layout makes it a
// model of videos, whose stream holds several grids; it may leave control ids out.
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/families/family.h"
#include "engine/families/language.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxSide = 16384;  // pixels
constexpr std::int64_t kMaxPrompt = 4096;
constexpr std::int64_t kImageArea = 720 * 720;  // pixels of an image, unless the file says
constexpr std::string_view kProcessors[] = {"Emu3ImageProcessor"};
constexpr std::string_view kAuthorProcessors[] = {"Emu3VisionVQImageProcessor"};
constexpr std::int64_t kMaxGrids = 4096;
constexpr std::string_view kPortLanguages[] = {"emu3_text_model"};
constexpr std::string_view kAuthorLanguages[] = {"Emu3"};
constexpr const char* kVisualToken = "<|visual token ";
constexpr const char* kFirstVisual = "<|visual token 000000|>";
constexpr const char* kNegative =
    "lowres, bad anatomy, bad hands, text, error, missing fingers, extra digit, fewer digits, "
    "cropped, worst quality, low quality, normal quality, jpeg artifacts, signature, watermark, "
    "username, blurry.";

// Ids of the joint vocabulary; a control id that the stream does without is -1.
struct JointIds {
  std::int64_t vocab = 0, first_code = 0, codes = 0;
  std::int64_t row_end = -1, grid_end = -1, image_end = -1, stream_end = -1;
};

// --- the vocabulary -----------------------------------------------------------------------------

void check_ids(const JsonReader& reader, std::string_view key, const JointIds& ids) {
  if (ids.first_code < 1 || ids.first_code + ids.codes != ids.vocab) {
    reader.fail(key,
                "visual tokens as the last " + std::to_string(ids.codes) + " of " +
                    std::to_string(ids.vocab) + " ids",
                "the first one at " + std::to_string(ids.first_code));
  }
  for (const std::int64_t id : {ids.row_end, ids.grid_end, ids.image_end, ids.stream_end}) {
    if (id >= ids.first_code) {
      reader.fail(key,
                  "control ids below the first visual token's " + std::to_string(ids.first_code),
                  std::to_string(id));
    }
  }
}

// The number in "<|visual token 000123|>", or -1.
std::int64_t visual_number(const std::string& token) {
  const std::string_view rest = std::string_view(token).substr(std::string(kVisualToken).size());
  if (rest.size() != 8 || !rest.ends_with("|>")) return -1;
  std::int64_t number = 0;
  for (const char c : rest.substr(0, 6)) {
    if (c < '0' || c > '9') return -1;
    number = 10 * number + (c - '0');
  }
  return number;
}

// Where the visual tokens begin: all of them, one after another, or an error.
std::int64_t first_visual(const JsonReader& config, std::int64_t codes) {
  const JsonReader reader = config.object("vocabulary_map");
  const Json& map = config.raw("vocabulary_map");
  const std::int64_t first = reader.integer(kFirstVisual, 1, kMaxVocab);
  std::int64_t count = 0;
  for (const auto& [token, id] : map.items()) {
    if (!token.starts_with(kVisualToken)) continue;
    const std::int64_t number = visual_number(token);
    if (number < 0 || !id.is_number_integer() || id.get<std::int64_t>() != first + number) {
      reader.fail(token, "visual tokens in order from " + std::to_string(first), id.dump());
    }
    ++count;
  }
  if (count != codes) {
    config.fail("vocabulary_map", std::to_string(codes) + " visual tokens, as there are codes",
                std::to_string(count));
  }
  return first;
}

struct StreamParts {
  bool rows = true, grids = true, ends = true;  // which control ids the stream has
};

JointIds port_ids(const JsonReader& config, std::int64_t vocab, std::int64_t codes,
                  const StreamParts& parts) {
  JointIds ids;
  ids.vocab = vocab;
  ids.codes = codes;
  ids.first_code = first_visual(config, codes);
  const JsonReader map = config.object("vocabulary_map");
  const auto id = [&](bool used, const char* token) -> std::int64_t {
    return used ? map.integer(token, 0, kMaxVocab) : -1;
  };
  ids.row_end = id(parts.rows, "<|extra_200|>");
  ids.grid_end = id(parts.grids, "<|extra_201|>");
  ids.image_end = id(parts.ends, "<|image end|>");
  ids.stream_end = id(parts.ends, "<|extra_204|>");
  check_ids(config, "vocabulary_map", ids);
  return ids;
}

JointIds author_ids(const JsonReader& config, std::int64_t vocab, std::int64_t codes) {
  JointIds ids;
  ids.vocab = vocab;
  ids.codes = codes;
  ids.first_code = vocab - codes;
  ids.row_end = config.integer_or("eol_token_id", 151846, 0, kMaxVocab);
  ids.grid_end = config.integer_or("eof_token_id", 151847, 0, kMaxVocab);
  ids.image_end = config.integer_or("eoi_token_id", 151853, 0, kMaxVocab);
  ids.stream_end = config.integer_or("eos_token_id", 151850, 0, kMaxVocab);
  check_ids(config, "vocab_size", ids);
  return ids;
}

// Rows of table and head: text, then the codes and the control ids in the stream's local order.
void fill_vocabulary(const JointIds& ids, ModelSpec& spec) {
  StreamModelConfig& model = spec.model;
  model.codes = ids.codes;
  model.prompt_vocab = ids.first_code;
  model.row_end = ids.row_end >= 0;
  model.image_end = ids.image_end >= 0;
  model.grid_end = ids.grid_end >= 0;
  model.stream_end = ids.stream_end >= 0;
  spec.names.prompt_rows = {{0, ids.first_code}};
  spec.names.code_rows = {{ids.first_code, ids.codes}};
  for (const std::int64_t id : {ids.row_end, ids.image_end, ids.grid_end, ids.stream_end}) {
    if (id >= 0) spec.names.code_rows.push_back({id, 1});
  }
  spec.names.head_rows = {{ids.first_code, ids.codes}};
}

// --- the grid -----------------------------------------------------------------------------------

void check_side(const JsonReader& reader, std::string_view key, std::int64_t pixels) {
  if (pixels >= 1 && pixels <= kMaxSide) return;
  reader.fail(key, "images of 1 to 16384 pixels a side", std::to_string(pixels));
}

// What is asked for, else a square; `place` = pixels of a code where the file names no area.
void image_grid(const ModelSource& source, const JsonReader& config, std::int64_t place,
                ModelSpec& spec) {
  const std::int64_t factor = spec.vq.downsample();
  const std::int64_t area = config.integer_or("image_area", kImageArea, 1, kMaxSide * kMaxSide);
  if (config.has("image_area")) place = factor;
  // Halves become the even number, as in the reference.
  const auto codes = [](double pixels, std::int64_t of_one) {
    return std::int64_t{std::llrint(pixels / to_double(of_one))};
  };
  const FamilyOptions& asked = source.options;
  StreamModelConfig& model = spec.model;
  model.grid_rows = model.grid_cols = codes(std::sqrt(to_double(area)), place);
  if (asked.height > 0) model.grid_rows = codes(to_double(asked.height), factor);
  if (asked.width > 0) model.grid_cols = codes(to_double(asked.width), factor);
  check_side(config, "image_area", spec.image_height());
  check_side(config, "image_area", spec.image_width());
}

void video_grids(const JsonReader& video, ModelSpec& spec) {
  StreamModelConfig& model = spec.model;
  model.grids = video.integer("grids", 1, kMaxGrids);
  model.grid_rows = video.integer("grid_rows", 1, kMaxSide);
  model.grid_cols = video.integer("grid_cols", 1, kMaxSide);
  check_side(video, "grid_rows", spec.image_height());
  check_side(video, "grid_cols", spec.image_width());
  const std::int64_t frames = spec.movq->frames();
  spec.video = VideoSpec{
      .rate = video.integer_or("fps", 8, 1, 1000), .first_grid = frames, .further_grid = frames};
}

void fit_prompt(const JsonReader& reader, std::int64_t max_positions, ModelSpec& spec) {
  StreamModelConfig& model = spec.model;
  model.prompt = PromptKind::kText;
  model.unconditional = UnconditionalRule::kOtherText;
  model.max_prompt = std::min(max_positions - model.image_tokens(), kMaxPrompt);
  if (model.max_prompt < 4) {
    reader.fail("max_position_embeddings",
                "more than the " + std::to_string(model.image_tokens()) + " tokens of a " +
                    (spec.video ? "clip" : "picture"),
                std::to_string(max_positions));
  }
  model.transformer.rope.positions = model.max_prompt + model.image_tokens();
}

// --- what both layouts share --------------------------------------------------------------------

void fill_prompt(const ModelSource& source, ModelSpec& spec) {
  const StreamModelConfig& model = spec.model;
  std::string size = std::to_string(model.grid_rows) + "*" + std::to_string(model.grid_cols);
  if (spec.video) size = std::to_string(model.grids) + "*" + size;
  const std::string own = named_token(source, "img_token", "<|image token|>");  // of the authors
  const std::string last = named_token(source, "image_wrapper_token", own);
  const std::string after = named_token(source, "boi_token", "<|image start|>") + size + last;
  const std::string begin = named_token(source, "bos_token", "<|extra_203|>");
  spec.prompt.kind = PromptKind::kText;
  spec.prompt.forms = {{begin, begin, after}, {"", "", after}};
  spec.prompt.begin_image_token = last;
  spec.prompt.first_code_token = kFirstVisual;
}

void read_settings(const ModelSource& source, ModelSpec& spec) {
  read_sampling(source, {.guidance = 3.0, .temperature = 1.0, .top_k = 2048}, spec);
  spec.prompt.negative_text = spec.video ? "" : kNegative;
  const JsonReader reader = file_reader(source, FolderFile::kGeneration);
  spec.prompt.negative_text = reader.string_or("negative_prompt", spec.prompt.negative_text);
}

void fill_identity(const ModelSource& source, ModelSpec& spec) {
  const ModelConfig& model = spec.model.transformer;
  const bool published = model.layers == 32 && model.width == 4096;
  spec.size = published ? "8B" : size_label(model);
  spec.title = (spec.video ? "Emu3 videos " : "Emu3 ") + spec.size;
  spec.weights = source.file.empty() ? source.folder : source.file;
  if (!source.folder.empty()) spec.tokenizer = source.folder / "tokenizer.json";
  spec.licence = "Apache-2.0 for published weights; a folder's own licence file rules";
}

void fill_tokenizer(MovqSpec movq, ModelSpec& spec) {
  spec.vq = movq.frame;
  spec.movq = std::move(movq);
}

void list_joint(const LanguageConfig& language, const std::string& root, const std::string& head,
                ModelSpec& spec) {
  // What fill_vocabulary() settled stays.
  WeightNames names = language_names(language.model, root);
  names.prompt_rows = spec.names.prompt_rows;
  names.code_rows = spec.names.code_rows;
  names.head_rows = spec.names.head_rows;
  names.code_table = names.prompt_table;
  names.head_out = language.tied ? root + "embed_tokens" : head;
  names.head_bias = false;
  spec.names = std::move(names);
  TensorList list;
  list_language(language.model, language.vocab, root, list);
  list.add(head + ".weight", {language.vocab, language.model.width});
  spec.tensors = list.take();
  if (language.tied) spec.optional_tensors = {head + ".weight"};
  for (std::int64_t i = 0; i < language.model.layers; ++i) {
    spec.ignored.push_back(root + "layers." + std::to_string(i) + ".self_attn.rotary_emb.inv_freq");
  }
}

// --- the Hugging Face port ----------------------------------------------------------------------

// Releases differ in their prefixes.
struct PortNames {
  const char *language, *head, *tokenizer;
};
constexpr std::array<PortNames, 2> kPortNames = {{
    {"model.text_model.", "lm_head", "model.vqmodel."},
    {"text_model.model.", "text_model.lm_head", "vqmodel."},
}};

struct PortFiles {
  const PortNames& names;
  bool head = false;  // apart from the table
};

PortFiles look_at_port(const ModelSource& source) {
  if (source.config_only) return {kPortNames.front()};
  const Checkpoint weights = Checkpoint::open(source.file.empty() ? source.folder : source.file);
  for (const PortNames& names : kPortNames) {
    if (weights.find(std::string(names.language) + "embed_tokens.weight") == nullptr) continue;
    return {names, weights.find(std::string(names.head) + ".weight") != nullptr};
  }
  return {kPortNames.front()};
}

// As generate() takes an image's settings from the folder: without guidance_scale none is guided.
void follow_generate(const ModelSource& source, ModelSpec& spec) {
  if (spec.video) return;
  follow_do_sample(source, spec);
  follow_levels(*source.files, kProcessors, spec);
  if (!source.files->has(FolderFile::kGeneration)) return;
  if (!file_reader(source, FolderFile::kGeneration).has("guidance_scale"))
    spec.sampling.guidance = 1;
}

ModelSpec parse_port(const ModelSource& source) {
  const JsonReader config = config_reader(source);
  ModelSpec spec;
  const JsonReader text = sub_config(config, "text_config");
  LanguageConfig language = parse_language(text, kPortLanguages);
  const PortFiles files = look_at_port(source);
  const PortNames& names = files.names;
  const bool tied = config.boolean_or("tie_word_embeddings", false) || language.tied;
  language.tied = tied && !files.head;  // as the reference ties
  spec.model.transformer = language.model;
  MovqSpec movq = parse_movq(sub_config(config, "vq_config"), MovqNames::kHfEmu3);
  movq.frame.prefix = names.tokenizer;
  fill_tokenizer(movq, spec);
  StreamParts parts;
  if (config.has("clip_config")) {
    const JsonReader video = config.object("clip_config");
    video_grids(video, spec);
    parts = {video.boolean_or("row_tokens", true), video.boolean_or("grid_tokens", true),
             video.boolean_or("end_tokens", true)};
  } else {
    // Their processor counts in places of eight pixels, whatever the tokenizer has.
    image_grid(source, config, 8, spec);
  }
  fill_vocabulary(port_ids(config, language.vocab, spec.vq.codes, parts), spec);
  fit_prompt(text, language.max_positions, spec);
  fill_identity(source, spec);
  read_settings(source, spec);
  follow_generate(source, spec);
  fill_prompt(source, spec);
  list_joint(language, names.language, names.head, spec);
  for (TensorSpec& tensor : movq_tensors(*spec.movq)) spec.tensors.push_back(std::move(tensor));
  for (std::string& name : movq_counters(*spec.movq)) spec.ignored.push_back(std::move(name));
  return spec;
}

// --- the authors' files -------------------------------------------------------------------------

// The video tokenizer is a repository of its own: Emu3-VisionTokenizer.
fs::path find_tokenizer(const ModelSource& source) {
  const fs::path& folder = source.folder;
  for (const fs::path& path : {folder / "vision_tokenizer", folder / "Emu3-VisionTokenizer",
                               folder / ".." / "Emu3-VisionTokenizer"}) {
    if (file_exists(path / "config.json")) return path;
  }
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_EMU3_TOKENIZER",
               .file = folder.string(),
               .where = "vision tokenizer",
               .expected = "the files of Emu3-VisionTokenizer in a folder vision_tokenizer/, or in "
                           "Emu3-VisionTokenizer next to this one",
               .found = "neither"});
}

MovqSpec author_tokenizer(const ModelSource& source, ModelSpec& spec) {
  static const Json kEmpty = Json::object();
  if (source.config_only) {
    return parse_movq(JsonReader(kEmpty, source.config_file), MovqNames::kEmu3);
  }
  spec.vq_weights = find_tokenizer(source);
  const fs::path path = spec.vq_weights / "config.json";
  const Json json = parse_json(read_file(path, std::size_t{1} << 20), path.string());
  return parse_movq(JsonReader(json, path.string()), MovqNames::kEmu3);
}

ModelSpec parse_authors(const ModelSource& source) {
  const JsonReader config = config_reader(source);
  ModelSpec spec;
  const LanguageConfig language = parse_language(config, kAuthorLanguages);
  spec.model.transformer = language.model;
  fill_tokenizer(author_tokenizer(source, spec), spec);
  image_grid(source, config, spec.vq.downsample(), spec);
  fill_vocabulary(author_ids(config, language.vocab, spec.vq.codes), spec);
  fit_prompt(config, language.max_positions, spec);
  fill_identity(source, spec);
  read_settings(source, spec);
  fill_prompt(source, spec);
  list_joint(language, "model.", "lm_head", spec);
  if (!source.config_only) {
    FolderFiles files = FolderFiles::read_processor(spec.vq_weights);
    follow_levels(files, kAuthorProcessors, spec);
  }
  spec.vq_tensors = movq_tensors(*spec.movq);
  spec.vq_ignored = movq_counters(*spec.movq);
  return spec;
}

// --- describing -----------------------------------------------------------------------------------

// Its processor counts tokens of so many pixels a side, whatever the tokenizer has.
constexpr std::int64_t kProcessorSide = 8;

VisionTower code_tower(const JsonReader& config) {
  VisionTower out;
  CodeTower& codes = out.codes.emplace();
  const JsonReader tokenizer = sub_config(config, "vq_config");
  codes.movq = parse_movq(tokenizer, MovqNames::kHfEmu3);
  codes.vq = codes.movq->frame;
  if (codes.vq.downsample() != kProcessorSide) {
    config.fail("vq_config.channel_multiplier", "4 levels: tokens of 8 pixels a side",
                std::to_string(codes.vq.downsample()) + " pixels");
  }
  const std::int64_t first = first_visual(config, codes.vq.codes);
  for (std::int64_t i = 0; i < codes.vq.codes; ++i) {
    codes.ids.push_back(narrow<std::int32_t>(first + i));
  }
  codes.row_end = narrow<std::int32_t>(
      config.object("vocabulary_map").integer("<|extra_200|>", 0, kMaxVocab));
  out.ignored = movq_counters(*codes.movq);
  out.ignored.insert(out.ignored.end(), {"decoder.*", "post_quant_conv.*"});
  out.vit = {.patch = kProcessorSide, .width = 0, .layers = 0, .run_layers = 0};
  out.projector.widths = {
      sub_config(config, "text_config").integer_or("hidden_size", 4096, 1, kMaxHidden)};
  for (const PortNames& names : kPortNames) {
    out.layouts.emplace_back().vit.prefix = names.tokenizer;
  }
  return out;
}

PreprocessPolicy describing_policy() {
  PreprocessPolicy out;
  out.name = "emu3";
  out.mode = ResizeMode::kMultiples;
  out.patch = kProcessorSide;
  out.min_pixels = 512 * 512;
  out.max_pixels = 1024 * 1024;
  out.mean = kClipMean;
  out.std = kClipStd;
  out.newline_each_row = true;
  return out;
}

constexpr PolicyMaker kPolicies[] = {describing_policy};
constexpr std::string_view kSpecial[] = {"<image>",         "<|image start|>", "<|image end|>",
                                         "<|image token|>", "<|extra_201|>",   "<|extra_203|>"};

// The authors' words; ports bring a template.
constexpr ChatForm kForms[] = {{.name = "emu3",
                                .layout = ChatLayout::kInOrder,
                                .begin = "<|extra_203|>",
                                .processor_begin = "<|extra_203|>",
                                .implied_system = "You are a helpful assistant.",
                                .user_open = " USER: ",
                                .user_close = ".",
                                .generation = " ASSISTANT:",
                                .image = "<image>",
                                .image_open = "<|image start|>",
                                .image_close = "<|extra_201|><|image end|>",
                                .image_grid_close = "<|image token|>",
                                .frames_itself = true,
                                .needs_template = true,
                                .special = kSpecial}};
constexpr ChatChoice kChats[] = {{"", &kForms[0]}};
constexpr FixedToken kFixed[] = {{"bos_token", "<|extra_203|>"},
                                 {"boi_token", "<|image start|>"},
                                 {"eoi_token", "<|image end|>"},
                                 {"image_wrapper_token", "<|image token|>"},
                                 {"eof_token", "<|extra_201|>"}};
constexpr LayoutNames kLayouts[] = {{kPortNames[0].language, "lm_head.weight"},
                                    {kPortNames[1].language, "text_model.lm_head.weight"}};

// Emu3-Chat. Without a vocabulary of codes, or with videos', it only generates.
constexpr Describer kDescribers[] = {{.type = "emu3",
                                      .key = "vocabulary_map",
                                      .without = "clip_config",
                                      .apart = true,
                                      .title = "Emu3-Chat",
                                      .tower = code_tower,
                                      .text_key = "text_config",
                                      .languages = kPortLanguages,
                                      .layouts = kLayouts,
                                      .policy = describing_policy,
                                      .processors = kProcessors,
                                      .chats = kChats,
                                      .image_key = "image_token_id",
                                      .image_token = "<image>",
                                      .fixed_tokens = kFixed}};

bool detect(const ModelSource& source) {
  const std::string type = model_type(source);
  return type == "emu3" || type == "Emu3";
}

ModelSpec parse(const ModelSource& source) {
  return model_type(source) == "emu3" ? parse_port(source) : parse_authors(source);
}

}  // namespace

extern constinit const Family kEmu3Family = {.name = "emu3",
                                             .detect = detect,
                                             .parse = parse,
                                             .describers = kDescribers,
                                             .policies = kPolicies};

}  // namespace tessera
