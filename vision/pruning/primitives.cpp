#include "vision/pruning/primitives.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "engine/core/index.h"

namespace tessera {

namespace {
std::size_t at(std::int64_t i) { return to_size(i); }
}  // namespace

float dot(std::span<const float> a, std::span<const float> b) {
  expects(a.size() == b.size(), "vectors of one length");
  constexpr std::size_t kLanes = 8;
  std::array<float, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes) {
    const float* left = a.data() + i;
    const float* right = b.data() + i;
    for (std::size_t l = 0; l < kLanes; ++l) lanes[l] += left[l] * right[l];
  }
  for (std::size_t l = 0; i < a.size(); ++i, ++l) lanes[l] += a[i] * b[i];
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

MatrixView normalised_rows(MatrixView x, std::span<const std::int64_t> rows,
                           PruneScratch& scratch) {
  const auto count = std::ssize(rows);
  const auto out = scratch.take<float>(count * x.columns);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto row = x.row(rows[at(i)]);
    double squares = 0;
    for (const float value : row) squares += double{value} * value;
    const double length = std::sqrt(squares);
    const double scale = length < 1e-12 ? 0.0 : 1.0 / length;
    for (std::int64_t c = 0; c < x.columns; ++c) {
      out[at(i * x.columns + c)] = to_float(row[at(c)] * scale);
    }
  }
  return {out.data(), count, x.columns};
}

MatrixView head_mean_rows(MatrixView x, std::int64_t heads, std::span<const std::int64_t> rows,
                          PruneScratch& scratch) {
  expects(heads > 0 && x.columns % heads == 0, "a row is made of equal heads");
  const auto count = std::ssize(rows);
  const std::int64_t width = x.columns / heads;
  const auto out = scratch.take<float>(count * width);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto row = x.row(rows[at(i)]);
    for (std::int64_t c = 0; c < width; ++c) {
      double sum = 0;
      for (std::int64_t h = 0; h < heads; ++h) sum += row[at(h * width + c)];
      out[at(i * width + c)] = to_float(sum / to_double(heads));
    }
  }
  return {out.data(), count, width};
}

void gram(MatrixView x, std::span<float> out) {
  expects(out.size() == at(x.rows * x.rows), "room for rows x rows");
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = i; j < x.rows; ++j) {
      const float product = dot(x.row(i), x.row(j));
      out[at(i * x.rows + j)] = product;
      out[at(j * x.rows + i)] = product;
    }
  }
}

std::span<const float> column_sums(MatrixView x, PruneScratch& scratch) {
  const auto out = scratch.take<float>(x.columns);
  const auto sums = scratch.take<double>(x.columns);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const auto row = x.row(r);
    for (std::size_t c = 0; c < sums.size(); ++c) sums[c] += row[c];
  }
  for (std::size_t c = 0; c < sums.size(); ++c) out[c] = to_float(sums[c]);
  return out;
}

std::span<float> values_at(std::span<const float> row, std::span<const TokenIndex> tokens,
                           PruneScratch& scratch) {
  const auto out = scratch.take<float>(std::ssize(tokens));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = row[at(tokens[i])];
  return out;
}

std::span<const std::int64_t> all_places(std::size_t count, PruneScratch& scratch) {
  const auto out = scratch.take<std::int64_t>(to_index(count));
  std::iota(out.begin(), out.end(), std::int64_t{0});
  return out;
}

void mark(std::span<const TokenIndex> tokens, std::span<const TokenIndex> places,
          std::span<std::uint8_t> chosen) {
  for (const TokenIndex place : places) chosen[at(tokens[at(place)])] = 1;
}

std::span<const TokenIndex> ranked(std::span<const float> scores, std::int64_t k,
                                   PruneScratch& scratch) {
  const auto places = scratch.take<TokenIndex>(std::ssize(scores));
  std::iota(places.begin(), places.end(), TokenIndex{0});
  const std::size_t count = std::min(at(std::max(k, std::int64_t{0})), scores.size());
  std::partial_sort(
      places.begin(), places.begin() + to_index(count), places.end(),
      [&](TokenIndex a, TokenIndex b) { return ranks_before(scores[at(a)], a, scores[at(b)], b); });
  return places.first(count);
}

std::span<const TokenIndex> top_places(std::span<const float> scores, std::int64_t k,
                                       PruneScratch& scratch) {
  const auto best = ranked(scores, k, scratch);
  const auto out = scratch.take<TokenIndex>(std::ssize(best));
  std::copy(best.begin(), best.end(), out.begin());
  std::sort(out.begin(), out.end());
  return out;
}

std::span<const TokenIndex> farthest_points(MatrixView unit_rows, std::int64_t k,
                                            PruneScratch& scratch) {
  const std::int64_t count = std::clamp(k, std::int64_t{0}, unit_rows.rows);
  const auto picks = scratch.take<TokenIndex>(count);
  if (count == 0) return picks;
  // Far is the cosine to the nearest row, negated: its order is that of the distance 1 - cosine,
  // without the rounding of the difference.
  constexpr float kNothing = std::numeric_limits<float>::infinity();
  const auto far = scratch.take<float>(unit_rows.rows);
  const auto lower = [](float& value, float cosine) {
    if (-cosine < value) value = -cosine;  // NaN lowers nothing
  };
  // Rows with NaN are far from nothing and come last.
  const auto set_far = [&] {
    for (std::int64_t i = 0; i < unit_rows.rows; ++i) {
      const float self = dot(unit_rows.row(i), unit_rows.row(i));
      far[at(i)] = std::isnan(self) ? self : kNothing;
    }
  };
  set_far();
  for (std::int64_t i = 0; i < unit_rows.rows; ++i) {
    for (std::int64_t j = i + 1; j < unit_rows.rows; ++j) {
      const float cosine = dot(unit_rows.row(i), unit_rows.row(j));
      lower(far[at(i)], cosine);
      lower(far[at(j)], cosine);
    }
  }
  const auto taken = scratch.take<std::uint8_t>(unit_rows.rows);
  for (std::int64_t pick = 0; pick < count; ++pick) {
    TokenIndex best = -1;
    for (TokenIndex i = 0; i < unit_rows.rows; ++i) {
      if (taken[at(i)] != 0) continue;
      if (best < 0 || ranks_before(far[at(i)], i, far[at(best)], best)) best = i;
    }
    picks[at(pick)] = best;
    taken[at(best)] = 1;
    if (pick == 0) set_far();
    for (TokenIndex i = 0; i < unit_rows.rows; ++i) {
      if (taken[at(i)] == 0) lower(far[at(i)], dot(unit_rows.row(i), unit_rows.row(best)));
    }
  }
  return picks;
}

std::span<const BestMatch> bipartite_max(MatrixView x, std::span<const std::int64_t> a,
                                         std::span<const std::int64_t> b, PruneScratch& scratch) {
  const auto out = scratch.take<BestMatch>(std::ssize(a));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < b.size(); ++j) {
      const float similarity = dot(x.row(a[i]), x.row(b[j]));
      const auto place = to_index(j);
      if (j > 0 && !ranks_before(similarity, place, out[i].similarity, out[i].place)) continue;
      out[i] = {place, similarity};
    }
  }
  return out;
}

void scatter_combine(MatrixView x, std::span<const TokenIndex> order, std::span<const Merge> merges,
                     MergeRule rule, std::span<const float> sizes, std::span<float> out) {
  expects(out.size() == order.size() * at(x.columns), "room for every output row");
  expects(rule != MergeRule::kSizeWeightedMean || sizes.size() == at(x.rows),
          "a size for each row");
  // Sources of one destination lie together, by index: the sum has one order.
  std::vector<Merge> sorted(merges.begin(), merges.end());
  std::sort(sorted.begin(), sorted.end(), [](const Merge& a, const Merge& b) {
    return a.destination != b.destination ? a.destination < b.destination : a.source < b.source;
  });
  std::vector<double> sums(at(x.columns));
  for (std::size_t slot = 0; slot < order.size(); ++slot) {
    const auto own = x.row(order[slot]);
    float* row = out.data() + slot * at(x.columns);
    if (x.columns > 0) std::memcpy(row, own.data(), own.size_bytes());
    auto merge = std::lower_bound(
        sorted.begin(), sorted.end(), order[slot],
        [](const Merge& m, TokenIndex destination) { return m.destination < destination; });
    if (merge == sorted.end() || merge->destination != order[slot]) continue;
    const bool sized = rule == MergeRule::kSizeWeightedMean;
    const bool centre = rule == MergeRule::kCentrePlusMean;
    double total = centre ? 0.0 : sized ? sizes[at(order[slot])] : 1.0;
    for (std::size_t c = 0; c < sums.size(); ++c) sums[c] = total * own[c];
    for (; merge != sorted.end() && merge->destination == order[slot]; ++merge) {
      const double weight = merge->weight * (sized ? sizes[at(merge->source)] : 1.0);
      const auto source = x.row(merge->source);
      total += weight;
      for (std::size_t c = 0; c < sums.size(); ++c) sums[c] += weight * source[c];
    }
    if (!(total > 0)) continue;  // nothing to add
    for (std::size_t c = 0; c < sums.size(); ++c) {
      row[c] = to_float(sums[c] / total + (centre ? own[c] : 0.0));
    }
  }
}

double entropy_ratio(std::span<const float> row) {
  if (row.size() <= 1) return 1;
  double entropy = 0;
  for (const float value : row) {
    const double p = value;
    if (p > 0) entropy -= p * std::log(std::max(p, 1e-12));
  }
  return entropy / std::log(to_double(row.size()));
}

std::int64_t knee(std::span<const float> descending, KneeAxes axes) {
  if (descending.empty()) return -1;
  const auto last = to_double(descending.size() - 1);
  const double top = descending.front(), drop = top - descending.back();
  // Line from (0, top) to (last, top - drop); the distance is |drop x + last (y - top)| up to a
  // factor that all points share. Normalised axes divide x by last and y by drop.
  const bool normalised = axes == KneeAxes::kNormalised;
  const double run = normalised ? 1.0 : last, fall = normalised ? 1.0 : drop;
  std::int64_t best = 0;
  double farthest = 0;
  for (std::size_t i = 0; i < descending.size(); ++i) {
    double x = to_double(i), y = descending[i] - top;
    if (normalised) {
      x = last > 0 ? x / last : 0;
      y = drop > 0 ? y / drop : 0;
      if (!(drop > 0)) x = 0;  // a flat curve has no knee
    }
    const double distance = std::abs(fall * x + run * y);
    if (distance > farthest) {
      farthest = distance;
      best = to_index(i);
    }
  }
  return best;
}

}  // namespace tessera
