#include "apps/lab/still_life/still_set.h"

#include "apps/lab/scene/set_loop.h"

namespace tessera::still {

Record record_of(const StillLife& scene, const Things& things, int size) {
  Record record;
  record.size = size;
  record.things = things.fingerprint();
  record.scene = scene;
  record.caption = caption(scene, things);
  record.canonical = canonical_caption(scene, things);
  return record;
}

Record make_record(const SceneSetRequest& request, const Things& things, std::uint64_t index) {
  Record record = record_of(sample_still_life(request.seed, request.split, index, things), things,
                            request.size);
  record.index = index;
  record.split = request.split;
  record.set_seed = request.seed;
  if (request.pixels == ScenePixels::kRender) {
    record.image = render(record.scene, things, request.size);
  }
  return record;
}

void for_each_still_life(const SceneSetRequest& request, const Things& things, ThreadPool& pool,
                         FunctionRef<void(const Record&)> sink) {
  for_each_record<Record>(
      request, pool, [&](std::uint64_t index) { return make_record(request, things, index); },
      sink);
}

}  // namespace tessera::still
