// Reads how a model describes images: what all families share, by the rows of their files.
#include "engine/families/describe.h"

#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "engine/families/family.h"
#include "engine/families/image_processor.h"
#include "engine/families/language.h"
#include "engine/families/video_processor.h"

namespace tessera {

namespace {

constexpr std::int64_t kMaxPlaces = 16384;  // of a text with its prompt

// The text that the language model writes.
LanguageConfig read_text(const Describer& row, const JsonReader& config, ModelSpec& spec) {
  const bool nested = !row.text_key.empty() || config.has("text_config");
  const std::string_view key = row.text_key.empty() ? "text_config" : row.text_key;
  const LanguageConfig language =
      parse_language(nested ? sub_config(config, key) : config, row.languages, row.language);
  StreamModelConfig& model = spec.model;
  const std::int64_t places = model.transformer.rope.positions;
  model.transformer = language.model;
  model.vocab = language.vocab;
  model.max_positions = language.max_positions;
  model.tied_head = config.has("tie_word_embeddings")
                        ? config.boolean_or("tie_word_embeddings", false)
                        : language.tied;
  model.transformer.rope.positions =
      model.codes > 0 ? std::max(places, text_places(model)) : text_places(model);
  spec.layouts.clear();
  for (const LayoutNames& names : row.layouts) {
    spec.layouts.push_back({std::string(names.root), std::string(names.head)});
  }
  return language;
}

std::int32_t read_id(const JsonReader& config, std::string_view key, std::string_view other,
                     std::int64_t fallback, std::int64_t low) {
  const std::int64_t second = config.integer_or(other, fallback, low, kMaxVocab);
  const std::int64_t id = config.integer_or(key, second, low, kMaxVocab);
  if (config.has(other) && id != second) {
    config.fail(key, std::to_string(second) + ", as " + std::string(other) + " says",
                std::to_string(id));
  }
  return narrow<std::int32_t>(id);
}

// A model that names an encoder with a folder of its own prepares images as that folder says. Its
// own processor files serve where the encoder's folder has none, and may not say otherwise.
PreprocessPolicy read_policy(const Describer& row, const JsonReader& config,
                             const VisionTower& tower, FolderFiles& files, FolderAccount& account) {
  if (tower.folder.empty() || tower.codes) return read_image_policy(row, config, tower, files);
  FolderFiles encoder = FolderFiles::read_processor(tower.folder);
  const bool both = has_image_processor(encoder) && has_image_processor(files);
  FolderFiles& read = has_image_processor(files) && !both ? files : encoder;
  PreprocessPolicy policy = read_image_policy(row, config, tower, read);
  if (both && read_image_policy(row, config, tower, files) != policy) {
    const bool older = files.has(FolderFile::kPreprocessor);
    refuse_model("E_FOLDER_KEY",
                 files.path_of(older ? FolderFile::kPreprocessor : FolderFile::kProcessor), "",
                 "what " + encoder.path_of(FolderFile::kPreprocessor) + " says", "another way",
                 "images are prepared as the encoder's folder says: take this file away");
  }
  for (KeyAccount key : encoder.account(FolderHalf::kDescribing).keys) {
    key.file = (tower.folder.filename() / key.file).string();
    account.keys.push_back(std::move(key));
  }
  return policy;
}

ErrorInfo no_videos(const std::string& file, const std::string& type) {
  return {.kind = ErrorKind::kModel,
          .code = "E_VIDEO_MODEL",
          .file = file,
          .where = "model_type",
          .expected = "a model whose frames are seen by a vision encoder",
          .found = type};
}

}  // namespace

void read_release(const Describer& row, FolderFiles& files, ModelSpec& spec) {
  DescribeSpec& out = spec.describe.emplace();
  out.config = std::make_shared<const Json>(Json::object());
  out.type = row.type;
  out.title = spec.title;
  out.policy = row.policy();
  out.chats.assign(row.chats.begin(), row.chats.end());
  out.image_id = narrow<std::int32_t>(spec.model.vocab);
  out.image_token = row.image_token;
  out.end_token = row.end_token;
  row.release(spec, out);
  finish_tower(out.tower, out.type, spec.folder.string());
  out.no_videos = no_videos(spec.folder.string(), out.type);
  out.account = std::make_shared<const FolderAccount>(files.account(FolderHalf::kGenerating));
}

std::int64_t text_places(const StreamModelConfig& config) {
  return std::min(config.max_positions, kMaxPlaces);
}

std::string text_bound(const StreamModelConfig& config, const std::string& limit) {
  if (config.max_positions > kMaxPlaces) return "the most of this program";
  return "set by " + (limit.empty() ? "max_position_embeddings" : limit);
}

void read_describing(const Describer& row, FolderFiles& files, ModelSpec& spec) {
  const JsonReader reader = files.reader(FolderFile::kConfig);
  const std::string& file = reader.file();
  DescribeSpec& out = spec.describe.emplace();
  out.config = files.config();
  out.type = row.type;
  out.tower = row.tower(reader);
  finish_tower(out.tower, out.type, file);
  const LanguageConfig language =
      row.own_text ? parse_language(reader, row.languages) : read_text(row, reader, spec);
  if (out.tower.projector.out_width() != language.model.width) {
    throw Error(
        {.kind = ErrorKind::kModel,
         .code = "E_JSON_VALUE",
         .file = file,
         .where = "text_config.hidden_size",
         .expected = std::to_string(out.tower.projector.out_width()) + ", the projector's width",
         .found = std::to_string(language.model.width)});
  }
  out.text_limit = language.limit;
  out.class_end = language.end;
  out.end_token = row.end_token;
  out.head_tie = row.head_tie;
  FolderAccount of_encoder;
  out.policy = read_policy(row, reader, out.tower, files, of_encoder);
  out.video = read_video_policy(out, files, out.no_videos);
  if (out.tower.codes) {
    out.no_videos = no_videos(file, out.type);
  }
  out.video_frames = row.video_frames;
  out.chats.assign(row.chats.begin(), row.chats.end());
  if (row.finish != nullptr) row.finish(reader, out);
  out.title = std::string(row.title) + " " + size_label(language.model);
  out.image_id = row.image_id == kNoToken
                     ? narrow<std::int32_t>(spec.model.vocab)
                     : read_id(reader, "image_token_id", row.image_key, row.image_id, -1);
  out.image_token = row.image_token;
  out.tokens_again.assign(row.tokens_again.begin(), row.tokens_again.end());
  if (row.video_id >= 0) {
    out.video_id = read_id(reader, "video_token_id", "video_token_index", row.video_id, 0);
  }
  if (out.policy.mode == ResizeMode::kPinpoints) out.newline_name = "image_newline";
  check_processor(row, out, reader, files);
  // Of the images that such a model generates: the reference's texts go without.
  if (row.guides_images) files.reader(FolderFile::kGeneration).has("guidance_scale");
  FolderAccount account = files.account(FolderHalf::kDescribing);
  account.keys.insert(account.keys.end(), of_encoder.keys.begin(), of_encoder.keys.end());
  if (out.no_videos) {
    account.set({.file = std::filesystem::path(out.no_videos->file).filename().string(),
                 .key = out.no_videos->where,
                 .use = KeyUse::kRefused,
                 .why = "of videos; images are described"});
  }
  out.account = std::make_shared<const FolderAccount>(std::move(account));
}

}  // namespace tessera
