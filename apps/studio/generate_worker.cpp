#include "apps/studio/generate_worker.h"

#include <new>

namespace tessera {

namespace {

ErrorInfo unforeseen(ErrorKind kind, const char* code, const char* expected, std::string found) {
  return {.kind = kind,
          .code = code,
          .where = "generating",
          .expected = expected,
          .found = std::move(found)};
}

}  // namespace

GenerateWorker::GenerateWorker(std::vector<std::unique_ptr<ImageMaker>> makers, EventQueue& events)
    : events_(events) {
  for (auto& maker : makers) {
    lanes_.push_back(std::make_unique<Lane>());
    lanes_.back()->maker = std::move(maker);
  }
  for (auto& lane : lanes_) lane->thread = std::thread([this, &lane = *lane] { work(lane); });
}

GenerateWorker::~GenerateWorker() {
  end();
  for (auto& lane : lanes_) lane->thread.join();
}

void GenerateWorker::end() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  jobs_.clear();
  stop(0);
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

void GenerateWorker::stop(std::uint64_t number) {
  for (auto& lane : lanes_) lane->stop_request.stop_request(number);
}

void GenerateWorker::work(Lane& lane) {
  while (true) {
    GenerateJob job;
    {
      std::unique_lock lock(mutex_);
      lane.stop_request.begin(0);
      changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
      if (ending_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
      lane.stop_request.begin(job.number);
    }
    generate(job, lane);
  }
}

// The boundary of one image: what goes wrong with it fails it alone.
void GenerateWorker::generate(const GenerateJob& job, Lane& lane) {
  Generation generation;
  generation.number = job.number;
  generation.settings = job.settings;
  generation.state = GenerateState::kLoading;
  tell(generation);
  try {
    lane.maker->make(job, generation, lane.stop_request);
  } catch (const Error& error) {
    generation.error = error.info();
  } catch (const std::bad_alloc&) {
    generation.error =
        unforeseen(ErrorKind::kMemory, "E_PAINT_MEMORY", "memory for the image", "none left");
  } catch (const std::exception& error) {
    generation.error =
        unforeseen(ErrorKind::kGeneral, "E_PAINT", "an image", escape_for_terminal(error.what()));
  }
  if (!generation.error.code.empty()) {
    generation.state = GenerateState::kFailed;
    if (generation.error.kind == ErrorKind::kModel) events_.push(ProblemEvent{generation.error});
  }
  generation.seconds_left = 0;
  tell(generation);
}

}  // namespace tessera
