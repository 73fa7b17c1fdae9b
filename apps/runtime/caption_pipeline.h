// Pictures and questions to texts: reads and prepares pictures ahead of time, encodes them, prunes,
// and writes many texts at once. What a picture's text says depends on the picture, the question
// and the settings alone. One bad picture is one failed item.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/runtime/caption_draft.h"
#include "apps/runtime/clip_source.h"
#include "apps/runtime/generate_request.h"
#include "apps/runtime/prune_session.h"
#include "engine/core/error.h"
#include "engine/decoding/decode_method.h"
#include "engine/decoding/stream_loop.h"

namespace tessera {

struct CaptionOptions {
  std::string model;  // as resolve_model() takes it; empty = the bundled default
  std::string device = "auto";
  CudaOptions cuda;
  int threads = 0;               // 0 = one per core
  std::optional<DType> storage;  // empty = as the checkpoint stores it
  std::int64_t batch_size = 1;   // texts at once; fewer where memory does not last
  std::int64_t most_tokens = 256;
  std::int64_t prompt_rows = 0;  // room for a prompt; 0 = grows with the prompts
  DecodeMethod method;           // texts keep their law: rules that bend it are refused
  PruneChoice prune;
  DraftChoice draft;        // for methods of the drafter "model"
  SettingValues sampling;  // greedy unless a temperature is given
  std::uint64_t seed = 0;
  std::filesystem::path helper;  // the picture reader; empty = beside the program
};

// Where a picture comes from: a file, bytes already read, or pixels; or a scene of a clip, whose
// frames are one visual block.
struct PictureSource {
  std::optional<ClipScene> scene;
  ClipChoice frames;  // of the scene
  std::shared_ptr<const Image> image;
  std::filesystem::path file;
  std::vector<std::uint8_t> bytes;
  std::string name;  // in messages
};

struct CaptionRequest {
  std::string id;
  std::vector<PictureSource> pictures;
  std::string prompt;
  // Half of the key of what is drawn by lot, so that neither neighbours nor an interrupted run
  // change a text; none = its place in the run.
  std::optional<std::uint64_t> number;
};

struct CaptionSeconds {
  double read = 0;    // decoding and preparing the pictures, beside other work
  double encode = 0;  // picture encoder and projector, selections included
  double select = 0;  // selections
  double first = 0;   // from encoding to the first token
  double total = 0;   // from encoding to the last one
  double draft = 0;   // the draft model's part of encode: its own encoder, selections, prompt
};

struct Caption {
  std::string id;
  bool failed = false;
  ErrorInfo error;
  std::string text;
  bool cut_short = false;  // most_tokens were written
  std::int64_t tokens = 0, passes = 0;
  std::int64_t prompt_tokens = 0;                   // rows of the prompt as it entered layer 0
  std::int64_t visual_tokens = 0, kept_tokens = 0;  // kept_tokens: behind the last cut
  RowSource prune_source = RowSource::kNone;
  std::string draft;                   // name of the model that drafted; empty = none
  std::int64_t draft_kept_tokens = 0;  // visual tokens behind the last cut of its own prompt
  std::vector<std::array<std::int64_t, 2>> sizes;  // pixels of each picture, width and height
  // Pixels of each picture as the model was shown it: resized, before padding and tiles.
  std::vector<std::array<std::int64_t, 2>> seen;
  std::vector<std::int64_t> frames;  // numbers of the frames of clips that were shown
  std::vector<std::string> notes;    // of the picture reader; why a text had no draft model
  std::vector<VisualBlock> kept;     // of each picture, in front of the LLM or behind it
  std::vector<VisualBlock> whole;    // of each picture, before any pruning
  // Of each token of `whole`, see PicturePrompt::scores().
  std::vector<std::vector<float>> scores;
  DecodeMeters meters;
  CaptionSeconds seconds;
};

class CaptionListener {
 public:
  virtual ~CaptionListener() = default;
  // More of a text; called as tokens come to stand.
  virtual void on_text(const std::string& /*id*/, std::string_view /*more*/) {}
  virtual void on_caption(Caption&& caption) = 0;
  // What the run's owner should hear of, once.
  virtual void on_notice(std::string_view /*text*/) {}
  // Memory did not last for `had` texts at once: `have` for the rest of the run.
  virtual void on_fewer(std::int64_t had, std::int64_t have);
  // Asked between passes. kStop: no new pictures, texts at work are finished.
  virtual Flow on_pass() { return Flow::kContinue; }
};

class CaptionModel;

class CaptionPipeline {
 public:
  // Opens and checks the model's files; reads no weights. Error kModel; kUsage for settings that
  // contradict one another or the model: what is refused later is one picture.
  explicit CaptionPipeline(const CaptionOptions& options);
  ~CaptionPipeline();
  CaptionPipeline(CaptionPipeline&&) noexcept;

  const CaptionModel& model() const;
  const std::string& model_name() const;
  const DecodeMethod& method() const;
  DType storage() const;
  const Backend& backend() const;
  // Of the loop since the last run began.
  StreamTimes times() const;
  std::string window_report() const;

  void load();

  // Another pruner, from the next run on. Error kUsage as of the constructor.
  void set_pruning(const PruneChoice& prune);

  // Texts at once, from the next run on, in the place of options.batch_size.
  void set_texts_at_once(std::int64_t texts);

  // Gives back what the last run held beside weights: cache, buffers, encoded pictures.
  void give_back();

  // Takes requests until `next` gives none; captions come in the order in which texts end. Returns
  // false when the listener stopped it.
  bool run(const std::function<std::optional<CaptionRequest>()>& next, CaptionListener& listener);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
