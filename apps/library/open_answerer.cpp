// A model that writes texts and images in turn.
#include <nlohmann/json.hpp>

#include "apps/library/images.h"
#include "apps/library/named_settings.h"
#include "apps/library/task_options.h"
#include "apps/library/tasks.h"
#include "apps/runtime/caption_settings.h"
#include "apps/runtime/interleave_task.h"
#include "apps/runtime/output_settings.h"
#include "engine/core/index.h"
#include "engine/sampling/sampling_settings.h"

namespace tessera {

namespace {

class AnswerForwarder final : public Forwarder, public InterleaveListener {
 public:
  explicit AnswerForwarder(api::AnswerCallbacks callbacks) : callbacks_(std::move(callbacks)) {}

  void on_text(std::size_t, std::string_view more) override {
    if (!silent() && callbacks_.on_text) callbacks_.on_text(more);
  }
  void on_image(std::size_t, AnswerImage&& made) override {
    if (silent() || !callbacks_.on_image) return;
    callbacks_.on_image({.image = public_image(std::move(made.image)),
                         .tokens = made.facts.tokens,
                         .passes = made.facts.passes,
                         .record = facts_json(made.facts).dump()});
  }
  void on_notice(std::string_view text) override {
    if (!silent() && callbacks_.on_notice) callbacks_.on_notice(text);
  }
  Flow on_pass() override {
    const bool stops = silent() || (callbacks_.on_progress && !callbacks_.on_progress());
    return stops ? Flow::kStop : Flow::kContinue;
  }
  void on_answer(Interleaved&& made) override {
    if (silent()) return;
    if (made.failed) return report_error(callbacks_.on_error, made.error);
    if (made.stopped || !callbacks_.on_answer) return;
    callbacks_.on_answer({.text = std::move(made.text),
                          .cut_short = made.cut_short,
                          .prompt_tokens = made.prompt_tokens,
                          .tokens = made.text_tokens,
                          .images = made.images,
                          .passes = made.passes});
  }
  void on_over(bool) override { end(); }

 private:
  api::AnswerCallbacks callbacks_;
};

InterleaveRequest internal_answer(const api::AnswerRequest& request) {
  check_seed(request.seed);
  return {
      .prompt = request.prompt,
      .sampling = read_settings(request.settings, api::Task::kAnswer, api::SettingPlace::kRequest),
      .seed = request.seed};
}

class OpenAnswerer final : public OpenTask {
 public:
  OpenAnswerer(Runtime& runtime, const InterleaveOptions& options)
      : OpenTask(runtime),
        task_(runtime, options),
        slots_(options.generate.all_slots ? to_size(options.generate.batch_size) : 1) {}

  api::ModelInfo info() const override {
    api::ModelInfo out = model_info(api::Task::kAnswer, task_.spec(), task_.model_name(),
                                    task_.backend(), task_.storage(), task_.method());
    out.width = task_.spec().image_width();
    out.height = task_.spec().image_height();
    return out;
  }

  api::MemoryPlan plan(const api::AnswerRequest& request) const override {
    return public_plan(plan_of(internal_answer(request), slots_));
  }

  Ticket submit(const api::AnswerRequest& request, api::AnswerCallbacks callbacks) override {
    std::vector<InterleaveRequest> requests{internal_answer(request)};
    const MemoryPlan plan = plan_of(requests.front(), 1);
    // Once its weights are there, the lane says what fits.
    if (!planned_) check_memory(plan, task_.model_name());
    planned_ = true;
    return keep(std::make_unique<AnswerForwarder>(std::move(callbacks)),
                [&](InterleaveListener& to) { return task_.submit(std::move(requests), to); });
  }

 private:
  // Of so many of it at once.
  MemoryPlan plan_of(const InterleaveRequest& request, std::size_t slots) const {
    task_.check(request);
    return task_.plan(std::vector<InterleaveRequest>(slots, request));
  }

  InterleaveTask task_;
  std::size_t slots_;
  bool planned_ = false;  // a request was found to fit
};

std::vector<GroupRows> answer_settings(api::SettingPlace place) {
  if (place == api::SettingPlace::kRequest) return {with_door(sampling_group(), Door::kGenerate)};
  std::vector<GroupRows> out = method_rows(Door::kGenerate);
  out.push_back(with_door(output_group("Size"), Door::kGenerate));
  out.push_back({&caption_group(), {&setting::kMaxTokens}});
  out.push_back({&output_group("Output"), {&setting::kMaxImages}});
  return out;
}

std::unique_ptr<OpenTask> open_answerer(Runtime& runtime, const Installation& place,
                                        const std::string& model, const api::OpenOptions& options) {
  if (model.empty()) {
    refuse_setting("name", "the folder or name of a model that does so, as none is bundled",
                   "nothing");
  }
  SettingValues settings =
      read_settings(options.settings, api::Task::kAnswer, api::SettingPlace::kOpen);
  InterleaveOptions out;
  if (settings.has(setting::kMaxTokens)) out.max_tokens = settings.integer(setting::kMaxTokens);
  if (settings.has(setting::kMaxImages)) out.max_images = settings.integer(setting::kMaxImages);
  for (const Setting* row : {&setting::kMaxTokens, &setting::kMaxImages}) settings.clear(*row);
  out.generate = generating_options(place, model, options, settings);
  return std::make_unique<OpenAnswerer>(runtime, out);
}

}  // namespace

constinit const TaskRow kAnswerTask{.task = api::Task::kAnswer,
                                    .does = "answers with texts and images",
                                    .reads = {},
                                    .settings = answer_settings,
                                    .open = open_answerer};

}  // namespace tessera
