// What is asked of a model that generates images, what comes of it, and who hears of it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/runtime/draft_model.h"
#include "apps/runtime/facts.h"
#include "apps/runtime/submission.h"
#include "engine/backend/backend.h"
#include "engine/core/error.h"
#include "engine/decoding/decode_method.h"
#include "engine/decoding/stream.h"
#include "engine/families/open_model.h"
#include "engine/sampling/sampling_settings.h"
#include "vision/image/image.h"

namespace tessera {

// Settings that are not given come from the model's own preset.
DistributionSettings settle_sampling(const SettingValues& chosen, const SamplingDefaults& preset);

struct GenerateOptions {
  std::string model;  // as resolve_model() takes it; empty = the bundled default
  std::string device = "auto";
  CudaOptions cuda;
  int threads = 0;                     // 0 = one per core
  std::optional<DType> storage;        // empty = as the checkpoint stores it
  std::int64_t batch_size = 1;         // images at once
  bool all_slots = false;              // requests come one by one: room for all slots at first
  std::int64_t width = 0, height = 0;  // pixels; 0 = what the model does
  DecodeMethod method;                 // how tokens are found
  // The draft model of drafter "model"; empty = the one that the model's own folder names, if any.
  std::string draft_model;
  // Folder of the text encoder, for models that read such rows; empty = found with the model.
  std::string text_encoder = {};
};

struct GenerateRequest {
  std::string prompt;  // text, or a class number for class-conditional models
  std::optional<std::string> negative_prompt;
  SettingValues sampling;
  std::uint64_t seed = 0;
  std::optional<PromptExpansion> expansion = {};  // for the record
};

// A request with its prompt encoded and its settings settled.
struct PreparedRequest {
  Stream item;           // of a model that reads a text encoder's rows, the prompts are its ids yet
  DraftRequest draft;  // the same for the draft model, if there is one
  ImageFacts facts;    // tokens and passes are filled when it is done
};

// Room for one of it, and for a slot of each of several.
LoopNeeds room_for(const Stream& item, const DraftRequest& draft);
LoopNeeds room_for(std::span<const PreparedRequest> requests);

// Requests of a submission, one by one.
class GenerateSource {
 public:
  virtual ~GenerateSource() = default;
  // Room that its requests need sooner or later, as far as it is known.
  virtual LoopNeeds needs() const { return {}; }
  // The next one; none when none is ready. With kYes nothing else is to be done: it may block for a
  // moment. What it throws ends the submission.
  virtual std::optional<PreparedRequest> next(Wait wait) = 0;
  // Whether next() may give more, now or later.
  virtual bool more() const = 0;
};

// Seconds of one image: its share of the passes until its first token, of those after it, and its
// codes to pixels.
struct PhaseSeconds {
  double prefill = 0, decode = 0, pixels = 0;
};

enum class ImageStatus : std::uint8_t { kDone, kStopped, kFailed };

struct GeneratedImage {
  std::size_t index = 0;  // of the request within its submission
  ImageStatus status = ImageStatus::kDone;
  Image image;  // kDone: whole. kStopped: what rows_done rows show, if a preview was asked for
  std::vector<std::int32_t> codes;  // row by row, without the control ids of the stream
  std::int64_t rows_done = 0;
  ImageFacts facts;
  std::int64_t prompt_tokens = 0;  // rows of its prompt, of one branch
  double seconds = 0;              // of all phases
  DecodeMeters meters;
  PassTimes times;  // its share of the passes after its prefill
  PhaseSeconds phases;
  ErrorInfo error;  // kFailed
};

struct GenerateProgress {
  std::size_t first = 0, images = 0;       // requests of the submission: over, at work
  std::int64_t rows_done = 0, rows = 0;      // grid rows, least advanced image at work
  std::int64_t tokens_done = 0, tokens = 0;  // of the streams at work
  std::int64_t passes = 0;                   // with images of the submission in them
  double seconds = 0;                        // since it began
  // Of the submission: tokens so far, and passes of every image, summed.
  std::int64_t run_tokens = 0, image_passes = 0;
};

// The outcome of every code of an image so far. The spans live during the call only.
struct ImageTrace {
  std::size_t index = 0;                    // of the request
  const ImageFacts* facts = nullptr;        // of the request
  std::int64_t tokens = 0, passes = 0;      // committed in order, so far
  std::int64_t rows_done = 0;               // whole rows of codes
  double seconds = 0;                       // since it began
  std::span<const TokenMark> marks;         // [grid rows * columns], row by row
  std::span<const std::int32_t> committed;  // tokens by pass, from pass 1; control ids count
};

// What a caller may listen to. Called on the thread that steps the runtime. What a listener throws
// ends its submission, and is thrown by Runtime::step().
class GenerateListener {
 public:
  virtual ~GenerateListener() = default;
  // After each pass of the model. kStop ends the submission after this pass.
  virtual Flow on_progress(const GenerateProgress&) { return Flow::kContinue; }
  // Whether on_trace() is called; asked when a submission begins.
  virtual bool wants_trace() const { return false; }
  // After each pass, before on_progress(): the images at work, in the order of their requests.
  virtual void on_trace(const GenerateProgress&, std::span<const ImageTrace>) {}
  // Grid rows between two previews; 0 = none.
  virtual std::int64_t preview_rows() const { return 0; }
  // The images at work so far, as above; rows to come in their mean colour.
  virtual void on_preview(const GenerateProgress&, const std::vector<Image>&) {}
  // An image is finished, stopped or failed; in any order.
  virtual void on_image(GeneratedImage&&) {}
  // Nothing more is called. `whole`: all images are done or have failed.
  virtual void on_over(bool /*whole*/) {}
};

}  // namespace tessera
