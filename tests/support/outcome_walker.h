// A source of randomness that walks through every outcome instead of drawing one. Run a program
// again and again with it: each run takes the next path, weight() is the path's probability, and
// the weights of all paths sum to 1. With it the distribution of what the program makes is exact.
//
// Decisions between listed outcomes branch in proportion to their weights. The noise of a position,
// which later decisions meet again, is a race of exponential clocks: the clocks' times, scaled to
// sum 1, are uniform on a simplex, every race is a cut through it, and what earlier races left of
// it is a convex polygon. At most three ids.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/sampling/randomness.h"

namespace tessera {

class OutcomeWalk {
 public:
  // Begins the next path; false when all are done.
  bool next_path() {
    if (started_) {
      while (!steps_.empty() && steps_.back().choice + 1 == steps_.back().weights.size()) {
        steps_.pop_back();
      }
      if (steps_.empty()) return false;
      ++steps_.back().choice;
    }
    started_ = true;
    at_ = 0;
    races_.clear();
    return true;
  }

  double weight() const {
    double product = 1;
    for (const Step& step : steps_) product *= step.weights[step.choice];
    return product;
  }

  // Picks one of the outcomes; those of weight 0 are never taken.
  std::size_t decide(const std::vector<double>& weights) {
    if (at_ == steps_.size()) {
      Step step;
      double total = 0;
      for (const double w : weights) total += w;
      for (std::size_t i = 0; i < weights.size(); ++i) {
        if (!(weights[i] > 0)) continue;
        step.outcomes.push_back(i);
        step.weights.push_back(weights[i] / total);
      }
      steps_.push_back(std::move(step));
    }
    const Step& step = steps_[at_++];
    return step.outcomes[step.choice];
  }

  // The id whose clock, running at its rate, rings first.
  std::size_t race(std::uint64_t place, const std::array<double, 3>& rates) {
    const auto [entry, fresh] = races_.try_emplace(place, Polygon{{{1, 0}, {0, 1}, {0, 0}}});
    std::array<Polygon, 3> parts;
    std::vector<double> areas;
    for (std::size_t x = 0; x < 3; ++x) {
      if (rates[x] > 0) parts[x] = entry->second;
      for (std::size_t y = 0; y < 3; ++y) {
        if (y != x && rates[y] > 0) parts[x] = cut(parts[x], x, y, rates);
      }
      areas.push_back(area(parts[x]));
    }
    const std::size_t winner = decide(areas);
    entry->second = parts[winner];
    return winner;
  }

 private:
  struct Step {
    std::vector<std::size_t> outcomes;
    std::vector<double> weights;
    std::size_t choice = 0;
  };
  struct Point {
    double a = 0, b = 0;  // times of clocks 0 and 1; clock 2 has the rest
    double time(std::size_t i) const { return i == 0 ? a : i == 1 ? b : 1 - a - b; }
  };
  using Polygon = std::vector<Point>;

  // What of the polygon has clock x ring before clock y: time_x rate_y <= time_y rate_x.
  static Polygon cut(const Polygon& polygon, std::size_t x, std::size_t y,
                     const std::array<double, 3>& rates) {
    const auto late = [&](const Point& p) { return p.time(x) * rates[y] - p.time(y) * rates[x]; };
    Polygon out;
    for (std::size_t i = 0; i < polygon.size(); ++i) {
      const Point& p = polygon[i];
      const Point& q = polygon[(i + 1) % polygon.size()];
      const double at_p = late(p), at_q = late(q);
      if (at_p <= 0) out.push_back(p);
      if ((at_p < 0 && at_q > 0) || (at_p > 0 && at_q < 0)) {
        const double t = at_p / (at_p - at_q);
        out.push_back({p.a + t * (q.a - p.a), p.b + t * (q.b - p.b)});
      }
    }
    return out;
  }
  static double area(const Polygon& polygon) {
    double twice = 0;
    for (std::size_t i = 0; i < polygon.size(); ++i) {
      const Point& p = polygon[i];
      const Point& q = polygon[(i + 1) % polygon.size()];
      twice += p.a * q.b - q.a * p.b;
    }
    return std::abs(twice) < 1e-15 ? 0 : std::abs(twice) / 2;
  }

  bool started_ = false;
  std::size_t at_ = 0;
  std::vector<Step> steps_;
  std::map<std::uint64_t, Polygon> races_;
};

// The walk in the shape that rules, redraft policies and drafters ask for; one image's share of it.
class WalkingRandom {
 public:
  WalkingRandom(OutcomeWalk* walk, std::uint64_t item) : walk_(walk), item_(item) {}

  void begin_pass(std::uint32_t) {}
  double uniform(const Draw&) const { return 0.5; }  // for meters, which decide nothing

  template <typename Real>
  bool accepts(const Draw&, Real chance, Real of) {
    if (!(chance < of)) return true;
    const double share = static_cast<double>(chance) / static_cast<double>(of);
    return walk_->decide({1 - share, share}) == 1;
  }
  template <typename Real>
  std::int32_t weighted(const Draw&, std::span<const std::int32_t> ids,
                        std::span<const Real> weights) {
    return ids[walk_->decide(std::vector<double>(weights.begin(), weights.end()))];
  }
  template <typename Real>
  std::int32_t race(std::uint32_t position, const LogitRow<Real>& row) {
    if (row.support.size() == 1) return row.support[0];
    std::array<double, 3> rates{};
    double largest = -1e300;
    for (const Real logit : row.logits) largest = std::max(largest, static_cast<double>(logit));
    for (std::size_t i = 0; i < row.support.size(); ++i) {
      rates.at(static_cast<std::size_t>(row.support[i])) =
          std::exp(static_cast<double>(row.logits[i]) - largest);
    }
    return static_cast<std::int32_t>(walk_->race(item_ << 32 | position, rates));
  }
  template <typename Real>
  std::int32_t race(std::uint32_t position, std::span<const std::int32_t> ids,
                    std::span<const Real> probs) {
    std::array<double, 3> rates{};
    std::int32_t likely = 0, last = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (!(probs[i] > 0)) continue;
      last = ids[i];
      ++likely;
    }
    if (likely == 1) return last;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (!(probs[i] > 0)) continue;
      rates.at(static_cast<std::size_t>(ids[i])) = static_cast<double>(probs[i]);
    }
    return static_cast<std::int32_t>(walk_->race(item_ << 32 | position, rates));
  }

 private:
  OutcomeWalk* walk_;
  std::uint64_t item_;
};

}  // namespace tessera
