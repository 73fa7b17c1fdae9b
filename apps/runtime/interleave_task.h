// The task "interleave": answers of texts and images in turn, by a model whose one vocabulary has
// both. Each turn is a stream of its own over the token space it writes: its prompt is all that was
// written before, so that the other branch of an image sees what the family says and no text. What
// is written depends on prompt, settings and seed alone.
//
//   Runtime runtime;
//   InterleaveTask task(runtime, options);
//   runtime.finish(task.submit(requests, listener));
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/runtime/generate_request.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/runtime.h"
#include "engine/core/setting.h"
#include "vision/image/decoded_image.h"
#include "vision/image/image.h"

namespace tessera {

struct InterleaveOptions {
  // The method is that of images; texts follow where its drafts are trees, else they are written
  // token by token. A draft model has the vocabulary of its target. batch_size: answers at once.
  GenerateOptions generate;
  std::int64_t max_tokens = 512;  // of text, of all turns of an answer together
  std::int64_t max_images = 4;    // of an answer
  bool sees = false;              // questions may have images
};

struct InterleaveRequest {
  std::string prompt;
  std::vector<std::shared_ptr<const DecodedImage>> images = {};  // before it
  SettingValues sampling;  // of images; the temperature is that of texts, too
  std::uint64_t seed = 0;
};

// An image of an answer, when it is finished.
struct AnswerImage {
  Image image;
  std::vector<std::int32_t> codes;  // row by row
  ImageFacts facts;
};

struct Interleaved {
  std::size_t number = 0;  // of its request
  bool failed = false;
  ErrorInfo error;
  std::vector<std::int32_t> ids;  // of the joint vocabulary, after the prompt's
  std::string text;               // of all turns
  std::int64_t prompt_tokens = 0, text_tokens = 0, images = 0, passes = 0;
  bool cut_short = false;  // max_tokens, max_images or the model's positions were reached
  bool stopped = false;    // by the listener
};

class InterleaveListener {
 public:
  virtual ~InterleaveListener() = default;
  // Asked between passes. kStop ends all answers.
  virtual Flow on_pass() { return Flow::kContinue; }
  // More of a text, as tokens are committed.
  virtual void on_text(std::size_t /*number*/, std::string_view /*more*/) {}
  // The image that stands after the answer's text so far.
  virtual void on_image(std::size_t number, AnswerImage&& image) = 0;
  // An answer is over, in any order.
  virtual void on_answer(Interleaved&& /*answer*/) {}
  virtual void on_notice(std::string_view /*text*/) {}
  // Nothing more is called. `whole`: no answer was stopped.
  virtual void on_over(bool /*whole*/) {}
};

class InterleaveTask {
 public:
  // Opens and checks the model's files; reads no weights. The runtime is borrowed. Error kModel;
  // kUsage (E_INTERLEAVE) for a model that does not write both, and those of GenerateTask.
  InterleaveTask(Runtime& runtime, const InterleaveOptions& options);
  ~InterleaveTask();
  InterleaveTask(InterleaveTask&&) noexcept;

  const ModelSpec& spec() const;
  const std::string& model_name() const;
  const DecodeMethod& method() const;  // of images, settled
  DType storage() const;
  const Backend& backend() const;

  // Error kUsage: those of a request that would be one failed answer.
  void check(const InterleaveRequest& request) const;
  // What is held while these are answered.
  MemoryPlan plan(std::span<const InterleaveRequest> requests) const;
  // Answers begin in order, batch_size at once; the listener is borrowed until on_over(). A prompt
  // that cannot be answered is one failed answer.
  Ticket submit(std::vector<InterleaveRequest> requests, InterleaveListener& listener);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
