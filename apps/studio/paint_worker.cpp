#include "apps/studio/paint_worker.h"

#include <new>

#include "apps/runtime/memory.h"

namespace tessera {

namespace {

GenerateOptions generate_options(const PainterOptions& options, const PaintSettings& settings) {
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
          .where = "painting",
          .expected = expected,
          .found = std::move(found)};
}

}  // namespace

PaintWorker::PaintWorker(PainterOptions options, EventQueue& events)
    : options_(std::move(options)),
      events_(events),
      videos_(events, {.program = options_.clip_helper}),
      thread_([this] { work(); }) {}

PaintWorker::~PaintWorker() {
  end();
  thread_.join();
}

void PaintWorker::end() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  jobs_.clear();
  wish_.wish(0);
  changed_.notify_all();
}

bool PaintWorker::queue(std::vector<PaintJob> jobs) {
  const std::lock_guard lock(mutex_);
  if (jobs_.size() + jobs.size() > kMostQueued) return false;
  for (PaintJob& job : jobs) jobs_.push_back(std::move(job));
  changed_.notify_all();
  return true;
}

bool PaintWorker::drop(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  return std::erase_if(jobs_, [&](const PaintJob& job) { return job.number == number; }) > 0;
}

void PaintWorker::work() {
  while (true) {
    PaintJob job;
    {
      std::unique_lock lock(mutex_);
      wish_.begin(0);
      changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
      if (ending_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
      wish_.begin(job.number);
    }
    paint(job);
  }
}

// The boundary of one picture: what goes wrong with it fails it alone.
void PaintWorker::paint(const PaintJob& job) {
  Painting painting;
  painting.number = job.number;
  painting.settings = job.settings;
  painting.state = PaintState::kLoading;
  tell(painting);
  bool sound = true;  // the task, for the next image
  try {
    const GenerateOptions wanted = generate_options(options_, job.settings);
    if (videos_.writes(wanted.model)) {
      task_.reset();  // one model at a time
      loaded_ = false;
      videos_.write(wanted, job, painting, wish_);
    } else {
      videos_.close();
      run_task(job, painting);
    }
  } catch (const Error& error) {
    painting.error = error.info();
    const ErrorKind kind = error.info().kind;
    sound = loaded_ && (kind == ErrorKind::kUsage || kind == ErrorKind::kStorage);
  } catch (const std::bad_alloc&) {
    sound = false;
    painting.error =
        unforeseen(ErrorKind::kMemory, "E_PAINT_MEMORY", "memory for the picture", "none left");
  } catch (const std::exception& error) {
    sound = false;
    painting.error =
        unforeseen(ErrorKind::kGeneral, "E_PAINT", "a picture", escape_for_terminal(error.what()));
  }
  if (!painting.error.code.empty()) {
    painting.state = PaintState::kFailed;
    if (painting.error.kind == ErrorKind::kModel) {
      sound = false;
      events_.push(ProblemEvent{painting.error});
    }
  }
  if (!sound) {
    task_.reset();
    videos_.close();
  }
  painting.seconds_left = 0;
  tell(painting);
}

void PaintWorker::open_for(const PaintSettings& settings) {
  GenerateOptions wanted = generate_options(options_, settings);
  if (task_ && same_task(opened_, wanted)) return;
  task_.reset();  // before the new one: both together may not fit
  loaded_ = false;
  task_ = std::make_unique<GenerateTask>(runtime_, wanted);
  opened_ = std::move(wanted);
}

void PaintWorker::run_task(const PaintJob& job, Painting& painting) {
  open_for(job.settings);
  const std::vector<PreparedRequest> requests = {
      task_->prepare({job.settings.prompt, job.settings.negative_prompt, job.settings.sampling,
                      job.settings.seed})};
  const StreamModelConfig& config = task_->spec().model;
  painting.facts = requests.front().facts;
  painting.grid_rows = config.grid_rows;
  painting.grid_columns = config.grid_cols;
  const MemoryPlan plan = task_->plan(requests);
  // Once loaded, most of the plan is there already and no longer free.
  if (!loaded_) check_memory(plan, task_->model_name());
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  const int threads = options_.threads > 0 ? options_.threads : cores;
  events_.push(PainterEvent{task_->backend().name() + ", " + std::to_string(threads) +
                                (threads == 1 ? " thread" : " threads"),
                            task_->model_name(), std::string(dtype_name(task_->storage())),
                            plan.total()});
  task_->load();
  loaded_ = true;
  painting.state = PaintState::kPainting;
  tell(painting);
  PaintWatch watch(painting, wish_, *task_, [this](const Painting& now) { tell(now); });
  task_->run(requests, watch);
  finish(job, painting, watch.picture());
}

void PaintWorker::finish(const PaintJob& job, Painting& painting, GeneratedImage& picture) {
  painting.facts = picture.facts;
  painting.seconds = picture.seconds;
  painting.acceptance = picture.meters.acceptance();
  painting.rows_done = picture.rows_done;
  if (picture.status == ImageStatus::kFailed) {
    painting.error = picture.error;
    return;
  }
  const bool partial = picture.status == ImageStatus::kStopped;
  if (!picture.image.rgb.empty()) {
    painting.image = std::make_shared<const Image>(std::move(picture.image));
    painting.image_rows = picture.rows_done;
    painting.image_is_rough = false;
    painting.file = save_painting(job.folder, *painting.image, painting.facts, partial);
  }
  painting.state = partial ? PaintState::kStopped : PaintState::kDone;
}

}  // namespace tessera
