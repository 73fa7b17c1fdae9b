// A scene as a JSON value, for the writers of this folder. Includers need <nlohmann/json.hpp>.
#pragma once

#include "engine/core/json.h"
#include "vision/scene/scene.h"

namespace tessera {

Json scene_value(const Scene& scene);

}  // namespace tessera
