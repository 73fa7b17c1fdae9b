// A model that writes texts and images in turn, as a lane asks for it: one loop over both of its
// token spaces.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/runtime/caption_model.h"
#include "apps/runtime/image_model.h"
#include "apps/runtime/interleave_task.h"

namespace tessera {

class InterleaveModel final : public ImageModel {
 public:
  using Ids = std::vector<std::int32_t>;
  static constexpr std::size_t kText = 0, kImage = 1;  // spaces of the loop

  // Error as InterleaveTask's.
  InterleaveModel(Runtime& runtime, const InterleaveOptions& options);

  std::int64_t max_tokens() const { return max_tokens_; }
  std::int64_t max_images() const { return max_images_; }
  // Of the longest text, or of an image, if that is longer.
  const VocabularyGrammar& longest() const { return longest_; }
  VocabularyGrammar text_grammar(std::int64_t tokens) const;
  // Rows that a turn's prompt may have.
  std::int64_t prompt_rows() const { return prompt_rows_; }
  // Of all turns of an answer, so that one loop writes them. Error kUsage as image_dist()'s.
  LoopNeeds needs_of_answer(const Ids& question, const InterleaveRequest& request) const;

  // Images stand in it as so many placeholders. Error kUsage, E_PROMPT_...
  Ids question(const InterleaveRequest& request) const;
  // After load(): ids in place of those.
  void see(const InterleaveRequest& request, Ids& question) const;
  // Error kUsage for processors that name no code.
  DistributionSettings image_dist(const SettingValues& chosen) const;
  const TextTokenizer& tokenizer() const { return *prompts_.tokenizer(); }
  // Ids that end an answer; the begin of an image, and what follows it in every prompt; the joint
  // id of each id of an image's stream.
  const Ids& ends() const { return ends_; }
  const Ids& opening() const { return opening_; }
  const Ids& joint() const { return joint_; }
  // Of a turn's prompt, what an image after it is guided apart by: its images alone. Empty where that
  // is what the other branch has, or where the model guides by one figure.
  Ids images_of(const Ids& prompt, const Ids& unconditional) const;
  // Their share of the other branch: u + i (m - u) + g (c - m) is o + g (c - o) with
  // o = (1 - share) u + share m.
  double images_share(const DistributionSettings& dist) const;

  ImageFacts facts_of(const InterleaveRequest& request, const DistributionSettings& dist) const;
  // An image's stream as a draft model is asked for it; one without ids where there is none.
  DraftRequest draft_of(const Ids& prompt, const Ids& unconditional,
                        const DistributionSettings& dist) const;

  void load() override;
  const PassModel& tokens() const override { return share_->tokens(); }
  LoopParts parts() const override { return text_parts_->parts(); }
  void add_spaces(StreamLoop& loop) override;
  StreamLimits limits(const LoopNeeds& needs) const override;
  ErrorInfo no_room(const LoopNeeds& needs) const override;
  // While answers with these needs are written.
  MemoryPlan plan_answers(LoopNeeds needs) const;

 private:
  struct Opened {
    OpenedModel model;
    std::string name, open_name;
  };
  static Opened open_mixed(const GenerateOptions& options);
  InterleaveModel(Runtime& runtime, const InterleaveOptions& options, Opened opened);
  std::int64_t logit_ids() const override { return config().vocab + config().codes; }
  void check_draft() const;
  // Rows that prompts of an answer's turns have at most where its question has `rows`.
  std::int64_t answer_rows(std::int64_t rows) const;

  std::unique_ptr<CaptionModel> seen_;  // where questions have images
  std::int64_t max_tokens_, max_images_, prompt_rows_ = 0;
  VocabularyGrammar longest_;
  DecodeMethod text_method_;
  DecodeAids text_aids_;
  std::unique_ptr<OwnedParts<float, KeyedRandom>> text_parts_;
  Ids ends_, opening_, joint_;
  Ids of_images_;  // sorted: ids of images, their begins and ends, and the begin of a prompt
};

}  // namespace tessera
