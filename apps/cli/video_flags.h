// Flags of videos: which files are some, where their scenes end, which frames a model is shown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/jobs/video_captions.h"
#include "engine/core/json.h"
#include "engine/families/model_spec.h"

namespace CLI {
class App;
}

namespace tessera {

struct VideoInputFlags {
  std::vector<std::string> videos;
  std::optional<double> fps, scene_cut;
  std::optional<std::int64_t> frames;

  // The first flag that was given; empty if none was.
  std::string given() const;
};

void add_video_flags(CLI::App& app, VideoInputFlags& flags);

// For texts of so many tokens: without --video-frames as many frames as the prompt has room for.
VideoSettings video_input_settings(const VideoInputFlags& flags, const ModelSpec& spec, std::int64_t max_tokens);
// What makes a job with other settings another job; nothing where no flag was given.
void add_video_settings(const VideoInputFlags& flags, Json& job);

}  // namespace tessera
