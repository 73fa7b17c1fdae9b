#include "apps/lab/scorer/motion_reader.h"

#include <algorithm>
#include <array>
#include <limits>

#include "engine/core/index.h"

namespace tessera {

namespace {

// A pixel counts as wrong by at most this: what a large fault costs ends where it is one.
constexpr std::int32_t kMaxError = 3 * 60 * 60;

std::int32_t error_of(const std::uint8_t* a, const std::uint8_t* b) {
  std::int32_t sum = 0;
  for (int c = 0; c < 3; ++c) {
    const std::int32_t difference = std::int32_t{a[c]} - b[c];
    sum += difference * difference;
  }
  return std::min(sum, kMaxError);
}

// Sums over the pixels of views.
struct Fit {
  std::int64_t gain = 0;   // error of what was there before, less the error with the solid
  std::int64_t wrong = 0;  // the former
  Fit& operator+=(const Fit& other) {
    gain += other.gain;
    wrong += other.wrong;
    return *this;
  }
};

// A motion along the table at a speed: places a frame.
struct Path {
  Motion motion;
  int right, away;  // direction
  int halves;       // speed in halves of the world's own
  LatticePlace at(LatticePlace start, int frames) const {
    const int far = (halves * frames + 1) / 2;
    return {start.column + right * far, start.row + away * far};
  }
};

std::vector<Path> paths() {
  std::vector<Path> out = {{Motion::kStill, 0, 0, 0}};
  for (const int halves : {1, 2, 3}) {
    out.push_back({Motion::kLeft, -1, 0, halves});
    out.push_back({Motion::kRight, 1, 0, halves});
    out.push_back({Motion::kToward, 0, -1, halves});
    out.push_back({Motion::kAway, 0, 1, halves});
  }
  return out;
}

}  // namespace

// Frames, what of them is explained so far, and how near that is to the camera.
struct MotionReader::Stage {
  std::span<const Image> frames;
  std::vector<std::vector<std::int32_t>> error;  // [frames][pixels]
  std::vector<std::vector<float>> depth;         // [frames][pixels]

  Fit fit(int frame, const SolidView& view, std::int32_t shift) const {
    const auto t = to_size(frame);
    const std::uint8_t* rgb = frames[t].rgb.data();
    Fit out;
    for (std::size_t i = 0; i < view.pixels.size(); ++i) {
      const std::int32_t at = view.pixels[i] - shift;
      if (at < 0 || nth(depth[t], at) < view.depth) continue;
      const std::int32_t before = nth(error[t], at);
      out.wrong += before;
      out.gain += before - error_of(rgb + std::ptrdiff_t{at} * 3, &view.rgb[i * 3]);
    }
    return out;
  }
  void draw(int frame, const SolidView& view, std::int32_t shift) {
    const auto t = to_size(frame);
    for (std::size_t i = 0; i < view.pixels.size(); ++i) {
      const std::int32_t at = view.pixels[i] - shift;
      if (at < 0 || nth(depth[t], at) < view.depth) continue;
      nth(depth[t], at) = view.depth;
      nth(error[t], at) = error_of(frames[t].rgb.data() + std::ptrdiff_t{at} * 3, &view.rgb[i * 3]);
    }
  }
};

namespace {

// The best so far.
struct Best {
  Fit fit{.gain = std::numeric_limits<std::int64_t>::min(), .wrong = 0};
  Path path{Motion::kStill, 0, 0, 0};
  LatticePlace start;
  void offer(const Fit& other, const Path& how, LatticePlace from) {
    if (other.gain > fit.gain) *this = {other, how, from};
  }
};

}  // namespace

MotionReader::MotionReader(const Video& heard, int size, int first, ThreadPool& pool)
    : heard_(heard), size_(size), first_(first), pool_(pool) {
  expects(first >= 0 && heard.frames - first >= 2, "a motion takes two frames");
  for (std::size_t i = 0; i < heard_.scene.solids.size(); ++i) {
    views_.emplace_back(heard_, i, size, pool);
  }
  const Video table{.scene = {.seed = 0, .floor = heard.scene.floor, .solids = {}},
                   .motions = {},
                   .camera = heard.camera,
                   .frames = heard.frames};
  const bool moving = heard.camera != CameraMotion::kStill;
  for (int frame = 0; frame < heard.frames; ++frame) {
    empty_.push_back(frame > 0 && !moving ? empty_[0] : render_video_frame(table, frame, size).rgb);
  }
}

MotionReader::Stage MotionReader::empty_stage(std::span<const Image> frames) const {
  Stage stage{frames, {}, {}};
  const auto pixels = to_size(size_) * to_size(size_);
  for (std::size_t t = 0; t < frames.size(); ++t) {
    stage.error.emplace_back(pixels);
    for (std::size_t i = 0; i < pixels; ++i) {
      stage.error[t][i] = error_of(&frames[t].rgb[i * 3], &empty_[t][i * 3]);
    }
    stage.depth.emplace_back(pixels, std::numeric_limits<float>::max());
  }
  return stage;
}

SeenSolid MotionReader::find(const Stage& stage, std::size_t solid) const {
  const SolidViews& views = views_[solid];
  const int count = heard_.frames - first_;
  constexpr int kPlaces = SolidViews::kPlaces;
  const auto place_of = [](int at) {
    return LatticePlace{at % SolidViews::kColumns, at / SolidViews::kColumns};
  };
  const auto index_of = [](int frame, LatticePlace place) {
    return to_size(frame * kPlaces + place.row * SolidViews::kColumns + place.column);
  };
  // At rest and lifted by a bounce, for every frame and place.
  std::vector<Fit> rest(to_size(count * kPlaces)), lifted(rest.size());
  pool_.parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (int t = narrow<int>(begin); t < end; ++t) {
      const int frame = first_ + t;
      for (int at = 0; at < kPlaces; ++at) {
        const LatticePlace place = place_of(at);
        const SolidView& view = views.at(frame, place);
        if (view.pixels.empty()) continue;
        rest[index_of(t, place)] = stage.fit(frame, view, 0);
        const int shift = views.lift(frame, place) * size_;
        lifted[index_of(t, place)] =
            shift == 0 ? rest[index_of(t, place)] : stage.fit(frame, view, shift);
      }
    }
  });
  const auto total = [&](const std::vector<Fit>& fits, const Path& path, LatticePlace start) {
    Fit sum;
    for (int t = 0; t < count; ++t) sum += fits[index_of(t, path.at(start, t))];
    return sum;
  };
  const std::vector<Path> along = paths();
  Best best, still;
  for (int at = 0; at < kPlaces; ++at) {
    const LatticePlace start = place_of(at);
    for (const Path& path : along) {
      if (!SolidViews::on_table(path.at(start, count - 1))) continue;
      const Fit fit = total(rest, path, start);
      best.offer(fit, path, start);
      if (path.motion == Motion::kStill) still.offer(fit, path, start);
    }
    const Path bounce{Motion::kBounce, 0, 0, 0};
    best.offer(total(lifted, bounce, start), bounce, start);
  }
  // A spin is looked for around the place where a solid at rest fits best.
  const bool cube = heard_.scene.solids[solid].kind == SolidKind::kCube;
  for (int near = 0; cube && near < 9; ++near) {
    const LatticePlace place{still.start.column + near % 3 - 1, still.start.row + near / 3 - 1};
    if (!SolidViews::on_table(place)) continue;
    Fit sum;
    for (int frame = first_; frame < heard_.frames; ++frame) {
      sum += stage.fit(frame, views.spinning(frame, place), 0);
    }
    best.offer(sum, {Motion::kSpin, 0, 0, 0}, place);
  }
  SeenSolid out{.motion = best.path.motion};
  if (best.fit.wrong > 0) {
    out.explained = to_double(best.fit.gain) / to_double(best.fit.wrong);
  }
  out.found = out.explained >= kMinExplained;
  for (int t = 0; t < count; ++t) out.places.push_back(best.path.at(best.start, t));
  return out;
}

void MotionReader::draw(Stage& stage, std::size_t solid, const SeenSolid& seen) const {
  const SolidViews& views = views_[solid];
  for (int frame = first_; frame < heard_.frames; ++frame) {
    const LatticePlace place = nth(seen.places, frame - first_);
    if (seen.motion == Motion::kSpin) {
      stage.draw(frame, views.spinning(frame, place), 0);
    } else {
      const int shift = seen.motion == Motion::kBounce ? views.lift(frame, place) * size_ : 0;
      stage.draw(frame, views.at(frame, place), shift);
    }
  }
}

SeenVideo MotionReader::read(std::span<const Image> frames) const {
  expects(frames.size() == to_size(heard_.frames), "the frames of the video");
  for (const Image& frame : frames) {
    expects(frame.width == size_ && frame.height == size_, "frames of the reader's size");
  }
  const Stage empty = empty_stage(frames);
  SeenVideo out{.first = first_, .solids = std::vector<SeenSolid>(views_.size())};
  // The clearest first; it is then in the image in which the next one is looked for.
  std::vector<bool> placed(views_.size());
  Stage filled = empty;
  for (std::size_t round = 0; round < views_.size(); ++round) {
    std::size_t clearest = views_.size();
    SeenSolid seen;
    for (std::size_t i = 0; i < views_.size(); ++i) {
      if (placed[i]) continue;
      SeenSolid other = find(filled, i);
      if (clearest < views_.size() && other.explained <= seen.explained) continue;
      clearest = i;
      seen = std::move(other);
    }
    placed[clearest] = true;
    if (seen.found) draw(filled, clearest, seen);
    out.solids[clearest] = std::move(seen);
  }
  for (std::size_t i = 0; views_.size() > 1 && i < views_.size(); ++i) {
    Stage others = empty;
    for (std::size_t j = 0; j < views_.size(); ++j) {
      if (j != i && out.solids[j].found) draw(others, j, out.solids[j]);
    }
    out.solids[i] = find(others, i);
  }
  return out;
}

SceneImage render_seen(const Video& heard, const SeenVideo& seen, int frame, int size) {
  Video video{.scene = {.seed = 0, .floor = heard.scene.floor, .solids = {}},
            .motions = {},
            .camera = heard.camera,
            .frames = heard.frames};
  for (std::size_t i = 0; i < seen.solids.size(); ++i) {
    const SeenSolid& solid = seen.solids[i];
    const LatticePlace place = nth(solid.places, frame - seen.first);
    video.scene.solids.push_back(heard.scene.solids[i]);
    video.scene.solids.back().x = SolidViews::x_of(place);
    video.scene.solids.back().z = SolidViews::z_of(place);
    const bool in_place = solid.motion == Motion::kBounce || solid.motion == Motion::kSpin;
    video.motions.push_back(in_place ? solid.motion : Motion::kStill);
  }
  return render_video_frame(video, frame, size);
}

}  // namespace tessera
