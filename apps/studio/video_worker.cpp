#include "apps/studio/video_worker.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "apps/runtime/memory.h"
#include "apps/runtime/model_catalog.h"
#include "apps/runtime/video_facts.h"
#include "apps/studio/settings.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/publish.h"
#include "video/frame_sink.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

bool same_video_task(const GenerateOptions& a, const GenerateOptions& b) {
  return a.model == b.model && a.storage == b.storage && a.width == b.width &&
         a.height == b.height && a.method == b.method && a.draft_model == b.draft_model;
}

// "{slug}_{seed}.mkv", with _2, _3 ... where that is taken.
fs::path free_name(const fs::path& folder, const ImageFacts& facts) {
  const std::string stem = image_slug(facts.prompt) + "_" + std::to_string(facts.seed);
  for (std::int64_t count = 1;; ++count) {
    const fs::path path =
        folder / (stem + (count == 1 ? "" : "_" + std::to_string(count)) + ".mkv");
    if (!file_exists(path)) return path;
  }
}

}  // namespace

struct VideoWatch::State {
  Generation& generation;
  StopRequest& stop_request;
  const VideoTask& task;
  std::string path;
  VideoProcessOptions process;
  std::function<void(const Generation&)> tell;
  PreviewBudget budget = PreviewBudget();
  std::unique_ptr<FrameSink> sink = nullptr;      // from the first frame on
  std::shared_ptr<const Image> newest = nullptr;  // frame
  std::int64_t grids = 0;                         // committed
  std::int64_t rows = 0;                          // of all grids, in previews
  std::int64_t preview_rows = 1;
  double preview_from = 0;  // seconds of the clock when a preview was about to be made

  std::int64_t grid_rows() const { return task.spec().model.grid_rows; }
  void put(std::int64_t index, const Image& frame);
};

VideoWatch::VideoWatch(Generation& generation, StopRequest& stop_request, const VideoTask& task, std::string path,
                       const VideoProcessOptions& process, std::function<void(const Generation&)> tell)
    : state_(std::make_unique<State>(
          State{generation, stop_request, task, std::move(path), process, std::move(tell)})) {}
VideoWatch::~VideoWatch() = default;

void VideoWatch::State::put(std::int64_t index, const Image& frame) {
  if (sink == nullptr) {
    const VideoTexts texts = video_texts(generation.facts, {{"fps", task.rate()}}, RecordFacts::kAll);
    ensure_output_folder(fs::path(path).parent_path());
    sink = open_frame_sink(path,
                           {.width = frame.width,
                            .height = frame.height,
                            .tick = {1, task.rate()},
                            .comment = texts.comment},
                           process);
  }
  sink->put(frame.rgb, index);
}

Flow VideoWatch::on_progress(const VideoProgress& progress) {
  State& state = *state_;
  Generation& generation = state.generation;
  const std::int64_t grid = state.task.tokens_of(1);
  const std::int64_t whole = state.grids * grid;
  const std::int64_t within = progress.tokens_done % grid;
  generation.facts.tokens = whole + within;
  generation.facts.passes = progress.passes;
  const bool between = within == 0 && state.grids > 0;  // a grid was just committed
  generation.rows_done = between ? state.grid_rows() : within * state.grid_rows() / grid;
  state.rows = state.grids * state.grid_rows() + within * state.grid_rows() / grid;
  generation.frames_done = progress.frames_done;
  generation.seconds = progress.seconds;
  if (progress.seconds > 0 && generation.facts.tokens > 0) {
    generation.tokens_per_second = to_double(generation.facts.tokens) / progress.seconds;
    const std::int64_t all = state.task.spec().video->grids_for(generation.frames) * grid;
    generation.seconds_left = to_double(std::max<std::int64_t>(all - generation.facts.tokens, 0)) /
                              generation.tokens_per_second;
  }
  state.tell(generation);
  const std::optional<std::int64_t> since = state.stop_request.asked(progress.passes);
  if (since) generation.passes_after_stop = *since;
  const bool allowed = state.budget.allows(state.rows, progress.seconds);
  state.preview_rows = allowed ? 1 : std::numeric_limits<std::int32_t>::max();
  state.preview_from = monotonic_seconds();
  return since ? Flow::kStop : Flow::kContinue;
}

std::int64_t VideoWatch::preview_rows() const { return state_->preview_rows; }

void VideoWatch::on_preview(const VideoProgress&, const Image& frame) {
  State& state = *state_;
  state.generation.image = std::make_shared<const Image>(frame);
  state.generation.image_rows = state.generation.rows_done;
  state.budget.count(state.rows, monotonic_seconds() - state.preview_from);
  state.generation.preview_seconds = state.budget.spent();
  state.tell(state.generation);
}

Flow VideoWatch::on_grid(const VideoGrid&) {
  ++state_->grids;
  return Flow::kContinue;
}

void VideoWatch::on_frame(std::int64_t index, const Image& frame) {
  State& state = *state_;
  state.put(index, frame);
  state.generation.image = state.newest = std::make_shared<const Image>(frame);
  state.generation.image_rows = state.grid_rows();
  state.generation.frames_done = index + 1;
}

// Whole frames are kept, also of a video that was stopped or failed.
void VideoWatch::on_over(GeneratedVideo&& video) {
  State& state = *state_;
  Generation& generation = state.generation;
  generation.facts = video.facts;
  generation.seconds = video.seconds;
  generation.acceptance = video.meters.acceptance();
  generation.frames_done = video.frames;
  generation.rows_done = generation.image_rows = video.frames > 0 ? state.grid_rows() : 0;
  generation.image = state.newest;  // not the grid that came
  generation.error = video.error;
  if (state.sink != nullptr) {
    if (!state.sink->finish(video.frames, Publish::kNew)) {
      throw Error({.kind = ErrorKind::kStorage,
                   .code = "E_OUTPUT_EXISTS",
                   .file = state.path,
                   .expected = "a name that is free",
                   .found = "a file of that name"});
    }
    generation.file = state.path;
  }
  generation.state = video.status == ImageStatus::kStopped ? GenerateState::kStopped : GenerateState::kDone;
}

bool VideoWorker::writes(const std::string& model) {
  if (model == asked_) return writes_;
  asked_ = model;
  writes_ = false;
  try {
    writes_ = open_model(resolve_model(model).open_name).spec.video.has_value();
  } catch (const Error&) {  // whoever opens it next tells
  }
  return writes_;
}

void VideoWorker::close() {
  task_.reset();
  runtime_.reset();
}

void VideoWorker::open_for(const GenerateOptions& options) {
  if (task_ != nullptr && same_video_task(opened_, options)) return;
  close();  // before the new one: both together may not fit
  runtime_ = std::make_unique<Runtime>();
  task_ = std::make_unique<VideoTask>(*runtime_, options);
  opened_ = options;
}

void VideoWorker::write(const GenerateOptions& options, const GenerateJob& job, Generation& generation,
                        StopRequest& stop_request) {
  const bool loaded = task_ != nullptr && same_video_task(opened_, options);
  open_for(options);
  VideoRequest request{.prompt = job.settings.prompt,
                       .negative_prompt = job.settings.negative_prompt,
                       .sampling = job.settings.sampling,
                       .seed = job.settings.seed,
                       .frames = job.settings.frames};
  PreparedVideo video = task_->prepare(std::move(request));
  const StreamModelConfig& config = task_->spec().model;
  generation.facts = video.facts;
  generation.grid_rows = config.grid_rows;
  generation.grid_columns = config.grid_cols;
  generation.frames = video.frames;
  const MemoryPlan plan = task_->plan(video);
  // Once loaded, most of the plan is there already and no longer free.
  if (!loaded) check_memory(plan, task_->model_name());
  const int cores = narrow<int>(std::thread::hardware_concurrency());
  const int threads = options.threads > 0 ? options.threads : cores;
  events_.push(GeneratorEvent{task_->backend().name() + ", " + std::to_string(threads) +
                                (threads == 1 ? " thread" : " threads"),
                            task_->model_name(), std::string(dtype_name(task_->storage())),
                            plan.total()});
  const auto tell = [this](const Generation& now) { events_.push(GenerationEvent{now}); };
  generation.state = GenerateState::kGeneration;
  tell(generation);
  VideoWatch watch(generation, stop_request, *task_, free_name(job.folder, video.facts).string(), process_,
                   tell);
  generate_video(*task_, std::move(video), watch);
}

}  // namespace tessera
