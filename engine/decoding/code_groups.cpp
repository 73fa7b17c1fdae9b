#include "engine/decoding/code_groups.h"

#include <algorithm>
#include <limits>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr int kMaxRounds = 50;

struct Means {
  std::int64_t count = 0, width = 0;
  std::vector<double> vectors;  // [count, width]

  double distance(std::int64_t mean, std::span<const float> code) const {
    const double* at = vectors.data() + mean * width;
    double sum = 0;
    for (std::size_t d = 0; d < code.size(); ++d) sum += (at[d] - code[d]) * (at[d] - code[d]);
    return sum;
  }
  void set(std::int64_t mean, std::span<const float> code) {
    std::copy(code.begin(), code.end(), vectors.begin() + (mean * width));
  }
};

// Each further mean is the code farthest from all means so far, the lowest one on a tie.
Means first_means(const CodeNeighbours& codes, std::int64_t count) {
  Means means{count, codes.width(), {}};
  means.vectors.resize(to_size(count * means.width));
  std::vector<double> gap(to_size(codes.codes()), std::numeric_limits<double>::infinity());
  std::int32_t next = 0;
  for (std::int64_t mean = 0; mean < count; ++mean) {
    means.set(mean, codes.vector(next));
    for (std::int32_t code = 0; code < codes.codes(); ++code) {
      double& own = nth(gap, code);
      own = std::min(own, means.distance(mean, codes.vector(code)));
    }
    next = narrow<std::int32_t>(std::max_element(gap.begin(), gap.end()) - gap.begin());
  }
  return means;
}

// Each code to its nearest mean, the first one on a tie; false if nothing changed.
bool assign(const CodeNeighbours& codes, const Means& means, std::vector<std::int32_t>& group_of) {
  bool changed = false;
  for (std::int32_t code = 0; code < codes.codes(); ++code) {
    std::int32_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::int32_t mean = 0; mean < means.count; ++mean) {
      const double distance = means.distance(mean, codes.vector(code));
      if (distance >= least) continue;
      least = distance;
      best = mean;
    }
    std::int32_t& own = nth(group_of, code);
    changed = changed || own != best;
    own = best;
  }
  return changed;
}

// A mean without codes stays where it is.
void move_means(const CodeNeighbours& codes, const std::vector<std::int32_t>& group_of,
                Means& means) {
  std::vector<double> sums(means.vectors.size());
  std::vector<std::int64_t> counts(to_size(means.count));
  for (std::int32_t code = 0; code < codes.codes(); ++code) {
    const auto group = to_size(nth(group_of, code));
    const std::span<const float> vector = codes.vector(code);
    for (std::size_t d = 0; d < vector.size(); ++d) sums[group * vector.size() + d] += vector[d];
    ++counts[group];
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::int64_t count = counts[i / to_size(means.width)];
    if (count > 0) means.vectors[i] = sums[i] / to_double(count);
  }
}

}  // namespace

CodeGroups::CodeGroups(const CodeNeighbours& codes, std::int64_t size) {
  expects(size >= 1, "groups have codes");
  const std::int64_t count = (codes.codes() + size - 1) / size;
  group_of_.assign(to_size(codes.codes()), -1);
  Means means = first_means(codes, count);
  for (int round = 0; round < kMaxRounds && assign(codes, means, group_of_); ++round) {
    move_means(codes, group_of_, means);
  }
  first_.assign(to_size(count) + 1, 0);
  for (const std::int32_t group : group_of_) ++first_[to_size(group) + 1];
  for (std::size_t group = 1; group < first_.size(); ++group) first_[group] += first_[group - 1];
  members_.resize(group_of_.size());
  std::vector<std::size_t> next(first_.begin(), first_.end() - 1);
  for (std::size_t code = 0; code < group_of_.size(); ++code) {
    members_[nth(next, group_of_[code])++] = narrow<std::int32_t>(code);
  }
}

}  // namespace tessera
