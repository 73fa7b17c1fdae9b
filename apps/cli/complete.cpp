// `tessera complete`: a text model continues prompts, or answers them as a chat.
#include <CLI/CLI.hpp>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "apps/cli/commands.h"
#include "apps/cli/devices.h"
#include "apps/cli/draft_flags.h"
#include "apps/cli/flags.h"
#include "apps/cli/folder_keys.h"
#include "apps/cli/logprobs_flag.h"
#include "apps/cli/sampling_flags.h"
#include "apps/cli/session.h"
#include "apps/cli/setting_flags.h"
#include "apps/runtime/caption_method.h"
#include "apps/runtime/caption_settings.h"
#include "apps/runtime/complete_task.h"
#include "apps/runtime/logprobs_json.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/decoding/loop_settings.h"
#include "engine/sampling/sampling_settings.h"

namespace tessera {

namespace {

constexpr std::size_t kMaxPromptFile = std::size_t{64} << 20;

struct CompleteFlags {
  std::string model;
  std::vector<std::string> prompts;
  std::optional<std::string> prompt_file, negative_prompt, chat_template, draft;
  bool chat = false;
  SettingValues decode, loop;
  std::int64_t batch_size = 8, seed = 0;
  std::optional<std::int64_t> logprobs;
  std::int64_t max_tokens = truncate<std::int64_t>(*setting::kMaxTokens.fallback);
  SettingValues sampling;
  DeviceFlags device;
};

// One prompt a line: as it stands, or of a .jsonl the text of "prompt".
void read_prompts(const std::string& file, std::vector<std::string>& out) {
  const std::string text = read_file(file, kMaxPromptFile, ErrorKind::kUsage);
  const bool objects = file.ends_with(".jsonl");
  std::size_t number = 1;
  for (std::size_t at = 0; at < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (!objects) {
      out.push_back(std::move(line));
      continue;
    }
    const std::string place = file + ", line " + std::to_string(number);
    const Json json = parse_json(line, place, {.kind = ErrorKind::kUsage});
    const JsonReader reader(json, place, "", ErrorKind::kUsage);
    constexpr std::string_view kKeys[] = {"prompt"};
    reader.only(kKeys);
    out.push_back(reader.string("prompt"));
  }
}

std::vector<CompleteRequest> requests_of(const CompleteFlags& flags, std::uint64_t seed) {
  std::vector<std::string> prompts = flags.prompts;
  if (flags.prompt_file) read_prompts(*flags.prompt_file, prompts);
  if (prompts.empty()) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_FLAG_MISSING",
                 .where = "--prompt",
                 .expected = "a prompt, or a --prompt-file with one a line",
                 .found = "none"});
  }
  std::vector<CompleteRequest> out;
  for (std::string& prompt : prompts) {
    out.push_back({.prompt = std::move(prompt),
                   .negative_prompt = flags.negative_prompt,
                   .chat = flags.chat,
                   .sampling = flags.sampling,
                   .seed = seed,
                   .logprobs = flags.logprobs.value_or(kNoLogprobs)});
  }
  return out;
}

bool draws(const CompleteFlags& flags) { return flags.sampling.number(setting::kTemperature) > 0; }

std::uint64_t settle_seed(const CompleteFlags& flags) {
  if (flags.seed >= 0) return narrow<std::uint64_t>(flags.seed);
  std::random_device device;
  const std::uint64_t high = device();
  return (high << 32 | device()) & narrow<std::uint64_t>(kMaxSeed);
}

CompleteOptions options_of(const CompleteFlags& flags, std::size_t prompts) {
  CompleteOptions options;
  options.model = flags.model;
  options.chat_template = flags.chat_template.value_or("");
  options.device = flags.device.device;
  options.cuda = cuda_choice(flags.device);
  options.threads = narrow<int>(flags.device.threads);
  options.storage = storage_choice(flags.device);
  options.batch_size = std::min(flags.batch_size, to_index(prompts));
  options.max_tokens = flags.max_tokens;
  options.draft = flags.draft.value_or("");
  SettingValues decode = flags.decode;
  decode.fill(flags.loop);
  options.method = text_method(decode, flags.draft.has_value(), flags.max_tokens);
  return options;
}

// Prints one text as it grows, several in the order of their prompts, JSON lines as they end.
class CompletionPrinter final : public CompleteListener {
 public:
  CompletionPrinter(const Session& session, std::span<const CompleteRequest> requests,
                    std::optional<std::uint64_t> seed)
      : session_(session), requests_(requests), seed_(seed) {}

  void on_text(std::size_t, std::string_view more) override {
    if (session_.json || requests_.size() > 1) return;
    print_text(more);
  }
  void on_completion(Completion&& completion) override {
    if (completion.failed) {
      ++failed_;
      code_ = static_cast<int>(completion.error.kind);
    }
    if (session_.json) return print_json(completion);
    waiting_.emplace(completion.number, std::move(completion));
    for (auto at = waiting_.find(next_); at != waiting_.end(); at = waiting_.find(++next_)) {
      print(at->second);
      waiting_.erase(at);
    }
  }
  void on_notice(std::string_view text) override { warn(session_, text); }
  Flow on_pass() override { return session_.stop_requested() ? Flow::kStop : Flow::kContinue; }
  void on_over(bool finished) override { finished_ = finished; }

  int exit_code() const {
    if (!finished_) return session_.stop_exit_code();
    if (failed_ == 0) return 0;
    return failed_ == requests_.size() ? code_ : 3;
  }

 private:
  void print_json(const Completion& completion) const {
    nlohmann::ordered_json out = {{"id", completion.number + 1},
                                  {"prompt", requests_[completion.number].prompt}};
    if (completion.failed) {
      out["error"] = error_json(completion.error);
      return print_json_line(out);
    }
    out["text"] = completion.text;
    if (requests_[completion.number].logprobs != kNoLogprobs) {
      out["logprobs"] = logprobs_json(completion.listed);
    }
    out["ended"] = completion.cut_short ? "max-tokens" : "stop";
    out["prompt_tokens"] = completion.prompt_tokens;
    out["tokens"] = completion.tokens;
    out["passes"] = completion.passes;
    if (seed_) out["seed"] = *seed_;
    out["first_seconds"] = completion.first_seconds;
    out["seconds"] = completion.seconds;
    print_json_line(out);
  }
  void print(const Completion& completion) const {
    if (completion.failed) {
      return warn(session_,
                  (requests_.size() > 1 ? "prompt " + std::to_string(completion.number + 1) + ": "
                                        : std::string()) +
                      format_error(completion.error));
    }
    if (requests_.size() > 1) print_line("--- " + std::to_string(completion.number + 1));
    if (requests_.size() > 1) print_text(completion.text);
    print_line("");
    note(session_, std::to_string(completion.tokens) + " tokens in " +
                       std::to_string(completion.passes) + " passes");
  }

  const Session& session_;
  std::span<const CompleteRequest> requests_;
  std::optional<std::uint64_t> seed_;
  std::map<std::size_t, Completion> waiting_;
  std::size_t next_ = 0, failed_ = 0;
  int code_ = 0;
  bool finished_ = false;
};

int run_complete(const Session& session, const CompleteFlags& flags) {
  check_logprobs_flag(session, flags.logprobs, false);
  const std::uint64_t seed = settle_seed(flags);
  const std::vector<CompleteRequest> requests = requests_of(flags, seed);
  Runtime runtime;
  CompleteTask task(runtime, options_of(flags, requests.size()));
  warn_of_keys(session, task.model().text().account.get());
  for (const std::string& text : task.model_notes()) {
    warn(session, task.model_name() + ": " + text);
  }
  note(session, task.model().spec().title + " as " + std::string(dtype_name(task.storage())) +
                    " on " + task.backend().name());
  if (flags.seed < 0 && draws(flags)) warn(session, "seed " + std::to_string(seed));
  CompletionPrinter printer(session, requests, draws(flags) ? std::optional(seed) : std::nullopt);
  runtime.finish(task.submit(requests, printer));
  return printer.exit_code();
}

}  // namespace

void add_complete(CLI::App& root, Session& session) {
  CLI::App* app = root.add_subcommand("complete", "continue a text, or answer it as a chat");
  const auto flags = std::make_shared<CompleteFlags>();
  app->add_option("model", flags->model, "a folder of a text model, a .gguf file, or a name that `tessera models` lists")
      ->required();
  app->add_option("-p,--prompt", flags->prompts, "a text to continue; several: several texts")
      ->allow_extra_args(false);
  text_flag(*app, "--prompt-file", flags->prompt_file,
            "one prompt a line; of a .jsonl the text of \"prompt\"");
  text_flag(*app, "-n,--negative-prompt", flags->negative_prompt,
            "what guidance (--cfg-scale) leads away from");
  app->add_flag("--chat", flags->chat, "prompts are questions, written by the chat template");
  text_flag(*app, "--chat-template", flags->chat_template,
            "a Jinja template in place of the model's own");
  setting_flag(*app, setting::kMaxTokens, flags->max_tokens);
  integer_flag(*app, "-s,--seed", flags->seed, -1, kMaxSeed,
               "of texts that are drawn; -1 = random, and recorded");
  integer_flag(*app, "--batch-size", flags->batch_size, 1, 256, "texts written at once");
  logprobs_flag(*app, flags->logprobs);
  add_sampling_flags(*app, Door::kCaption, flags->sampling);
  add_text_decode_flags(*app, flags->decode);
  add_loop_flags(*app, flags->loop);
  text_draft_flag(*app, flags->draft);
  add_device_flags(*app, flags->device);
  add_common_flags(*app, session);
  app->callback([&session, flags] {
    session.run = [&session, flags] { return run_complete(session, *flags); };
  });
}

}  // namespace tessera
