// Drafts of a draft model drawn where its rows are: a row a stream and step. Distributions stay on the
// device, where the target's verifier tests the drafts by them; an id a draft comes to the host.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/core/function_ref.h"
#include "engine/decoding/device_batch.h"
#include "engine/decoding/drafter.h"
#include "engine/decoding/trees/tree_dist_source.h"

namespace tessera {

class DeviceDrafts {
 public:
  using Job = DraftJob<float, KeyedRandom>;

  // For `items` streams with windows of `window` rows. Null where the backend has no verifier, or none
  // for so many codes. Error kMemory.
  static std::unique_ptr<DeviceDrafts> make(Backend& backend, std::int64_t codes,
                                            std::int64_t items, std::int64_t window, bool trees);
  static VerifyLimits limits(std::int64_t codes, std::int64_t items, std::int64_t window,
                            bool trees);
  // Whether there will be one on a backend, for plans of memory.
  static bool serves(const Backend& backend, std::int64_t codes) {
    return backend.device().kind != DeviceKind::kCpu && codes <= kMaxVerifiedCodes;
  }

  // Whether drafts of these jobs are drawn here: their windows keep no distributions on the host.
  static bool draws(std::span<const Job> jobs) {
    return !jobs.empty() && !jobs[0].window->keeps_dists();
  }

  void begin();
  // The next job, whose next draft is drawn by logit rows `cond` and, under guidance, `uncond`.
  void add(Job& job, const DistributionSettings& dist, std::int64_t cond, std::int64_t uncond,
           const RowEdits& edits = {});
  // Draws by the logits [any, codes] on the device, waits, and appends to every window. The ids, -1
  // where a row was broken: that window stays short.
  std::span<const std::int32_t> run(ConstTensorView logits);
  // Distributions of the wanted nodes of a tree, by one logit row each from `cond` and `uncond` on.
  void add(const TreeJob<float>& job, const DistributionSettings& dist, const VocabularyGrammar& grammar,
           std::int64_t cond, std::int64_t uncond, FunctionRef<RowEdits(std::int32_t)> edits_of_node);
  // Makes them and tells the trees of all that are not broken; waits.
  void keep_dists(std::span<TreeJob<float>> jobs, ConstTensorView logits);
  const RowVerifier& rows() const { return *verifier_; }

 private:
  DeviceDrafts(std::unique_ptr<RowVerifier> verifier, const VerifyLimits& limits, std::int64_t window);

  std::unique_ptr<RowVerifier> verifier_;
  std::int64_t window_;
  DeviceBatch batch_;
  std::vector<Job*> jobs_;
  std::vector<std::int32_t> tokens_;
};

}  // namespace tessera
