// The task "complete": prompts to texts, drafted as one likes. What is written for a prompt depends
// on the prompt, the settings and the seed alone.
//
//   Runtime runtime;
//   CompleteTask task(runtime, options);
//   runtime.finish(task.submit(requests, listener));
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/runtime/caption_memory.h"
#include "apps/runtime/completion_model.h"
#include "apps/runtime/runtime.h"
#include "apps/runtime/written_text.h"
#include "engine/core/setting.h"
#include "engine/decoding/decode_method.h"
#include "engine/decoding/meters.h"

namespace tessera {

struct CompleteOptions {
  std::string model;          // as resolve_model() takes it: a folder or a .gguf file
  std::string chat_template;  // a file in place of the model's; empty = the model's
  std::string device = "auto";
  CudaOptions cuda;
  int threads = 0;               // 0 = one per core
  std::optional<DType> storage;  // empty = CompletionModel::stored()
  std::int64_t batch_size = 1;   // texts at once; fewer where memory does not last
  bool all_slots = false;        // requests come one by one: room for all slots at first
  std::int64_t max_tokens = 256;
  DecodeMethod method;  // texts keep their distribution
  std::string draft;    // a model that drafts, for methods of the drafter "model"; empty = none
};

struct CompleteRequest {
  std::string prompt;
  std::optional<std::string> negative_prompt = {};  // the second branch, under guidance alone
  bool chat = false;                                // prompts are questions of a conversation
  std::vector<ChatTurn> turns = {};                 // a conversation in the place of the prompt
  std::int64_t max_tokens = 0;  // at most CompleteOptions::max_tokens; 0 = so many
  SettingValues sampling = {};  // greedy without guidance unless given
  std::uint64_t seed = 0;       // half of the key of what is sampled
  std::optional<std::uint64_t> number = {};  // the other half; none = its place
  std::vector<std::string> stop = {};  // the text ends before the first of them
  std::int64_t logprobs = kNoLogprobs;  // likeliest ids of each token that are listed, with its own
};

struct Completion {
  std::size_t number = 0;  // of its request
  bool failed = false;
  ErrorInfo error;
  std::string text;
  bool cut_short = false;  // max_tokens were written
  bool stopped_by_text = false;  // one of CompleteRequest::stop ended it
  std::int64_t prompt_tokens = 0, tokens = 0, passes = 0;
  std::int64_t reused_tokens = 0;  // of the prompt, those that another text had cached
  double first_seconds = 0, seconds = 0;  // to the first token, to the last one
  std::vector<TextToken> listed;  // tokens of the text, where log probabilities are asked for
  DecodeMeters meters;
};

class CompleteListener {
 public:
  virtual ~CompleteListener() = default;
  // Tokens of what on_text() says next, where log probabilities are asked for.
  virtual void on_listed(std::size_t /*number*/, std::span<const TextToken> /*tokens*/) {}
  // More of a text, as tokens are committed; all of it before on_completion().
  virtual void on_text(std::size_t /*number*/, std::string_view /*more*/) {}
  virtual void on_completion(Completion&& completion) = 0;
  virtual void on_notice(std::string_view /*text*/) {}
  // Asked between passes. kStop: texts at work are dropped.
  virtual Flow on_pass() { return Flow::kContinue; }
  virtual void on_over(bool /*finished*/) {}
};

class CompleteTask {
 public:
  // Opens and checks the model's files; reads no weights. The runtime is borrowed. Error kModel;
  // kUsage for settings that contradict one another or the model.
  CompleteTask(Runtime& runtime, const CompleteOptions& options);
  ~CompleteTask();
  CompleteTask(CompleteTask&&) noexcept;

  const CompletionModel& model() const;
  const std::string& model_name() const;
  const std::vector<std::string>& model_notes() const;  // ModelReference::notes
  const DecodeMethod& method() const;
  DType storage() const;
  const Backend& backend() const;

  // Error kUsage for a request that cannot be: as of submit(), and of its prompts.
  void check(const CompleteRequest& request) const;
  // What is held at most while it is written, all slots taken by the like of it. Error as check().
  CaptionMemoryPlan plan(const CompleteRequest& request) const;
  // Error kMemory (E_MEMORY_PLAN) when not even a short text of its kind fits.
  void check_memory(const CompleteRequest& request) const;

  // Texts of the requests, in the order in which they end. The listener is borrowed until the
  // submission is over. A prompt that is too long is one failed text. Error kUsage for settings of
  // a request that contradict one another or the model.
  Ticket submit(std::vector<CompleteRequest> requests, CompleteListener& listener);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
