// Drafters that need no model: any code; the code to the left; the code one row above. All are
// fresh-slot schemes of Jacobi decoding (SJD, arXiv 2410.01699, section 3.3) with the distribution recorded
// that makes them exact.
#pragma once

#include <numeric>
#include <vector>

#include "engine/core/index.h"
#include "engine/decoding/drafter.h"
#include "engine/decoding/method_part.h"

namespace tessera {

inline constexpr MethodPart kUniformPart{.name = "uniform", .for_texts = true, .for_rows = true};

// Uniform over all codes, drawn with the position's own noise and recorded as uniform.
template <typename Real, typename Random>
class UniformDrafter final : public SlotDrafter<Real, Random> {
 public:
  explicit UniformDrafter(const VocabularyGrammar& grammar)
      : SlotDrafter<Real, Random>(grammar), ids_(grammar.codes), zeros_(grammar.codes) {
    std::iota(ids_.begin(), ids_.end(), 0);
  }
  std::string_view name() const override { return kUniformPart.name; }
  DraftSignals needs() const override { return {}; }

 private:
  bool fill(DraftJob<Real, Random>& job) override {
    const auto position = narrow<std::uint32_t>(job.next_position());
    job.window->append_uniform(job.random->race(position, LogitRow<Real>{ids_, zeros_}));
    return true;
  }

  std::vector<std::int32_t> ids_;
  std::vector<Real> zeros_;
};

inline constexpr MethodPart kLeftPart{.name = "left", .for_texts = true, .for_rows = true};

// The code before.
template <typename Real, typename Random>
class LeftDrafter final : public SlotDrafter<Real, Random> {
 public:
  using SlotDrafter<Real, Random>::SlotDrafter;
  std::string_view name() const override { return kLeftPart.name; }
  DraftSignals needs() const override { return {}; }

 private:
  bool fill(DraftJob<Real, Random>& job) override {
    job.window->append_point(job.token(this->grammar().code_before(job.next_position())));
    return true;
  }
};

inline constexpr MethodPart kAbovePart{.name = "above", .for_rows = true};

// The code one row above; in the first row the one before.
template <typename Real, typename Random>
class AboveDrafter final : public SlotDrafter<Real, Random> {
 public:
  using SlotDrafter<Real, Random>::SlotDrafter;
  std::string_view name() const override { return kAbovePart.name; }
  DraftSignals needs() const override { return {}; }

 private:
  bool fill(DraftJob<Real, Random>& job) override {
    const std::size_t position = job.next_position();
    const std::optional<std::size_t> above = this->grammar().above(position);
    job.window->append_point(job.token(above ? *above : this->grammar().code_before(position)));
    return true;
  }
};

}  // namespace tessera
