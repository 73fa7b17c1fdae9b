// Images of solids posed by the caller, seen by a camera of the caller's. Internal to
// apps/lab/scene.
#pragma once

#include <vector>

#include "apps/lab/scene/video.h"
#include "apps/lab/scene/render.h"
#include "apps/lab/scene/tracer.h"

namespace tessera {

// As render_scene(), which poses the solids as the scene has them.
SceneImage render_posed(const world::PosedScene& posed, const world::Camera& view, int size);
// As visible_shares().
std::vector<double> shares_posed(const world::PosedScene& posed, const world::Camera& view,
                                 int size);
// Of a scene of one solid, as render_video_solid().
SolidView view_alone(const world::PosedScene& posed, const world::Camera& view, int size);

}  // namespace tessera
