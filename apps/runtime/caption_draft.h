// A second captioner that drafts texts for the first: opened and checked against it, asked the same
// question about the same images in its own words, its visual tokens pruned as one likes. The
// texts stay the first one's: what the second is or sees changes passes alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "apps/runtime/describe_options.h"
#include "apps/runtime/draft_model.h"
#include "apps/runtime/image_prompt.h"
#include "apps/runtime/verifier_watch.h"
#include "engine/decoding/stream_loop.h"

namespace tessera {

// What is asked about the images of a text.
struct DescribeQuestion {
  ChatQuestion prompt;
  std::optional<ChatQuestion> without_images;  // of the second branch, under guidance
};

// What a drafter has room for.
struct DraftRoom {
  std::int64_t prompt_rows = 1;
  bool guided = false;
};

// The draft's side of one text. Lives until the text is done.
struct PreparedDraft {
  ImagePrompt prompt;  // its rows are in the stream
  DraftStreamItem stream;
  double seconds = 0;  // that it took to prepare
  // For a draft whose visual tokens are chosen once the target has read its prompt.
  std::vector<VisualRows> visual;
  std::vector<std::int32_t> ids;
  // Of the longest branch.
  std::int64_t rows() const {
    std::int64_t most = 1;
    for (const StreamPrompt& branch : stream.branches) most = std::max(most, branch.length());
    return most;
  }
  std::int64_t kept_tokens() const { return count_tokens(prompt.kept()); }
};

class CaptionDraft final : public DraftModel {
 public:
  // Both must outlive the draft. The target itself may be chosen: its weights are shared then.
  // Error kUsage: E_DRAFT_VOCABULARY, naming both models and the first difference, unless size,
  // tokens and special tokens of the two vocabularies are the same; E_PRUNE_... for a method that
  // the draft cannot serve; E_TEXT_LENGTH for texts longer than its positions. kModel for a bad
  // model.
  static std::unique_ptr<CaptionDraft> open(const DraftChoice& choice, CaptionModel& target,
                                            const std::string& target_name,
                                            std::int64_t max_tokens);

  // How images are prepared for it; null when it sees none.
  const DescribeSpec* image_spec() const { return choice_.blind ? nullptr : &model_->describe(); }

  // Reads the weights; once. Without a storage as the checkpoint has them.
  void load(Backend& backend, std::optional<DType> storage);
  // The same question for the draft, to be written as `text` is: its distribution, stops, length,
  // seed and number. Error as make_image_prompt(); kGeneral E_PRUNE_PICTURE where target and draft
  // have other numbers of visual tokens. The watch must outlive the text.
  std::unique_ptr<PreparedDraft> prepare(const DescribeQuestion& question,
                                         std::span<const PreprocessedImage> images,
                                         const Stream& text, VerifierWatch* watch = nullptr) const;
  // Whether its visual tokens are chosen by what the target looks at: prepare() needs a watch over
  // the target's prompt then, of images of as many tokens.
  bool verified() const;

  // A drafter for a loop of these limits. Error kMemory.
  std::unique_ptr<ModelDrafter> make_drafter(const StreamLimits& limits, const DraftRoom& room);
  // Cache and buffers of such a drafter.
  std::size_t bytes(const Backend& backend, const StreamLimits& limits,
                    const DraftRoom& room) const;
  // Of weights that load() reads: none where the target drafts for itself.
  std::size_t weight_bytes(const Backend& backend, std::optional<DType> storage) const;
  // Tells the drafter made last of a text in a slot of the loop.
  void set_stream(std::size_t slot, PreparedDraft& prepared);

 private:
  explicit CaptionDraft(std::string name) : DraftModel(std::move(name)) {}
  const TokenModel& model() override { return model_->text(); }
  const ModelConfig& transformer() const override { return model_->spec().model.transformer; }
  std::int64_t logit_ids() const override { return model_->spec().model.vocab; }
  std::size_t scratch_bytes(std::int64_t rows, const Backend& backend) const override {
    return Transformer::scratch_bytes(transformer(), rows, backend);
  }
  void choose_by(VerifierWatch& watch, PreparedDraft& prepared, std::uint64_t seed,
                 std::uint64_t item) const;

  std::unique_ptr<CaptionModel> opened_;  // null when the target drafts for itself
  CaptionModel* model_ = nullptr;
  DraftChoice choice_;
  std::unique_ptr<Pruner> pruner_;
  ModelDrafter* drafter_ = nullptr;  // made last, owned by who asked for it
};

}  // namespace tessera
