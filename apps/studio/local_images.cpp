#include "apps/studio/local_images.h"

#include <thread>

#include "apps/runtime/memory.h"
#include "engine/core/dtype.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

GenerateOptions generate_options(const GeneratorOptions& options, const GenerateSettings& settings) {
  GenerateOptions out;
  out.model = settings.model.empty() ? options.model : settings.model;
  out.device = options.device;
  out.cuda = options.cuda;
  out.threads = options.threads;
  out.storage = settings.storage ? settings.storage : options.storage;
  out.width = settings.width;
  out.height = settings.height;
  out.method = settings.method;
  // A recorded draft model counts only as far as the method still asks for one.
  if (needs_of(out.method).draft_model) out.draft_model = settings.draft_model;
  return out;
}

bool same_task(const GenerateOptions& a, const GenerateOptions& b) {
  return a.model == b.model && a.storage == b.storage && a.width == b.width &&
         a.height == b.height && a.method == b.method && a.draft_model == b.draft_model;
}

}  // namespace

LocalImages::LocalImages(GeneratorOptions options, EventQueue& events)
    : options_(std::move(options)),
      events_(events),
      videos_(events, {.program = options_.video_helper}) {}

void LocalImages::make(const GenerateJob& job, Generation& generation, StopRequest& stop_request) {
  try {
    const GenerateOptions wanted = generate_options(options_, job.settings);
    if (videos_.writes(wanted.model)) {
      task_.reset();  // one model at a time
      loaded_ = false;
      videos_.write(wanted, job, generation, stop_request);
    } else {
      videos_.close();
      run_task(job, generation, stop_request);
    }
    if (generation.error.kind == ErrorKind::kModel) close();
  } catch (const Error& error) {
    const ErrorKind kind = error.info().kind;
    if (!loaded_ || (kind != ErrorKind::kUsage && kind != ErrorKind::kStorage)) close();
    throw;
  } catch (...) {
    close();
    throw;
  }
}

void LocalImages::close() {
  task_.reset();
  videos_.close();
}

void LocalImages::open_for(const GenerateSettings& settings) {
  GenerateOptions wanted = generate_options(options_, settings);
  if (task_ && same_task(opened_, wanted)) return;
  task_.reset();  // before the new one: both together may not fit
  loaded_ = false;
  task_ = std::make_unique<GenerateTask>(runtime_, wanted);
  opened_ = std::move(wanted);
}

void LocalImages::run_task(const GenerateJob& job, Generation& generation,
                           StopRequest& stop_request) {
  open_for(job.settings);
  const std::vector<PreparedRequest> requests = {
      task_->prepare({job.settings.prompt, job.settings.negative_prompt, job.settings.sampling,
                      job.settings.seed})};
  const StreamModelConfig& config = task_->spec().model;
  generation.facts = requests.front().facts;
  generation.grid_rows = config.grid_rows;
  generation.grid_columns = config.grid_cols;
  const MemoryPlan plan = task_->plan(requests);
  // Once loaded, most of the plan is there already and no longer free.
  if (!loaded_) check_memory(plan, task_->model_name());
  const auto cores = narrow<int>(std::thread::hardware_concurrency());
  const int threads = options_.threads > 0 ? options_.threads : cores;
  events_.push(GeneratorEvent{task_->backend().name() + ", " + std::to_string(threads) +
                                (threads == 1 ? " thread" : " threads"),
                            task_->model_name(), std::string(dtype_name(task_->storage())),
                            plan.total()});
  task_->load();
  loaded_ = true;
  generation.state = GenerateState::kGeneration;
  tell(generation);
  GenerateWatch watch(generation, stop_request, *task_, [this](const Generation& now) { tell(now); });
  task_->run(requests, watch);
  finish(job, generation, watch.image());
}

void LocalImages::finish(const GenerateJob& job, Generation& generation, GeneratedImage& image) {
  generation.facts = image.facts;
  generation.seconds = image.seconds;
  generation.acceptance = image.meters.acceptance();
  generation.rows_done = image.rows_done;
  if (image.status == ImageStatus::kFailed) {
    generation.error = image.error;
    return;
  }
  const bool partial = image.status == ImageStatus::kStopped;
  if (!image.image.rgb.empty()) {
    generation.image = std::make_shared<const Image>(std::move(image.image));
    generation.image_rows = image.rows_done;
    generation.image_is_rough = false;
    generation.file = save_generation(job.folder, *generation.image, generation.facts, partial);
  }
  generation.state = partial ? GenerateState::kStopped : GenerateState::kDone;
}

}  // namespace tessera
