// `eval clips`: paints held-out captions of moving scenes and measures the clips from their pixels:
// attributes frame by frame, the motion of each solid, what flickers where nothing moves, and how
// far the last frame still shows what the first one did. Beside them the same figures of true
// clips, of true clips through the tokenizer, and of clips that have nothing to do with the caption
// or do not move.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/lab/eval_statistics.h"
#include "apps/runtime/video_task.h"
#include "vision/judge/clip_marks.h"

namespace tessera {

inline constexpr int kEvalClipSide = 64;             // pixels a side at which clips are measured
inline constexpr std::int64_t kMostEvalFrames = 16;  // of a sampled clip

struct EvalClipsRequest {
  GenerateOptions options;
  SettingValues sampling;
  std::string judge = "tabletop-judge";  // as SceneReader::open() takes it
  std::uint64_t seed = 1;                // of the painting; clip i is painted with seed + i
  std::uint64_t scene_seed = 1000;       // of the captions: clips 0, 1, ... of each split
  std::vector<SceneSplit> splits = {SceneSplit::kVal, SceneSplit::kHoldout};
  std::int64_t clips = 50;        // of each split
  std::int64_t frames = 0;        // of a clip, 0 = the model's window, kMostEvalFrames at most
  std::int64_t first_frames = 0;  // of the true clip that are given; whole grids
};

// What is measured of one clip. Marks and shares in [0, 1], or kNotAsked.
struct ClipMeasures {
  Marks attributes;  // of the frames that were not given
  Marks agreement;   // of the last frame with the first
  MotionMarks motion;
  double code_change = kNotAsked;
  double pixel_change = kNotAsked;  // levels of 255
  double given_psnr = kNotAsked;    // dB, of the given frames
  double psnr = kNotAsked;          // dB, of the others, against the true clip
};

// One line of the tables.
struct ClipRow {
  std::string name;
  std::int64_t clips = 0;
  EvalRow attributes, agreement;
  Interval motion, found;
  std::array<Interval, kMotions> by_motion;
  Interval code_change, pixel_change, given_psnr, psnr;
};
ClipRow summarise(std::string name, std::span<const ClipMeasures> clips);

struct ClipSample {
  SceneSplit split = SceneSplit::kVal;
  std::string prompt;
  std::vector<Image> frames;  // of the model's size; none: the clip failed
};

struct EvalClipsReport {
  std::string model, judge;  // as shown
  LawSettings law;
  DecodeMethod method;
  std::int64_t frames = 0, first_frames = 0;
  DecodeMeters meters;                                 // of all painted clips, pooled
  Interval tokens_per_pass, passes, entropy, seconds;  // over painted clips; entropy in nats
  std::int64_t failed = 0;
  std::vector<ClipRow> rows;
  std::vector<ClipSample> samples;  // all painted clips, in order
  bool stopped = false;
};

struct EvalClipsListener {
  std::function<void(const ClipRow&)> on_row;
  // Often; kStop ends the evaluation.
  std::function<Flow(const std::string& what, std::int64_t done, std::int64_t of)> on_progress;
};

// Frames of models of another size than kEvalClipSide are scaled to it. Error kUsage: those of
// VideoTask; E_EVAL_MODEL for a judge that reads no pictures of that size; E_EVAL_FRAMES for
// frames or given frames that the model or the world does not have. kModel for a bad model or
// judge. All but faults of the weights are found before weights are read.
EvalClipsReport eval_clips(const EvalClipsRequest& request, const EvalClipsListener& listener);

// Markdown: attributes, motions, steadiness; "97.5 (95.0-99.0)" a cell, a dash where nothing was
// asked.
std::string clip_tables(std::span<const ClipRow> rows);
// {"row","clips","count":{"mean","low","high","asked"}, ... "motion", "motion_left", ...}
nlohmann::ordered_json row_json(const ClipRow& row);

}  // namespace tessera
