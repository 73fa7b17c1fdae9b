#include "apps/lab/scene/video_set.h"

#include <nlohmann/json.hpp>

#include "apps/lab/scene/scene_value.h"
#include "apps/lab/scene/set_loop.h"

namespace tessera {

VideoRecord make_video_record(const SceneSetRequest& request, int frames, std::uint64_t index) {
  VideoRecord record{.index = index,
                    .split = request.split,
                    .set_seed = request.seed,
                    .size = request.size,
                    .video = sample_video(request.seed, request.split, index, frames)};
  record.caption = video_caption(record.video);
  record.canonical = canonical_caption(record.video);
  for (int frame = 0; request.pixels == ScenePixels::kRender && frame < frames; ++frame) {
    record.images.push_back(render_video_frame(record.video, frame, request.size));
  }
  return record;
}

std::string record_to_json(const VideoRecord& record) {
  const Json line = {{"index", record.index},           {"split", name_of(record.split)},
                     {"seed", record.set_seed},         {"size", record.size},
                     {"clip", video_value(record.video)}, {"caption", record.caption},
                     {"canonical", record.canonical}};
  return line.dump();
}

void for_each_video(const SceneSetRequest& request, int frames, ThreadPool& pool,
                   FunctionRef<void(const VideoRecord&)> sink) {
  for_each_record<VideoRecord>(
      request, pool, [&](std::uint64_t index) { return make_video_record(request, frames, index); },
      sink);
}

}  // namespace tessera
