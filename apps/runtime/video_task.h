// Text (and first frames) to videos, frame by frame: opens a model of videos in a runtime, checks a
// request against it before any weight is read, then writes videos, several at once. Frames are
// emitted as soon as their grid of codes is committed; memory does not grow with a video's length.
//
// A video longer than the model's own goes on in windows: the last grids that were committed are
// the first tokens of the next window, after the same prompt. Their keys and values are computed
// again at the positions they have there, or stay cached and slide (engine/model/cache_slide.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/runtime/runtime.h"
#include "apps/runtime/video_request.h"

namespace tessera {

class VideoTask {
 public:
  // Opens the model and the draft model and checks options against them; reads no weights. The
  // runtime outlives the task. Error kModel; kUsage: E_MODEL_PICTURES for a model that
  // generates images, E_GEOMETRY, E_DECODE_..., E_DRAFT_...
  VideoTask(Runtime& runtime, const GenerateOptions& options);
  VideoTask(Runtime& runtime, const GenerateOptions& options, OpenedModel model,
            std::string shown_name);
  ~VideoTask();
  VideoTask(const VideoTask&) = delete;
  VideoTask& operator=(const VideoTask&) = delete;

  Runtime& runtime() const;
  const ModelSpec& spec() const;
  const std::string& model_name() const;
  const DecodeMethod& method() const;  // settled
  // Which window an adaptive method settled on and why; empty otherwise.
  std::string window_report() const;
  DType storage() const;
  const Backend& backend() const;
  std::int64_t rate() const;        // frames a second
  std::int64_t own_frames() const;  // frames of one window
  bool takes_prompts() const;       // else first frames alone say what is generated
  // First frames that leave room for others, and that the model knows; 0 = it takes none.
  std::int64_t max_first_frames() const;

  // Error kUsage: prompt too long (E_PROMPT_LENGTH), empty, not UTF-8; E_VIDEO_FRAMES for more
  // frames than a model of one window can write, or none besides the first ones; E_VIDEO_FIRST for
  // first frames of another size, where the model takes none, or for none where it must have some;
  // E_VIDEO_TEXT for features of a text that are missing, of another shape, or that nobody reads.
  PreparedVideo prepare(VideoRequest request) const;

  // What is held while these videos are written, options.batch_size of them at once.
  MemoryPlan plan(std::span<const PreparedVideo> videos) const;
  MemoryPlan plan(const PreparedVideo& video) const { return plan({&video, 1}); }
  // Room that one needs in a loop, and the plan of a loop with that room; `encodes`: there are
  // first frames.
  LoopNeeds needs_of(const PreparedVideo& video) const;
  MemoryPlan plan(const LoopNeeds& needs, bool encodes) const;

  // Grids of codes that the whole video has, first frames included; not of an endless one.
  std::int64_t grids_of(const PreparedVideo& video) const;
  std::int64_t given_grids(const PreparedVideo& video) const;  // those of its first frames
  std::size_t grid_codes() const;                              // codes of a grid
  // Whether a video of which so many grids are committed can be gone on with so that it becomes
  // what it would have become: between any two grids where the method writes plain decoding's
  // tokens, else where a window of the model's stream ends. Nowhere where windows slide.
  bool can_go_on_at(const PreparedVideo& video, std::int64_t grids) const;
  // Tokens of so many grids, each of them a pass of plain decoding, unless the model writes blocks.
  std::int64_t tokens_of(std::int64_t grids) const;

  // Puts videos into the queue, options.batch_size at once: each begins when a slot is free, in
  // their order, and is what it would be alone. Weights
  // are read by the first pass: Error kModel, kMemory there. A failure of the model is a result.
  Ticket submit(std::vector<VideoOrder> orders);
  Ticket submit(std::unique_ptr<VideoSource> source);

  // The frames of a video whose grids are all committed, to on_frame(). Reads the weights of the
  // video tokenizer at the first call.
  void show(const PreparedVideo& video, std::span<const std::int32_t> codes,
            VideoListener& listener);

  // So many videos at once from here on; nothing is at work.
  void set_batch_size(std::int64_t videos);
  // Releases what is held besides weights: cache and buffers. Nothing of it is at work.
  void release();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One video to its end: submitted, and the runtime stepped until it is over. Tokens, passes,
// windows and seconds are those of this call, frames those of the whole video.
GeneratedVideo generate_video(VideoTask& task, PreparedVideo video, VideoListener& listener,
                              VideoCourse course = {});

}  // namespace tessera
