// `eval videos`: generates held-out captions of moving scenes and measures the videos from their pixels:
// attributes frame by frame, the motion of each solid, what flickers where nothing moves, and how
// far the last frame still shows what the first one did. Next to them the same figures of true
// videos, of true videos through the tokenizer, and of videos that have nothing to do with the caption
// or do not move.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/lab/eval/eval_statistics.h"
#include "apps/lab/scorer/video_marks.h"
#include "apps/runtime/video_task.h"

namespace tessera {

inline constexpr int kEvalVideoSide = 64;             // pixels a side at which videos are measured
inline constexpr std::int64_t kMaxEvalFrames = 16;  // of a sampled video

struct EvalVideosRequest {
  GenerateOptions options;
  SettingValues sampling;
  std::string scorer = "tabletop-judge";  // as SceneReader::open() takes it
  std::uint64_t seed = 1;                // of the generation; video i is generated with seed + i
  std::uint64_t scene_seed = 1000;       // of the captions: videos 0, 1, ... of each split
  std::vector<SceneSplit> splits = {SceneSplit::kVal, SceneSplit::kHoldout};
  std::int64_t videos = 50;        // of each split
  std::int64_t frames = 0;        // of a video, 0 = the model's window, kMaxEvalFrames at most
  std::int64_t first_frames = 0;  // of the true video that are given; whole grids
};

// What is measured of one video. Marks and shares in [0, 1], or kNotAsked.
struct VideoMeasures {
  Marks attributes;  // of the frames that were not given
  Marks agreement;   // of the last frame with the first
  MotionMarks motion;
  double code_change = kNotAsked;
  double pixel_change = kNotAsked;  // levels of 255
  double given_psnr = kNotAsked;    // dB, of the given frames
  double psnr = kNotAsked;          // dB, of the others, against the true video
};

// One line of the tables.
struct VideoRow {
  std::string name;
  std::int64_t videos = 0;
  EvalRow attributes, agreement;
  Interval motion, found;
  std::array<Interval, kMotions> by_motion;
  Interval code_change, pixel_change, given_psnr, psnr;
};
VideoRow summarise(std::string name, std::span<const VideoMeasures> videos);

struct VideoSample {
  SceneSplit split = SceneSplit::kVal;
  std::string prompt;
  std::vector<Image> frames;  // of the model's size; none: the video failed
};

struct EvalVideosReport {
  std::string model, scorer;  // as shown
  DistributionSettings dist;
  DecodeMethod method;
  std::int64_t frames = 0, first_frames = 0;
  DecodeMeters meters;                                 // of all generated videos, pooled
  Interval tokens_per_pass, passes, entropy, seconds;  // over generated videos; entropy in nats
  std::int64_t failed = 0;
  std::vector<VideoRow> rows;
  std::vector<VideoSample> samples;  // all generated videos, in order
  bool stopped = false;
};

struct EvalVideosListener {
  std::function<void(const VideoRow&)> on_row;
  // Often; kStop ends the evaluation.
  std::function<Flow(const std::string& what, std::int64_t done, std::int64_t of)> on_progress;
};

// Frames of models of another size than kEvalVideoSide are scaled to it. Error kUsage: those of
// VideoTask; E_EVAL_MODEL for a scorer that reads no images of that size; E_EVAL_FRAMES for
// frames or given frames that the model or the world does not have. kModel for a bad model or
// score. All but faults of the weights are found before weights are read.
EvalVideosReport eval_videos(const EvalVideosRequest& request, const EvalVideosListener& listener);

// Markdown: attributes, motions, steadiness; "97.5 (95.0-99.0)" a cell, a dash where nothing was
// asked.
std::string video_tables(std::span<const VideoRow> rows);
// {"row","clips","count":{"mean","low","high","asked"}, ... "motion", "motion_left", ...}
nlohmann::ordered_json row_json(const VideoRow& row);

}  // namespace tessera
