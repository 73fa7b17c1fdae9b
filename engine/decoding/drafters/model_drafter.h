// Drafts from a second, smaller model over the same ids (Leviathan et al. 2023, Chen et al. 2023),
// for streams of any grammar: images, texts, videos. Its prompts, places, cache and guidance are
// its own; the sampling settings are the stream's. A draft is drawn with the noise of its position,
// which the target's own draw shares: they agree with probability at least (1 - TV) / (1 + TV). It
// is recorded with the distribution it was drawn from. For trees the drafter gives the distribution
// of candidates node by node.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/decoding/drafter.h"
#include "engine/decoding/prompt_cuts.h"
#include "engine/decoding/trees/tree_law_source.h"
#include "engine/model/token_model.h"
#include "engine/sampling/law.h"

namespace tessera {

// A prompt as the draft model reads it, in ids or embedded.
struct DraftBranch {
  std::vector<std::int32_t> ids;
  Tensor rows;  // [T, D] f32 on the model's device; then `ids` is empty
  std::vector<std::array<std::int64_t, 3>> places;  // [T] of the rows, in the rotary table
  std::int64_t next_place = 0;  // of the stream's first token after rows; after ids, their number
  PromptCuts* cuts = nullptr;   // of rows; borrowed until the stream is done. Not with trees
};

// What the draft model is asked for one stream.
struct DraftStreamItem {
  std::vector<DraftBranch> branches;  // one; under guidance two, the second without the prompt
  VocabularyGrammar grammar;          // of the stream; an id of a code for each logit of the model
  LawSettings law;                    // that drafts are drawn under
  std::vector<std::int32_t> stops;    // nothing is drafted after these
  // False: when drafts are first wanted the prompt is read to its end, so that drafts depend on the
  // stream alone. True: DraftLimits::chunk rows a call; until then the stream has no drafts, and
  // under the exact rule its tokens depend, within their distribution, on when that is.
  bool in_parts = false;
  // Called once, before the prompt is read: may put fewer rows, their places and next_place.
  std::function<void(DraftStreamItem&)> settle;
};

struct DraftLimits {
  std::int64_t items = 1;        // streams at once
  std::int64_t prompt_rows = 1;  // longest prompt of a branch
  std::int64_t tokens = 1;       // of the longest stream
  std::int64_t window = 1;       // rows of the target in one pass: one more than drafts
  std::int64_t chunk = 256;      // prompt rows in one pass, those of all streams
  bool guided = true;            // room for second branches
  bool trees = false;            // room for nodes of trees
  DType kv = DType::kF32;
};

class ModelDrafter final : public Drafter<float, KeyedRandom>, public TreeLawSource<float> {
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
  const RowJudge* judge_on(const Backend& backend) const override;
  // Forgets every stream whose prompt it has begun to read; those told since then stay.
  void start(std::size_t items) override;
  void renew(std::size_t slot) override;
  void extend(std::span<DraftJob<float, KeyedRandom>> jobs) override;
  void answer(std::span<TreeJob<float>> jobs) override;
  // Of the draft model over tokens of streams, since start(); prompts alone do not count.
  std::int64_t passes() const;

  // Rows of one pass at most.
  static std::int64_t most_rows(const DraftLimits& limits);
  // Cache and buffers of a drafter before one is made, for a model of this shape; `scratch` is its
  // scratch_bytes() of most_rows().
  static std::size_t bytes(const ModelConfig& config, std::int64_t logit_ids, std::size_t scratch,
                           const Backend& backend, const DraftLimits& limits);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
