// The target distribution of one position: logits of both guidance branches in, distribution out, in one
// fixed order of stages: guidance on raw logits (Ho & Salimans 2022), position mask, logits processors
// (processors.h), temperature,
// top-k, top-p (Holtzman et al. 2020), min-p (Nguyen et al. 2024), typical (Meister et al. 2022),
// softmax; each stage sees the renormalised distribution of the stage before, as in Hugging Face's order.
// Drafters, rules and plain decoding all see rows that went through here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/logit_edit.h"
#include "engine/sampling/grammar.h"

namespace tessera {

template <typename Struct>
struct BoundSetting;

struct DistributionSettings {
  double guidance = 1.0;     // l = u + guidance (c - u); 1 = the conditional branch alone
  double temperature = 1.0;  // 0 = greedy: all mass on the largest guided logit, lowest id on a tie
  std::int64_t top_k = 0;    // keep ids whose logit is not below the k-th largest; 0 = off
  double top_p = 1.0;        // keep the most likely ids until this mass is reached; 1 = off
  double min_p = 0.0;        // keep ids at least this fraction as likely as the likeliest; 0 = off
  double typical = 1.0;      // keep the most typical ids that hold this mass; 1 = off
  // Of logits processors, in the order in which they are applied. Lists are texts, as parse_ids()
  // and parse_biases() read them.
  std::string sequence_bias = {};
  double prompt_penalty = 1, repetition_penalty = 1;
  double frequency_penalty = 0, presence_penalty = 0;
  std::int64_t no_repeat_ngram = 0, prompt_ngram = 0;
  std::string bad_words = {};
  std::int64_t min_length = 0, min_new_tokens = 0;
  std::string forced_tokens = {};
  std::int64_t forced_bos = -1;
  std::string forced_eos = {};
  std::int64_t length_decay_start = 0;
  double length_decay = 1;
  std::string suppress_tokens = {}, begin_suppress = {};

  static constexpr bool kTextSettings = true;
  bool guided() const { return guidance != 1.0; }
  // Names, ranges and help of the members (sampling_settings.h).
  static std::span<const BoundSetting<DistributionSettings>> rows();
};

// Index of the first NaN, infinity or number beyond 2^100, which guidance could carry to infinity.
std::optional<std::int64_t> first_unsound(std::span<const float> logits);

// Buffers for one row at a time; process() allocates nothing. Real is the arithmetic of the stages:
// float ships, double serves exact enumeration in tests.
template <typename Real>
class DistributionPipeline {
 public:
  // vocabulary >= 1 ids. Settings in range: guidance, min_p >= 0; temperature >= 0; 0 < top_p,
  // typical <= 1; top_k >= 0.
  DistributionPipeline(const DistributionSettings& settings, std::int64_t vocabulary);
  // The same along an image's stream: V counts its control ids, rows of logits are of codes alone.
  DistributionPipeline(const DistributionSettings& settings, const VocabularyGrammar& grammar);

  // cond, uncond [codes] raw finite logits (uncond is read only under guidance); allowed [codes], 0
  // for an id that the position forbids, empty = none (at least one id must be allowed). Edits, of
  // ids below codes, leave at least one id; they are for rows without a mask.
  void process(std::span<const Real> cond, std::span<const Real> uncond,
               std::span<const std::uint8_t> allowed = {}, const RowEdits& edits = {});
  // The distribution of a position of the stream. Where its grammar forces an id that id has all the mass
  // and the row is not read; elsewhere codes alone have any.
  void process_at(std::size_t position, std::span<const Real> cond, std::span<const Real> uncond,
                  const RowEdits& edits = {});

  // Ids that survived, ascending, and the processed logit of each (same order).
  std::span<const std::int32_t> support() const { return {support_.data(), kept_}; }
  std::span<const Real> support_logits() const { return {logits_.data(), kept_}; }
  // From now on warm() is kept of rows at temperature 0.
  void keep_warm() { warm_.resize(settings_.temperature == 0 ? dense_.size() : 0); }
  // [V] where it is kept: what the softmax of the whole row is, guided and edited, at temperature 1.
  std::span<const Real> warm() const { return warm_; }
  // [V] softmax over the support, 0 elsewhere. Computed on call, valid until the next process().
  std::span<const Real> probabilities();
  const DistributionSettings& settings() const { return settings_; }
  const VocabularyGrammar& grammar() const { return grammar_; }
  static std::size_t buffer_bytes(std::int64_t vocabulary) {
    return static_cast<std::size_t>(vocabulary) * (4 * sizeof(Real) + 2 * sizeof(std::int32_t));
  }

 private:
  void guide(std::span<const Real> cond, std::span<const Real> uncond,
             std::span<const std::uint8_t> allowed);
  void edit(const RowEdits& edits);
  void keep_greedy();
  void put_weights(std::span<Real> out);
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  void keep_typical();
  void weigh();  // weights_ of the support, normalised
  template <typename Keep>
  void compact(Keep keep);

  DistributionSettings settings_;
  VocabularyGrammar grammar_;
  std::size_t codes_ = 0;
  std::size_t kept_ = 0;
  bool whole_ = false;  // support_ is every code
  std::vector<std::int32_t> support_;
  std::vector<Real> logits_;   // of support_
  std::vector<Real> weights_;  // of support_, scratch
  std::vector<std::int32_t> order_;
  std::vector<Real> scratch_;
  std::vector<Real> dense_;  // [V]
  std::vector<Real> warm_;   // [V] or none
};

extern template class DistributionPipeline<float>;
extern template class DistributionPipeline<double>;

}  // namespace tessera
