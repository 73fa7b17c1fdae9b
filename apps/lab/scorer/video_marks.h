// What can be right or wrong about a video of the tabletop world: what the scorer saw in its frames,
// and how its solids move.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "apps/lab/scorer/attributes.h"
#include "apps/lab/scorer/motion_reader.h"

namespace tessera {

// score_seen() for the order of the truth's solids that earns most; the order itself is not asked.
// Solids may have passed one another since the frame in which they were listed.
Marks score_any_order(const std::optional<SceneAttributes>& seen, const SceneAttributes& truth);

// Means over the frames from `first` on. seen: [frames]. The order is asked of frame 0 alone, and
// where that is not among them, of none. expects() a frame.
Marks score_frames(std::span<const std::optional<SceneAttributes>> seen,
                   const SceneAttributes& truth, int first);

// How far the last frame shows what frame `first` does: score_any_order() of the one against the
// other. Nothing is right where one of them could not be read or shows no solids.
Marks score_agreement(std::span<const std::optional<SceneAttributes>> seen, int first);

// Shares of solids in [0, 1], or kNotAsked.
struct MotionMarks {
  double right = 0.0;                        // found, and moving as the caption says
  double found = 0.0;                        // found at all
  std::array<double, kMotions> by_motion{};  // right among those of this motion
};
MotionMarks score_motions(const SeenVideo& seen, std::span<const Motion> truth);

}  // namespace tessera
