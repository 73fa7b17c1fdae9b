// A model that generates images.
#include <nlohmann/json.hpp>

#include "apps/library/images.h"
#include "apps/library/named_settings.h"
#include "apps/library/open_task.h"
#include "apps/library/task_options.h"
#include "apps/runtime/generate_task.h"

namespace tessera {

namespace {

class ImageForwarder final : public Forwarder, public GenerateListener {
 public:
  explicit ImageForwarder(api::ImageCallbacks callbacks) : callbacks_(std::move(callbacks)) {}

  Flow on_progress(const GenerateProgress& progress) override {
    if (silent() || !callbacks_.on_progress) return Flow::kContinue;
    const bool goes_on = callbacks_.on_progress({.tokens_done = progress.tokens_done,
                                                 .tokens = progress.tokens,
                                                 .passes = progress.passes,
                                                 .seconds = progress.seconds});
    return goes_on ? Flow::kContinue : Flow::kStop;
  }

  void on_image(GeneratedImage&& made) override {
    if (silent()) return;
    if (made.status == ImageStatus::kFailed) return report_error(callbacks_.on_error, made.error);
    if (made.status != ImageStatus::kDone || !callbacks_.on_image) return;
    callbacks_.on_image({.image = public_image(std::move(made.image)),
                         .tokens = made.facts.tokens,
                         .passes = made.facts.passes,
                         .seconds = made.seconds,
                         .record = facts_json(made.facts).dump()});
  }

  void on_over(bool) override { end(); }

 private:
  api::ImageCallbacks callbacks_;
};

class OpenImages final : public OpenTask {
 public:
  OpenImages(Runtime& runtime, const GenerateOptions& options)
      : OpenTask(runtime), task_(runtime, options) {}

  api::ModelInfo info() const override {
    const ModelSpec& spec = task_.spec();
    return {.task = api::Task::kImage,
            .name = task_.model_name(),
            .family = spec.family,
            .title = spec.title,
            .licence = spec.licence,
            .device = task_.backend().name(),
            .dtype = std::string(dtype_name(task_.storage())),
            .method = task_.method().name,
            .width = spec.image_width(),
            .height = spec.image_height()};
  }

  api::MemoryPlan plan(const api::ImageRequest& request) const override {
    const PreparedRequest prepared = prepare(request);
    return public_plan(task_.plan({&prepared, 1}));
  }

  Ticket submit(const api::ImageRequest& request, api::ImageCallbacks callbacks) override {
    std::vector<PreparedRequest> prepared;
    prepared.push_back(prepare(request));
    // Once its weights are there, the lane says what fits.
    if (!planned_) check_memory(task_.plan(prepared), task_.model_name());
    planned_ = true;
    return keep(std::make_unique<ImageForwarder>(std::move(callbacks)),
                [&](GenerateListener& to) { return task_.submit(std::move(prepared), to); });
  }

 private:
  PreparedRequest prepare(const api::ImageRequest& request) const {
    check_seed(request.seed);
    return task_.prepare(
        {request.prompt, request.negative_prompt,
         read_settings(request.settings, api::Task::kImage, api::SettingPlace::kRequest),
         request.seed});
  }

  GenerateTask task_;
  bool planned_ = false;  // a request was found to fit
};

}  // namespace

std::unique_ptr<OpenTask> open_image_task(Runtime& runtime, const Installation& place,
                                          const std::string& model,
                                          const api::OpenOptions& options) {
  const SettingValues settings =
      read_settings(options.settings, api::Task::kImage, api::SettingPlace::kOpen);
  return std::make_unique<OpenImages>(
      runtime, generating_options(place, model.empty() ? std::string(kDefaultModel) : model,
                                  options, settings));
}

}  // namespace tessera
