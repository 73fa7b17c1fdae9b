// One run of the generate pipeline: requests flow through the slots of a loop, images leave as they
// are finished, and a listener hears of all of it.
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <span>
#include <vector>

#include "apps/runtime/code_patches.h"
#include "apps/runtime/generate_pipeline.h"
#include "engine/decoding/stream_loop.h"
#include "tokenizers/visual/visual_tokenizer.h"

namespace tessera {

class GenerateRun final : public StreamListener {
 public:
  struct Tools {
    StreamLoop& loop;
    ModelDrafter* drafter;    // told of every image; may be null
    const ImageDraft* draft;  // whose drafter it is
    const VocabularyGrammar& grammar;
    const VisualTokenizer& vq;
    CodePatches& patches;  // learns from images where traces are wanted
    bool pixels_apart;     // pixels have a stream and a thread of their own
  };

  GenerateRun(const Tools& tools, std::span<const PreparedRequest> requests,
              GenerateListener& listener);

  // Returns false when the listener stopped it.
  bool run();

  void on_pass(const StreamPass& pass) override;
  void on_done(std::size_t slot, StreamResult&& result) override;

 private:
  // An image at work.
  struct Work {
    std::size_t index = 0;  // of its request
    bool begun = false;     // false = the slot is free
    bool prefilled = false;
    double began = 0;
    // Seconds of passes are shared among the images in them.
    PhaseSeconds phases;
    PassTimes times;              // behind its prefill
    std::int64_t shown_rows = 0;  // in the last preview
  };
  struct PendingPreview {
    GenerateProgress progress;
    std::future<std::vector<Image>> images;
  };

  void fill();
  void count(const StreamPass& pass);
  GenerateProgress progress_of(const StreamPass& pass) const;
  void tell_traces(const StreamPass& pass, const GenerateProgress& progress);
  bool preview_due(const StreamPass& pass, const GenerateProgress& progress);
  void preview(const StreamPass& pass, const GenerateProgress& progress);
  void show_preview();
  void emit(const Work& work, StreamResult&& result);
  Image to_image(const Tensor& pixels) const;
  // The streams of a pass, in the order of their requests.
  void sort_views(const StreamPass& pass);
  int rows() const { return static_cast<int>(tools_.grammar.rows); }
  int cols() const { return static_cast<int>(tools_.grammar.columns); }
  // Whole rows of codes among the first `tokens` tokens of a stream.
  std::int64_t rows_among(std::size_t tokens) const {
    return static_cast<std::int64_t>(tools_.grammar.codes_among(tokens)) / cols();
  }

  Tools tools_;
  std::span<const PreparedRequest> requests_;
  GenerateListener& listener_;
  bool traced_;
  Flow flow_ = Flow::kContinue;
  double started_, step_began_ = 0;
  std::size_t next_ = 0, over_ = 0;                 // requests: begun, finished
  std::int64_t over_tokens_ = 0, over_passes_ = 0;  // of those that are finished
  std::int64_t passes_ = 0;
  std::vector<Work> work_;                 // by slot
  std::vector<StreamView> views_;          // of the pass, by request
  std::vector<TokenMark> grid_;            // of all views
  std::optional<PendingPreview> pending_;  // last: its thread reads what stands above
};

}  // namespace tessera
