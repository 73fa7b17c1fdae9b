// Sets of videos with what is known about each, as apps/lab/scene/scene_set.h has scenes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/lab/scene/video.h"
#include "apps/lab/scene/scene_set.h"
#include "engine/core/function_ref.h"
#include "engine/core/thread_pool.h"

namespace tessera {

struct VideoRecord {
  std::uint64_t index = 0;
  SceneSplit split = SceneSplit::kTrain;
  std::uint64_t set_seed = 0;
  int size = 0;
  Video video;
  std::string caption;
  std::string canonical;
  std::vector<SceneImage> images;  // a frame each; empty if not rendered
};

// The record of one index; a function of its arguments alone.
VideoRecord make_video_record(const SceneSetRequest& request, int frames, std::uint64_t index);

// One line of JSON: {"index","split","seed","size","clip":{as video_to_json},"caption","canonical"}.
std::string record_to_json(const VideoRecord& record);

// As for_each_scene().
void for_each_video(const SceneSetRequest& request, int frames, ThreadPool& pool,
                   FunctionRef<void(const VideoRecord&)> sink);

}  // namespace tessera
