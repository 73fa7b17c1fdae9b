// A model that writes texts.
#include "apps/library/named_settings.h"
#include "apps/library/task_options.h"
#include "apps/library/tasks.h"
#include "apps/runtime/caption_settings.h"
#include "apps/runtime/complete_task.h"
#include "engine/sampling/sampling_settings.h"

namespace tessera {

namespace {

class CompleteForwarder final : public Forwarder, public CompleteListener {
 public:
  explicit CompleteForwarder(api::CompleteCallbacks callbacks) : callbacks_(std::move(callbacks)) {}

  void on_listed(std::size_t, std::span<const TextToken> tokens) override {
    if (!silent() && callbacks_.on_tokens) callbacks_.on_tokens(public_tokens(tokens));
  }
  void on_text(std::size_t, std::string_view more) override {
    if (!silent() && callbacks_.on_text) callbacks_.on_text(more);
  }
  void on_notice(std::string_view text) override {
    if (!silent() && callbacks_.on_notice) callbacks_.on_notice(text);
  }
  Flow on_pass() override {
    const bool stops = silent() || (callbacks_.on_progress && !callbacks_.on_progress());
    return stops ? Flow::kStop : Flow::kContinue;
  }
  void on_completion(Completion&& made) override {
    if (silent()) return;
    if (made.failed) return report_error(callbacks_.on_error, made.error);
    if (!callbacks_.on_completion) return;
    callbacks_.on_completion({.text = std::move(made.text),
                              .cut_short = made.cut_short,
                              .stopped_by_text = made.stopped_by_text,
                              .tokens = made.tokens,
                              .passes = made.passes,
                              .prompt_tokens = made.prompt_tokens,
                              .reused_tokens = made.reused_tokens,
                              .first_seconds = made.first_seconds,
                              .seconds = made.seconds,
                              .listed = public_tokens(made.listed)});
  }
  void on_over(bool) override { end(); }

 private:
  api::CompleteCallbacks callbacks_;
};

CompleteRequest internal_request(const api::CompleteRequest& request) {
  check_seed(request.seed);
  return {.prompt = request.prompt,
          .negative_prompt = request.negative_prompt,
          .chat = request.chat,
          .turns = internal_turns(request.turns),
          .max_tokens = request.max_tokens,
          .sampling =
              read_settings(request.settings, api::Task::kComplete, api::SettingPlace::kRequest),
          .seed = request.seed,
          .number = request.number,
          .stop = request.stop,
          .logprobs = request.logprobs};
}

class OpenCompleter final : public OpenTask {
 public:
  OpenCompleter(Runtime& runtime, const CompleteOptions& options)
      : OpenTask(runtime), task_(runtime, options) {}

  api::ModelInfo info() const override {
    api::ModelInfo out = model_info(api::Task::kComplete, task_.model().spec(), task_.model_name(),
                                    task_.backend(), task_.storage(), task_.method());
    out.notes = model_notes(task_.model().text().account.get(), task_.model_notes());
    return out;
  }

  api::MemoryPlan plan(const api::CompleteRequest& request) const override {
    return public_plan(task_.plan(internal_request(request)), task_.backend());
  }

  Ticket submit(const api::CompleteRequest& request, api::CompleteCallbacks callbacks) override {
    std::vector<CompleteRequest> requests{internal_request(request)};
    task_.check(requests.front());
    // Once its weights are there, the lane says what fits.
    if (!planned_) task_.check_memory(requests.front());
    planned_ = true;
    return keep(std::make_unique<CompleteForwarder>(std::move(callbacks)),
                [&](CompleteListener& to) { return task_.submit(std::move(requests), to); });
  }

 private:
  CompleteTask task_;
  bool planned_ = false;  // a request was found to fit
};

std::vector<GroupRows> complete_settings(api::SettingPlace place) {
  if (place == api::SettingPlace::kRequest) return {with_door(sampling_group(), Door::kCaption)};
  std::vector<GroupRows> out = text_decoding_rows();
  out.push_back({&caption_group(), {&setting::kMaxTokens}});
  return out;
}

std::unique_ptr<OpenTask> open_completer(Runtime& runtime, const Installation& place,
                                         const std::string& model,
                                         const api::OpenOptions& options) {
  if (model.empty()) {
    refuse_setting("name", "a text model's folder, .gguf file or name, as none is bundled",
                   "nothing");
  }
  SettingValues settings =
      read_settings(options.settings, api::Task::kComplete, api::SettingPlace::kOpen);
  auto out = open_with<CompleteOptions>(place, model, options);
  out.chat_template = options.chat_template.string();
  out.max_tokens = settings.integer(setting::kMaxTokens);
  TextDecoding decoding = take_text_decoding(settings, out.max_tokens);
  out.method = std::move(decoding.method);
  out.draft = place.model(decoding.draft);
  return std::make_unique<OpenCompleter>(runtime, out);
}

}  // namespace

constinit const TaskRow kCompleteTask{.task = api::Task::kComplete,
                                      .does = "completes texts",
                                      .reads = {.chat_template = true},
                                      .settings = complete_settings,
                                      .open = open_completer};

}  // namespace tessera
