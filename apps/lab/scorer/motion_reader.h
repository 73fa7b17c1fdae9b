// Reads from the pixels of a video how each solid of its caption moves. For every motion of the
// world and every place to begin at, the renderer says what the solid would look like in each
// frame; the motion whose images explain the frames best, against the empty table, is the one
// seen. All frames are scored at once, as in detection before tracking (Barniv, "Dynamic
// programming solution for detecting dim moving targets", 1985). Solids are found one after the
// other, then each again with the others in the image, so that one is not taken for another and
// may be hidden in part.
//
// Known beforehand: the solids' looks, the floor and the camera's motion, as the caption tells.
// Not known: places, motions and the noise of the floor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "apps/lab/scorer/solid_views.h"
#include "vision/image/image.h"

namespace tessera {

struct SeenSolid {
  bool found = false;              // explained >= kMinExplained
  Motion motion = Motion::kStill;  // the best one, found or not
  // Of what differs from the empty table under the solid's pixels, the share that it explains: 1
  // for its very image; 0 and less where it is not there.
  double explained = 0.0;
  std::vector<LatticePlace> places;  // by frame, of those that were read
};
inline constexpr double kMinExplained = 0.3;

struct SeenVideo {
  int first = 0;                  // frame that was read first
  std::vector<SeenSolid> solids;  // in the caption's order
};

class MotionReader {
 public:
  // `told` as SolidViews takes it; frames of `size` x `size` pixels, of which those from `first` on
  // are read. expects() 2 of them at least.
  MotionReader(const Video& heard, int size, int first, ThreadPool& pool);

  // frames: [told.frames], those before `first` are not looked at. expects() their number and size.
  SeenVideo read(std::span<const Image> frames) const;

  const Video& heard() const { return heard_; }
  int size() const { return size_; }

 private:
  struct Stage;
  SeenSolid find(const Stage& stage, std::size_t solid) const;
  void draw(Stage& stage, std::size_t solid, const SeenSolid& seen) const;
  Stage empty_stage(std::span<const Image> frames) const;

  Video heard_;
  int size_, first_;
  ThreadPool& pool_;
  std::vector<SolidViews> views_;                 // by solid
  std::vector<std::vector<std::uint8_t>> empty_;  // the table, by frame
};

// The video that was seen, frame `frame`: solids at the places where they were found.
SceneImage render_seen(const Video& heard, const SeenVideo& seen, int frame, int size);

}  // namespace tessera
