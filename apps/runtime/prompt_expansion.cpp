#include "apps/runtime/prompt_expansion.h"

#include <algorithm>
#include <utility>

#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::int64_t kExpansionTokens = 160;
constexpr std::int64_t kExpansionsAtOnce = 8;
constexpr std::string_view kBlanks = " \t\r\n\v\f";

class Answers final : public CompleteListener {
 public:
  Answers(std::size_t count, const std::function<bool()>& stop) : answers_(count), stop_(stop) {}

  void on_completion(Completion&& completion) override {
    const std::size_t number = completion.number;
    answers_[number] = std::move(completion);
  }
  Flow on_pass() override { return stop_() ? Flow::kStop : Flow::kContinue; }
  void on_over(bool finished) override { finished_ = finished; }

  bool finished() const { return finished_; }
  const std::vector<Completion>& answers() const { return answers_; }

 private:
  std::vector<Completion> answers_;
  const std::function<bool()>& stop_;
  bool finished_ = false;
};

std::string single_blanks(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t from = text.find_first_not_of(kBlanks, at);
    if (from == std::string_view::npos) break;
    at = std::min(text.find_first_of(kBlanks, from), text.size());
    if (!out.empty()) out += ' ';
    out += text.substr(from, at - from);
  }
  return out;
}

ExpandedPrompt settle(const Completion& answer, const std::string& prompt,
                      const std::string& model) {
  const std::string where = "--expand-prompt, prompt " + std::to_string(answer.number + 1);
  if (answer.failed) {
    ErrorInfo error = answer.error;
    error.where = where;
    throw Error(std::move(error));
  }
  ExpandedPrompt out{expansion_of(answer.text, answer.cut_short), PromptExpansion{prompt, model}};
  if (out.text.empty()) {
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_EXPAND_EMPTY",
                 .where = where,
                 .expected = "an answer of " + model,
                 .found = "none",
                 .hint = "another model, or the prompt without --expand-prompt"});
  }
  return out;
}

}  // namespace

std::string expansion_question(std::string_view prompt) {
  return "Rewrite the description of an image that stands below as one vivid sentence of at most "
         "fifty words. Keep everything it names. Add colours, materials, light and surroundings. "
         "Answer with that sentence alone.\n\n" +
         std::string(prompt);
}

std::string expansion_of(std::string_view answer, bool cut_short) {
  std::string out = single_blanks(answer);
  if (cut_short) {
    const std::size_t end = out.find_last_of(".!?");
    if (end != std::string::npos) out.resize(end + 1);
  }
  if (out.size() >= 2 && out.front() == '"' && out.back() == '"') {
    out = out.substr(1, out.size() - 2);
  }
  return single_blanks(out);
}

std::optional<std::vector<ExpandedPrompt>> expand_prompts(CompleteOptions options,
                                                          std::span<const std::string> prompts,
                                                          const std::function<bool()>& stop) {
  options.max_tokens = kExpansionTokens;
  options.batch_size = std::min(kExpansionsAtOnce, std::ssize(prompts));
  std::vector<CompleteRequest> requests;
  for (const std::string& prompt : prompts) {
    requests.push_back({.prompt = expansion_question(prompt), .chat = true});
  }
  Runtime runtime;
  CompleteTask task(runtime, options);
  Answers answers(prompts.size(), stop);
  runtime.finish(task.submit(std::move(requests), answers));
  if (!answers.finished()) return std::nullopt;
  std::vector<ExpandedPrompt> out;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    out.push_back(settle(answers.answers()[i], prompts[i], task.model_name()));
  }
  return out;
}

}  // namespace tessera
