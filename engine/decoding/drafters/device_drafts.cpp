#include "engine/decoding/drafters/device_drafts.h"
#include "engine/core/index.h"

namespace tessera {

DeviceDrafts::DeviceDrafts(std::unique_ptr<RowVerifier> verifier, const VerifyLimits& limits,
                           std::int64_t window)
    : verifier_(std::move(verifier)), window_(window) {
  const auto items = to_size(limits.items);
  batch_.items.reserve(items);
  batch_.rows.reserve(to_size(limits.rows));
  jobs_.reserve(items);
  tokens_.reserve(items);
}

VerifyLimits DeviceDrafts::limits(std::int64_t codes, std::int64_t items, std::int64_t window,
                                 bool trees) {
  return {.codes = codes,
          .rows = trees ? items * window : items,
          .items = items,
          .kept = items * window};
}

std::unique_ptr<DeviceDrafts> DeviceDrafts::make(Backend& backend, std::int64_t codes,
                                                 std::int64_t items, std::int64_t window,
                                                 bool trees) {
  RowVerifierMaker* const maker = backend.row_verifiers();
  if (maker == nullptr || codes > kMaxVerifiedCodes) return nullptr;
  const VerifyLimits all = limits(codes, items, window, trees);
  return std::unique_ptr<DeviceDrafts>(
      new DeviceDrafts(maker->make(VerifyMethod{}, all), all, window));
}

void DeviceDrafts::begin() {
  batch_.clear();
  jobs_.clear();
}

// A draft's distribution is kept by its place in the window, which passes of other streams do not move.
void DeviceDrafts::add(Job& job, const DistributionSettings& dist, std::int64_t cond,
                       std::int64_t uncond, const RowEdits& edits) {
  const auto number = narrow<std::int32_t>(batch_.items.size());
  VerifiedItem stream = verified_item(dist, *job.random, number, 1);
  stream.position = narrow<std::uint32_t>(job.next_position());
  batch_.items.push_back(stream);
  VerifiedRow row = verified_row(dist, number, cond, uncond);
  row.keep = narrow<std::int32_t>(to_index(job.item) * window_ + std::ssize(*job.window));
  batch_.rows.push_back(row);
  add_edits(batch_, batch_.rows.size() - 1, edits);
  jobs_.push_back(&job);
}

std::span<const std::int32_t> DeviceDrafts::run(ConstTensorView logits) {
  tokens_.clear();
  if (jobs_.empty()) return tokens_;
  verifier_->verify({logits, batch_.items, batch_.rows, {}, nullptr, batch_.edits});
  const std::span<const RowRecord> records = verifier_->rows();
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    Job& job = *jobs_[i];
    tokens_.push_back(records[i].unsound < 0 ? records[i].token : -1);
    if (tokens_[i] < 0) {
      job.want = job.window->size();
    } else {
      job.window->append_guest(tokens_[i], batch_.rows[i].keep);
    }
  }
  return tokens_;
}

// Nothing is tested: the rows after the first one are notified no drafts.
void DeviceDrafts::add(const TreeJob<float>& job, const DistributionSettings& dist,
                       const VocabularyGrammar& grammar, std::int64_t cond, std::int64_t uncond,
                       FunctionRef<RowEdits(std::int32_t)> edits_of_node) {
  const auto number = narrow<std::int32_t>(batch_.items.size());
  const auto first = narrow<std::int32_t>(batch_.rows.size());
  batch_.items.push_back({.dist = verified_dist(dist),
                          .position = narrow<std::uint32_t>(job.committed.size()),
                          .first = first,
                          .rows = narrow<std::int32_t>(job.wanted.size())});
  for (const std::int32_t node : job.wanted) {
    VerifiedRow row = verified_row(dist, number, cond++, uncond++);
    row.place = job.tree->depth(node);
    const auto forced = grammar.forced(job.committed.size() + to_size(row.place));
    if (forced) row.forced = *forced;
    row.keep = narrow<std::int32_t>(to_index(job.item) * window_) + node;
    batch_.rows.push_back(row);
    if (!forced) add_edits(batch_, batch_.rows.size() - 1, edits_of_node(node));
  }
}

void DeviceDrafts::keep_dists(std::span<TreeJob<float>> jobs, ConstTensorView logits) {
  verifier_->verify({logits, batch_.items, batch_.rows, {}, nullptr, batch_.edits});
  const std::span<const RowRecord> records = verifier_->rows();
  std::size_t number = 0;
  for (const TreeJob<float>& job : jobs) {
    for (const std::int32_t node : job.wanted) {
      if (records[number].unsound < 0) job.tree->keep_guest_dist(node, batch_.rows[number].keep);
      ++number;
    }
  }
}

}  // namespace tessera
