#include "apps/lab/scorer/video_marks.h"

#include <algorithm>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

double& at(Marks& marks, Mark mark) { return nth(marks.value, mark); }

double sum_of(const Marks& marks) {
  double sum = 0.0;
  for (const double value : marks.value) sum += std::max(value, 0.0);
  return sum;
}

}  // namespace

Marks score_any_order(const std::optional<SceneAttributes>& seen, const SceneAttributes& truth) {
  SceneAttributes order = truth;
  std::sort(order.solids.begin(), order.solids.end());
  std::optional<Marks> best;
  do {
    Marks marks = score_seen(seen, order);
    at(marks, Mark::kOrder) = kNotAsked;
    if (!best || sum_of(marks) > sum_of(*best)) best = marks;
  } while (std::next_permutation(order.solids.begin(), order.solids.end()));
  return *best;
}

Marks score_frames(std::span<const std::optional<SceneAttributes>> seen,
                   const SceneAttributes& truth, int first) {
  expects(first >= 0 && to_size(first) < seen.size(), "a frame of the video");
  Marks mean;
  std::array<int, kMarks> asked{};
  for (std::size_t frame = to_size(first); frame < seen.size(); ++frame) {
    const Marks marks =
        frame == 0 ? score_seen(seen[0], truth) : score_any_order(seen[frame], truth);
    for (std::size_t i = 0; i < kMarks; ++i) {
      if (marks.value[i] == kNotAsked) continue;
      mean.value[i] += marks.value[i];
      ++asked[i];
    }
  }
  for (std::size_t i = 0; i < kMarks; ++i) {
    mean.value[i] = asked[i] == 0 ? kNotAsked : mean.value[i] / asked[i];
  }
  return mean;
}

Marks score_agreement(std::span<const std::optional<SceneAttributes>> seen, int first) {
  expects(first >= 0 && to_size(first) < seen.size(), "a frame of the video");
  const std::optional<SceneAttributes>& from = nth(seen, first);
  if (from && !from->solids.empty()) return score_any_order(seen.back(), *from);
  Marks nothing;
  at(nothing, Mark::kOrder) = kNotAsked;
  return nothing;
}

MotionMarks score_motions(const SeenVideo& seen, std::span<const Motion> truth) {
  expects(seen.solids.size() == truth.size() && !truth.empty(), "a motion for each solid");
  MotionMarks out;
  std::array<int, kMotions> asked{};
  const auto count = to_double(truth.size());
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const bool right = seen.solids[i].found && seen.solids[i].motion == truth[i];
    out.right += right ? 1.0 / count : 0.0;
    out.found += seen.solids[i].found ? 1.0 / count : 0.0;
    nth(out.by_motion, truth[i]) += right ? 1.0 : 0.0;
    ++nth(asked, truth[i]);
  }
  for (std::size_t i = 0; i < kMotions; ++i) {
    if (asked[i] == 0) {
      out.by_motion[i] = kNotAsked;
    } else {
      out.by_motion[i] /= asked[i];
    }
  }
  return out;
}

}  // namespace tessera
