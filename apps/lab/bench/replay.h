// Acceptance replay: real passes, real verification, and then the number of drafts that stand is
// that of a recorded trace, so that wall time at a stated acceptance is exact. Images, distribution
// and quality mean nothing. Where a device verifies, its records are changed on their way to the
// chain; where the host does, the rule's outcomes are.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/row_verifier.h"
#include "engine/decoding/acceptance.h"

namespace tessera {

// How often drafts are right: survival[j] of the passes have more than j right ones.
struct AcceptTrace {
  std::string name;  // where it comes from
  std::vector<double> survival;

  // By depth: the share of drafts that were right where all before them were; the last one holds
  // beyond its end.
  static AcceptTrace of_hazards(std::string name, std::span<const double> hazards);
  // By tokens a pass of ascending windows, the first of which is wider than 1. Between two windows
  // the chance of each further draft is the same.
  struct Tokens {
    std::int64_t window = 1;
    double tokens = 1;
  };
  static AcceptTrace of_tokens(std::string name, std::span<const Tokens> tokens);
  // What publications say of a method, one of published_methods().
  static AcceptTrace published(std::string_view method);
  static std::span<const std::string_view> published_methods();

  // Mean of a pass that wide.
  double tokens(std::int64_t window) const;
  // Right drafts of a pass. Passes of one key follow one another so evenly that an image's mean is
  // that of the trace.
  std::int64_t right(const std::array<std::uint32_t, 2>& key, std::uint32_t pass) const;
};

// Passes of an image of so many tokens under a key, the prompt's among them: what a loop of this
// window needs.
std::int64_t replayed_passes(const AcceptTrace& trace, std::int64_t window, std::int64_t tokens,
                             const std::array<std::uint32_t, 2>& key);
// The seed among the first few whose image comes nearest to the trace's mean.
std::uint64_t steady_seed(const AcceptTrace& trace, std::int64_t window, std::int64_t tokens);

// The traces' outcomes: stream i of seed 1 + i follows trace i modulo their number. The inner rule
// decides as well, for what that costs.
class ReplayRule final : public AcceptanceRule<float, KeyedRandom> {
 public:
  ReplayRule(const AcceptanceRule<float, KeyedRandom>& inner, std::span<const AcceptTrace> traces);
  std::string_view name() const override { return "replay"; }
  Guarantee guarantee() const override { return Guarantee::kNone; }
  bool needs_dists() const override { return inner_.needs_dists(); }
  bool describe(VerifyMethod& method) const override { return inner_.describe(method); }
  Decision<float> accept(const DraftTest<float>& test, KeyedRandom& random,
                         std::span<float> scratch) const override;

 private:
  const AcceptTrace& trace_of(const std::array<std::uint32_t, 2>& key) const;

  const AcceptanceRule<float, KeyedRandom>& inner_;
  std::span<const AcceptTrace> traces_;
  std::map<std::array<std::uint32_t, 2>, std::size_t> by_key_;  // empty with one trace
};

// The verifiers of a device, watched: counts what comes to the host, can wait between a pass and
// its verification to time both apart, and follows a trace if there is one.
class WatchedVerifiers final : public RowVerifierMaker {
 public:
  // The backend has verifies of rows. Both are borrowed.
  WatchedVerifiers(Backend& backend, const AcceptTrace* trace) : backend_(backend), trace_(trace) {}

  struct Seen {
    std::int64_t passes = 0;
    std::int64_t reads = 0;  // times that the host waited for records
    std::int64_t bytes = 0;  // of those records
    double dist_seconds = 0;  // verification after a finished pass; 0 unless timed apart
  };
  void time_apart(bool apart) { apart_ = apart; }
  void forget() { seen_ = {}; }
  const Seen& seen() const { return seen_; }

  std::unique_ptr<RowVerifier> make(const VerifyMethod& method, const VerifyLimits& limits) override;

 private:
  class WatchedVerifier;

  Backend& backend_;
  const AcceptTrace* trace_;
  bool apart_ = false;
  Seen seen_;
};

// Records of one item as if its first `right` drafts had been right; `rows` are what was verified.
// Every record that a chain reads gets tokens that can stand.
void replay_records(std::span<const VerifiedRow> rows, std::int64_t right,
                    std::span<RowRecord> records);

}  // namespace tessera
