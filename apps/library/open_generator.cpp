// Models that generate images or videos.
#include <nlohmann/json.hpp>

#include "apps/library/images.h"
#include "apps/library/named_settings.h"
#include "apps/library/task_options.h"
#include "apps/library/tasks.h"
#include "apps/runtime/generate_task.h"
#include "apps/runtime/output_settings.h"
#include "apps/runtime/video_task.h"
#include "engine/core/index.h"
#include "engine/decoding/decode_settings.h"
#include "engine/sampling/sampling_settings.h"

namespace tessera {

namespace {

class ImageForwarder final : public Forwarder, public GenerateListener {
 public:
  // `interval`: grid rows between two partial images; 0 = none.
  ImageForwarder(api::ImageCallbacks callbacks, std::int64_t interval)
      : callbacks_(std::move(callbacks)), interval_(callbacks_.on_partial ? interval : 0) {}

  Flow on_progress(const GenerateProgress& progress) override {
    if (silent() || !callbacks_.on_progress) return Flow::kContinue;
    const bool goes_on = callbacks_.on_progress({.tokens_done = progress.tokens_done,
                                                 .tokens = progress.tokens,
                                                 .passes = progress.passes,
                                                 .seconds = progress.seconds});
    return goes_on ? Flow::kContinue : Flow::kStop;
  }

  std::int64_t preview_rows() const override { return interval_; }
  void on_preview(const GenerateProgress&, const std::vector<Image>& images) override {
    for (const Image& image : images) {
      if (!silent()) callbacks_.on_partial(partials_++, public_image(Image(image)));
    }
  }

  void on_image(GeneratedImage&& made) override {
    if (silent()) return;
    if (made.status == ImageStatus::kFailed) return report_error(callbacks_.on_error, made.error);
    if (made.status != ImageStatus::kDone || !callbacks_.on_image) return;
    callbacks_.on_image({.image = public_image(std::move(made.image)),
                         .prompt_tokens = made.prompt_tokens,
                         .tokens = made.facts.tokens,
                         .passes = made.facts.passes,
                         .seconds = made.seconds,
                         .record = facts_json(made.facts).dump()});
  }

  void on_over(bool) override { end(); }

 private:
  api::ImageCallbacks callbacks_;
  std::int64_t interval_, partials_ = 0;
};

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

// What both kinds have in common: facts of the model, memory that is checked once.
template <typename Task>
class OpenGenerator : public OpenTask {
 public:
  OpenGenerator(Runtime& runtime, const GenerateOptions& options)
      : OpenTask(runtime),
        task_(runtime, options),
        slots_(options.all_slots ? to_size(options.batch_size) : 1) {}

 protected:
  const Task& task() const { return task_; }
  // What so many requests need as the lane holds at once.
  template <typename Prepared>
  api::MemoryPlan plan_slots(const Prepared& prepared) const {
    return public_plan(task().plan(std::vector<Prepared>(slots_, prepared)));
  }
  Task& task() { return task_; }
  api::ModelInfo info_of(api::Task kind) const {
    api::ModelInfo out = model_info(kind, task_.spec(), task_.model_name(), task_.backend(),
                                    task_.storage(), task_.method());
    out.width = task_.spec().image_width();
    out.height = task_.spec().image_height();
    out.notes = model_notes(task_.spec().account.get());
    return out;
  }
  // `plan()` of the first request; once weights are there, the lane says what fits.
  template <typename Plan>
  void check_first(const Plan& plan) {
    if (!planned_) check_memory(plan(), task_.model_name());
    planned_ = true;
  }

 private:
  Task task_;
  std::size_t slots_;
  bool planned_ = false;
};

class OpenImages final : public OpenGenerator<GenerateTask> {
 public:
  using OpenGenerator::OpenGenerator;
  api::ModelInfo info() const override { return info_of(api::Task::kImage); }

  api::MemoryPlan plan(const api::ImageRequest& request) const override {
    return plan_slots(prepare(request));
  }

  Ticket submit(const api::ImageRequest& request, api::ImageCallbacks callbacks) override {
    std::vector<PreparedRequest> prepared;
    prepared.push_back(prepare(request));
    check_first([&] { return task().plan(prepared); });
    // The last of equal parts is the whole image.
    const std::int64_t parts = request.partial_images + 1, rows = task().spec().model.grid_rows;
    const std::int64_t interval = parts > 1 ? (rows + parts - 1) / parts : 0;
    return keep(std::make_unique<ImageForwarder>(std::move(callbacks), interval),
                [&](GenerateListener& to) { return task().submit(std::move(prepared), to); });
  }

 private:
  PreparedRequest prepare(const api::ImageRequest& request) const {
    check_seed(request.seed);
    constexpr std::int64_t kMaxPartials = 64;
    if (request.partial_images < 0 || request.partial_images > kMaxPartials) {
      refuse_setting("partial_images", "an integer from 0 to " + std::to_string(kMaxPartials),
                     std::to_string(request.partial_images));
    }
    return task().prepare(
        {request.prompt, request.negative_prompt,
         read_settings(request.settings, api::Task::kImage, api::SettingPlace::kRequest),
         request.seed});
  }
};

class OpenVideos final : public OpenGenerator<VideoTask> {
 public:
  using OpenGenerator::OpenGenerator;
  api::ModelInfo info() const override {
    api::ModelInfo out = info_of(api::Task::kVideo);
    out.frames = task().own_frames();
    out.rate = task().rate();
    out.max_first_frames = task().max_first_frames();
    return out;
  }

  api::MemoryPlan plan(const api::VideoRequest& request) const override {
    return plan_slots(prepare(request));
  }

  Ticket submit(const api::VideoRequest& request, api::VideoCallbacks callbacks) override {
    PreparedVideo prepared = prepare(request);
    check_first([&] { return task().plan(prepared); });
    return keep(std::make_unique<VideoForwarder>(std::move(callbacks), task().rate()),
                [&](VideoListener& to) {
                  std::vector<VideoOrder> orders;
                  orders.push_back({.video = std::move(prepared), .listener = &to});
                  return task().submit(std::move(orders));
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
    return task().prepare(std::move(out));
  }
};

template <typename Open>
std::unique_ptr<OpenTask> open_generator(Runtime& runtime, const Installation& place,
                                         const std::string& model, api::Task task,
                                         const api::OpenOptions& options) {
  const SettingValues settings = read_settings(options.settings, task, api::SettingPlace::kOpen);
  return std::make_unique<Open>(runtime, generating_options(place, model, options, settings));
}

std::unique_ptr<OpenTask> open_images(Runtime& runtime, const Installation& place,
                                      const std::string& model, const api::OpenOptions& options) {
  return open_generator<OpenImages>(runtime, place,
                                    model.empty() ? std::string(kDefaultModel) : model,
                                    api::Task::kImage, options);
}

std::unique_ptr<OpenTask> open_videos(Runtime& runtime, const Installation& place,
                                      const std::string& model, const api::OpenOptions& options) {
  return open_generator<OpenVideos>(runtime, place,
                                    model.empty() ? std::string(kDefaultVideoModel) : model,
                                    api::Task::kVideo, options);
}

std::vector<GroupRows> image_settings(api::SettingPlace place) {
  if (place == api::SettingPlace::kRequest) return {with_door(sampling_group(), Door::kGenerate)};
  std::vector<GroupRows> out = method_rows(Door::kGenerate);
  out.push_back(with_door(output_group("Size"), Door::kGenerate));
  return out;
}

std::vector<GroupRows> video_settings(api::SettingPlace place) {
  if (place == api::SettingPlace::kOpen) return method_rows(Door::kVideo);
  return {with_door(sampling_group(), Door::kVideo),
          {&output_group("Video"), {&setting::kFrames, &setting::kContinue}}};
}

}  // namespace

constinit const TaskRow kImageTask{.task = api::Task::kImage,
                                   .does = "generates images",
                                   .reads = {.text_encoder = true},
                                   .settings = image_settings,
                                   .open = open_images};
constinit const TaskRow kVideoTask{.task = api::Task::kVideo,
                                   .does = "generates videos",
                                   .reads = {.text_encoder = true},
                                   .settings = video_settings,
                                   .open = open_videos};

}  // namespace tessera
