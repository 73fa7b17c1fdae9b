// What a video is asked for, who hears of it while it is written, and what became of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/runtime/generate_request.h"
#include "apps/runtime/submission.h"
#include "engine/families/memory_plan.h"

namespace tessera {

// What the next window knows of the grids that it begins with.
enum class Continuation : std::uint8_t {
  kRecompute,  // computed again, as if the video began with them
  kSinks,      // as cached, with what they saw of the grids that went
};

struct VideoRequest {
  std::string prompt;
  std::optional<std::string> negative_prompt;
  SettingValues sampling;
  std::uint64_t seed = 0;
  std::int64_t frames = 0;  // of the whole video, first frames included; 0 = the model's own length
  bool endless = false;     // goes on until the listener stops it; `frames` is not read
  Continuation continuation = Continuation::kRecompute;
  // Of the model's size, oldest first; the last VideoTask::max_first_frames() of them count. A
  // grid is whole: of fewer frames than one stands for the last one stays, of more the oldest go.
  std::vector<Image> first_frames;
  // File of the rows that a text encoder made of a text, for models that read such rows, in place of
  // a prompt.
  std::string text_features;
};

struct PreparedVideo {
  Stream item;
  DraftRequest draft;       // the same for the draft model, if there is one
  ImageFacts facts;         // tokens and passes are filled when it was written
  std::int64_t frames = 0;  // 0 = endless
  Continuation continuation = Continuation::kRecompute;
  std::vector<Image> first_frames;
  // For models that read a text encoder's rows: these, [rows, width] f32, or the ids it makes them of.
  std::shared_ptr<const Tensor> text;
  std::vector<std::int32_t> text_ids = {};
};

struct VideoProgress {
  std::int64_t frames_done = 0, frames = 0;  // emitted; wanted, 0 = endless
  std::int64_t tokens_done = 0, tokens = 0;  // of the window's stream
  std::int64_t passes = 0;                   // of all windows
  double seconds = 0;
};

// A grid of codes of a video.
struct VideoGrid {
  std::int64_t index = 0;               // from 0, the grids of first frames included
  std::span<const std::int32_t> codes;  // lives during the call only
  std::int64_t passes = 0;              // of this submission so far, all windows
};

struct GeneratedVideo {
  ImageStatus status = ImageStatus::kDone;
  ImageFacts facts;  // tokens and passes of all windows, given tokens apart
  std::int64_t frames = 0, first_frames = 0;  // emitted; how many of them were given
  std::int64_t windows = 0;
  std::int64_t prefilled = 0;  // rows of prompts and kept tokens that windows began with
  double seconds = 0;
  DecodeMeters meters;  // of all windows
  ErrorInfo error;      // kFailed
};

// Called on the thread that runs the runtime. What it throws ends the whole submission.
class VideoListener {
 public:
  virtual ~VideoListener() = default;
  // After each pass. kStop ends the video after its last whole grid.
  virtual Flow on_progress(const VideoProgress&) { return Flow::kContinue; }
  // A grid of codes that was committed, in order, before its frames. kStop ends the video after it.
  virtual Flow on_grid(const VideoGrid&) { return Flow::kContinue; }
  // Grid rows of codes between two previews; 0 = none.
  virtual std::int64_t preview_rows() const { return 0; }
  // The first frame of the grid that is being written, after on_progress(): its whole rows decoded
  // by themselves, the rest in their mean color. Not where a grid was just committed.
  virtual void on_preview(const VideoProgress&, const Image& /*frame*/) {}
  // A frame, in order; `index` counts from 0.
  virtual void on_frame(std::int64_t /*index*/, const Image& /*frame*/) {}
  // The video is over: nothing more is called.
  virtual void on_over(GeneratedVideo&&) {}
  // In its place where an error ended the whole submission, which Runtime::step() throws: of a
  // model, a device, a listener. Neither is called of a video that was not begun.
  virtual void on_error(const ErrorInfo& /*error*/) {}
};

// How a video is written: from which grids on, and whether its frames are wanted.
struct VideoCourse {
  // Codes of the video's first grids, first frames included, that on_grid() gave once for the same
  // video; a number of grids that can_go_on_at() names. Empty: from the beginning.
  std::vector<std::int32_t> committed = {};
  bool frames = true;  // false: codes alone, nothing is decoded to pixels
};

// A video to be written, and who hears of it: borrowed until on_over() or on_error(), or until the
// submission is over.
struct VideoOrder {
  PreparedVideo video;
  VideoListener* listener = nullptr;
  VideoCourse course = {};
  GeneratedVideo* result = nullptr;  // what on_over() says, besides; may be null
};

// Videos of one submission, given one by one as slots become free.
class VideoSource {
 public:
  virtual ~VideoSource() = default;
  // Room for those that are to come, as far as it is known.
  virtual LoopNeeds needs() const = 0;
  // None when none is ready.
  virtual std::optional<VideoOrder> next() = 0;
  // Whether next() may give more.
  virtual bool more() const = 0;
  // Where memory does not last: fewer slots, and one video that fails where it does not last for
  // one; else the submission ends with the error.
  virtual bool takes_fewer_slots() const { return false; }
  virtual void on_fewer_slots(std::int64_t /*had*/, std::int64_t /*have*/) {}
};

}  // namespace tessera
