// What the task "describe" is asked for and what it answers: settings, requests, captions, and the
// listener that hears of them.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/runtime/chat_question.h"
#include "apps/runtime/prune_session.h"
#include "apps/runtime/video_source.h"
#include "apps/runtime/visual_tiles.h"
#include "apps/runtime/written_text.h"
#include "engine/backend/backend.h"
#include "engine/core/error.h"
#include "engine/core/setting.h"
#include "engine/decoding/decode_method.h"
#include "engine/decoding/meters.h"
#include "engine/decoding/stream.h"
#include "vision/image/image.h"

namespace tessera {

// A second model that drafts texts.
struct DraftChoice {
  std::string model;   // as resolve_model() takes it; empty = none
  PruneChoice prune;   // of its visual tokens alone
  bool blind = false;  // it reads the question without images

  bool on() const { return !model.empty(); }
};

struct DescribeOptions {
  std::string model;  // as resolve_model() takes it; empty = the bundled default
  // The image encoder of a model in a .gguf file; empty = as resolve_model() says, or next to it.
  std::string projector;
  std::string chat_template;  // a file in place of the model's; empty = the model's
  std::string device = "auto";
  CudaOptions cuda;
  int threads = 0;               // 0 = one per core
  std::optional<DType> storage;  // empty = as the checkpoint stores it
  std::int64_t batch_size = 1;   // texts at once; fewer where memory does not last
  bool all_slots = false;        // requests come one by one: room for all slots at first
  std::int64_t max_tokens = 256;
  std::int64_t prompt_rows = 0;  // room for a prompt; 0 = grows with the prompts
  DecodeMethod method;           // texts keep their distribution: rules that bend it are refused
  PruneChoice prune;
  DraftChoice draft;       // for methods of the drafter "model"
  SettingValues sampling;  // greedy without guidance unless given
  std::uint64_t seed = 0;
  std::size_t image_cache = 0;   // bytes of rows of images, for when those come again
  std::filesystem::path helper;  // the process that reads images; empty = next to the program
};

// Where an image comes from: a file, bytes already read, or pixels; or a scene of a video, whose
// frames are one visual block.
struct ImageSource {
  std::optional<VideoScene> scene;
  VideoChoice frames;  // of the scene
  std::shared_ptr<const Image> image;
  std::filesystem::path file;
  std::vector<std::uint8_t> bytes;
  std::string name;  // in messages
};

struct DecodedImage;

// An image that looks like an earlier one.
struct RepeatedImage {
  std::string path;  // of the earlier one, as its item has it
  int distance = 0;  // bits of their fingerprints that differ
};

struct DescribeRequest {
  std::string id;
  std::vector<ImageSource> images;
  std::string prompt;
  // In the place of the prompt: a conversation, whose image parts are `images` in their order.
  std::vector<ChatTurn> turns = {};
  // Under guidance the second branch of the text is asked this, without the images; none = the same
  // prompt. So guidance leads towards what the images say.
  std::optional<std::string> negative_prompt;
  // Half of the key of what is sampled, so that neither neighbours nor an interrupted run change a
  // text; none = its place in the submission.
  std::optional<std::uint64_t> number;
  SettingValues sampling = {};  // over those of the task
  std::int64_t max_tokens = 0;  // at most the task's; 0 = so many
  std::optional<std::uint64_t> seed = {};  // none = the task's
  std::vector<std::string> stop = {};      // the text ends before the first of them
  std::int64_t logprobs = kNoLogprobs;     // likeliest ids of each token that are listed, with its own
  // Set: the source could not make a request of it. It becomes a failed caption, in its turn.
  std::optional<ErrorInfo> failure;
  // Looks at each image once it is decoded, on the thread that reads them, in the order of the
  // requests. With an answer the request ends there, as a caption without text.
  std::function<std::optional<RepeatedImage>(const DecodedImage&)> look;
};

// Gives the next request, none when there are no more. Called on the thread that reads images, one
// call at a time. What it throws ends its submission.
using DescribeSource = std::function<std::optional<DescribeRequest>()>;

struct CaptionSeconds {
  double read = 0;    // decoding and preparing the images, while other work goes on
  double encode = 0;  // image encoder and projector, selections included
  double select = 0;  // selections
  double first = 0;   // from encoding to the first token
  double total = 0;   // from encoding to the last one
  double draft = 0;   // the draft model's part of encode: its own encoder, selections, prompt
};

struct Caption {
  std::string id;
  bool failed = false;
  ErrorInfo error;
  std::optional<RepeatedImage> repeats;  // DescribeRequest::look said so: there is no text
  std::string text;
  bool cut_short = false;  // max_tokens were written
  bool stopped_by_text = false;  // one of DescribeRequest::stop ended it
  std::int64_t tokens = 0, passes = 0;
  std::int64_t prompt_tokens = 0;                   // rows of the prompt as it entered layer 0
  std::int64_t reused_tokens = 0;                   // of them, those that another text had cached
  std::int64_t visual_tokens = 0, kept_tokens = 0;  // kept_tokens: after the last cut
  std::int64_t known_images = 0;                    // whose rows were there from an earlier text
  RowSource prune_source = RowSource::kNone;
  std::string draft;                   // name of the model that drafted; empty = none
  std::int64_t draft_kept_tokens = 0;  // visual tokens after the last cut of its own prompt
  std::vector<std::array<std::int64_t, 2>> sizes;  // pixels of each image, width and height
  // Pixels of each image as the model was shown it: resized, before padding and tiles.
  std::vector<std::array<std::int64_t, 2>> seen;
  std::vector<std::int64_t> frames;  // numbers of the frames of videos that were shown
  std::vector<std::string> notes;    // of the image reader; why a text had no draft model
  std::vector<VisualBlock> kept;     // of each image, in front of the language model or after it
  std::vector<VisualBlock> whole;    // of each image, before any pruning
  std::vector<ShownPart> parts;      // of each image
  // Of each token of `whole`, see ImagePrompt::scores().
  std::vector<std::vector<float>> scores;
  std::vector<TextToken> listed;  // tokens of the text, where log probabilities are asked for
  DecodeMeters meters;
  CaptionSeconds seconds;
};

class DescribeListener {
 public:
  virtual ~DescribeListener() = default;
  // Tokens of what on_text() says next, where log probabilities are asked for.
  virtual void on_listed(const std::string& /*id*/, std::span<const TextToken> /*tokens*/) {}
  // More of a text; called as tokens are committed.
  virtual void on_text(const std::string& /*id*/, std::string_view /*more*/) {}
  virtual void on_caption(Caption&& caption) = 0;
  // What the owner should hear of, once.
  virtual void on_notice(std::string_view /*text*/) {}
  // Memory did not last for `had` texts at once: `have` from here on.
  virtual void on_fewer(std::int64_t had, std::int64_t have);
  // Asked between passes. kStop: no new images, texts at work are finished.
  virtual Flow on_pass() { return Flow::kContinue; }
  // Nothing more is called. `finished`: all requests of the source were answered; false when the
  // submission was stopped, cancelled or failed.
  virtual void on_over(bool /*finished*/) {}
};

}  // namespace tessera
