// The task "interleave": an answer of texts and images in turn, by a model whose one vocabulary has
// both. Each turn is a stream of its own over the token space it writes: its prompt is all that was
// written before, so that the other branch of an image sees what the family says and no text. What
// is written depends on prompt, settings and seed alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/core/setting.h"
#include "engine/decoding/stream_loop.h"
#include "engine/families/model_spec.h"
#include "vision/image/image.h"

namespace tessera {

struct InterleaveOptions {
  std::string model;  // as resolve_model() takes it
  std::string device = "auto";
  CudaOptions cuda;
  int threads = 0;                     // 0 = one per core
  std::optional<DType> storage;        // empty = as the checkpoint stores it
  std::int64_t width = 0, height = 0;  // pixels of images; 0 = what the model does
  std::int64_t max_tokens = 512;       // of text, of all turns together
  std::int64_t max_images = 4;
};

struct InterleaveRequest {
  std::string prompt;
  SettingValues sampling;  // of images; the temperature is that of texts, too
  std::uint64_t seed = 0;
};

class InterleaveListener {
 public:
  virtual ~InterleaveListener() = default;
  // Asked between passes. kStop ends the answer.
  virtual Flow on_pass() { return Flow::kContinue; }
  // More of the text, as tokens are committed.
  virtual void on_text(std::string_view /*more*/) {}
  // The image that stands after the text so far. Codes row by row.
  virtual void on_image(Image&& image, std::span<const std::int32_t> codes) = 0;
};

struct Interleaved {
  std::vector<std::int32_t> ids;  // of the joint vocabulary, after the prompt's
  std::string text;               // of all turns
  std::int64_t text_tokens = 0, images = 0;
  bool cut_short = false;  // max_tokens, max_images or the model's positions were reached
  bool stopped = false;    // by the listener
};

class InterleaveTask {
 public:
  // Opens and checks the model's files; reads no weights. Error kModel; kUsage (E_INTERLEAVE) for a
  // model that does not write both.
  explicit InterleaveTask(const InterleaveOptions& options);
  ~InterleaveTask();

  const ModelSpec& spec() const;
  const std::string& model_name() const;
  DType storage() const;
  const Backend& backend() const;

  // Loads the weights at the first call. Error kUsage for a prompt that is too long or no text; of
  // a broken number among the logits as a stream's.
  Interleaved run(const InterleaveRequest& request, InterleaveListener& listener);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
