// Opens, checks and loads captioning models.
#include "apps/runtime/caption_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/runtime/split_prompt.h"
#include "apps/runtime/text_stops.h"
#include "apps/runtime/tokenizer_account.h"
#include "apps/runtime/video_prompt.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/storage.h"
#include "engine/families/describe.h"
#include "engine/families/folder_files.h"
#include "engine/families/generation_defaults.h"
#include "engine/families/linked_models.h"

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

std::int64_t checked_id(const ModelSpec& spec, std::int64_t id, const char* what) {
  if (id >= 0 && id < spec.model.vocab) return id;
  refuse_file(spec.folder / "config.json", what,
              "an id below the vocabulary of " + std::to_string(spec.model.vocab),
              std::to_string(id));
}

}  // namespace

std::vector<std::int32_t> CaptionModel::prompt_ids(const std::string& question,
                                                   std::span<const PreprocessPlan> images) const {
  ChatTurn turn;
  std::vector<ImageLayout> layouts;
  const std::int64_t class_tokens = describe().tower.vit.class_token_feature ? 1 : 0;
  std::int64_t wanted = 0;
  for (const PreprocessPlan& plan : images) {
    wanted += plan.tokens + class_tokens * (plan.video ? plan.views : 1);
    constexpr std::int64_t kMaxTokens = std::int64_t{1} << 15, kMaxTiles = 64;
    if (plan.tokens < 1 || plan.tokens >= kMaxTokens || plan.tiles.rows > kMaxTiles ||
        plan.tiles.cols > kMaxTiles) {
      throw Error({.kind = ErrorKind::kGeneral,
                   .code = "E_PICTURE_TOKENS",
                   .where = plan.video ? "clip" : "picture",
                   .expected = "1 to 32767 visual tokens in at most 64 x 64 tiles",
                   .found = std::to_string(plan.tokens),
                   .hint = plan.video ? "show fewer frames: --video-frames" : ""});
    }
    if (plan.video) {
      add_video(chat_->form(), plan, class_tokens, turn.parts, layouts);
      continue;
    }
    turn.parts.push_back(ChatPart::image());
    const bool tiled = plan.base == BaseView::kLast;  // each tile in a frame of its own
    ImageLayout& layout = layouts.emplace_back();
    if (tiled) {
      layout.tokens = plan.view_rows * plan.view_cols;
      layout.rows = narrow<int>(plan.tiles.rows);
      layout.columns = narrow<int>(plan.tiles.cols);
    } else {
      layout.tokens = plan.tokens + class_tokens;
    }
  }
  turn.parts.push_back({false, question});
  const bool token = describe().image_id < spec().model.vocab;
  const Prompt prompt = chat_->expanded({turn}, std::move(layouts));
  const auto ids =
      token ? encode_prompt(*tokenizer_, prompt)
            : encode_around_images(*tokenizer_, prompt, chat_->form().image, describe().image_id);
  std::int64_t placeholders = 0;
  for (const std::int32_t id : ids) {
    if (token || id != describe().image_id) checked_id(spec(), id, "prompt");
    placeholders += id == describe().image_id || id == describe().video_id ? 1 : 0;
  }
  if (placeholders != wanted) {
    refuse_file(spec().folder / "tokenizer.json", describe().image_token,
                "a token that stays whole: " + std::to_string(wanted) + " of it",
                std::to_string(placeholders));
  }
  return ids;
}

std::unique_ptr<CaptionModel> CaptionModel::open(const fs::path& folder,
                                                 const fs::path& chat_template) {
  std::unique_ptr<CaptionModel> out(new CaptionModel());
  if (const LinkedModels* made_up = source_with(folder.string())) {
    out->opened_ = made_up->open(folder.string(), {.use = ModelUse::kDescribe});
    out->tokenizer_.emplace(TextTokenizer::from_json(out->opened_.tokenizer_json, folder.string()));
  } else {
    ModelSpec spec = load_model_spec(folder, {.use = ModelUse::kDescribe});
    out->tokenizer_.emplace(TextTokenizer::from_folder(folder, spec.describe->tokens_again));
    out->opened_ = open_model(std::move(spec));
  }
  const ModelSpec& spec = out->spec();
  const TextTokenizer& tokenizer = *out->tokenizer_;
  DescribeSpec& describe = *out->opened_.spec.describe;
  describe.account = with_notes(describe.account, tokenizer);
  if (describe.image_id < 0) {
    const auto id = tokenizer.id_of(describe.image_token);
    if (!id) refuse_file(folder / "tokenizer.json", describe.image_token, "this token", "none");
    describe.image_id = *id;
  }
  const bool no_token = describe.image_id == spec.model.vocab;
  if (!no_token) checked_id(spec, describe.image_id, "image_token_id");
  const fs::path generation_file = generation_path(spec.folder);
  out->generation_ = std::make_shared<const Json>(read_generation(spec.folder));
  const Json& generation = *out->generation_;
  describe.stops = read_stops(spec.folder, generation, *describe.config, tokenizer);
  if (generation.is_object()) {
    describe.sampling =
        read_processors(JsonReader(generation, generation_file.string()), spec.model.vocab);
  }
  const ChatForm& form = form_of(describe, tokenizer);
  const std::string_view placeholder = form.image;
  if (!no_token && tokenizer.id_of(placeholder) != describe.image_id) {
    refuse_file(folder / "tokenizer.json", std::string(placeholder),
                "this token at id " + std::to_string(describe.image_id), "another id or none");
  }
  out->chat_.emplace(form, tokenizer, spec.folder, chat_template);
  return out;
}

SettingValues CaptionModel::cuts() const {
  if (!generation_->is_object()) return {};
  return read_cuts(JsonReader(*generation_, generation_path(spec().folder).string()));
}

DType CaptionModel::stored() const {
  if (weights().dequantised()) return kDequantisedStorage;
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
  images_ = std::make_unique<VisualEncoder>(backend, describe().tower,
                                            (spec.folder / "config.json").string(), weights(),
                                            std::move(newline), beside(storage));
  weights().verify_unchanged();
}

}  // namespace tessera
