// Requests for images as a submission of a lane: tokens become pixels, images leave as they are
// finished, and a listener hears of all of it.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "apps/runtime/code_patches.h"
#include "apps/runtime/generate_request.h"
#include "apps/runtime/pixel_decoder.h"
#include "engine/core/index.h"

namespace tessera {

class GenerateSubmission final : public Submission {
 public:
  struct Tools {
    const VocabularyGrammar& grammar;
    const PixelDecoder& pixels;
    CodePatches& patches;  // learns from images where traces are wanted
    // Notifies the draft model, if there is one, of the stream in a slot.
    std::function<void(std::size_t slot, const DraftRequest&)> announce;
  };
  // Asked when the first stream begins: before that there may be no weights.
  using MakeTools = std::function<Tools()>;
  // Makes rows of a stream's prompts where the model reads such; called before it has a slot.
  using MakeRows = std::function<void(Stream&)>;

  // `whole`, if there is one, becomes what on_over() says.
  GenerateSubmission(MakeTools make_tools, MakeRows make_rows,
                     std::unique_ptr<GenerateSource> source, GenerateListener& listener,
                     bool* whole);

  LoopNeeds needs() const override { return source_->needs(); }
  std::optional<NextStream> next(Wait wait) override;
  bool more() const override { return source_->more(); }
  Flow on_pass(const SubmissionPass& pass) override;
  std::optional<SlidingStream> on_done(std::size_t number, StreamResult&& result) override;
  void on_stopped(std::size_t number, StreamResult&& result) override;
  void on_over(const ErrorInfo* error) override;

 private:
  // An image at work, or about to be.
  struct Work {
    ImageFacts facts;
    std::int64_t prompt_tokens = 0;
    bool prefilled = false;
    double began = 0;
    // Seconds of passes are shared among the images in them.
    PhaseSeconds phases;
    PassTimes times;              // after its prefill
    std::int64_t shown_rows = 0;  // in the last preview
  };
  struct PendingPreview {
    GenerateProgress progress;
    std::future<std::vector<Image>> images;
  };

  const Tools& tools();
  void begin(std::size_t number, std::size_t slot, const DraftRequest& draft);
  void count(const SubmissionPass& pass);
  GenerateProgress progress_of(const SubmissionPass& pass);
  void notify_traces(const SubmissionPass& pass, const GenerateProgress& progress);
  bool preview_due(const SubmissionPass& pass, const GenerateProgress& progress);
  void preview(const SubmissionPass& pass, const GenerateProgress& progress);
  void show_preview();
  void emit(std::size_t number, StreamResult&& result);
  int rows() const { return tools_->pixels.rows(); }
  int cols() const { return tools_->pixels.columns(); }
  // Whole rows of codes among the first `tokens` tokens of a stream.
  std::int64_t rows_among(std::size_t tokens) const {
    return to_index(tools_->grammar.codes_among(tokens)) / cols();
  }

  MakeTools make_tools_;
  MakeRows make_rows_;
  std::optional<Tools> tools_;
  std::unique_ptr<GenerateSource> source_;
  GenerateListener& listener_;
  bool* whole_;
  bool traced_;
  Flow flow_ = Flow::kContinue;
  bool stopped_ = false;  // an image was stopped at work
  double started_;
  std::size_t next_ = 0, over_ = 0;                 // requests: begun, finished
  std::int64_t over_tokens_ = 0, over_passes_ = 0;  // of those that are finished
  GenerateProgress progress_;                       // of the last pass with images of it
  std::map<std::size_t, Work> work_;                // by request
  std::vector<TokenMark> grid_;                     // of all images at work
  std::optional<PendingPreview> pending_;
};

}  // namespace tessera
