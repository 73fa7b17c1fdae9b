// Drafts from a second, smaller model over the same codes (Leviathan et al. 2023, Chen et al.
// 2023): its own prompts, cache and guidance, the target's sampling settings. Draft tokens are
// drawn with the noise of their position, which the target's own draw shares: they agree with
// probability at least (1 - TV) / (1 + TV). Recorded with the law they were drawn from. For trees
// it says node by node which law candidates have.
#pragma once

#include <memory>
#include <vector>

#include "engine/decoding/drafter.h"
#include "engine/decoding/trees/tree_law_source.h"
#include "engine/model/image_model.h"
#include "engine/sampling/law.h"

namespace tessera {

// One picture as the draft model is asked for it.
struct DraftItem {
  std::vector<std::int32_t> prompt;
  std::vector<std::int32_t> unconditional;  // empty without guidance
  LawSettings law;
};

struct DraftLimits {
  std::int64_t items = 1, prompt_tokens = 1, window = 1;
  bool guided = true;
  DType kv = DType::kF32;
  bool trees = false;
};

class ModelDrafter final : public Drafter<float, KeyedRandom>, public TreeLawSource<float> {
 public:
  // The model must outlive the drafter. Error kMemory.
  ModelDrafter(const ImageModel& model, const DraftLimits& limits);
  ~ModelDrafter() override;

  // Whether a run of these limits fits; kv is not looked at.
  bool fits(const DraftLimits& limits) const;
  // The image in a slot of the loop, set behind StreamLoop::add().
  void set_item(std::size_t slot, DraftItem item);

  std::string_view name() const override { return "model"; }
  const RowJudge* judge_on(const Backend& backend) const override;
  void start(std::size_t items) override;
  void renew(std::size_t item) override;
  void extend(std::span<DraftJob<float, KeyedRandom>> jobs) override;
  void answer(std::span<TreeJob<float>> jobs) override;
  std::int64_t passes() const;  // of the draft model, since start()

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
