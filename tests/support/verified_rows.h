// Passes of rows with everything that may go wrong in them, and what the host's own parts make of
// them: the reference for verifies of rows on a device. Faults can be injected in the reference.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/backend/row_verifier.h"
#include "engine/decoding/meters.h"
#include "engine/sampling/dist.h"
#include "tests/support/made_up_methods.h"

namespace tessera::testing {

struct VerifiedCase {
  std::string rule, redraft_policy;
  std::int64_t codes = 8;
  std::uint64_t seed = 0;
  GroupedSettings grouped;
  RelaxedSettings relaxed;
  CoolSettings cool;
  bool budget = false;
};

// What is wrong with the reference.
enum class VerifyFault {
  kNone,
  kAcceptance,  // another number for one test
  kTies,        // ties go to the highest id
  kDistribution,         // a draft's distribution is its neighbour's
  kOneBit,      // one logit is the next float
};

struct DrawnPass {
  std::vector<float> logits;  // [2 rows, codes]
  std::vector<VerifiedItem> items;
  std::vector<VerifiedRow> rows;
};

// Numbers of tests, not of the program.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t below(std::uint64_t n) { return engine_() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  double unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  template <typename T>
  T of(std::initializer_list<T> choices) {
    return choices.begin()[below(choices.size())];
  }

 private:
  std::mt19937_64 engine_;
};

// Rows of many kinds: smooth ones, a few levels (ties everywhere), zeros of both signs, all alike,
// one far above, far apart, next to one another, tiny numbers.
inline void fill_row(Dice& dice, std::span<float> row) {
  const std::uint64_t kind = dice.below(9);
  const float base = static_cast<float>(dice.unit()) * 4;
  for (float& x : row) {
    const auto smooth = static_cast<float>(12 * (dice.unit() + dice.unit() - 1));
    switch (kind) {
      case 0:
        x = static_cast<float>(dice.below(3));
        break;
      case 1:
        x = dice.one_in(2) ? -0.0f : 0.0f;
        break;
      case 2:
        x = base;
        break;
      case 3:
        x = smooth * 1e28f;
        break;
      case 4:
        x = dice.one_in(2) ? base : std::nextafter(base, 9.0f);
        break;
      case 5:
        x = dice.one_in(3) ? smooth * 1e-38f : (dice.one_in(2) ? -0.0f : 0.0f);
        break;
      default:
        x = smooth;
    }
  }
  if (dice.one_in(6)) row[dice.below(row.size())] += 30;
}

inline VerifiedDistribution draw_dist(Dice& dice, std::int64_t codes) {
  VerifiedDistribution dist;
  dist.guidance = dice.of({1.0, 1.0, 0.0, 2.0, 7.5});
  dist.temperature = dice.of({1.0, 1.0, 0.7, 1.9, 0.0, 1e-30, 5e-324, 1e-3, 1e30});
  if (dice.one_in(2)) return dist;
  dist.top_k = dice.of<std::int64_t>({0, 0, 1, 2, 3, codes / 2, codes - 1, codes, codes + 7});
  dist.top_p = dice.of({1.0, 1.0, 0.5, 0.25, 0.9, 1.0 / 3, 0.999999, 1e-12, 1 - 1e-13});
  dist.min_p = dice.of({0.0, 0.0, 0.1, 1.0, 0.5, 1e-9});
  dist.typical = dice.of({1.0, 1.0, 0.5, 0.2, 0.95, 1e-12});
  return dist;
}

// `distributions`: rows of the last pass whose distributions may be asked for.
inline void draw_drafts(Dice& dice, DrawnPass& pass, std::int64_t codes,
                        std::span<const std::int32_t> dists) {
  for (VerifiedItem& item : pass.items) {
    for (std::int32_t j = 0; j + 1 < item.rows; ++j) {
      VerifiedRow& row = pass.rows[static_cast<std::size_t>(item.first + j)];
      const float* logits = pass.logits.data() + row.cond * codes;
      row.draft = static_cast<std::int32_t>(dice.below(static_cast<std::uint64_t>(codes)));
      // Likely ones more often, so that windows are right for a while.
      for (int again = 0; again < 3; ++again) {
        const auto other = static_cast<std::int32_t>(dice.below(static_cast<std::uint64_t>(codes)));
        if (logits[other] > logits[row.draft]) row.draft = other;
      }
      if (row.forced >= 0 && !dice.one_in(4)) row.draft = row.forced;
      row.kind = dice.of({DraftKind::kPoint, DraftKind::kUniform});
      if (row.forced >= 0) {
        row.kind = DraftKind::kPoint;
      } else if (!dists.empty() && !dice.one_in(3)) {
        row.kind = DraftKind::kRow;
        row.dist_row = dists[dice.below(dists.size())];
      }
    }
  }
}

// Budgets of which much, little or nothing is left.
inline void draw_budgets(Dice& dice, DrawnPass& pass) {
  for (VerifiedItem& item : pass.items) {
    item.total = static_cast<std::int64_t>(item.position) + 200;
    item.budget = dice.of({0.01, 0.3, 1.0, 30.0});
    const double share = item.budget * (item.position + 1) / static_cast<double>(item.total);
    item.spent = share * dice.of({0.0, 0.2, 0.9, 0.999, 1.2}) * dice.unit();
    if (dice.one_in(3)) item.spent = std::max(0.0, share - dice.unit() / 2);
  }
}

inline DrawnPass draw_pass(Dice& dice, std::int64_t codes, std::int64_t items, std::int64_t window,
                           std::span<const std::int32_t> dists, bool budgets = false) {
  DrawnPass pass;
  const auto width = static_cast<std::size_t>(codes);
  std::int32_t next_logits = 0;
  for (std::int64_t i = 0; i < items; ++i) {
    VerifiedItem item{
        .dist = draw_dist(dice, codes),
        .key = {static_cast<std::uint32_t>(dice.below(1ull << 32)),
                static_cast<std::uint32_t>(dice.below(1ull << 32))},
        .pass = static_cast<std::uint32_t>(1 + dice.below(900)),
        .position = static_cast<std::uint32_t>(dice.below(5000)),
        .first = static_cast<std::int32_t>(pass.rows.size()),
        .rows = static_cast<std::int32_t>(1 + dice.below(static_cast<std::uint64_t>(window)))};
    const bool guided = item.dist.guidance != 1;
    for (std::int32_t j = 0; j < item.rows; ++j) {
      VerifiedRow row{.item = static_cast<std::int32_t>(i), .cond = next_logits + j};
      if (guided) row.uncond = next_logits + item.rows + j;
      row.place = j;
      if (dice.one_in(12)) {
        row.forced = static_cast<std::int32_t>(dice.below(static_cast<std::uint64_t>(codes) + 2));
      }
      pass.rows.push_back(row);
    }
    const std::int32_t added = item.rows * (guided ? 2 : 1);
    pass.logits.resize(pass.logits.size() + static_cast<std::size_t>(added) * width);
    for (std::int32_t r = next_logits; r < next_logits + added; ++r) {
      const auto row = std::span(pass.logits).subspan(static_cast<std::size_t>(r) * width, width);
      fill_row(dice, row);
      if (dice.one_in(60)) {
        row[dice.below(width)] = dice.of({std::nanf(""), std::numeric_limits<float>::infinity(),
                                          -std::numeric_limits<float>::infinity(), 0x1p100f});
      }
    }
    next_logits += added;
    pass.items.push_back(item);
  }
  draw_drafts(dice, pass, codes, dists);
  if (budgets) draw_budgets(dice, pass);
  return pass;
}

// The host's parts over a pass. Distributions of rows that are not asked for are kept too: of every sound
// row.
class HostRowVerifier {
 public:
  explicit HostRowVerifier(const VerifiedCase& drawn)
      : codes_(static_cast<std::size_t>(drawn.codes)), aids_(aids_of(codes_)) {
    DecodeMethod method = combine("none", drawn.redraft_policy, drawn.rule, 2);
    method.put(drawn.grouped);
    method.put(drawn.relaxed);
    method.put(drawn.cool);
    owned_ = std::make_unique<OwnedParts<float, KeyedRandom>>(method, aids_);
    method_.dists = needs_dists();
    method_.budget = drawn.budget;
    described_ = owned_->parts().rule->describe(method_) && owned_->parts().redraft_policy->describe(method_);
    scratch_.resize(2 * codes_ + 4);
  }

  bool needs_dists() const { return owned_->parts().needs_dists(); }
  bool described() const { return described_; }
  const VerifyMethod& method() const { return method_; }

  struct Records {
    std::vector<RowRecord> rows;
    std::vector<VerifiedCount> items;
  };
  Records verify(const DrawnPass& pass, VerifyFault fault = VerifyFault::kNone) {
    old_dists_ = std::move(dists_);
    dists_.assign(pass.rows.size() * codes_, 0.0f);
    dist_rows_.clear();
    Records out{std::vector<RowRecord>(pass.rows.size()),
                std::vector<VerifiedCount>(pass.items.size())};
    for (std::size_t i = 0; i < pass.items.size(); ++i) verify_item(pass, i, fault, out);
    return out;
  }
  // Rows of the last pass that have a distribution which the next one may ask for.
  std::span<const std::int32_t> dist_rows() const { return dist_rows_; }

 private:
  using Random = KeyedRandom;

  void verify_item(const DrawnPass& pass, std::size_t number, VerifyFault fault, Records& out);
  TargetRow<float> process(const DrawnPass& pass, const VerifiedRow& row, VerifyFault fault);
  DraftDistribution<float> dist_of(const VerifiedRow& row, VerifyFault fault) const {
    const auto count = old_dists_.size() / codes_;
    auto from = static_cast<std::size_t>(row.dist_row);
    if (fault == VerifyFault::kDistribution && count > 0) from = (from + 1) % count;
    DraftDistribution<float> out;
    out.kind = row.kind == DraftKind::kRow       ? DistributionKind::kDense
               : row.kind == DraftKind::kUniform ? DistributionKind::kUniform
                                                 : DistributionKind::kPoint;
    out.token = row.draft;
    if (row.kind == DraftKind::kRow) {
      out.dense = std::span(old_dists_).subspan(from * codes_, codes_);
    }
    out.uniform = 1.0f / static_cast<float>(codes_);
    out.codes = static_cast<std::int32_t>(codes_);
    return out;
  }

  // Neighbours of many codes take long to find; their vectors alone do not.
  static DecodeAids aids_of(std::size_t codes) {
    if (codes <= 1024) return aids_for(codes);
    DecodeAids aids;
    aids.grammar = VocabularyGrammar::line(codes, 1);
    std::vector<float> codebook(3 * codes);
    for (std::size_t i = 0; i < codebook.size(); ++i) {
      codebook[i] = std::sin(0.7f * static_cast<float>(i * i % 1009)) + 0.1f;
    }
    aids.neighbours =
        std::make_shared<CodeNeighbours>(codebook, static_cast<std::int64_t>(codes), 0);
    return aids;
  }

  std::size_t codes_;
  DecodeAids aids_;
  std::unique_ptr<OwnedParts<float, KeyedRandom>> owned_;
  VerifyMethod method_;
  bool described_ = false;
  std::optional<DistributionPipeline<float>> dist_;
  std::vector<float> dists_, old_dists_, scratch_, dense_;
  std::vector<std::int32_t> support_, dist_rows_;
  std::vector<float> support_logits_;
};

inline TargetRow<float> HostRowVerifier::process(const DrawnPass& pass, const VerifiedRow& row,
                                           VerifyFault fault) {
  if (row.forced >= 0) {
    support_.assign(1, row.forced);
    support_logits_.assign(1, 0.0f);
    dense_.assign(codes_ + 4, 0.0f);
    dense_[static_cast<std::size_t>(row.forced)] = 1;
    return {{support_, support_logits_}, dense_};
  }
  const std::span<const float> all = pass.logits;
  std::vector<float> cond(all.begin() + row.cond * static_cast<std::int64_t>(codes_),
                          all.begin() + (row.cond + 1) * static_cast<std::int64_t>(codes_));
  std::vector<float> uncond;
  if (row.uncond >= 0) {
    uncond.assign(all.begin() + row.uncond * static_cast<std::int64_t>(codes_),
                  all.begin() + (row.uncond + 1) * static_cast<std::int64_t>(codes_));
  }
  if (fault == VerifyFault::kOneBit) cond[0] = std::nextafter(cond[0], 1e30f);
  const bool turned = fault == VerifyFault::kTies;
  if (turned) {
    std::reverse(cond.begin(), cond.end());
    std::reverse(uncond.begin(), uncond.end());
  }
  dist_->process(cond, uncond);
  const auto probs = dist_->probabilities();
  support_.assign(dist_->support().begin(), dist_->support().end());
  support_logits_.assign(dist_->support_logits().begin(), dist_->support_logits().end());
  dense_.assign(probs.begin(), probs.end());
  if (turned) {
    std::reverse(support_.begin(), support_.end());
    std::reverse(support_logits_.begin(), support_logits_.end());
    std::reverse(dense_.begin(), dense_.end());
    for (std::int32_t& id : support_) id = static_cast<std::int32_t>(codes_) - 1 - id;
  }
  return {{support_, support_logits_}, dense_, dist_->warm()};
}

inline void HostRowVerifier::verify_item(const DrawnPass& pass, std::size_t number, VerifyFault fault,
                                  Records& out) {
  const VerifiedItem& item = pass.items[number];
  const auto rows = std::span(pass.rows).subspan(static_cast<std::size_t>(item.first),
                                                 static_cast<std::size_t>(item.rows));
  const std::span<RowRecord> records = std::span(out.rows).subspan(
      static_cast<std::size_t>(item.first), static_cast<std::size_t>(item.rows));
  dist_.emplace(DistributionSettings{item.dist.guidance, item.dist.temperature, item.dist.top_k, item.dist.top_p,
                           item.dist.min_p, item.dist.typical},
               static_cast<std::int64_t>(codes_));
  if (owned_->parts().rule->reads_warm()) dist_->keep_warm();
  Random random(item.key);
  random.begin_pass(item.pass + (fault == VerifyFault::kAcceptance ? 1 : 0));
  const auto parts = owned_->parts();
  VerifiedCount& of_item = out.items[number];
  const auto logits_of = [&](std::int32_t row) {
    return std::span(pass.logits).subspan(static_cast<std::size_t>(row) * codes_, codes_);
  };
  const auto broken = [&](const VerifiedRow& row, RowRecord& record) {
    for (const std::int32_t branch : {row.cond, row.uncond}) {
      if (branch < 0) continue;
      const auto id = first_unsound(logits_of(branch));
      if (!id) continue;
      record.unsound = static_cast<std::int32_t>(*id);
      record.unsound_logit = logits_of(branch)[static_cast<std::size_t>(*id)];
      return true;
    }
    return false;
  };
  bool sound = true;
  for (std::size_t j = 0; j < rows.size(); ++j) {
    const bool bad = broken(rows[j], records[j]);
    sound = sound && !bad;
    if (sound) of_item.sound = static_cast<std::int32_t>(j) + 1;
    if (bad || rows[j].forced >= 0) continue;
    const TargetRow<float> row = process(pass, rows[j], fault);
    if (needs_dists()) dist_rows_.push_back(item.first + static_cast<std::int32_t>(j));
    std::copy(row.probs.begin(), row.probs.end(),
              dists_.begin() +
                  (item.first + static_cast<std::int64_t>(j)) * static_cast<std::int64_t>(codes_));
  }
  if (of_item.sound == 0) return;
  const auto put = [](RowRecord& record, const TargetRow<float>& row, std::int32_t token) {
    const RowFigures figures = figures_of(row, token);
    record.token = token;
    record.probability = figures.probability;
    record.above = figures.above;
    record.mean = figures.mean;
    record.spread = figures.spread;
  };
  const std::int32_t count = of_item.sound - 1;
  bool accepted = true;
  double spent = item.spent;
  std::int32_t depth = 0;
  for (; accepted && depth < count; ++depth) {
    const VerifiedRow& about = rows[static_cast<std::size_t>(depth)];
    RowRecord& record = records[static_cast<std::size_t>(depth)];
    const TargetRow<float> row = process(pass, about, fault);
    const DraftDistribution<float> draft = dist_of(about, fault);
    const auto place = item.position + static_cast<std::uint32_t>(depth);
    const float excess = item.budget > 0
                             ? excess_left<float>(item.budget, std::size_t{place} + 1,
                                                  static_cast<std::size_t>(item.total), spent)
                             : 1.0f;
    const Decision<float> verified =
        about.forced >= 0 ? verify_forced<float>(about.draft, about.forced)
                          : parts.rule->accept({row, draft, about.draft, place,
                                               static_cast<std::uint32_t>(depth), excess},
                                              random, scratch_);
    accepted = verified.accepted;
    if (verified.chance > verified.strict) {
      spent += static_cast<double>(verified.chance - verified.strict);
    }
    record.accepted = accepted ? 1 : 0;
    record.strict = verified.strict;
    record.chance = verified.chance;
    put(record, row, verified.token);
  }
  of_item.tested = depth;
  of_item.right = depth - (accepted ? 0 : 1);
  for (std::int32_t j = depth; j <= count; ++j) {
    const VerifiedRow& about = rows[static_cast<std::size_t>(j)];
    RowRecord& record = records[static_cast<std::size_t>(j)];
    const auto place = item.position + static_cast<std::uint32_t>(j);
    if (!accepted && !parts.redraft_policy->keeps()) break;
    const TargetRow<float> row = process(pass, about, fault);
    if (accepted) {
      put(record, row, random.race(place, row.logits));
      continue;
    }
    const DraftDistribution<float> old = dist_of(about, fault);
    record.redraft =
        parts.redraft_policy->redraft(row, j < count ? &old : nullptr, about.draft, place, random, scratch_);
  }
}

// The first difference between two passes of records in what is guaranteed of them; empty if none.
inline std::string difference(const HostRowVerifier::Records& want, std::span<const RowRecord> rows,
                              std::span<const VerifiedCount> items, const DrawnPass& pass,
                              bool redrafts) {
  const auto bits = [](double x) { return std::bit_cast<std::uint64_t>(x); };
  for (std::size_t i = 0; i < pass.items.size(); ++i) {
    const VerifiedCount &a = want.items[i], &b = items[i];
    const std::string item = "item " + std::to_string(i);
    if (a.sound != b.sound) return item + ": sound " + std::to_string(b.sound);
    if (a.tested != b.tested || a.right != b.right) {
      return item + ": tested " + std::to_string(b.tested) + " right " + std::to_string(b.right) +
             ", not " + std::to_string(a.tested) + " and " + std::to_string(a.right);
    }
    for (std::int32_t j = 0; j < pass.items[i].rows; ++j) {
      const auto at = static_cast<std::size_t>(pass.items[i].first + j);
      const RowRecord &x = want.rows[at], &y = rows[at];
      const std::string where = item + " row " + std::to_string(j) + ": ";
      if (x.unsound != y.unsound || std::bit_cast<std::uint32_t>(x.unsound_logit) !=
                                        std::bit_cast<std::uint32_t>(y.unsound_logit)) {
        return where + "unsound " + std::to_string(y.unsound);
      }
      if (j >= a.sound) continue;
      const bool stands = j < a.tested || a.right == a.sound - 1;
      if (!stands) {
        if (redrafts && x.redraft != y.redraft) {
          return where + "redraft " + std::to_string(y.redraft) + ", not " +
                 std::to_string(x.redraft);
        }
        continue;
      }
      if (x.token != y.token) {
        return where + "token " + std::to_string(y.token) + ", not " + std::to_string(x.token);
      }
      if (j < a.tested && (x.accepted != y.accepted || bits(x.strict) != bits(y.strict) ||
                           bits(x.chance) != bits(y.chance))) {
        return where + "chance " + std::to_string(y.chance) + ", not " + std::to_string(x.chance);
      }
      if (bits(x.probability) != bits(y.probability) || bits(x.above) != bits(y.above) ||
          bits(x.mean) != bits(y.mean) || bits(x.spread) != bits(y.spread)) {
        return where + "figures: probability " + std::to_string(y.probability) + ", above " +
               std::to_string(y.above) + ", mean " + std::to_string(y.mean) + ", spread " +
               std::to_string(y.spread) + "; not " + std::to_string(x.probability) + ", " +
               std::to_string(x.above) + ", " + std::to_string(x.mean) + ", " +
               std::to_string(x.spread);
      }
    }
  }
  return "";
}

}  // namespace tessera::testing
