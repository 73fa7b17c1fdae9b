// Drafts from a second, smaller model over the same ids (Leviathan et al. 2023, Chen et al. 2023),
// for streams of any grammar: images, texts, videos. Its prompts, places, cache and guidance are
// its own; the sampling settings are the stream's. A draft is drawn with the noise of its position,
// which the target's own draw shares: they agree with probability at least (1 - TV) / (1 + TV). It
// is recorded with the distribution it was drawn from. For trees the drafter gives the distribution
// of candidates node by node.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/decoding/drafter.h"
#include "engine/decoding/drafters/draft_stream_item.h"
#include "engine/decoding/trees/tree_dist_source.h"
#include "engine/model/token_model.h"

namespace tessera {

class ModelDrafter final : public Drafter<float, KeyedRandom>, public TreeDistributionSource<float> {
 public:
  // The model must outlive the drafter. Error kMemory.
  ModelDrafter(const TokenModel& model, const DraftLimits& limits);
  ~ModelDrafter() override;

  const DraftLimits& limits() const;
  // Whether streams of these limits fit; chunk and kv are not looked at.
  bool fits(const DraftLimits& limits) const;
  // The stream in a slot, in place of what was there. A slot that was never told of its stream is
  // written without drafts.
  void set_stream(std::size_t slot, DraftStreamItem item);

  std::string_view name() const override { return "model"; }
  const RowVerifier* verify_on(const Backend& backend) const override;
  // Forgets every stream whose prompt it has begun to read; those told since then stay.
  void start(std::size_t items) override;
  void renew(std::size_t slot) override;
  void extend(std::span<DraftJob<float, KeyedRandom>> jobs) override;
  void answer(std::span<TreeJob<float>> jobs) override;
  // Of the draft model over tokens of streams, since start(); prompts alone do not count.
  std::int64_t passes() const;

  // Rows of one pass at most.
  static std::int64_t max_rows(const DraftLimits& limits);
  // Cache and buffers of a drafter before one is made, for a model of this shape; `scratch` is its
  // scratch_bytes() of max_rows().
  static std::size_t bytes(const ModelConfig& config, std::int64_t logit_ids, std::size_t scratch,
                           const Backend& backend, const DraftLimits& limits);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
