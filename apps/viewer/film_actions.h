// What keys and buttons do with the open video.
#pragma once

#include "apps/viewer/actions.h"

namespace tessera {

// Carries out an action that is of videos; false for all others.
bool use_film(Action action, UiState& state, const Snapshot& snapshot, const Poster& post);

}  // namespace tessera
