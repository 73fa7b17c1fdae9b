// Text (or a class number) to pictures: opens a model, checks requests against it before any weight
// is read, loads once, then paints any number of requests, batch_size at once: a request begins
// when a slot is free, its image leaves when it is finished. It depends on its own prompt, settings
// and seed alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/runtime/draft_model.h"
#include "apps/runtime/facts.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/model_catalog.h"
#include "engine/core/error.h"
#include "engine/decoding/decode_method.h"
#include "engine/decoding/stream.h"
#include "engine/families/open_model.h"
#include "engine/sampling/sampling_settings.h"
#include "vision/image/image.h"

namespace tessera {

class CodePatches;
class TextTokenizer;
class VisualTokenizer;

// Settings that are not given come from the model's own preset.
LawSettings settle_sampling(const SettingValues& chosen, const SamplingDefaults& preset);

struct PipelineOptions {
  std::string model;  // as resolve_model() takes it; empty = the bundled default
  std::string device = "auto";
  CudaOptions cuda;
  int threads = 0;                     // 0 = one per core
  std::optional<DType> storage;        // empty = as the checkpoint stores it
  std::int64_t batch_size = 1;         // pictures at once
  std::int64_t width = 0, height = 0;  // pixels; 0 = what the model does
  DecodeMethod method;                 // how tokens are found
  // Who guesses for drafter "model"; empty = whom the model's own folder names, if anybody.
  std::string draft_model;
};

struct GenerateRequest {
  std::string prompt;  // text, or a class number for class-conditional models
  std::optional<std::string> negative_prompt;
  SettingValues sampling;
  std::uint64_t seed = 0;
};

// A request with its prompt encoded and its settings settled.
struct PreparedRequest {
  Stream item;
  DraftRequest draft;  // the same for the draft model, if there is one
  PictureFacts facts;  // tokens and passes are filled when it was painted
};

// Seconds of one image: its share of the passes until its first token, of those behind it, and its
// codes to pixels.
struct PhaseSeconds {
  double prefill = 0, decode = 0, pixels = 0;
};

enum class PictureStatus : std::uint8_t { kDone, kStopped, kFailed };

struct GeneratedPicture {
  std::size_t index = 0;  // of the request
  PictureStatus status = PictureStatus::kDone;
  Image image;  // kDone: whole. kStopped: what rows_done rows show, if a preview was asked
  std::vector<std::int32_t> codes;  // row by row, without the control ids of the stream
  std::int64_t rows_done = 0;
  PictureFacts facts;
  double seconds = 0;  // of all phases
  DecodeMeters meters;
  PassTimes times;  // its share of the passes behind its prefill
  PhaseSeconds phases;
  ErrorInfo error;  // kFailed
};

struct GenerateProgress {
  std::size_t first = 0, pictures = 0;       // requests of the run: over, at work
  std::int64_t rows_done = 0, rows = 0;      // token rows, least advanced image at work
  std::int64_t tokens_done = 0, tokens = 0;  // of the streams at work
  std::int64_t passes = 0;                   // of the run
  double seconds = 0;                        // since it began
  // Of the run: tokens so far, and passes of every image, summed.
  std::int64_t run_tokens = 0, picture_passes = 0;
};

// The fate of every code of a picture so far. The spans live during the call only.
struct PictureTrace {
  std::size_t index = 0;                    // of the request
  std::int64_t tokens = 0, passes = 0;      // that stand in order, so far
  std::int64_t rows_done = 0;               // whole rows of codes
  double seconds = 0;                       // since it began
  std::span<const TokenMark> marks;         // [grid rows * columns], row by row
  std::span<const std::int32_t> committed;  // tokens by pass, from pass 1; control ids count
};

// What a caller may listen to. Called on the thread that runs the pipeline.
class GenerateListener {
 public:
  virtual ~GenerateListener() = default;
  // After each pass. kStop ends the run after this pass.
  virtual Flow on_progress(const GenerateProgress&) { return Flow::kContinue; }
  // Whether on_trace() is called; asked when a run begins.
  virtual bool wants_trace() const { return false; }
  // After each pass, before on_progress(): the images at work, in the order of their requests.
  virtual void on_trace(const GenerateProgress&, std::span<const PictureTrace>) {}
  // Token rows between two previews; 0 = none.
  virtual std::int64_t preview_rows() const { return 0; }
  // The images at work so far, as above; rows to come in their mean colour.
  virtual void on_preview(const GenerateProgress&, const std::vector<Image>&) {}
  // An image is finished, stopped or failed; in any order.
  virtual void on_picture(GeneratedPicture&&) {}
};

class GeneratePipeline {
 public:
  // Opens and checks the model's files; reads no weights. Error kModel; kUsage (E_GEOMETRY) when
  // the model cannot do options.width x options.height, (E_DECODE_...) when the method cannot run.
  explicit GeneratePipeline(const PipelineOptions& options);
  // The same for a model that is already open; `shown_name` is recorded in pictures.
  GeneratePipeline(const PipelineOptions& options, OpenedModel model, std::string shown_name);
  ~GeneratePipeline();
  GeneratePipeline(GeneratePipeline&&) noexcept;
  GeneratePipeline& operator=(GeneratePipeline&&) = delete;

  const ModelSpec& spec() const;
  const std::string& model_name() const;
  const DecodeMethod& method() const;  // settled
  // Which window an adaptive method settled on and why; empty otherwise.
  std::string window_report() const;
  DType storage() const;
  const Backend& backend() const;
  // Rough colours of the codes: the model's own, else learned from every picture that is painted
  // while a listener wants traces.
  const CodePatches& code_patches() const;

  // Encodes prompts and settles settings. Error kUsage: prompt too long (E_PROMPT_LENGTH), empty,
  // not UTF-8, no class of the model (E_CLASS), a negative prompt where there is none.
  PreparedRequest prepare(const GenerateRequest& request) const;

  // What run() will hold for these requests; `beside`: bytes that a model beside it takes.
  MemoryPlan memory_plan(std::span<const PreparedRequest> requests, std::size_t beside = 0) const;

  // Reads the weights (once; run() calls it if need be). Error kModel, kMemory.
  void load();

  // Puts a listener of the caller's making between every run() and whom it tells, for instance to
  // show pictures elsewhere too. It lives as long as the run.
  using Between = std::function<std::unique_ptr<GenerateListener>(
      GenerateListener& told, std::span<const PreparedRequest> requests)>;
  void listen_in(Between between);

  // Paints all requests, options.batch_size at once; they begin in order. Returns false when the
  // listener stopped it.
  bool run(std::span<const PreparedRequest> requests, GenerateListener& listener);

  // Gives back what the last run held beside weights: cache and buffers. The next one makes its
  // own.
  void give_back();

  // Code rows and columns to pixels, for instance of a picture decoded elsewhere. Needs load().
  Image decode_codes(std::span<const std::int32_t> codes) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
