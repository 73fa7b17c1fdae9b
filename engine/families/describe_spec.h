// How a model describes images, as plain data: image encoder, preprocessing, chat form, stops and
// the ids that stand for visual tokens. What a family file fills for the describing half.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/json.h"
#include "engine/core/setting.h"
#include "engine/spec/chat_form.h"
#include "engine/spec/frame_sampling.h"
#include "engine/spec/preprocess_policy.h"
#include "engine/towers/vision_tower.h"

namespace tessera {

struct FolderAccount;

// A form of the prompt, for tokenizers that know a token: newer members of a family write their
// prompts in another way than older ones.
struct ChatChoice {
  std::string_view requires_token;  // empty = always
  const ChatForm* form = nullptr;
};

// Which tie_word_embeddings makes the head of a folder's file the table, where the file has none.
enum class HeadTie : std::uint8_t {
  kEither,         // that of the whole configuration or of its text half, if one is true
  kWhole,          // that of the whole configuration, if it is true
  kWholeOrAbsent,  // the same, or if it has none
};

struct DescribeSpec {
  std::string type;  // model_type
  std::string title;
  VisionTower tower;
  PreprocessPolicy policy;
  std::optional<PreprocessPolicy> together;  // of images that share a prompt; none = the same
  VideoPolicy video;                           // of videos
  std::optional<ErrorInfo> no_videos;          // why videos are refused, if they are
  FrameSampling video_frames;                 // which frames of a video are shown
  std::vector<ChatChoice> chats;             // the first whose token is known
  // The id that stands for a visual token; the size of the vocabulary, where the tokenizer has none.
  std::int32_t image_id = -1;
  std::int32_t video_id = -1;                // ... of a video; -1: it is shown as images
  std::string image_token;                   // the same as it is written
  std::vector<std::string_view> tokens_again;  // that the processor adds to the tokenizer
  std::string newline_name;                  // tensor after each row of tiles; empty = none
  std::vector<std::int32_t> stops;
  // What ends texts where no file of the folder names an id: this token, else the class default;
  // kNoEnd = nothing.
  std::string_view end_token;
  std::int32_t class_end = -1;
  std::string_view turn_end;  // a token that ends texts whatever files name; empty = none
  std::vector<std::int32_t> unwritten;  // ids that the reference never writes
  SettingValues sampling;  // logits processors that generation_config.json switches on
  HeadTie head_tie = HeadTie::kEither;
  // The key of config.json because of which texts end before max_position_embeddings; empty = none.
  std::string text_limit;
  std::shared_ptr<const Json> config;  // config.json
  std::shared_ptr<const FolderAccount> account;  // of the keys of its files

  const PreprocessPolicy& policy_of(std::size_t images) const {
    return images > 1 && together ? *together : policy;
  }
};

}  // namespace tessera
