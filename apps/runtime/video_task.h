// Text (and first frames) to clips, frame by frame: opens a model of clips, checks a request
// against it before any weight is read, loads once, then writes clips, several at once. Frames are
// handed out as soon as their grid of codes stands; memory does not grow with a clip's length.
//
// A clip longer than the model's own goes on in windows: the last grids that stand are the first
// tokens of the next window, behind the same prompt. Their keys and values are computed anew at the
// places they have there, or stay cached and slide (engine/model/cache_slide.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/runtime/generate_pipeline.h"

namespace tessera {

// What the next window knows of the grids that it begins with.
enum class Continuation : std::uint8_t {
  kRecompute,  // computed anew, as if the clip began with them
  kSinks,      // as cached, with what they saw of the grids that went
};

struct ClipRequest {
  std::string prompt;
  std::optional<std::string> negative_prompt;
  SettingValues sampling;
  std::uint64_t seed = 0;
  std::int64_t frames = 0;  // of the whole clip, first frames included; 0 = the model's own length
  bool endless = false;     // goes on until the listener stops it; `frames` is not read
  Continuation continuation = Continuation::kRecompute;
  // Of the model's size, oldest first; the last VideoPipeline::most_first_frames() of them count. A
  // grid is whole: of fewer frames than one stands for the last one stays, of more the oldest go.
  std::vector<Image> first_frames;
  // File of the rows that a text encoder made of a text, for models that read such rows.
  std::string text_features;
};

struct PreparedClip {
  Stream item;
  PictureFacts facts;       // tokens and passes are filled when it was written
  std::int64_t frames = 0;  // 0 = endless
  Continuation continuation = Continuation::kRecompute;
  std::vector<Image> first_frames;
  std::shared_ptr<const Tensor> text;  // [rows, width] f32, for models that read such rows
};

struct ClipProgress {
  std::int64_t frames_done = 0, frames = 0;  // handed out; wanted, 0 = endless
  std::int64_t tokens_done = 0, tokens = 0;  // of the window's stream
  std::int64_t passes = 0;                   // of all windows
  double seconds = 0;
};

// A grid of codes of a clip.
struct ClipGrid {
  std::int64_t index = 0;               // from 0, the grids of first frames included
  std::span<const std::int32_t> codes;  // lives during the call only
  std::int64_t passes = 0;              // of this call so far, all windows
};

struct GeneratedClip;

// Called on the thread that runs the pipeline.
class ClipListener {
 public:
  virtual ~ClipListener() = default;
  // After each pass. kStop ends the clip behind its last whole grid.
  virtual Flow on_progress(const ClipProgress&) { return Flow::kContinue; }
  // A grid of codes that has come to stand, in order, before its frames. kStop ends the clip behind
  // it.
  virtual Flow on_grid(const ClipGrid&) { return Flow::kContinue; }
  // A frame, in order; `index` counts from 0.
  virtual void on_frame(std::int64_t /*index*/, const Image& /*frame*/) {}
  // The clip is over: nothing more is told of it.
  virtual void on_over(const GeneratedClip&) {}
};

// How a clip is written: from which grids on, and whether its frames are wanted.
struct ClipCourse {
  // Codes of the clip's first grids, first frames included, that on_grid() told once of the same
  // clip; a number of grids that can_go_on_at() names. Empty: from the beginning.
  std::vector<std::int32_t> standing = {};
  bool frames = true;  // false: codes alone, nothing is decoded to pixels
};

// A clip to be written, and who hears of it; both borrowed.
struct ClipTask {
  const PreparedClip* clip = nullptr;
  ClipListener* listener = nullptr;
  ClipCourse course = {};
};

struct GeneratedClip {
  PictureStatus status = PictureStatus::kDone;
  PictureFacts facts;  // tokens and passes of all windows, given tokens apart
  std::int64_t frames = 0, first_frames = 0;  // handed out; how many of them were given
  std::int64_t windows = 0;
  std::int64_t prefilled = 0;  // rows of prompts and standing tokens that windows began with
  double seconds = 0;
  DecodeMeters meters;  // of all windows
  ErrorInfo error;      // kFailed
};

class VideoPipeline {
 public:
  // As GeneratePipeline; options.draft_model is not read. Error kModel; kUsage:
  // E_MODEL_PICTURES for a model that paints pictures, E_GEOMETRY, E_DECODE_...
  explicit VideoPipeline(const PipelineOptions& options);
  VideoPipeline(const PipelineOptions& options, OpenedModel model, std::string shown_name);
  ~VideoPipeline();
  VideoPipeline(VideoPipeline&&) noexcept;
  VideoPipeline& operator=(VideoPipeline&&) = delete;

  const ModelSpec& spec() const;
  const std::string& model_name() const;
  const DecodeMethod& method() const;  // settled
  std::string window_report() const;   // as GeneratePipeline's
  DType storage() const;
  const Backend& backend() const;
  std::int64_t rate() const;        // frames a second
  std::int64_t own_frames() const;  // frames of one window
  bool takes_prompts() const;       // else first frames alone say what is painted
  // First frames that leave room for others, and that the model knows; 0 = it takes none.
  std::int64_t most_first_frames() const;

  // Error kUsage: as GeneratePipeline::prepare; E_VIDEO_FRAMES for more frames than a model of one
  // window can write, or none beside the first ones; E_VIDEO_FIRST for first frames of another
  // size, where the model takes none, or for none where it must have some; E_VIDEO_TEXT for
  // features of a text that are missing, of another shape, or that nobody reads.
  PreparedClip prepare(ClipRequest request) const;

  // What run() will hold for these clips.
  MemoryPlan memory_plan(std::span<const PreparedClip> clips) const;
  MemoryPlan memory_plan(const PreparedClip& clip) const { return memory_plan({&clip, 1}); }

  // Grids of codes that the whole clip has, first frames included; not of an endless one.
  std::int64_t grids_of(const PreparedClip& clip) const;
  std::int64_t given_grids(const PreparedClip& clip) const;  // those of its first frames
  std::size_t grid_codes() const;                            // codes of a grid
  // Whether a clip of which so many grids stand can be gone on with so that it becomes what it
  // would have become: between any two grids where the method writes plain decoding's tokens, else
  // where a window of the model's stream ends. Nowhere where windows slide.
  bool can_go_on_at(const PreparedClip& clip, std::int64_t grids) const;
  // Tokens of so many grids, each of them a pass of plain decoding, unless the model writes blocks.
  std::int64_t tokens_of(std::int64_t grids) const;

  // Writes the clip. Reads the weights at the first call. Tokens, passes, windows and seconds are
  // those of this call, frames those of the whole clip. Error kModel, kMemory; a failure of the
  // model is a result.
  GeneratedClip run(const PreparedClip& clip, ClipListener& listener,
                    const ClipCourse& course = {});
  // The same for several clips, options.batch_size at once: each begins when a slot is free and is
  // what it would be alone. Their listeners are called in turn, on this thread. Models of blocks
  // write one after the other.
  std::vector<GeneratedClip> run(std::span<const ClipTask> tasks);
  // The frames of a clip whose grids all stand, to on_frame(): what run() would have handed out.
  // Reads the clip tokenizer's weights at the first call.
  void show(const PreparedClip& clip, std::span<const std::int32_t> codes, ClipListener& listener);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
