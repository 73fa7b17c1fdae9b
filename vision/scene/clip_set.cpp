#include "vision/scene/clip_set.h"

#include <nlohmann/json.hpp>

#include "vision/scene/scene_value.h"
#include "vision/scene/set_loop.h"

namespace tessera {

ClipRecord make_clip_record(const SceneSetRequest& request, int frames, std::uint64_t index) {
  ClipRecord record{.index = index,
                    .split = request.split,
                    .set_seed = request.seed,
                    .size = request.size,
                    .clip = sample_clip(request.seed, request.split, index, frames)};
  record.caption = clip_caption(record.clip);
  record.canonical = canonical_caption(record.clip);
  for (int frame = 0; request.pixels == ScenePixels::kRender && frame < frames; ++frame) {
    record.pictures.push_back(render_clip_frame(record.clip, frame, request.size));
  }
  return record;
}

std::string record_to_json(const ClipRecord& record) {
  const Json line = {{"index", record.index},           {"split", name_of(record.split)},
                     {"seed", record.set_seed},         {"size", record.size},
                     {"clip", clip_value(record.clip)}, {"caption", record.caption},
                     {"canonical", record.canonical}};
  return line.dump();
}

void for_each_clip(const SceneSetRequest& request, int frames, ThreadPool& pool,
                   FunctionRef<void(const ClipRecord&)> sink) {
  for_each_record<ClipRecord>(
      request, pool, [&](std::uint64_t index) { return make_clip_record(request, frames, index); },
      sink);
}

}  // namespace tessera
