#include "apps/runtime/video_source.h"

#include <algorithm>

#include "engine/core/index.h"
#include "video/frame_sampler.h"

namespace tessera {

namespace {

// Frames that most prompts have room for, and that a CPU encodes in a while.
constexpr std::int64_t kUsualFrames = 32;

[[noreturn]] void fail(const VideoIndex& video, const char* code, std::string expected,
                       std::string found) {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = code,
               .file = video.file.string(),
               .where = "video stream",
               .expected = std::move(expected),
               .found = std::move(found)});
}

DecodedImage as_image(VideoFrame&& frame) {
  DecodedImage out(frame.width, frame.height, 3, "frame");
  out.pixels = std::move(frame.rgb);
  return out;
}

}  // namespace

double VideoIndex::seconds_at(std::size_t frame) const {
  const double tick = info.tick.value();
  if (frame < times.size()) return to_double(times[frame]) * tick;
  if (times.empty()) return 0;
  // The last frame lasts as the file's rate says, or as long as the one before.
  double last = info.rate.num > 0 ? 1 / info.rate.value() : 0;
  if (times.size() > 1) {
    const auto step = to_double(times.back() - times[times.size() - 2]) * tick;
    if (last == 0) last = step;
  }
  return to_double(times.back()) * tick + last;
}

std::vector<VideoScene> find_scenes(const std::filesystem::path& file, const CutSettings& cuts,
                                   const std::function<bool()>& stop, ScenePrints prints) {
  FrameReader reader(file);
  auto index = std::make_shared<VideoIndex>();
  index->file = file;
  index->info = reader.info();
  CutFinder finder(cuts);
  std::vector<std::size_t> starts = {0};
  std::vector<ImageFingerprint> looks;
  while (std::optional<VideoFrame> frame = reader.next()) {
    if (stop && stop()) return {};
    const bool cut = finder.add(frame->rgb, frame->width, frame->height);
    if (cut) starts.push_back(index->times.size());
    if (prints == ScenePrints::kYes && (cut || looks.empty())) {
      looks.push_back(fingerprint_of(frame->rgb, frame->width, frame->height));
    }
    index->times.push_back(frame->ticks);
  }
  if (index->times.empty()) fail(*index, "E_VIDEO_FRAMES", "a video with frames", "none");
  std::vector<VideoScene> out;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::size_t end = i + 1 < starts.size() ? starts[i + 1] : index->times.size();
    out.push_back({index, starts[i], end});
    if (!looks.empty()) out.back().print = looks[i];
  }
  return out;
}

VideoFrames choose_frames(const VideoScene& scene, const FrameSampling& family,
                         const VideoChoice& choice) {
  const VideoIndex& video = *scene.video;
  expects(scene.first < scene.end && scene.end <= video.times.size(), "frames of the video");
  const std::size_t count = scene.end - scene.first;
  FrameSampling sampling = family;
  sampling.frames = choice.frames.value_or(kUsualFrames);
  if (choice.rate) {
    sampling.rate = *choice.rate;
    if (sampling.rule == FrameRule::kUniform) sampling.rule = FrameRule::kRate;
  }
  if (sampling.rule == FrameRule::kQwen && sampling.frames < 4) {
    sampling.rule = FrameRule::kUniform;
  }
  if (sampling.rule == FrameRule::kUniform) {
    sampling.frames = std::min(sampling.frames, to_index(count));
  }
  std::vector<std::int64_t> times(video.times.begin() + to_index(scene.first),
                                  video.times.begin() + to_index(scene.end));
  const std::int64_t start = times.front();
  for (std::int64_t& time : times) time -= start;
  VideoFrames out;
  for (const std::size_t at : sample_frames(sampling, times, video.info)) {
    out.numbers.push_back(to_index(scene.first + at));
    out.seconds.push_back(video.seconds_at(scene.first + at) - video.seconds_at(scene.first));
  }
  out.length = video.seconds_at(scene.end) - video.seconds_at(scene.first);
  const auto shown = to_double(out.numbers.size());
  out.rate = out.length > 0 ? shown / out.length : sampling.rate;
  return out;
}

VideoFrames fitting_frames(const VideoScene& scene, const DescribeSpec& spec, VideoChoice choice) {
  // Words and marks around a frame that is shown as an image.
  const std::int64_t next_to = spec.video_id < 0 ? 24 : 0;
  const bool fixed = choice.frames.has_value() || choice.rows <= 0;
  while (true) {
    VideoFrames frames = choose_frames(scene, spec.video_frames, choice);
    const auto count = std::ssize(frames.numbers);
    if (fixed || count == 1) return frames;
    const VideoInfo& info = scene.video->info;
    const PreprocessPlan plan = plan_video(spec.video, info.width, info.height, frames);
    const std::int64_t taken = plan.tokens + plan.views * next_to;
    if (taken <= choice.rows) return frames;
    choice.frames = std::clamp(count * choice.rows / taken, std::int64_t{1}, count - 1);
  }
}

std::vector<PreprocessedImage> prepare_scene(const VideoScene& scene, const VideoFrames& frames,
                                               const std::vector<const VideoPolicy*>& policies) {
  const VideoIndex& video = *scene.video;
  FrameReader reader(video.file);
  std::vector<VideoPreprocessor> makers;
  for (const VideoPolicy* policy : policies) {
    makers.emplace_back(*policy, video.info.width, video.info.height, frames);
  }
  std::optional<VideoFrame> shown;
  const auto first = nth(video.times, frames.numbers.front());
  for (const std::int64_t number : frames.numbers) {
    const std::int64_t wanted = nth(video.times, number);
    if (!shown) shown = reader.frame_at(first);
    while (shown && shown->ticks < wanted) shown = reader.next();
    if (!shown || shown->ticks != wanted || shown->width != video.info.width ||
        shown->height != video.info.height) {
      fail(video, "E_VIDEO_DATA", "the frames that were there before, of one size",
           "frame " + std::to_string(number) + " is another or none");
    }
    DecodedImage image = as_image(VideoFrame(*shown));
    for (VideoPreprocessor& maker : makers) maker.add(image);
  }
  std::vector<PreprocessedImage> out;
  for (VideoPreprocessor& maker : makers) out.push_back(maker.finish());
  return out;
}

}  // namespace tessera
