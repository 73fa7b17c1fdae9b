// Sets of still lifes with everything that is known about each, as apps/lab/scene/scene_set.h.
#pragma once

#include <cstdint>
#include <string>

#include "apps/lab/scene/scene_set.h"
#include "apps/lab/still_life/caption.h"
#include "apps/lab/still_life/render.h"
#include "apps/lab/still_life/still_life.h"

namespace tessera::still {

struct Record {
  std::uint64_t index = 0;
  SceneSplit split = SceneSplit::kTrain;
  std::uint64_t set_seed = 0;
  int size = 0;
  std::string things;  // fingerprint of the pack, empty without one
  StillLife scene;
  std::string caption;
  std::string canonical;
  SceneImage image;  // empty if not rendered
};

// The record of one index; a function of its arguments alone.
Record make_record(const SceneSetRequest& request, const Things& things, std::uint64_t index);
// The record of a scene of no set.
Record record_of(const StillLife& scene, const Things& things, int size);

// One line of JSON, without the line end: {"world":2,"index","split","seed","size","things",
// "scene":{as to_json},"caption","canonical"}.
std::string record_to_json(const Record& record);

// As for_each_scene().
void for_each_still_life(const SceneSetRequest& request, const Things& things, ThreadPool& pool,
                         FunctionRef<void(const Record&)> sink);

}  // namespace tessera::still
