#include "apps/lab/bench/replay.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/philox.h"

namespace tessera {

namespace {

constexpr std::size_t kDepths = 256;  // of a trace; windows have 128 rows at most

// Lumina-mGPT and others: decoding papers' tokens a pass by window.
constexpr AcceptTrace::Tokens kSjd[] = {{2, 1.35}, {3, 1.6},  {4, 1.8}, {6, 2.0},
                                        {8, 2.1},  {16, 2.2}, {32, 2.3}};
constexpr AcceptTrace::Tokens kCoupled[] = {{2, 1.35}, {3, 1.6},  {4, 1.85}, {6, 2.2},
                                            {8, 2.5},  {16, 3.0}, {32, 3.5}, {64, 4.2}};
// One published mean, 3.7 at 16 rows: the hazard that gives it if every depth has the same.
constexpr double kGsdHazard = 0.7315481;

// The methods that they are of, in the order of AcceptTrace::published().
constexpr std::string_view kPublished[] = {"sjd", "coupled", "gsd"};

}  // namespace

AcceptTrace AcceptTrace::of_hazards(std::string name, std::span<const double> hazards) {
  expects(!hazards.empty(), "a trace has depths");
  AcceptTrace out{std::move(name), {}};
  double all = 1;
  for (std::size_t j = 0; j < kDepths; ++j) {
    all *= std::clamp(hazards[std::min(j, hazards.size() - 1)], 0.0, 1.0);
    out.survival.push_back(all);
  }
  return out;
}

AcceptTrace AcceptTrace::of_tokens(std::string name, std::span<const Tokens> tokens) {
  AcceptTrace out{std::move(name), {}};
  Tokens last;
  for (const Tokens& next : tokens) {
    expects(next.window > last.window && next.tokens >= last.tokens, "windows ascend");
    const double share = (next.tokens - last.tokens) / to_double(next.window - last.window);
    expects(share <= (out.survival.empty() ? 1.0 : out.survival.back() + 1e-9),
            "later drafts are right no more often");
    out.survival.resize(to_size(next.window) - 1, share);
    last = next;
  }
  return out;
}

AcceptTrace AcceptTrace::published(std::string_view method) {
  const auto at = std::ranges::find(kPublished, method);
  expects(at != std::end(kPublished), "a method with a published trace");
  const AcceptTrace traces[] = {
      of_tokens("published, SJD on Lumina-mGPT", kSjd),
      of_tokens("published, coupled SJD on Lumina-mGPT", kCoupled),
      of_hazards("published, GSD: 3.7 at 16 rows", std::span(&kGsdHazard, 1))};
  return traces[at - std::begin(kPublished)];
}

std::span<const std::string_view> AcceptTrace::published_methods() { return kPublished; }

double AcceptTrace::tokens(std::int64_t window) const {
  double out = 1;
  for (std::size_t j = 0; j < survival.size() && to_index(j) + 1 < window; ++j) {
    out += survival[j];
  }
  return out;
}

// Multiples of the golden section fill an interval evenly, wherever they begin (Weyl's theorem).
std::int64_t AcceptTrace::right(const std::array<std::uint32_t, 2>& key, std::uint32_t pass) const {
  constexpr double kGolden = 0.61803398874989485, kWord = 4294967296.0;
  const double at = (key[0] ^ key[1]) / kWord + kGolden * pass;
  const double u = at - std::floor(at);
  // survival descends.
  const auto end = std::partition_point(survival.begin(), survival.end(),
                                        [u](double share) { return share > u; });
  return end - survival.begin();
}

std::int64_t replayed_passes(const AcceptTrace& trace, std::int64_t window, std::int64_t tokens,
                             const std::array<std::uint32_t, 2>& key) {
  std::int64_t passes = 1;  // the prompt's brings one token
  for (std::int64_t left = tokens - 1; left > 0; ++passes) {
    left -=
        std::min(1 + trace.right(key, narrow<std::uint32_t>(passes) + 1), std::min(window, left));
  }
  return passes;
}

std::uint64_t steady_seed(const AcceptTrace& trace, std::int64_t window, std::int64_t tokens) {
  constexpr std::uint64_t kSeeds = 200;
  const double wanted = 1 + to_double(tokens - 1) / trace.tokens(window);
  std::uint64_t best = 1;
  double least = std::numeric_limits<double>::infinity();
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const auto passes = to_double(replayed_passes(trace, window, tokens, philox_key(seed, 0)));
    if (std::abs(passes - wanted) >= least) continue;
    least = std::abs(passes - wanted);
    best = seed;
  }
  return best;
}

ReplayRule::ReplayRule(const AcceptanceRule<float, KeyedRandom>& inner,
                       std::span<const AcceptTrace> traces)
    : inner_(inner), traces_(traces) {
  expects(!traces.empty(), "a replay has a trace");
  constexpr std::size_t kSeeds = 4096;
  if (traces.size() == 1) return;
  for (std::size_t i = 0; i < kSeeds; ++i) by_key_[philox_key(i + 1, 0)] = i % traces.size();
}

const AcceptTrace& ReplayRule::trace_of(const std::array<std::uint32_t, 2>& key) const {
  const auto found = by_key_.find(key);
  return traces_[found == by_key_.end() ? 0 : found->second];
}

Decision<float> ReplayRule::accept(const DraftTest<float>& test, KeyedRandom& random,
                                   std::span<float> scratch) const {
  Decision<float> out = inner_.accept(test, random, scratch);
  out.accepted = test.depth < trace_of(random.key()).right(random.key(), random.pass());
  if (out.accepted) out.token = test.token;
  return out;
}

void replay_records(std::span<const VerifiedRow> rows, std::int64_t right,
                    std::span<RowRecord> records) {
  for (std::size_t j = 0; j < records.size(); ++j) {
    RowRecord& record = records[j];
    const VerifiedRow& row = rows[j];
    // What the device drew for this position, whichever way; else what stood there.
    std::int32_t drawn = record.token >= 0 ? record.token : record.redraft;
    if (drawn < 0) drawn = std::max(row.draft, 0);
    const std::int32_t own = row.forced >= 0 ? row.forced : drawn;
    const bool stands = row.draft >= 0 && to_index(j) < right;
    record.accepted = stands ? 1 : 0;
    record.token = stands && row.forced < 0 ? row.draft : own;
    if (record.redraft < 0) record.redraft = own;
  }
}

class WatchedVerifiers::WatchedVerifier final : public RowVerifier {
 public:
  WatchedVerifier(WatchedVerifiers& owner, std::unique_ptr<RowVerifier> inner)
      : owner_(owner), inner_(std::move(inner)) {}

  void verify(const VerifiedPass& pass) override {
    passed_items_.assign(pass.items.begin(), pass.items.end());
    passed_rows_.assign(pass.rows.begin(), pass.rows.end());
    if (owner_.apart_) {
      owner_.backend_.synchronize();
      began_ = monotonic_seconds();
    }
    inner_->verify(pass);
    fetched_ = false;
  }
  std::span<const RowRecord> rows() override {
    fetch();
    return records_;
  }
  std::span<const VerifiedCount> items() override {
    fetch();
    return counts_;
  }
  std::span<const DrawnId> draw(std::span<const VerifiedDraw> draws, const float* guest) override {
    return inner_->draw(draws, guest);
  }
  const float* dists() const override { return inner_->dists(); }

 private:
  void fetch() {
    if (fetched_) return;
    fetched_ = true;
    const std::span<const RowRecord> rows = inner_->rows();
    const std::span<const VerifiedCount> items = inner_->items();
    Seen& seen = owner_.seen_;
    if (owner_.apart_) seen.dist_seconds += monotonic_seconds() - began_;
    ++seen.passes;
    ++seen.reads;
    seen.bytes += to_index(rows.size_bytes() + items.size_bytes());
    records_.assign(rows.begin(), rows.end());
    counts_.assign(items.begin(), items.end());
    if (owner_.trace_ == nullptr) return;
    for (std::size_t i = 0; i < passed_items_.size(); ++i) {
      const VerifiedItem& item = passed_items_[i];
      const auto first = to_size(item.first);
      const auto count = to_size(item.rows);
      const std::int64_t right = owner_.trace_->right(item.key, item.pass);
      replay_records(std::span(passed_rows_).subspan(first, count), right,
                     std::span(records_).subspan(first, count));
      const auto drafts = std::max<std::int64_t>(0, counts_[i].sound - 1);
      counts_[i].right = narrow<std::int32_t>(std::min(right, drafts));
      counts_[i].tested = narrow<std::int32_t>(std::min(right + 1, drafts));
    }
  }

  WatchedVerifiers& owner_;
  std::unique_ptr<RowVerifier> inner_;
  std::vector<VerifiedItem> passed_items_;
  std::vector<VerifiedRow> passed_rows_;
  std::vector<RowRecord> records_;
  std::vector<VerifiedCount> counts_;
  bool fetched_ = false;
  double began_ = 0;
};

std::unique_ptr<RowVerifier> WatchedVerifiers::make(const VerifyMethod& method,
                                              const VerifyLimits& limits) {
  RowVerifierMaker* verifiers = backend_.row_verifiers();
  expects(verifiers != nullptr, "a backend with verifiers of rows");
  std::unique_ptr<RowVerifier> inner = verifiers->make(method, limits);
  if (inner == nullptr) return nullptr;
  return std::make_unique<WatchedVerifier>(*this, std::move(inner));
}

}  // namespace tessera
