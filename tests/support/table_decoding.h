// Models that are tables, logits for every prefix, and the exact distribution of what a decoding method
// makes of them: the shipped sequence is run through every outcome of its random decisions. Faults
// enter as other parts, as another source of randomness, or as a change of a pass's rows.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "engine/core/philox.h"
#include "engine/sampling/processors.h"
#include "tests/support/chain_driver.h"
#include "tests/support/made_up_methods.h"
#include "tests/support/outcome_walker.h"

namespace tessera {

using TokenRow = std::vector<std::int32_t>;

enum class TableKind { kSmooth, kTopK, kOneHotRows, kEqualRows };

// Logits of both branches for every prefix, seeded.
template <typename Real>
struct TableModel {
  unsigned seed = 0;
  std::size_t vocabulary = 3, total = 3;
  DistributionSettings dist;
  TableKind kind = TableKind::kSmooth;
  // Rows and end tokens of the stream; without them it is one row of `total` codes.
  std::optional<VocabularyGrammar> rows;

  VocabularyGrammar grammar() const {
    return rows ? *rows : VocabularyGrammar::line(vocabulary, total);
  }
  std::vector<Real> branch(std::span<const std::int32_t> prefix, std::uint32_t which) const {
    std::uint32_t hash = 1;
    // Equal rows: the distribution depends on the position alone.
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

// Twenty of them between 0 and 19 have every kind with and without guidance and temperature.
template <typename Real>
TableModel<Real> table(unsigned number) {
  TableModel<Real> model;
  model.seed = 1000 + number;
  model.vocabulary = 2 + number % 2;
  model.kind = static_cast<TableKind>(number % 4);
  if (model.kind == TableKind::kTopK && model.vocabulary == 3) model.dist.top_k = 2;
  if (number % 3 == 1) model.dist.guidance = 3;
  if (number % 5 == 2) model.dist.temperature = 0.7;
  model.total = model.vocabulary == 2 ? 4 : 3;
  return model;
}

// The same with logits processors of every kind that a stream without stops has, a mixture a number.
template <typename Real>
TableModel<Real> processed_table(unsigned number) {
  TableModel<Real> model = table<Real>(number);
  DistributionSettings& dist = model.dist;
  if (number % 2 == 0) dist.repetition_penalty = number % 4 == 0 ? 1.7 : 0.6;
  if (number % 3 == 0) dist.no_repeat_ngram = 1 + number / 3 % 2;
  if (number % 3 == 1) dist.frequency_penalty = 0.8;
  if (number % 5 < 3) dist.presence_penalty = -0.7;
  if (number % 4 == 3) dist.bad_words = "0 1,1 1 0";
  if (number % 3 == 2) dist.sequence_bias = "0:-0.6,1 0:1.1,0 1 1:0.9";
  if (number % 7 == 1) dist.begin_suppress = "1";
  if (number % 7 == 2) dist.forced_tokens = "1,0,1";
  if (number % 5 == 4 && model.vocabulary == 3) dist.suppress_tokens = "2";
  return model;
}

template <typename Real>
struct Rows {
  std::vector<Real> cond, uncond;
  RawRow<Real> raw() const { return {cond, uncond}; }
};

template <typename Real>
Rows<Real> rows_after(const TableModel<Real>& model, std::span<const std::int32_t> prefix) {
  Rows<Real> out{model.branch(prefix, 0), {}};
  if (model.dist.guided()) out.uncond = model.branch(prefix, 1);
  return out;
}

// The id that must stand at a position, -1 where a code is drawn.
using EndTokens = std::function<std::int32_t(std::size_t position)>;

// What every image weighs if tokens are drawn one by one.
template <typename Real>
std::map<TokenRow, double> dist_with_ends(const TableModel<Real>& model, std::size_t total,
                                        const EndTokens& ends) {
  std::map<TokenRow, double> out{{{}, 1.0}};
  for (std::size_t position = 0; position < total; ++position) {
    std::map<TokenRow, double> longer;
    for (const auto& [prefix, weight] : out) {
      if (ends(position) >= 0) {
        TokenRow next = prefix;
        next.push_back(ends(position));
        longer[next] += weight;
        continue;
      }
      DistributionPipeline<Real> dist(model.dist, static_cast<std::int64_t>(model.vocabulary));
      LogitProcessors processors(model.dist, model.grammar());
      TokenRow& standing = processors.prefix();
      standing.insert(standing.end(), prefix.begin(), prefix.end());
      const Rows<Real> rows = rows_after(model, prefix);
      dist.process(rows.cond, rows.uncond, {}, processors.edit(position, {}));
      const auto probs = dist.probabilities();
      for (std::size_t id = 0; id < probs.size(); ++id) {
        if (!(probs[id] > 0)) continue;
        TokenRow next = prefix;
        next.push_back(static_cast<std::int32_t>(id));
        longer[next] += weight * static_cast<double>(probs[id]);
      }
    }
    out = std::move(longer);
  }
  return out;
}

template <typename Real>
std::map<TokenRow, double> product_dist(const TableModel<Real>& model) {
  return dist_with_ends(model, model.total, [](std::size_t) { return -1; });
}

// Two images that know nothing of each other, one after the other.
inline std::map<TokenRow, double> dist_of_two(const std::map<TokenRow, double>& one) {
  std::map<TokenRow, double> out;
  for (const auto& [a, weight_a] : one) {
    for (const auto& [b, weight_b] : one) {
      TokenRow both = a;
      both.insert(both.end(), b.begin(), b.end());
      out[both] = weight_a * weight_b;
    }
  }
  return out;
}

inline double total_variation(const std::map<TokenRow, double>& a,
                              const std::map<TokenRow, double>& b) {
  double sum = 0;
  for (const auto& [image, weight] : a) {
    const auto found = b.find(image);
    sum += std::abs(weight - (found == b.end() ? 0 : found->second));
  }
  for (const auto& [image, weight] : b) {
    if (a.find(image) == a.end()) sum += weight;
  }
  return sum / 2;
}

// Changes the rows of a pass before they are verified.
template <typename Real>
using RowChange = std::function<void(std::vector<Rows<Real>>&)>;

template <typename Real, typename Random>
void decode_pass(const TableModel<Real>& model, ChainSequence<Real, Random>& sequence,
                 const RowChange<Real>& change = nullptr) {
  TokenRow context = sequence.tokens();
  context.insert(context.end(), sequence.drafts().begin(), sequence.drafts().end());
  const std::size_t known = sequence.tokens().size(), count = sequence.rows();
  std::vector<Rows<Real>> rows;
  for (std::size_t j = 0; j < count; ++j) {
    rows.push_back(rows_after(model, std::span<const std::int32_t>(context).first(known + j)));
  }
  if (change) change(rows);
  sequence.verify([&](std::size_t j) { return rows[j].raw(); }, count);
}

template <typename Real, typename Random>
struct PathOptions {
  std::size_t items = 1;             // images at once
  RowChange<Real> change = nullptr;  // of every pass
  // Rows of a sequence's next pass at most; empty = the whole window.
  std::function<std::size_t(const ChainSequence<Real, Random>&)> width = nullptr;
  std::size_t* paths = nullptr;  // counts them
  double* excess = nullptr;      // sums what the meters call excess, in the mean over all paths
};

// The distribution of all images, one after the other, over every path. `make_parts()` gives fresh parts
// for each, anything with parts().
template <typename Random = WalkingRandom, typename Real, typename MakeParts>
std::map<TokenRow, double> dist_of_paths(const TableModel<Real>& model, std::size_t window,
                                       MakeParts make_parts,
                                       const PathOptions<Real, Random>& options = {}) {
  std::map<TokenRow, double> out;
  OutcomeWalk walk;
  while (walk.next_path()) {
    const auto owned = make_parts();
    const ChainParts<Real, Random> parts = owned.parts();
    std::vector<ChainSequence<Real, Random>> sequences;
    for (std::size_t i = 0; i < options.items; ++i) {
      sequences.emplace_back(model.dist, model.grammar(), window, parts, Random(&walk, i), i);
    }
    drive_chains(
        sequences, parts,
        [&](const auto& sequence) { return options.width ? options.width(sequence) : window; },
        [&](auto& sequence) { decode_pass(model, sequence, options.change); });
    TokenRow all;
    for (const auto& sequence : sequences) {
      all.insert(all.end(), sequence.tokens().begin(), sequence.tokens().end());
    }
    out[all] += walk.weight();
    if (options.excess != nullptr) {
      for (const auto& sequence : sequences) {
        *options.excess += walk.weight() * sequence.meters().excess;
      }
    }
    if (options.paths != nullptr) ++*options.paths;
  }
  return out;
}

// The same for a method of shipped parts.
template <typename Real>
std::map<TokenRow, double> output_dist(const TableModel<Real>& model, const DecodeMethod& method,
                                     const DecodeAids& aids,
                                     const PathOptions<Real, WalkingRandom>& options = {}) {
  return dist_of_paths(
      model, static_cast<std::size_t>(method.window),
      [&] { return OwnedParts<Real, WalkingRandom>(method, aids); }, options);
}

}  // namespace tessera
