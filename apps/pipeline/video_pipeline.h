// Text (and first frames) to clips, frame by frame: opens a model of clips, checks a request
// against it before any weight is read, loads once, then writes one clip after another. Frames are
// handed out as soon as their grid of codes stands; memory does not grow with a clip's length.
//
// A clip longer than the model's own goes on in windows: the last grids that stand are the first
// tokens of the next window, behind the same prompt. Their keys and values are computed anew at the
// places they have there, or stay cached and slide (engine/model/cache_slide.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/pipeline/generate_pipeline.h"

namespace tessera {

// What the next window knows of the grids that it begins with.
enum class Continuation : std::uint8_t {
  kRecompute,  // computed anew, as if the clip began with them
  kSinks,      // as cached, with what they saw of the grids that went
};

struct ClipRequest {
  std::string prompt;
  std::optional<std::string> negative_prompt;
  SamplingChoice sampling;
  std::uint64_t seed = 0;
  std::int64_t frames = 0;  // of the whole clip, first frames included; 0 = the model's own length
  bool endless = false;     // goes on until the listener stops it; `frames` is not read
  Continuation continuation = Continuation::kRecompute;
  // Of the model's size, oldest first; the last VideoPipeline::most_first_frames() of them count. A
  // grid is whole: of fewer frames than one stands for the last one stays, of more the oldest go.
  std::vector<Image> first_frames;
};

struct PreparedClip {
  DecodeItem item;
  PictureFacts facts;       // tokens and passes are filled when it was written
  std::int64_t frames = 0;  // 0 = endless
  Continuation continuation = Continuation::kRecompute;
  std::vector<Image> first_frames;
};

struct ClipProgress {
  std::int64_t frames_done = 0, frames = 0;  // handed out; wanted, 0 = endless
  std::int64_t tokens_done = 0, tokens = 0;  // of the window's stream
  std::int64_t passes = 0;                   // of all windows
  double seconds = 0;
};

// Called on the thread that runs the pipeline.
class ClipListener {
 public:
  virtual ~ClipListener() = default;
  // After each pass. kStop ends the clip behind its last whole grid.
  virtual Flow on_progress(const ClipProgress&) { return Flow::kContinue; }
  // A frame, in order; `index` counts from 0.
  virtual void on_frame(std::int64_t index, const Image& frame) = 0;
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
  // As GeneratePipeline; options.batch_size and draft_model are not read. Error kModel; kUsage:
  // E_MODEL_PICTURES for a model that paints pictures, E_GEOMETRY, E_DECODE_...
  explicit VideoPipeline(const PipelineOptions& options);
  VideoPipeline(const PipelineOptions& options, OpenedModel model, std::string shown_name);
  ~VideoPipeline();
  VideoPipeline(VideoPipeline&&) noexcept;
  VideoPipeline& operator=(VideoPipeline&&) = delete;

  const FamilySpec& spec() const;
  const std::string& model_name() const;
  const DecodeMethod& method() const;  // settled
  std::string window_report() const;   // as GeneratePipeline's
  DType storage() const;
  const Backend& backend() const;
  std::int64_t rate() const;        // frames a second
  std::int64_t own_frames() const;  // frames of one window
  bool takes_prompts() const;       // else it goes on from first frames alone
  // First frames that leave room for others: all grids of a window but one; 0 = it takes none.
  std::int64_t most_first_frames() const;

  // Error kUsage: as GeneratePipeline::prepare; E_VIDEO_FRAMES for more frames than a model of one
  // grid can write, or none beside the first ones; E_VIDEO_FIRST for first frames of another size,
  // or where the model takes none.
  PreparedClip prepare(ClipRequest request) const;

  // What run() will hold for this clip.
  MemoryPlan memory_plan(const PreparedClip& clip) const;

  // Writes the clip. Reads the weights at the first call. Error kModel, kMemory; a failure of the
  // model is a result.
  GeneratedClip run(const PreparedClip& clip, ClipListener& listener);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
