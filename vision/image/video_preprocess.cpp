#include "vision/image/video_preprocess.h"

#include <algorithm>

#include "engine/core/index.h"

namespace tessera {

namespace {

// Qwen's pixels of a frame: an even share of the video's, but not below 1.05 times the fewest.
PreprocessPolicy shared_pixels(const VideoPolicy& policy, std::size_t frames) {
  PreprocessPolicy out = policy.frame;
  if (policy.total_pixels == 0) return out;
  const std::int64_t share = policy.total_pixels * policy.view_frames / to_index(frames);
  const auto least = truncate<std::int64_t>(to_double(out.min_pixels) * 1.05);
  out.max_pixels = std::max(std::min(out.max_pixels, share), least);
  return out;
}

// In single precision, as the reference counts.
std::vector<std::int32_t> time_ids_of(const VideoPolicy& policy, std::int64_t views, double rate) {
  const auto step = policy.ids_per_second ? to_float(*policy.ids_per_second) *
                                                to_float(to_double(policy.view_frames) / rate)
                                          : 1.0f;
  std::vector<std::int32_t> out;
  for (std::int64_t view = 0; view < views; ++view) {
    out.push_back(truncate<std::int32_t>(to_float(view) * step));
  }
  return out;
}

}  // namespace

PreprocessPlan plan_video(const VideoPolicy& policy, std::int64_t width, std::int64_t height,
                         const VideoFrames& frames) {
  const std::size_t count = frames.seconds.size();
  expects(count > 0 && frames.numbers.size() == count && frames.rate > 0,
          "frames with their times and numbers");
  PreprocessPlan plan = plan_preprocess(shared_pixels(policy, count), width, height);
  expects(plan.base == BaseView::kOnly, "a frame is one view");
  plan.views = (to_index(count) + policy.view_frames - 1) / policy.view_frames;
  if (policy.halved) {
    plan.packed_rows = (plan.view_rows + 1) / 2;
    plan.packed_cols = (plan.view_cols + 1) / 2;
  }
  const std::int64_t of_view =
      policy.halved ? plan.packed_rows * plan.packed_cols : plan.view_rows * plan.view_cols;
  plan.newlines = policy.newline_at_end ? 1 : 0;
  plan.tokens = plan.views * of_view + plan.newlines;
  plan.video = {.view_frames = policy.view_frames,
               .seconds = frames.seconds,
               .numbers = frames.numbers,
               .length = frames.length,
               .time_ids = time_ids_of(policy, plan.views, frames.rate)};
  return plan;
}

VideoPreprocessor::VideoPreprocessor(const VideoPolicy& policy, std::int64_t width,
                                   std::int64_t height, const VideoFrames& frames)
    : policy_(shared_pixels(policy, std::max<std::size_t>(frames.seconds.size(), 1))),
      frame_(plan_preprocess(policy_, width, height)) {
  out_.plan = plan_video(policy, width, height, frames);
}

void VideoPreprocessor::add(const DecodedImage& frame) {
  const VideoPlan& video = *out_.plan.video;
  expects(added_ < video.seconds.size(), "no more frames than planned");
  const std::vector<Image> views =
      make_views(policy_, frame_, on_background(frame, policy_.after));
  EncoderView view = normalise(policy_, views.front());
  if (to_index(added_++) % video.view_frames == 0) {
    out_.views.push_back(std::move(view));
    return;
  }
  EncoderView& last = out_.views.back();
  last.values.insert(last.values.end(), view.values.begin(), view.values.end());
  ++last.frames;
}

PreprocessedImage VideoPreprocessor::finish() {
  const VideoPlan& video = *out_.plan.video;
  expects(added_ == video.seconds.size(), "all frames were added");
  EncoderView& last = out_.views.back();
  const auto frame_size = 3 * last.width * last.height;
  for (; last.frames < video.view_frames; ++last.frames) {
    const std::vector<float> again(last.values.end() - frame_size, last.values.end());
    last.values.insert(last.values.end(), again.begin(), again.end());
  }
  return std::move(out_);
}

}  // namespace tessera
