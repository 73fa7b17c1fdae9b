// Compares what was seen with what was asked for, place by place from the left.
#include "apps/lab/scorer/attributes.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

SceneAttributes attributes_of(const Scene& scene) {
  SceneAttributes out{.floor = scene.floor, .solids = {}};
  for (const Solid& solid : scene.solids) {
    out.solids.push_back({solid.kind, solid.colour, solid.size, solid.material});
  }
  return out;
}

std::string_view name_of(Mark mark) {
  static constexpr std::string_view kNames[kMarks] = {"count", "floor",    "kind",  "colour",
                                                      "size",  "material", "order", "scene"};
  return nth(kNames, mark);
}

namespace {

// Share of the truth's solids for which `same` holds against the solid seen at the same place.
template <typename Same>
double share(const SceneAttributes& seen, const SceneAttributes& truth, Same same) {
  std::size_t right = 0;
  for (std::size_t i = 0; i < std::min(seen.solids.size(), truth.solids.size()); ++i) {
    right += same(seen.solids[i], truth.solids[i]) ? 1 : 0;
  }
  return to_double(right) / to_double(truth.solids.size());
}

}  // namespace

Marks score_scene(const SceneAttributes& seen, const SceneAttributes& truth) {
  expects(!truth.solids.empty(), "a scene has solids");
  using Attributes = SolidAttributes;
  const auto same = [](auto Attributes::*field) {
    return [field](const Attributes& a, const Attributes& b) { return a.*field == b.*field; };
  };
  Marks marks;
  const auto set = [&](Mark mark, double value) { nth(marks.value, mark) = value; };
  set(Mark::kCount, seen.solids.size() == truth.solids.size() ? 1.0 : 0.0);
  set(Mark::kFloor, seen.floor == truth.floor ? 1.0 : 0.0);
  set(Mark::kKind, share(seen, truth, same(&Attributes::kind)));
  set(Mark::kColour, share(seen, truth, same(&Attributes::colour)));
  set(Mark::kSize, share(seen, truth, same(&Attributes::size)));
  set(Mark::kMaterial, share(seen, truth, same(&Attributes::material)));

  std::vector<Attributes> seen_set = seen.solids;
  std::vector<Attributes> true_set = truth.solids;
  std::sort(seen_set.begin(), seen_set.end());
  std::sort(true_set.begin(), true_set.end());
  const bool same_set = seen_set == true_set;
  set(Mark::kOrder, !same_set ? kNotAsked : seen.solids == truth.solids ? 1.0 : 0.0);
  set(Mark::kScene, seen == truth ? 1.0 : 0.0);
  return marks;
}

Marks score_seen(const std::optional<SceneAttributes>& seen, const SceneAttributes& truth) {
  if (seen) return score_scene(*seen, truth);
  Marks nothing;
  nth(nothing.value, Mark::kOrder) = kNotAsked;
  return nothing;
}

}  // namespace tessera
