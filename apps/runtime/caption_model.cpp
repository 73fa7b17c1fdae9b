// Opens, checks and loads captioning models.
#include "apps/runtime/caption_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/runtime/caption_memory.h"
#include "apps/runtime/gguf_tokenizer.h"
#include "apps/runtime/model_stores.h"
#include "apps/runtime/prompt_bytes.h"
#include "apps/runtime/split_prompt.h"
#include "apps/runtime/text_stops.h"
#include "apps/runtime/text_storage.h"
#include "apps/runtime/tokenizer_account.h"
#include "apps/runtime/video_prompt.h"
#include "engine/checkpoint/gguf_weights.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/storage.h"
#include "engine/families/describe.h"
#include "engine/families/folder_files.h"
#include "engine/families/generation_defaults.h"
#include "engine/families/gguf_pair.h"
#include "engine/families/linked_models.h"
#include "engine/families/weight_roles.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_file(const fs::path& file, std::string where, std::string expected,
                              std::string found) {
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_CAPTION_MODEL",
               .file = file.string(),
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found)});
}

std::vector<float> read_vector(const Checkpoint& checkpoint, const std::string& name,
                               std::int64_t width) {
  const ConstTensorView* view = checkpoint.find(name);
  expects(view != nullptr, "the checkpoint was checked");
  std::vector<float> out(static_cast<std::size_t>(width));
  read_numbers(*view, 0, 1, width, out.data());
  return out;
}

const ChatForm& form_of(const DescribeSpec& describe, const TextTokenizer& tokenizer) {
  for (const ChatChoice& choice : describe.chats) {
    if (choice.requires_token.empty() || tokenizer.id_of(choice.requires_token)) {
      return *choice.form;
    }
  }
  expects(false, "the last form of a family asks for no token");
  return *describe.chats.front().form;
}

// Where a folder says it in `name`, a .gguf file itself does.
fs::path file_of(const ModelSpec& spec, const char* name) {
  return spec.folder.empty() && is_gguf_file(spec.weights) ? spec.weights : spec.folder / name;
}

std::int64_t checked_id(const ModelSpec& spec, std::int64_t id, const char* what) {
  if (id >= 0 && id < spec.model.vocab) return id;
  refuse_file(file_of(spec, "config.json"), what,
              "an id below the vocabulary of " + std::to_string(spec.model.vocab),
              std::to_string(id));
}

// The one that is given, or stands next to the model.
fs::path the_projector(const fs::path& model, const fs::path& given) {
  if (!given.empty()) return given;
  const std::vector<fs::path> found = projectors_next_to(model);
  if (found.size() == 1) return found.front();
  check_gguf_model(model);
  std::string names;
  for (const fs::path& path : found) names += ": " + path.filename().string();
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_GGUF_PAIR",
               .file = model.string(),
               .where = "image encoder",
               .expected = "one file mmproj*.gguf next to the language model",
               .found = std::to_string(found.size()) + names,
               .hint = "--mmproj FILE names it"});
}

}  // namespace

namespace {

void check_visual(const PreprocessPlan& plan) {
  constexpr std::int64_t kMaxPrompt = std::int64_t{1} << 15, kMaxTiles = 64;
  if (plan.tokens >= 1 && plan.tokens < kMaxPrompt && plan.tiles.rows <= kMaxTiles &&
      plan.tiles.cols <= kMaxTiles) {
    return;
  }
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_PICTURE_TOKENS",
               .where = plan.video ? "clip" : "picture",
               .expected = "1 to 32767 visual tokens in at most 64 x 64 tiles",
               .found = std::to_string(plan.tokens),
               .hint = plan.video ? "show fewer frames: --video-frames" : ""});
}

// Its parts of a turn, and the layout of each.
void add_visual(const ChatForm& form, const PreprocessPlan& plan, std::int64_t class_tokens,
                std::vector<ChatPart>& parts, std::vector<ImageLayout>& layouts) {
  if (plan.video) return add_video(form, plan, class_tokens, parts, layouts);
  parts.push_back(ChatPart::image());
  const bool tiled = plan.base == BaseView::kLast;  // each tile in a frame of its own
  ImageLayout& layout = layouts.emplace_back();
  if (tiled) {
    layout.tokens = plan.view_rows * plan.view_cols;
    layout.rows = narrow<int>(plan.tiles.rows);
    layout.columns = narrow<int>(plan.tiles.cols);
  } else {
    layout.tokens = plan.tokens + class_tokens;
    layout.grid_rows = plan.view_rows;
    layout.grid_columns = plan.view_cols;
  }
}

// The turns of a question: its images first, or each at its part.
std::vector<ChatTurn> turns_of(const ChatQuestion& question) {
  if (!question.turns.empty()) return question.turns;
  return {{ChatRole::kUser, {{false, question.text}}}};
}

}  // namespace

std::vector<std::int32_t> CaptionModel::prompt_ids(const ChatQuestion& question,
                                                   std::span<const PreprocessPlan> images) const {
  check_prompt_bytes(question, *tokenizer_, spec().model.transformer.rope.positions,
                     ErrorKind::kGeneral, "E_PROMPT_LENGTH");
  std::vector<ImageLayout> layouts;
  const std::int64_t class_tokens = describe().tower.vit.class_token_feature ? 1 : 0;
  std::int64_t wanted = 0;
  for (const PreprocessPlan& plan : images) {
    wanted += plan.tokens + class_tokens * (plan.video ? plan.views : 1);
    check_visual(plan);
  }
  std::vector<ChatTurn> turns = turns_of(question);
  std::size_t next = 0;
  for (ChatTurn& turn : turns) {
    std::vector<ChatPart> parts;
    const auto add_next = [&] {
      add_visual(chat_->form(), images[next++], class_tokens, parts, layouts);
    };
    while (question.turns.empty() && next < images.size()) add_next();
    for (ChatPart& part : turn.parts) {
      if (!part.is_image) {
        parts.push_back(std::move(part));
      } else if (!images.empty()) {
        expects(next < images.size(), "an image for each part");
        add_next();
      }
    }
    turn.parts = std::move(parts);
  }
  expects(next == images.size(), "a part for each image");
  const bool token = describe().image_id < spec().model.vocab;
  const Prompt prompt = chat_->expanded(turns, std::move(layouts));
  const auto ids =
      token ? encode_prompt(*tokenizer_, prompt)
            : encode_around_images(*tokenizer_, prompt, chat_->form().image, describe().image_id);
  std::int64_t placeholders = 0;
  for (const std::int32_t id : ids) {
    if (token || id != describe().image_id) checked_id(spec(), id, "prompt");
    placeholders += id == describe().image_id || id == describe().video_id ? 1 : 0;
  }
  if (placeholders != wanted) {
    refuse_file(file_of(spec(), "tokenizer.json"), describe().image_token,
                "a token that stays whole: " + std::to_string(wanted) + " of it",
                std::to_string(placeholders));
  }
  return ids;
}

void CaptionModel::read_folder(const fs::path& folder) {
  if (const LinkedModels* made_up = source_with(folder.string())) {
    opened_ = made_up->open(folder.string(), {.use = ModelUse::kDescribe});
    tokenizer_.emplace(TextTokenizer::from_json(opened_.tokenizer_json, folder.string()));
  } else {
    ModelSpec spec = load_model_spec(folder, {.use = ModelUse::kDescribe});
    tokenizer_.emplace(file_exists(folder / "config.json")
                           ? TextTokenizer::from_folder(folder, spec.describe->tokens_again)
                           : TextTokenizer::from_file(spec.tokenizer));
    opened_ = open_model(std::move(spec));
  }
  DescribeSpec& describe = *opened_.spec.describe;
  describe.account = with_notes(describe.account, *tokenizer_);
  const fs::path generation_file = generation_path(spec().folder);
  generation_ = std::make_shared<const Json>(read_generation(spec().folder));
  describe.stops =
      read_stops(spec().folder, *generation_, *describe.config, *tokenizer_,
                 {.token = describe.end_token, .id = describe.class_end});
  if (const auto end = tokenizer_->id_of(std::string(describe.turn_end))) {
    describe.stops.push_back(*end);
  }
  read_sampling({generation_file.string(), ""});
}

void CaptionModel::read_sampling(GenerationPlace place) {
  generation_place_ = std::move(place);
  if (!generation_->is_object()) return;
  opened_.spec.describe->sampling = read_text_processors(generation_reader(), spec().model.vocab);
}

JsonReader CaptionModel::generation_reader() const {
  return JsonReader(*generation_, generation_place_.file, generation_place_.key);
}

std::optional<FolderTemplate> CaptionModel::read_pair(const fs::path& model,
                                                      const fs::path& projector) {
  FolderAccount account;
  const std::string file = gguf_parts(model).front().string();
  opened_ = open_gguf_pair(model, the_projector(model, projector), account);
  DescribeSpec& describe = *opened_.spec.describe;
  GgufTexts texts = read_gguf_texts(*opened_.weights->gguf(), file, account);
  tokenizer_.emplace(std::move(texts.tokenizer));
  describe.account = std::make_shared<const FolderAccount>(std::move(account));
  describe.stops = std::move(texts.stops);
  generation_ = texts.generation ? texts.generation : std::make_shared<const Json>();
  read_sampling({file, std::string(kGgufGeneration)});
  if (!texts.chat_template) return std::nullopt;
  return read_template_text(std::move(*texts.chat_template), model.string(),
                            std::move(texts.special_tokens));
}

void CaptionModel::settle_image_token() {
  DescribeSpec& describe = *opened_.spec.describe;
  const fs::path file = file_of(spec(), "tokenizer.json");
  if (describe.image_id < 0) {
    const auto id = tokenizer_->id_of(describe.image_token);
    if (!id) refuse_file(file, describe.image_token, "this token", "none");
    describe.image_id = *id;
  }
  if (describe.image_id == spec().model.vocab) return;  // there is no token
  checked_id(spec(), describe.image_id, "image_token_id");
  const std::string_view placeholder = form_of(describe, *tokenizer_).image;
  if (tokenizer_->id_of(placeholder) != describe.image_id) {
    refuse_file(file, std::string(placeholder),
                "this token at id " + std::to_string(describe.image_id), "another id or none");
  }
}

std::unique_ptr<CaptionModel> CaptionModel::open(const fs::path& path,
                                                 const fs::path& chat_template,
                                                 const fs::path& projector) {
  std::unique_ptr<CaptionModel> out(new CaptionModel());
  const bool pair = source_with(path.string()) == nullptr && is_gguf_file(path);
  if (!pair && !projector.empty()) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_FLAG_CONFLICT",
                 .where = "--mmproj",
                 .expected = "a model in a .gguf file: others have their image encoder",
                 .found = path.string()});
  }
  std::optional<FolderTemplate> own;
  if (pair) {
    own = out->read_pair(path, projector);
  } else {
    out->read_folder(path);
  }
  out->settle_image_token();
  const fs::path& folder = out->spec().folder;
  if (!own || !chat_template.empty()) own = ChatPrompter::template_of(folder, chat_template);
  out->chat_.emplace(form_of(out->describe(), *out->tokenizer_), *out->tokenizer_, std::move(own),
                     (pair ? path : folder / "chat_template.jinja").string());
  return out;
}

SettingValues CaptionModel::cuts() const {
  if (!generation_->is_object()) return {};
  return read_cuts(generation_reader());
}

DType CaptionModel::stored() const {
  if (weights().dequantised()) return kDequantisedStorage;
  if (weights().gguf() != nullptr) return stored_as_filed(spec(), weights());
  if (const auto blocks = stored_in_blocks(spec(), weights())) return *blocks;
  const auto exact = [&](const TensorSpec& tensor) {
    const auto found = weights().tensors().find(tensor.name);
    return tensor.shape.rank() < 2 || found == weights().tensors().end() ||
           found->second.dtype == DType::kBF16;
  };
  const std::vector<TensorSpec> tensors = describing_tensors(spec());
  return std::all_of(tensors.begin(), tensors.end(), exact) ? DType::kBF16 : DType::kF32;
}

StreamModel CaptionModel::load_text(Backend& backend, DType storage) const {
  return load_stream_model(spec().model, spec().names, *opened_.source, backend, storage);
}

void CaptionModel::load(Backend& backend, DType storage, const TokenModel* text) {
  if (loaded()) return;
  const ModelSpec& spec = opened_.spec;
  text_ = text;
  if (text_ == nullptr) {
    own_text_ = std::make_unique<StreamModel>(load_text(backend, storage));
    text_ = &own_text_->space(TokenSpace::kText);
  }
  std::vector<float> newline;
  if (!describe().newline_name.empty()) {
    newline = read_vector(weights(), describe().newline_name, spec.model.transformer.width);
  }
  images_ = load_visual_encoder(backend, describe().tower, file_of(spec, "config.json").string(),
                                weights(), std::move(newline), KeptWeights(storage).encoder(),
                                *text_);
  weights().verify_unchanged();
}

}  // namespace tessera
