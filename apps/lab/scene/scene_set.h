// Sets of scenes with everything that is known about each: what `tessera-lab scene` writes to a folder
// and what scene_dump writes to a pipe.
//
//   one image    render_scene(scene_from_json(text, file), size), or of sample_scene(...)
//   contact sheet  for_each_scene(...) collecting record.picture, then contact_sheet(images, 8)
//   set            for_each_scene(...) saving record.picture and record_to_json(record)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/lab/scene/caption.h"
#include "apps/lab/scene/render.h"
#include "apps/lab/scene/scene.h"
#include "engine/core/function_ref.h"
#include "engine/core/thread_pool.h"

namespace tessera {

enum class ScenePixels : std::uint8_t { kNone, kRender };

struct SceneSetRequest {
  std::uint64_t seed = 0;
  SceneSplit split = SceneSplit::kTrain;
  std::uint64_t start = 0;  // first index
  std::uint64_t count = 1;
  int size = 64;  // pixels a side
  ScenePixels pixels = ScenePixels::kRender;
};

struct SceneRecord {
  std::uint64_t index = 0;
  SceneSplit split = SceneSplit::kTrain;
  std::uint64_t set_seed = 0;
  int size = 0;
  Scene scene;
  std::string caption;
  std::string canonical;
  std::vector<QuestionAnswer> questions;
  SceneImage image;  // empty if not rendered
};

// The record of one index; a function of its arguments alone.
SceneRecord make_record(const SceneSetRequest& request, std::uint64_t index);

// One line of JSON, without the line end: {"index","split","seed","size","scene":{as
// scene_to_json},"caption","canonical","questions":[{"q","a"}]}.
std::string record_to_json(const SceneRecord& record);

// Calls sink(record) for start, start+1, ... in order; records are made by the pool's threads, a
// few dozen at a time. Error (kUsage) naming the field if size or the range of indices is out of
// bounds. What the sink throws passes through.
void for_each_scene(const SceneSetRequest& request, ThreadPool& pool,
                    FunctionRef<void(const SceneRecord&)> sink);

}  // namespace tessera
