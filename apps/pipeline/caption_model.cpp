// Opens, checks and loads captioning models.
#include "apps/pipeline/caption_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/pipeline/caption_memory.h"
#include "apps/pipeline/caption_weights.h"
#include "apps/pipeline/clip_prompt.h"
#include "apps/pipeline/made_up_captioner.h"
#include "engine/core/io.h"
#include "engine/families/test_models.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& file, std::string where, std::string expected,
                         std::string found) {
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_CAPTION_MODEL",
               .file = file.string(),
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found)});
}

[[noreturn]] void refuse_made_up(const std::string& name) {
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_MODEL_MISSING",
               .file = name,
               .expected = "test:tiny, the one made-up model that describes pictures",
               .found = "another"});
}

// eos_token_id of the generation configuration, or of the model's: one id or several.
std::vector<std::int32_t> read_stops(const CaptionSpec& spec, const TextTokenizer& tokenizer) {
  const fs::path& folder = spec.folder;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path path = folder / name;
    const bool own = std::string_view(name) == "config.json";
    if (!own && !file_exists(path)) continue;
    const Json json =
        own ? *spec.config : parse_json(read_file(path, std::size_t{1} << 20), path.string());
    if (!json.is_object()) continue;
    std::vector<const Json*> places = {&json};
    for (const char* key : {"text_config", "language_config"}) {
      if (const auto part = json.find(key); part != json.end() && part->is_object()) {
        places.push_back(&*part);
      }
    }
    for (const Json* place : places) {
      const auto found = place->find("eos_token_id");
      if (found == place->end() || found->is_null()) continue;
      std::vector<std::int32_t> out;
      for (const Json& id : found->is_array() ? *found : Json::array({*found})) {
        if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
            id.get<std::int64_t>() >= std::int64_t{1} << 30 || out.size() >= 64) {
          refuse(path, "eos_token_id", "token ids", id.dump());
        }
        out.push_back(id.get<std::int32_t>());
      }
      return out;
    }
  }
  for (const char* token : {"</s>", "<|im_end|>", "<end_of_utterance>",
                            "<\xef\xbd\x9c"
                            "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"}) {
    if (const auto id = tokenizer.id_of(token)) return {*id};
  }
  refuse(folder, "eos_token_id", "a token that ends a text", "none");
}

std::vector<float> read_vector(const Checkpoint& checkpoint, const std::string& name,
                               std::int64_t width) {
  const ConstTensorView* view = checkpoint.find(name);
  expects(view != nullptr, "the checkpoint was checked");
  std::vector<float> out;
  for (std::int64_t i = 0; i < width; ++i) {
    switch (view->dtype) {
      case DType::kF32:
        out.push_back(static_cast<const float*>(view->data)[i]);
        break;
      case DType::kBF16:
        out.push_back(bf16_to_float(static_cast<const std::uint16_t*>(view->data)[i]));
        break;
      default:
        out.push_back(f16_to_float(static_cast<const std::uint16_t*>(view->data)[i]));
    }
  }
  return out;
}

std::int64_t checked_id(const CaptionSpec& spec, std::int64_t id, const char* what) {
  if (id >= 0 && id < spec.text.model.vocab) return id;
  refuse(spec.folder / "config.json", what,
         "an id below the vocabulary of " + std::to_string(spec.text.model.vocab),
         std::to_string(id));
}

// Newer members of a family write their prompts in another way than older ones.
ChatTemplate chat_of(const CaptionSpec& spec, const TextTokenizer& tokenizer) {
  const auto has = [&](const char* token) { return tokenizer.id_of(token).has_value(); };
  if (spec.family == "llava_next") {
    const auto text = spec.config->find("text_config");
    const bool mistral = text != spec.config->end() && text->is_object() &&
                         text->value("model_type", std::string()) == "mistral";
    if (mistral) return ChatTemplate::kLlava16Mistral;
    return has("<|im_start|>") ? ChatTemplate::kLlava16Yi : ChatTemplate::kLlava16Vicuna;
  }
  if (spec.family == "llava_onevision") return ChatTemplate::kLlavaOneVision;
  if (spec.family == "janus" || spec.family == "multi_modality") {
    return has("<|User|>") ? ChatTemplate::kJanusPro : ChatTemplate::kJanus;
  }
  if (spec.family == "qwen2_vl" || spec.family == "qwen2_5_vl") return ChatTemplate::kQwen2Vl;
  if (spec.family == "smolvlm") return ChatTemplate::kSmolVlm;
  if (spec.family == "idefics3") return ChatTemplate::kIdefics3;
  return ChatTemplate::kLlava15;
}

}  // namespace

std::vector<std::int32_t> CaptionModel::prompt_ids(const std::string& question,
                                                   std::span<const PreprocessPlan> pictures) const {
  ChatTurn turn;
  std::vector<PictureLayout> layouts;
  const std::int64_t class_tokens = spec_.tower.vit.class_token_feature ? 1 : 0;
  std::int64_t wanted = 0;
  for (const PreprocessPlan& plan : pictures) {
    wanted += plan.tokens + class_tokens * (plan.clip ? plan.views : 1);
    constexpr std::int64_t kMostTokens = std::int64_t{1} << 15, kMostTiles = 64;
    if (plan.tokens < 1 || plan.tokens >= kMostTokens || plan.tiles.rows > kMostTiles ||
        plan.tiles.cols > kMostTiles) {
      throw Error({.kind = ErrorKind::kGeneral,
                   .code = "E_PICTURE_TOKENS",
                   .where = plan.clip ? "clip" : "picture",
                   .expected = "1 to 32767 visual tokens in at most 64 x 64 tiles",
                   .found = std::to_string(plan.tokens),
                   .hint = plan.clip ? "show fewer frames: --video-frames" : ""});
    }
    if (plan.clip) {
      add_clip(chat_, plan, class_tokens, turn.parts, layouts);
      continue;
    }
    turn.parts.push_back(ChatPart::image());
    const bool tiled = plan.base == BaseView::kLast;  // each tile in a frame of its own
    PictureLayout& layout = layouts.emplace_back();
    if (tiled) {
      layout.tokens = plan.view_rows * plan.view_cols;
      layout.rows = static_cast<int>(plan.tiles.rows);
      layout.columns = static_cast<int>(plan.tiles.cols);
    } else {
      layout.tokens = plan.tokens + class_tokens;
    }
  }
  turn.parts.push_back({false, question});
  const Prompt prompt = chat_prompt(chat_, {turn}, true);
  const auto ids = encode_prompt(*tokenizer_, expand_images(chat_, prompt, layouts));
  std::int64_t placeholders = 0;
  for (const std::int32_t id : ids) {
    checked_id(spec_, id, "prompt");
    placeholders += id == spec_.image_id || id == spec_.video_id ? 1 : 0;
  }
  if (placeholders != wanted) {
    refuse(spec_.folder / "tokenizer.json", spec_.image_token,
           "a token that stays whole: " + std::to_string(wanted) + " of it",
           std::to_string(placeholders));
  }
  return ids;
}

std::unique_ptr<CaptionModel> CaptionModel::open(const fs::path& folder) {
  std::unique_ptr<CaptionModel> out(new CaptionModel());
  CaptionSpec& spec = out->spec_;
  if (is_made_up_captioner(folder.string())) {
    spec = parse_caption_spec(made_up_captioner_config(), std::nullopt, folder);
    out->tokenizer_.emplace(
        TextTokenizer::from_json(made_up_captioner_tokenizer(), folder.string()));
    out->weights_ = made_up_captioner_weights(spec);
  } else {
    if (is_made_up_model(folder.string())) refuse_made_up(folder.string());
    spec = read_caption_spec(folder);
    out->tokenizer_.emplace(TextTokenizer::from_file(folder / "tokenizer.json"));
    out->weights_ = std::make_shared<const Checkpoint>(Checkpoint::open(folder));
  }
  settle_caption_weights(spec, *out->weights_);
  if (spec.image_id < 0) {
    const auto id = out->tokenizer_->id_of(spec.image_token);
    if (!id) refuse(folder / "tokenizer.json", spec.image_token, "this token", "none");
    spec.image_id = *id;
  }
  checked_id(spec, spec.image_id, "image_token_id");
  spec.stops = read_stops(spec, *out->tokenizer_);
  out->chat_ = chat_of(spec, *out->tokenizer_);
  const std::string_view placeholder = image_token(out->chat_);
  if (out->tokenizer_->id_of(placeholder) != spec.image_id) {
    refuse(folder / "tokenizer.json", std::string(placeholder),
           "this token at id " + std::to_string(spec.image_id), "another id or none");
  }
  return out;
}

DType CaptionModel::stored() const {
  const ConstTensorView* table = weights_->find(spec_.text.names().prompt_table);
  expects(table != nullptr, "the checkpoint was checked");
  return table->dtype == DType::kF32 ? DType::kF32 : DType::kBF16;
}

void CaptionModel::load(Backend& backend, DType storage) {
  if (loaded()) return;
  CaptionSpec& spec = spec_;
  spec.text.model.transformer.rope.positions = rotary_places(spec);
  const auto source = source_of(weights_);
  text_ = std::make_unique<StreamModel>(
      load_stream_model(spec.text.model, spec.text.names(), *source, backend, storage));
  std::vector<float> newline;
  if (!spec.newline_name.empty()) {
    newline = read_vector(*weights_, spec.newline_name, spec.text.model.transformer.width);
  }
  pictures_ =
      std::make_unique<VisualEncoder>(backend, *spec.config, (spec.folder / "config.json").string(),
                                      *weights_, std::move(newline), storage);
  weights_->verify_unchanged();
}

}  // namespace tessera
