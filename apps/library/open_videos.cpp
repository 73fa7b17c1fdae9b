// A model that generates videos.
#include <nlohmann/json.hpp>

#include "apps/library/images.h"
#include "apps/library/named_settings.h"
#include "apps/library/open_task.h"
#include "apps/library/task_options.h"
#include "apps/runtime/model_catalog.h"
#include "apps/runtime/output_settings.h"
#include "apps/runtime/video_task.h"

namespace tessera {

namespace {

class VideoForwarder final : public Forwarder, public VideoListener {
 public:
  VideoForwarder(api::VideoCallbacks callbacks, std::int64_t rate)
      : callbacks_(std::move(callbacks)), rate_(rate) {}

  Flow on_progress(const VideoProgress& progress) override {
    if (silent() || !callbacks_.on_progress) return Flow::kContinue;
    const bool goes_on = callbacks_.on_progress({.tokens_done = progress.tokens_done,
                                                 .tokens = progress.tokens,
                                                 .frames_done = progress.frames_done,
                                                 .frames = progress.frames,
                                                 .passes = progress.passes,
                                                 .seconds = progress.seconds});
    return goes_on ? Flow::kContinue : Flow::kStop;
  }

  void on_frame(std::int64_t index, const Image& frame) override {
    if (!silent() && callbacks_.on_frame) callbacks_.on_frame(index, public_image(Image(frame)));
  }

  void on_over(GeneratedVideo&& made) override {
    end();
    if (silent()) return;
    if (made.status == ImageStatus::kFailed) return report_error(callbacks_.on_error, made.error);
    if (!callbacks_.on_video) return;
    callbacks_.on_video({.stopped = made.status == ImageStatus::kStopped,
                         .frames = made.frames,
                         .first_frames = made.first_frames,
                         .rate = rate_,
                         .tokens = made.facts.tokens,
                         .passes = made.facts.passes,
                         .seconds = made.seconds,
                         .record = facts_json(made.facts).dump()});
  }

 private:
  api::VideoCallbacks callbacks_;
  std::int64_t rate_;
};

class OpenVideos final : public OpenTask {
 public:
  OpenVideos(Runtime& runtime, const GenerateOptions& options)
      : OpenTask(runtime), task_(runtime, options) {}

  api::ModelInfo info() const override {
    const ModelSpec& spec = task_.spec();
    return {.task = api::Task::kVideo,
            .name = task_.model_name(),
            .family = spec.family,
            .title = spec.title,
            .licence = spec.licence,
            .device = task_.backend().name(),
            .dtype = std::string(dtype_name(task_.storage())),
            .method = task_.method().name,
            .width = spec.image_width(),
            .height = spec.image_height(),
            .frames = task_.own_frames(),
            .rate = task_.rate(),
            .max_first_frames = task_.max_first_frames()};
  }

  api::MemoryPlan plan(const api::VideoRequest& request) const override {
    return public_plan(task_.plan(prepare(request)));
  }

  Ticket submit(const api::VideoRequest& request, api::VideoCallbacks callbacks) override {
    PreparedVideo prepared = prepare(request);
    // Once its weights are there, the lane says what fits.
    if (!planned_) check_memory(task_.plan(prepared), task_.model_name());
    planned_ = true;
    return keep(std::make_unique<VideoForwarder>(std::move(callbacks), task_.rate()),
                [&](VideoListener& to) {
                  std::vector<VideoOrder> orders;
                  orders.push_back({.video = std::move(prepared), .listener = &to});
                  return task_.submit(std::move(orders));
                });
  }

 private:
  PreparedVideo prepare(const api::VideoRequest& request) const {
    check_seed(request.seed);
    SettingValues settings =
        read_settings(request.settings, api::Task::kVideo, api::SettingPlace::kRequest);
    VideoRequest out{.prompt = request.prompt,
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
    return task_.prepare(std::move(out));
  }

  VideoTask task_;
  bool planned_ = false;  // a request was found to fit
};

}  // namespace

std::unique_ptr<OpenTask> open_video_task(Runtime& runtime, const Installation& place,
                                          const std::string& model,
                                          const api::OpenOptions& options) {
  const SettingValues settings =
      read_settings(options.settings, api::Task::kVideo, api::SettingPlace::kOpen);
  return std::make_unique<OpenVideos>(
      runtime, generating_options(place, model.empty() ? std::string(kDefaultVideoModel) : model,
                                  options, settings));
}

}  // namespace tessera
