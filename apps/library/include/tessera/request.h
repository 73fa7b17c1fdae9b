// Requests, what becomes of them, and who hears of it. Callbacks run on the thread that calls
// Runtime::step() or finish(); those that are not given are not called. What a callback throws ends
// its own request and is thrown by step(). A callback may submit and cancel, not step, close a
// model or end the runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/error.h>
#include <tessera/image.h>
#include <tessera/settings.h>

namespace tessera_v0 {

// Of one request so far.
struct Progress {
  std::int64_t tokens_done = 0, tokens = 0;  // of an image; of a video, of the window at work
  std::int64_t frames_done = 0, frames = 0;  // of a video; 0 frames = endless
  std::int64_t passes = 0;
  double seconds = 0;
};

// Error of this request alone. Where it is not given, step() throws the error.
using OnError = std::function<void(const Error&)>;
// After each pass. False stops the request.
using OnProgress = std::function<bool(const Progress&)>;

// --- images -------------------------------------------------------------------------------------

// The image depends on the model, its settings and this, and on nothing else.
struct ImageRequest {
  std::string prompt = {};  // UTF-8; a class number for class-conditional models
  std::optional<std::string> negative_prompt = {};
  std::uint64_t seed = 0;  // below 2^63
  Settings settings = {};  // SettingPlace::kRequest of Task::kImage
  // Images to show on the way, evenly over its rows; each costs decoding all of its pixels. It
  // changes no result.
  std::int64_t partial_images = 0;
};

struct [[gnu::visibility("default")]] GeneratedImage {
  Image image = {};
  std::int64_t prompt_tokens = 0;  // without those of another branch; 0 within an answer
  std::int64_t tokens = 0, passes = 0;
  double seconds = 0;
  std::string record = {};  // JSON: all that is needed to generate the image again

  // A PNG file with the record, byte for byte that of `tessera generate`. Error kStorage.
  void save_png(const std::filesystem::path& path) const;
  // The same bytes.
  std::string png() const;
};

struct ImageCallbacks {
  OnProgress on_progress = {};
  // What there is of it, from number 0; rows to come in one colour. At most partial_images times.
  std::function<void(std::int64_t number, Image&&)> on_partial = {};
  std::function<void(GeneratedImage&&)> on_image = {};  // whole; not of a request that was stopped
  OnError on_error = {};
};

// --- videos -------------------------------------------------------------------------------------

struct VideoRequest {
  std::string prompt = {};
  std::optional<std::string> negative_prompt = {};
  std::uint64_t seed = 0;
  std::vector<Image> first_frames =
      {};  // of the model's size, oldest first; the video begins with them
  std::filesystem::path text_features = {};  // for models that read a text encoder's rows
  bool endless = false;                      // until on_progress returns false
  Settings settings = {};                    // SettingPlace::kRequest of Task::kVideo
};

struct GeneratedVideo {
  bool stopped = false;
  std::int64_t frames = 0, first_frames = 0;  // of the whole; how many of them were given
  std::int64_t rate = 0;                      // frames a second
  std::int64_t tokens = 0, passes = 0;
  double seconds = 0;
  std::string record = {};  // as of an image
};

struct VideoCallbacks {
  OnProgress on_progress = {};
  // Frames in order, from index 0, as soon as they are there.
  std::function<void(std::int64_t index, Image&& frame)> on_frame = {};
  std::function<void(const GeneratedVideo&)> on_video = {};  // also of one that was stopped
  OnError on_error = {};
};

// --- texts about images -------------------------------------------------------------------------

// A text, or the next image of the request.
struct ChatPart {
  std::string text = {};
  bool image = false;
};

// Of a conversation. Models without a chat template take what their family's form knows.
struct ChatTurn {
  std::string role = "user";  // "system" (the first alone), "user" or "assistant"
  std::vector<ChatPart> parts = {};
};

// What could stand at a place of a text: the natural logarithm of its probability by the model's
// own logits, at temperature 1, before any processor or cut; under guidance of the combined logits.
// The same whatever drafts were made, and whatever was written at the same time.
struct TokenLogprob {
  std::int32_t id = 0;
  std::string bytes = {};  // part of a character at times; of a special token its name
  double logprob = 0;
};

struct TextToken {
  TokenLogprob token = {};
  std::vector<TokenLogprob> top = {};  // as many as were asked for, the likeliest first
};

struct DescribeRequest {
  std::string question = "Describe the picture.";
  // In the place of the question: a conversation, with a part for each image, in their order.
  std::vector<ChatTurn> turns = {};
  // Under guidance (cfg-scale) the text leads away from an answer to this without the images; none
  // = the question itself.
  std::optional<std::string> negative_question = {};
  std::vector<Image> images = {};                 // shown first
  std::vector<std::filesystem::path> files = {};  // PNG, JPEG, WebP, GIF or BMP; shown next
  std::vector<std::string> encoded = {};          // bytes of such files; shown last
  // Half of the key of what is sampled; 0 for all gives equal requests equal texts.
  std::uint64_t number = 0;
  std::int64_t max_tokens = 0;  // at most the model's setting of that name; 0 = so many
  std::optional<std::uint64_t> seed = {};  // below 2^63; none = that of the model's options
  Settings settings = {};  // SettingPlace::kRequest of Task::kDescribe; greedy without them
  std::vector<std::string> stop = {};  // the text ends before the first of them; 16 at most
  std::int64_t logprobs = -1;  // 0 to 20: lists tokens, and so many likeliest of each; -1 = none
};

// The patches of an image's view, each one visual token.
struct ViewPatches {
  std::int64_t image = 0;  // of the request's
  std::int64_t columns = 0, rows = 0;
  // What the view shows, in shares of the image; beyond 0 and 1 it is padded.
  double left = 0, top = 0, width = 1, height = 1;
  std::vector<std::int64_t> kept = {};  // patches that stay, numbered line by line
};

struct Description {
  std::string text = {};
  bool cut_short = false;        // max-tokens were written
  bool stopped_by_text = false;  // one of the request's `stop` ended it
  std::int64_t tokens = 0, passes = 0, prompt_tokens = 0;
  // Of the prompt's tokens, those that an earlier text had read; images of OpenOptions::image_cache.
  std::int64_t reused_tokens = 0, known_images = 0;
  std::int64_t visual_tokens = 0, kept_tokens = 0;  // before and after pruning
  // Views of tiles lie over that of the whole image. None where tokens are no patches.
  std::vector<ViewPatches> patches = {};
  double seconds = 0;
  std::vector<std::string> notes = {};
  // Where logprobs are asked for: tokens of which a byte is in the text, not what ends it.
  std::vector<TextToken> listed = {};
};

struct DescribeCallbacks {
  std::function<bool()> on_progress = {};                  // as above, without figures
  std::function<void(std::vector<TextToken>&&)> on_tokens = {};  // of what on_text says next
  std::function<void(std::string_view)> on_text = {};      // more of the text, as it is written
  std::function<void(Description&&)> on_description = {};  // not of a request that was stopped
  std::function<void(std::string_view)> on_notice = {};  // what the owner of the model should know
  OnError on_error = {};
};

// Of many requests that are submitted as one; `index` is a request's place among them.
struct DescribeAllCallbacks {
  std::function<bool()> on_progress = {};  // after each pass; false stops all that are left
  std::function<void(std::size_t index, std::vector<TextToken>&&)> on_tokens = {};
  std::function<void(std::size_t index, std::string_view)> on_text = {};
  std::function<void(std::size_t index, Description&&)> on_description = {};
  std::function<void(std::string_view)> on_notice = {};
  std::function<void(std::size_t index, const Error&)> on_error = {};  // the others go on
};

// --- texts --------------------------------------------------------------------------------------

// The text depends on the model, its settings and this, and on nothing else.
struct CompleteRequest {
  std::string prompt = {};  // UTF-8
  // Under guidance (cfg-scale), and only there, the text leads away from what continues this.
  std::optional<std::string> negative_prompt = {};
  bool chat = false;            // the prompts are questions, written by the model's chat template
  std::vector<ChatTurn> turns = {};  // a conversation in the place of the prompt
  std::int64_t max_tokens = 0;  // at most the model's setting of that name; 0 = so many
  std::uint64_t seed = 0;       // below 2^63; half of the key of what is sampled
  std::uint64_t number = 0;     // the other half; of the command, a prompt's place
  Settings settings = {};       // SettingPlace::kRequest of Task::kComplete; greedy without them
  std::vector<std::string> stop = {};  // the text ends before the first of them; 16 at most
  std::int64_t logprobs = -1;  // as of DescribeRequest
};

struct Completion {
  std::string text = {};
  bool cut_short = false;        // max_tokens were written
  bool stopped_by_text = false;  // one of the request's `stop` ended it
  std::int64_t tokens = 0, passes = 0, prompt_tokens = 0;
  std::int64_t reused_tokens = 0;  // of the prompt's, those that an earlier text had read
  double first_seconds = 0, seconds = 0;  // to the first token, to the last one
  std::vector<TextToken> listed = {};     // as of Description
};

struct CompleteCallbacks {
  std::function<bool()> on_progress = {};                // as above, without figures
  std::function<void(std::vector<TextToken>&&)> on_tokens = {};  // of what on_text says next
  std::function<void(std::string_view)> on_text = {};    // more of the text, as it is written
  std::function<void(Completion&&)> on_completion = {};  // not of a request that was stopped
  std::function<void(std::string_view)> on_notice = {};  // what the owner of the model should know
  OnError on_error = {};
};

// --- answers of texts and images in turn --------------------------------------------------------

// The answer depends on the model, its settings and this, and on nothing else.
struct AnswerRequest {
  std::string prompt = {};  // UTF-8
  std::uint64_t seed = 0;   // below 2^63
  Settings settings = {};   // SettingPlace::kRequest of Task::kAnswer; of its images
};

struct Answer {
  std::string text = {};   // of all turns
  bool cut_short = false;  // max-tokens, max-images or the model's positions were reached
  std::int64_t prompt_tokens = 0, tokens = 0, images = 0, passes = 0;  // tokens of text
};

struct AnswerCallbacks {
  std::function<bool()> on_progress = {};              // as above, without figures
  std::function<void(std::string_view)> on_text = {};  // more of the text, as it is written
  std::function<void(GeneratedImage&&)> on_image = {};  // that stands after the text so far
  std::function<void(Answer&&)> on_answer = {};         // not of a request that was stopped
  std::function<void(std::string_view)> on_notice = {};  // what the owner of the model should know
  OnError on_error = {};
};

}  // namespace tessera_v0
