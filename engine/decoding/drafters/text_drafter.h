// Drafts of texts from a second language model over the same vocabulary (Leviathan et al. 2023,
// Chen et al. 2023). Its prompt is its own: other rows, other places, other visual tokens or fewer,
// so every text has an offset and a cache of its own here. Drafts are drawn under the target's
// settings with the noise of their position and recorded with their law. Under the exact rule a
// text then depends, within its law, on when its draft prompt was through.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "engine/decoding/drafter.h"
#include "engine/decoding/prompt_cuts.h"
#include "engine/decoding/stream_limits.h"
#include "engine/model/text_model.h"
#include "engine/sampling/law.h"

namespace tessera {

// One text as the draft model is asked for it.
struct DraftText {
  Tensor rows;  // [T, D] f32 on the model's device: the prompt, embedded
  std::vector<std::array<std::int64_t, 3>> places;  // [T] in the rotary table
  std::int64_t next_place = 0;                      // of the first token that is written
  LawSettings law;                                  // the target's
  std::vector<std::int32_t> stops;                  // nothing is drafted behind these
  PromptCuts* cuts = nullptr;                       // borrowed until the text is done
  // Called once, before the prompt is read, when the target has read its own: may put fewer rows,
  // their places and next_place.
  std::function<void(DraftText&)> settle;
};

class TextDrafter final : public Drafter<float, KeyedRandom> {
 public:
  // Prompts, places and passes for `limits` of the loop that it drafts for; prompt_rows, budget
  // and kv are its own. The model must outlive the drafter. Error kMemory.
  TextDrafter(const TextModel& model, const StreamLimits& limits);
  ~TextDrafter() override;

  const StreamLimits& limits() const;
  // The text in a place of the loop, told behind StreamLoop::add(). Its prompt is read when drafts
  // are first wanted, `limits.budget` rows of all texts in one call, or one prompt with cuts; until
  // then, and for a place that was never told, the text is written without drafts. Rows and
  // next_place with the text's tokens must fit limits and rotary table.
  void set_text(std::size_t item, DraftText text);

  std::string_view name() const override { return "model"; }
  const RowJudge* judge_on(const Backend& backend) const override;
  void start(std::size_t items) override;
  void renew(std::size_t item) override;
  void extend(std::span<DraftJob<float, KeyedRandom>> jobs) override;
  std::int64_t passes() const;  // of the draft model, since start()

  // Cache and buffers of a drafter, before one is made.
  static std::size_t bytes(const TextModelConfig& config, const Backend& backend,
                           const StreamLimits& limits);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
