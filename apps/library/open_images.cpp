// A model that generates images.
#include <nlohmann/json.hpp>

#include "apps/library/images.h"
#include "apps/library/named_settings.h"
#include "apps/library/open_task.h"
#include "apps/library/queue_lane.h"
#include "apps/library/task_options.h"

namespace tessera {

namespace {

class ImageForwarder final : public GenerateListener {
 public:
  ImageForwarder(const api::ImageCallbacks& callbacks, const bool& cancelled)
      : callbacks_(callbacks), cancelled_(cancelled) {}

  Flow on_progress(const GenerateProgress& progress) override {
    const bool goes_on =
        !callbacks_.on_progress || callbacks_.on_progress({.tokens_done = progress.tokens_done,
                                                           .tokens = progress.tokens,
                                                           .passes = progress.passes,
                                                           .seconds = progress.seconds});
    return goes_on && !cancelled_ ? Flow::kContinue : Flow::kStop;
  }

  void on_picture(GeneratedPicture&& made) override {
    if (made.status == PictureStatus::kFailed) return report_error(callbacks_.on_error, made.error);
    if (made.status != PictureStatus::kDone || !callbacks_.on_image) return;
    callbacks_.on_image({.image = public_image(std::move(made.image)),
                         .tokens = made.facts.tokens,
                         .passes = made.facts.passes,
                         .seconds = made.seconds,
                         .record = facts_json(made.facts).dump()});
  }

 private:
  const api::ImageCallbacks& callbacks_;
  const bool& cancelled_;
};

class ImageTask final : public OpenTask {
 public:
  ImageTask(Runtime& runtime, const PipelineOptions& options)
      : pipeline_(options), lane_(runtime) {}

  api::ModelInfo info() const override {
    const ModelSpec& spec = pipeline_.spec();
    return {.task = api::Task::kImage,
            .name = pipeline_.model_name(),
            .family = spec.family,
            .title = spec.title,
            .licence = spec.licence,
            .device = pipeline_.backend().name(),
            .dtype = std::string(dtype_name(pipeline_.storage())),
            .method = pipeline_.method().name,
            .width = spec.image_width(),
            .height = spec.image_height()};
  }

  api::MemoryPlan plan(const api::ImageRequest& request) const override {
    const PreparedRequest prepared = prepare(request);
    return public_plan(pipeline_.memory_plan({&prepared, 1}));
  }

  Ticket submit(const api::ImageRequest& request, api::ImageCallbacks callbacks) override {
    PreparedRequest prepared = prepare(request);
    check_memory(pipeline_.memory_plan({&prepared, 1}), pipeline_.model_name());
    return lane_.submit([this, prepared = std::move(prepared),
                         callbacks = std::move(callbacks)](const bool& cancelled) {
      ImageForwarder forwarder(callbacks, cancelled);
      pipeline_.run({&prepared, 1}, forwarder);
    });
  }

 private:
  PreparedRequest prepare(const api::ImageRequest& request) const {
    check_seed(request.seed);
    return pipeline_.prepare(
        {request.prompt, request.negative_prompt,
         read_settings(request.settings, api::Task::kImage, api::SettingPlace::kRequest),
         request.seed});
  }

  GeneratePipeline pipeline_;
  AttachedLane lane_;
};

}  // namespace

std::unique_ptr<OpenTask> open_image_task(Runtime& runtime, const Installation& place,
                                          const std::string& model,
                                          const api::OpenOptions& options) {
  const SettingValues settings =
      read_settings(options.settings, api::Task::kImage, api::SettingPlace::kOpen);
  return std::make_unique<ImageTask>(
      runtime, generating_options(place, model.empty() ? std::string(kDefaultModel) : model,
                                  options, settings));
}

}  // namespace tessera
