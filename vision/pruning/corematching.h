// CoreMatching (Wang et al., ICML 2025), the token part as the paper has it: a token's core neurons
// are the strongest of its positive FFN activations, the sentence's those that are core for the
// most tokens; visual tokens are kept by how many of the sentence's they share. Published: rho =
// 0.2 of the positive activations, beta = 0.4 of the neurons that occur, an early layer (2), number
// of tokens by the knee of the sorted overlaps, kept tokens at or above it, original position ids.
//
// The released code does something else: it zeroes keys and values of some layers, drops nothing,
// compares with one prompt token and has no neuron sparsity. The knee depends on the scale of
// the axes; raw counts as in the paper unless normalised_axes = 1. With Budget::adaptive the number
// is the knee's within [least, most]; without it, the budget's best by overlap.
#pragma once

#include <algorithm>
#include <bit>
#include <functional>

#include "engine/core/index.h"
#include "vision/pruning/primitives.h"
#include "vision/pruning/pruner.h"

namespace tessera {

// Sets the bits of the ceil(rho n) largest of the n positive activations; ties to the lower neuron.
// `bits`: (activations + 63) / 64 words, overwritten.
inline void core_neurons(std::span<const float> activations, double rho,
                         std::span<std::uint64_t> bits, PruneScratch& scratch) {
  expects(bits.size() == (activations.size() + 63) / 64, "a bit for each activation");
  const ScratchScope scope(scratch);
  std::fill(bits.begin(), bits.end(), 0);
  const auto positive =
      std::count_if(activations.begin(), activations.end(), [](float value) { return value > 0; });
  const std::int64_t core = round_by(rho * to_double(positive), Rounding::kCeil);
  for (const TokenIndex i : ranked(activations, std::min<std::int64_t>(core, positive), scratch)) {
    nth(bits, i / 64) |= std::uint64_t{1} << (i % 64);
  }
}

// The bits of the ceil(beta n) neurons that most rows have, n the neurons that any row has; ties to
// the lower neuron.
inline std::span<const std::uint64_t> sentence_core(std::span<const BitMatrixView> tokens,
                                                    double beta, PruneScratch& scratch) {
  expects(!tokens.empty(), "a bit matrix");
  const std::int64_t neurons = tokens.front().bits;
  const auto core = scratch.take<std::uint64_t>((neurons + 63) / 64);
  const auto counts = scratch.take<float>(neurons);
  for (const BitMatrixView& matrix : tokens) {
    expects(matrix.bits == neurons || matrix.empty(), "bits of one layer");
    for (std::int64_t r = 0; r < matrix.rows; ++r) {
      const auto row = matrix.row(r);
      for (std::size_t w = 0; w < row.size(); ++w) {
        for (std::uint64_t rest = row[w]; rest != 0; rest &= rest - 1) {
          ++counts[w * 64 + to_size(std::countr_zero(rest))];
        }
      }
    }
  }
  const auto any = std::count_if(counts.begin(), counts.end(), [](float n) { return n > 0; });
  const std::int64_t size = round_by(beta * to_double(any), Rounding::kCeil);
  for (const TokenIndex i : ranked(counts, std::min<std::int64_t>(size, any), scratch)) {
    nth(core, i / 64) |= std::uint64_t{1} << (i % 64);
  }
  return core;
}

inline std::int64_t shared_bits(std::span<const std::uint64_t> a,
                                std::span<const std::uint64_t> b) {
  expects(a.size() == b.size(), "bits of one layer");
  std::int64_t count = 0;
  for (std::size_t w = 0; w < a.size(); ++w) count += std::popcount(a[w] & b[w]);
  return count;
}

class CoreMatching final : public Pruner {
 public:
  struct Settings {
    int layer = 2;  // whose FFN is read; tokens leave after it
    double beta = 0.4;
    bool normalised_axes = false;
    bool strict = false;  // only above the knee, as the released code
  };
  explicit CoreMatching(const Settings& settings) : settings_(settings) {}
  std::string_view name() const override { return "corematching"; }
  std::vector<Hook> hooks(const PrunedModel&) const override {
    return {{HookPoint::kBeforeLlm, settings_.layer + 1}};
  }
  std::vector<SignalNeed> needs(const Hook& hook, const PrunedModel&,
                                const PruneState&) const override {
    return {{SignalKind::kCoreNeurons, hook.layer - 1},
            {SignalKind::kTextCoreNeurons, hook.layer - 1}};
  }

  PrunePlan select(const PruneInputs& in, PruneState&, PruneScratch& scratch) const override {
    expect_merged_cells(name(), in.block);
    const ScratchScope scope(scratch);
    const int layer = in.hook.layer - 1;
    const Signal& visual =
        in.signals.per_token(name(), SignalKind::kCoreNeurons, layer, in.block.count());
    const Signal& text = in.signals.get(name(), SignalKind::kTextCoreNeurons, layer);
    const BitMatrixView both[] = {visual.bits, text.bits};
    const auto core = sentence_core(both, settings_.beta, scratch);
    Budget budget = in.budget;
    budget.scope = Scope::kGlobal;
    const auto tokens = group_candidates(in.block, budget, Scope::kGlobal, scratch).tokens;
    const auto overlap = scratch.take<float>(std::ssize(tokens));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      overlap[i] = to_float(shared_bits(visual.bits.row(tokens[i]), core));
    }
    const auto chosen = scratch.take<std::uint8_t>(in.block.count());
    mark(tokens, ranked(overlap, number_of(budget, overlap, scratch), scratch), chosen);
    return plan_of(in.block, in.budget, chosen, PositionPolicy::kOriginal);
  }

 private:
  std::int64_t number_of(const Budget& budget, std::span<const float> overlap,
                         PruneScratch& scratch) const {
    const auto count = std::ssize(overlap);
    if (!budget.adaptive) return budget.kept_of(count, Rounding::kHalfEven);
    const auto sorted = scratch.take<float>(count);
    std::copy(overlap.begin(), overlap.end(), sorted.begin());
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const std::int64_t place =
        knee(sorted, settings_.normalised_axes ? KneeAxes::kNormalised : KneeAxes::kRaw);
    if (place < 0) return 0;
    const float threshold = nth(sorted, place);
    const auto above = std::count_if(overlap.begin(), overlap.end(), [&](float value) {
      return settings_.strict ? value > threshold : value >= threshold;
    });
    const std::int64_t least = std::min(budget.least, count);
    return std::clamp<std::int64_t>(above, least, std::max(least, std::min(budget.most, count)));
  }

  Settings settings_;
};

}  // namespace tessera
