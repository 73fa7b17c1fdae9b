// A model that generates videos.
#include <nlohmann/json.hpp>

#include "apps/library/images.h"
#include "apps/library/named_settings.h"
#include "apps/library/open_task.h"
#include "apps/library/queue_lane.h"
#include "apps/library/task_options.h"
#include "apps/runtime/output_settings.h"
#include "apps/runtime/video_pipeline.h"

namespace tessera {

namespace {

class VideoForwarder final : public ClipListener {
 public:
  VideoForwarder(const api::VideoCallbacks& callbacks, const bool& cancelled)
      : callbacks_(callbacks), cancelled_(cancelled) {}

  Flow on_progress(const ClipProgress& progress) override {
    const bool goes_on =
        !callbacks_.on_progress || callbacks_.on_progress({.tokens_done = progress.tokens_done,
                                                           .tokens = progress.tokens,
                                                           .frames_done = progress.frames_done,
                                                           .frames = progress.frames,
                                                           .passes = progress.passes,
                                                           .seconds = progress.seconds});
    return goes_on && !cancelled_ ? Flow::kContinue : Flow::kStop;
  }

  void on_frame(std::int64_t index, const Image& frame) override {
    if (callbacks_.on_frame) callbacks_.on_frame(index, public_image(Image(frame)));
  }

 private:
  const api::VideoCallbacks& callbacks_;
  const bool& cancelled_;
};

class VideoTask final : public OpenTask {
 public:
  VideoTask(Runtime& runtime, const PipelineOptions& options)
      : pipeline_(options), lane_(runtime) {}

  api::ModelInfo info() const override {
    const ModelSpec& spec = pipeline_.spec();
    return {.task = api::Task::kVideo,
            .name = pipeline_.model_name(),
            .family = spec.family,
            .title = spec.title,
            .licence = spec.licence,
            .device = pipeline_.backend().name(),
            .dtype = std::string(dtype_name(pipeline_.storage())),
            .method = pipeline_.method().name,
            .width = spec.image_width(),
            .height = spec.image_height(),
            .frames = pipeline_.own_frames(),
            .rate = pipeline_.rate(),
            .max_first_frames = pipeline_.most_first_frames()};
  }

  api::MemoryPlan plan(const api::VideoRequest& request) const override {
    return public_plan(pipeline_.memory_plan(prepare(request)));
  }

  Ticket submit(const api::VideoRequest& request, api::VideoCallbacks callbacks) override {
    PreparedClip prepared = prepare(request);
    check_memory(pipeline_.memory_plan(prepared), pipeline_.model_name());
    return lane_.submit([this, prepared = std::move(prepared),
                         callbacks = std::move(callbacks)](const bool& cancelled) {
      VideoForwarder forwarder(callbacks, cancelled);
      report(pipeline_.run(prepared, forwarder), callbacks, cancelled);
    });
  }

 private:
  PreparedClip prepare(const api::VideoRequest& request) const {
    check_seed(request.seed);
    SettingValues settings =
        read_settings(request.settings, api::Task::kVideo, api::SettingPlace::kRequest);
    ClipRequest out{.prompt = request.prompt,
                    .negative_prompt = request.negative_prompt,
                    .seed = request.seed,
                    .endless = request.endless,
                    .text_features = request.text_features.string()};
    out.frames = settings.has(setting::kFrames) ? settings.integer(setting::kFrames) : 0;
    if (settings.text(setting::kContinue) == "sinks") out.continuation = Continuation::kSinks;
    settings.clear(setting::kFrames);
    settings.clear(setting::kContinue);
    out.sampling = settings;
    for (std::size_t i = 0; i < request.first_frames.size(); ++i) {
      out.first_frames.push_back(
          internal_image(request.first_frames[i], "first frame " + std::to_string(i)));
    }
    return pipeline_.prepare(std::move(out));
  }

  void report(const GeneratedClip& made, const api::VideoCallbacks& callbacks,
              const bool& cancelled) const {
    if (made.status == PictureStatus::kFailed) return report_error(callbacks.on_error, made.error);
    if (cancelled || !callbacks.on_video) return;
    callbacks.on_video({.stopped = made.status == PictureStatus::kStopped,
                        .frames = made.frames,
                        .first_frames = made.first_frames,
                        .rate = pipeline_.rate(),
                        .tokens = made.facts.tokens,
                        .passes = made.facts.passes,
                        .seconds = made.seconds,
                        .record = facts_json(made.facts).dump()});
  }

  VideoPipeline pipeline_;
  AttachedLane lane_;
};

}  // namespace

std::unique_ptr<OpenTask> open_video_task(Runtime& runtime, const Installation& place,
                                          const std::string& model,
                                          const api::OpenOptions& options) {
  const SettingValues settings =
      read_settings(options.settings, api::Task::kVideo, api::SettingPlace::kOpen);
  return std::make_unique<VideoTask>(
      runtime, generating_options(place, model.empty() ? std::string(kDefaultClipModel) : model,
                                  options, settings));
}

}  // namespace tessera
