#include "engine/decoding/meters.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "engine/core/index.h"

namespace tessera {

namespace {

void add_counts(std::vector<std::int64_t>& to, const std::vector<std::int64_t>& from) {
  if (to.size() < from.size()) to.resize(from.size());
  std::transform(from.begin(), from.end(), to.begin(), to.begin(), std::plus<>());
}

}  // namespace

void DecodeMeters::start(std::size_t max_tokens, std::size_t window) {
  *this = DecodeMeters{};
  commit_histogram.assign(window + 1, 0);
  tested.assign(window, 0);
  accepted.assign(window, 0);
  transforms.reserve(max_tokens);
}

TokenFigures DecodeMeters::count_token(const RowFigures& figures, double uniform) {
  const double mean = figures.mean, variance_of_row = figures.spread - mean * mean;
  ++tokens;
  entropy -= mean;
  surprise += log_of_probability(figures.probability) - mean;
  variance += variance_of_row > 0 ? variance_of_row : 0;
  transforms.push_back(to_float(figures.above + uniform * figures.probability));
  return {figures.probability, -mean};
}

void DecodeMeters::count_pass(std::size_t committed) {
  ++passes;
  ++commit_histogram[committed];
}

double DecodeMeters::tokens_per_pass() const {
  return passes > 0 ? to_double(tokens) / to_double(passes) : 0;
}

double DecodeMeters::acceptance() const {
  const auto sum = [](const std::vector<std::int64_t>& values) {
    return to_double(std::accumulate(values.begin(), values.end(), std::int64_t{0}));
  };
  const double all = sum(tested);
  return all > 0 ? sum(accepted) / all : 0;
}

double DecodeMeters::z_score() const { return variance > 0 ? surprise / std::sqrt(variance) : 0; }

double DecodeMeters::mean_entropy() const { return tokens > 0 ? entropy / to_double(tokens) : 0; }

double DecodeMeters::pit_statistic() const {
  if (transforms.empty()) return 0;
  std::vector<float> sorted = transforms;
  std::sort(sorted.begin(), sorted.end());
  const auto count = to_double(sorted.size());
  double distance = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const double value = sorted[i];
    distance = std::max({distance, value - to_double(i) / count, to_double(i + 1) / count - value});
  }
  return std::sqrt(count) * distance;
}

void DecodeMeters::add(const DecodeMeters& other) {
  passes += other.passes;
  tokens += other.tokens;
  add_counts(commit_histogram, other.commit_histogram);
  add_counts(tested, other.tested);
  add_counts(accepted, other.accepted);
  strict_chance += other.strict_chance;
  excess += other.excess;
  entropy += other.entropy;
  surprise += other.surprise;
  variance += other.variance;
  transforms.insert(transforms.end(), other.transforms.begin(), other.transforms.end());
}

}  // namespace tessera
