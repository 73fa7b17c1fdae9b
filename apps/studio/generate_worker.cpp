#include "apps/studio/generate_worker.h"

#include <new>

#include "apps/runtime/memory.h"
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

ErrorInfo unforeseen(ErrorKind kind, const char* code, const char* expected, std::string found) {
  return {.kind = kind,
          .code = code,
          .where = "generating",
          .expected = expected,
          .found = std::move(found)};
}

}  // namespace

GenerateWorker::GenerateWorker(GeneratorOptions options, EventQueue& events)
    : options_(std::move(options)),
      events_(events),
      videos_(events, {.program = options_.video_helper}),
      thread_([this] { work(); }) {}

GenerateWorker::~GenerateWorker() {
  end();
  thread_.join();
}

void GenerateWorker::end() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  jobs_.clear();
  stop_request_.stop_request(0);
  changed_.notify_all();
}

bool GenerateWorker::queue(std::vector<GenerateJob> jobs) {
  const std::lock_guard lock(mutex_);
  if (jobs_.size() + jobs.size() > kMaxQueued) return false;
  for (GenerateJob& job : jobs) jobs_.push_back(std::move(job));
  changed_.notify_all();
  return true;
}

bool GenerateWorker::drop(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  return std::erase_if(jobs_, [&](const GenerateJob& job) { return job.number == number; }) > 0;
}

void GenerateWorker::work() {
  while (true) {
    GenerateJob job;
    {
      std::unique_lock lock(mutex_);
      stop_request_.begin(0);
      changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
      if (ending_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
      stop_request_.begin(job.number);
    }
    generate(job);
  }
}

// The boundary of one image: what goes wrong with it fails it alone.
void GenerateWorker::generate(const GenerateJob& job) {
  Generation generation;
  generation.number = job.number;
  generation.settings = job.settings;
  generation.state = GenerateState::kLoading;
  tell(generation);
  bool sound = true;  // the task, for the next image
  try {
    const GenerateOptions wanted = generate_options(options_, job.settings);
    if (videos_.writes(wanted.model)) {
      task_.reset();  // one model at a time
      loaded_ = false;
      videos_.write(wanted, job, generation, stop_request_);
    } else {
      videos_.close();
      run_task(job, generation);
    }
  } catch (const Error& error) {
    generation.error = error.info();
    const ErrorKind kind = error.info().kind;
    sound = loaded_ && (kind == ErrorKind::kUsage || kind == ErrorKind::kStorage);
  } catch (const std::bad_alloc&) {
    sound = false;
    generation.error =
        unforeseen(ErrorKind::kMemory, "E_PAINT_MEMORY", "memory for the image", "none left");
  } catch (const std::exception& error) {
    sound = false;
    generation.error =
        unforeseen(ErrorKind::kGeneral, "E_PAINT", "an image", escape_for_terminal(error.what()));
  }
  if (!generation.error.code.empty()) {
    generation.state = GenerateState::kFailed;
    if (generation.error.kind == ErrorKind::kModel) {
      sound = false;
      events_.push(ProblemEvent{generation.error});
    }
  }
  if (!sound) {
    task_.reset();
    videos_.close();
  }
  generation.seconds_left = 0;
  tell(generation);
}

void GenerateWorker::open_for(const GenerateSettings& settings) {
  GenerateOptions wanted = generate_options(options_, settings);
  if (task_ && same_task(opened_, wanted)) return;
  task_.reset();  // before the new one: both together may not fit
  loaded_ = false;
  task_ = std::make_unique<GenerateTask>(runtime_, wanted);
  opened_ = std::move(wanted);
}

void GenerateWorker::run_task(const GenerateJob& job, Generation& generation) {
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
  GenerateWatch watch(generation, stop_request_, *task_, [this](const Generation& now) { tell(now); });
  task_->run(requests, watch);
  finish(job, generation, watch.image());
}

void GenerateWorker::finish(const GenerateJob& job, Generation& generation, GeneratedImage& image) {
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
