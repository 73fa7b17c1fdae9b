// Every outcome of the shipped decoding code, weighed: on random table models of two and three ids
// each method that promises the law must make every picture with the product of its conditional
// probabilities, to rounding. Methods that promise nothing must be seen to miss it.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "engine/decoding/method_parts.h"
#include "tests/support/outcome_walker.h"

namespace tessera {
namespace {

using Picture = std::vector<std::int32_t>;

enum class TableKind { kSmooth, kTopK, kOneHotRows, kEqualRows };

// Logits of both branches for every prefix, seeded.
template <typename Real>
struct TableModel {
  unsigned seed = 0;
  std::size_t vocabulary = 3, total = 3;
  LawSettings law;
  TableKind kind = TableKind::kSmooth;

  std::vector<Real> branch(std::span<const std::int32_t> prefix, std::uint32_t which) const {
    std::uint32_t hash = 1;
    // Equal rows: the law depends on the position alone.
    for (const std::int32_t token : prefix) {
      hash = hash * 5 + (kind == TableKind::kEqualRows ? 1 : static_cast<std::uint32_t>(token) + 1);
    }
    std::vector<Real> out;
    for (std::uint32_t id = 0; id < vocabulary; ++id) {
      const PhiloxBlock block = philox4x32({hash, id, which, 0}, {seed, 77});
      out.push_back(static_cast<Real>(2.0 * static_cast<double>(uniform_open(block[0])) - 1.0));
    }
    if (kind == TableKind::kOneHotRows && prefix.size() % 2 == 1) {
      out[hash % vocabulary] = Real{1e5};
    }
    return out;
  }
};

template <typename Real>
struct Rows {
  std::vector<Real> cond, uncond;
  RawRow<Real> raw() const { return {cond, uncond}; }
};

template <typename Real>
Rows<Real> rows_after(const TableModel<Real>& model, const Picture& prefix) {
  Rows<Real> out{model.branch(prefix, 0), {}};
  if (model.law.guided()) out.uncond = model.branch(prefix, 1);
  return out;
}

template <typename Real>
std::map<Picture, double> product_law(const TableModel<Real>& model) {
  std::map<Picture, double> out{{{}, 1.0}};
  for (std::size_t position = 0; position < model.total; ++position) {
    std::map<Picture, double> longer;
    for (const auto& [prefix, weight] : out) {
      LawPipeline<Real> law(model.law, static_cast<std::int64_t>(model.vocabulary));
      const Rows<Real> rows = rows_after(model, prefix);
      law.process(rows.cond, rows.uncond);
      const auto probs = law.probabilities();
      for (std::size_t id = 0; id < probs.size(); ++id) {
        if (!(probs[id] > 0)) continue;
        Picture next = prefix;
        next.push_back(static_cast<std::int32_t>(id));
        longer[next] += weight * static_cast<double>(probs[id]);
      }
    }
    out = std::move(longer);
  }
  return out;
}

// One path: the shipped sequence, driven as the decode loop drives it.
template <typename Real>
void decode_pass(const TableModel<Real>& model, ChainSequence<Real, WalkingRandom>& sequence) {
  Picture context = sequence.tokens();
  context.insert(context.end(), sequence.drafts().begin(), sequence.drafts().end());
  const std::size_t known = sequence.tokens().size(), count = sequence.rows();
  std::vector<Rows<Real>> rows;
  for (std::size_t j = 0; j < count; ++j) {
    rows.push_back(rows_after(
        model, Picture(context.begin(), context.begin() + static_cast<std::ptrdiff_t>(known + j))));
  }
  sequence.judge([&](std::size_t j) { return rows[j].raw(); }, count);
}

template <typename Real>
std::map<Picture, double> output_law(const TableModel<Real>& model, const DecodeMethod& method,
                                     const DecodeAids& aids, std::size_t items = 1,
                                     std::size_t* paths = nullptr) {
  using Sequence = ChainSequence<Real, WalkingRandom>;
  std::map<Picture, double> out;
  OutcomeWalk walk;
  while (walk.next_path()) {
    const OwnedParts<Real, WalkingRandom> owned(method, aids);
    const ChainParts<Real, WalkingRandom> parts = owned.parts();
    if (parts.drafter != nullptr) parts.drafter->start(items);
    std::vector<Sequence> sequences;
    for (std::size_t i = 0; i < items; ++i) {
      sequences.emplace_back(model.law, model.vocabulary, model.total,
                             static_cast<std::size_t>(method.window), parts,
                             WalkingRandom(&walk, i), i);
      decode_pass(model, sequences.back());
    }
    while (true) {
      std::vector<DraftJob<Real, WalkingRandom>> jobs;
      for (Sequence& sequence : sequences) {
        if (!sequence.done()) {
          jobs.push_back(sequence.draft_job(static_cast<std::size_t>(method.window)));
        }
      }
      if (jobs.empty()) break;
      if (parts.drafter != nullptr) parts.drafter->extend(jobs);
      for (const auto& job : jobs) decode_pass(model, sequences[job.item]);
    }
    Picture all;
    for (const Sequence& sequence : sequences) {
      all.insert(all.end(), sequence.tokens().begin(), sequence.tokens().end());
    }
    out[all] += walk.weight();
    if (paths != nullptr) ++*paths;
  }
  return out;
}

double total_variation(const std::map<Picture, double>& a, const std::map<Picture, double>& b) {
  double sum = 0;
  for (const auto& [picture, weight] : a) {
    const auto found = b.find(picture);
    sum += std::abs(weight - (found == b.end() ? 0 : found->second));
  }
  for (const auto& [picture, weight] : b) {
    if (a.find(picture) == a.end()) sum += weight;
  }
  return sum / 2;
}

DecodeAids aids_for(std::size_t vocabulary) {
  DecodeAids aids;
  aids.codes = static_cast<std::int64_t>(vocabulary);
  aids.columns = 2;
  std::vector<float> codebook;
  for (std::size_t id = 0; id < vocabulary; ++id) {
    codebook.push_back(std::cos(0.3f * static_cast<float>(id)));
    codebook.push_back(std::sin(0.3f * static_cast<float>(id)));
  }
  aids.neighbours = std::make_shared<CodeNeighbours>(
      codebook, aids.codes, static_cast<std::int64_t>(vocabulary) - 1);
  return aids;
}

template <typename Real>
TableModel<Real> table(unsigned number) {
  TableModel<Real> model;
  model.seed = 1000 + number;
  model.vocabulary = 2 + number % 2;
  model.kind = static_cast<TableKind>(number % 4);
  if (model.kind == TableKind::kTopK && model.vocabulary == 3) model.law.top_k = 2;
  if (number % 3 == 1) model.law.guidance = 3;
  if (number % 5 == 2) model.law.temperature = 0.7;
  model.total = model.vocabulary == 2 ? 4 : 3;
  return model;
}

DecodeMethod combine(std::string_view drafter, std::string_view tail, std::string_view rule,
                     std::int64_t window) {
  DecodeMethod method;
  method.name = "custom";
  method.drafter = drafter;
  method.tail = tail;
  method.rule = rule;
  method.window = window;
  return method;
}

template <typename Real>
void expect_lossless(std::string_view rule, double tolerance) {
  std::size_t paths = 0, laws = 0;
  double worst = 0;
  for (unsigned number = 0; number < 20; ++number) {
    const TableModel<Real> model = table<Real>(number);
    const DecodeAids aids = aids_for(model.vocabulary);
    const auto truth = product_law(model);
    for (const std::string_view drafter : drafter_names()) {
      for (const std::string_view tail : tail_names()) {
        if (drafter == "none" && tail != "drop") continue;
        for (std::int64_t window = 2; window <= 4; ++window) {
          if (window > 3 && model.vocabulary == 3 && number > 7) continue;  // the same, longer
          DecodeMethod method = combine(drafter, tail, rule, window);
          method.grouped.size = 1;
          method.relaxed.delta = 0;
          method.cool = {1.0, 0.7};
          ASSERT_NE(promise_of(method), Promise::kNone);
          const double gap = total_variation(output_law(model, method, aids, 1, &paths), truth);
          worst = std::max(worst, gap);
          ASSERT_LT(gap, tolerance) << "table " << number << ' ' << drafter << ' ' << tail << ' '
                                    << rule << " window " << window;
          ++laws;
        }
      }
    }
  }
  std::cout << rule << ": " << laws << " laws, " << paths << " paths, worst total variation "
            << worst << '\n';
}

class EveryRule : public testing::TestWithParam<std::string_view> {};

TEST_P(EveryRule, KeepsTheLawInDouble) { expect_lossless<double>(GetParam(), 1e-12); }
TEST_P(EveryRule, KeepsTheLawInFloat) { expect_lossless<float>(GetParam(), 1e-6); }

INSTANTIATE_TEST_SUITE_P(All, EveryRule,
                         testing::ValuesIn(rule_names().begin(), rule_names().end()));

// Two pictures at once, each at its own pace: their joint law is the product.
TEST(Enumeration, RaggedBatchesKeepTheLaw) {
  for (unsigned number = 0; number < 4; ++number) {
    TableModel<double> model = table<double>(number);
    model.total = 2;
    const DecodeAids aids = aids_for(model.vocabulary);
    std::map<Picture, double> truth;
    const auto one = product_law(model);
    for (const auto& [a, weight_a] : one) {
      for (const auto& [b, weight_b] : one) {
        Picture both = a;
        both.insert(both.end(), b.begin(), b.end());
        truth[both] = weight_a * weight_b;
      }
    }
    for (const NamedMethod& named : named_methods()) {
      DecodeMethod method = decode_method(named.name);
      method.window = 3;
      if (promise_of(method) == Promise::kNone) continue;
      EXPECT_LT(total_variation(output_law(model, method, aids, 2), truth), 1e-12) << named.name;
    }
  }
}

// Rules that promise nothing do change the law, and by no more than their meters say.
TEST(Enumeration, RelaxedRulesAreSeen) {
  for (const char* name : {"gsd", "lantern", "cool"}) {
    double most = 0;
    for (unsigned number = 0; number < 8; ++number) {
      TableModel<double> model = table<double>(number);
      const DecodeAids aids = aids_for(model.vocabulary);
      DecodeMethod method = decode_method(name);
      method.window = 3;
      method.grouped = {3, 1.0, 4.0, false};
      method.relaxed = {2, 0.5, 0};
      method.cool = {2.0, 0.1};
      ASSERT_EQ(promise_of(method), Promise::kNone);
      most = std::max(most, total_variation(output_law(model, method, aids), product_law(model)));
    }
    EXPECT_GT(most, 1e-3) << name;
  }
}

}  // namespace
}  // namespace tessera
