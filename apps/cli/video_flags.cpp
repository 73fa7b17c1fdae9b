#include "apps/cli/video_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/cli/setting_flags.h"
#include "apps/runtime/caption_memory.h"
#include "apps/runtime/caption_settings.h"

namespace tessera {

namespace {

constexpr std::int64_t kQuestionRows = 96;  // of a question and its template
constexpr double kNever = 2;                // no distance is so large

}  // namespace

std::string VideoInputFlags::given() const {
  if (!videos.empty()) return "--video";
  if (fps) return "--fps";
  if (frames) return "--video-frames";
  return scene_cut ? "--scene-cut" : "";
}

void add_video_flags(CLI::App& app, VideoInputFlags& flags) {
  const std::string group = "Videos";
  app.add_option("--video", flags.videos,
                 "a video, whatever its ending; each scene of it gets a caption")
      ->allow_extra_args(false)
      ->group(group);
  setting_flag(app, setting::kShownRate, flags.fps, {.group = group});
  setting_flag(app, setting::kVideoFrames, flags.frames, {.group = group});
  setting_flag(app, setting::kSceneCut, flags.scene_cut, {.group = group});
}

VideoSettings video_input_settings(const VideoInputFlags& flags, const ModelSpec& spec,
                           std::int64_t max_tokens) {
  const std::int64_t room = text_places(spec.model) - max_tokens - kQuestionRows;
  VideoSettings out;
  out.frames = {.rate = flags.fps, .frames = flags.frames, .rows = std::max<std::int64_t>(room, 1)};
  if (flags.scene_cut) out.cuts.distance = *flags.scene_cut < 1 ? *flags.scene_cut : kNever;
  return out;
}

void add_video_settings(const VideoInputFlags& flags, Json& job) {
  if (flags.fps) job["fps"] = *flags.fps;
  if (flags.frames) job["video_frames"] = *flags.frames;
  if (flags.scene_cut) job["scene_cut"] = *flags.scene_cut;
}

}  // namespace tessera
