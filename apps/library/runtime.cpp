#include <tessera/runtime.h>

#include <map>
#include <utility>

#include "apps/library/open_task.h"
#include "apps/library/tasks.h"
#include "apps/runtime/metadata.h"

namespace tessera_v0 {

namespace {

using tessera::guarded;
using tessera::OpenTask;

// What its callbacks refer to ends with the call, also where the request of another fails.
void finish_here(Runtime& runtime, Ticket ticket) {
  try {
    runtime.finish(ticket);
  } catch (...) {
    runtime.cancel(ticket);
    throw;
  }
}

}  // namespace

struct Runtime::State {
  OpenTask& find(Model model) const {
    const auto at = models.find(model.number);
    if (at != models.end()) return *at->second;
    throw tessera::Error({.kind = tessera::ErrorKind::kUsage,
                          .code = "E_MODEL_CLOSED",
                          .where = "model " + std::to_string(model.number),
                          .expected = "a model that is open in this runtime",
                          .found = "none"});
  }

  void sweep(bool after_error) {
    for (const auto& [number, task] : models) task->sweep(after_error);
  }

  // A callback that steps would run the loop within itself.
  class Stepping {
   public:
    explicit Stepping(bool& at_work) : at_work_(at_work) {
      if (at_work_) {
        throw tessera::Error({.kind = tessera::ErrorKind::kUsage,
                              .code = "E_RUNTIME_CALLBACK",
                              .where = "a callback",
                              .expected = "submit() and cancel() alone",
                              .found = "a call that steps the runtime or closes a model"});
      }
      at_work_ = true;
    }
    ~Stepping() { at_work_ = false; }
    Stepping(const Stepping&) = delete;
    Stepping& operator=(const Stepping&) = delete;

   private:
    bool& at_work_;
  };

  bool stepping = false;
  tessera::Installation place;
  tessera::Runtime runtime;  // outlives the models
  std::map<std::uint64_t, std::unique_ptr<OpenTask>> models;
  std::uint64_t last = 0;
};

std::string version() {
  const std::string whole = tessera::program_version();  // "tessera 0.1.0"
  return whole.substr(whole.rfind(' ') + 1);
}

Runtime::Runtime(const RuntimeOptions& options) : state_(std::make_unique<State>()) {
  guarded([&] { state_->place = tessera::find_installation(options.prefix); });
}
Runtime::~Runtime() = default;
Runtime::Runtime(Runtime&&) noexcept = default;
Runtime& Runtime::operator=(Runtime&&) noexcept = default;

Model Runtime::open(const ModelRef& which, const OpenOptions& options) {
  return guarded([&] {
    const tessera::TaskRow& row = tessera::task_row(which.task);
    tessera::check_options(row, options);
    auto task = row.open(state_->runtime, state_->place, which.name, options);
    const std::uint64_t number = ++state_->last;
    state_->models.emplace(number, std::move(task));
    return Model{number};
  });
}

void Runtime::close(Model model) {
  guarded([&] {
    const State::Stepping alone(state_->stepping);
    state_->find(model);
    state_->models.erase(model.number);
  });
}

ModelInfo Runtime::info(Model model) const {
  return guarded([&] { return state_->find(model).info(); });
}

MemoryPlan Runtime::plan(Model model, const ImageRequest& request) const {
  return guarded([&] { return state_->find(model).plan(request); });
}
MemoryPlan Runtime::plan(Model model, const VideoRequest& request) const {
  return guarded([&] { return state_->find(model).plan(request); });
}
MemoryPlan Runtime::plan(Model model, const DescribeRequest& request) const {
  return guarded([&] { return state_->find(model).plan(request); });
}
MemoryPlan Runtime::plan(Model model, const CompleteRequest& request) const {
  return guarded([&] { return state_->find(model).plan(request); });
}
MemoryPlan Runtime::plan(Model model, const AnswerRequest& request) const {
  return guarded([&] { return state_->find(model).plan(request); });
}

Ticket Runtime::submit(Model model, const ImageRequest& request, ImageCallbacks callbacks) {
  return guarded(
      [&] { return Ticket{state_->find(model).submit(request, std::move(callbacks)).number}; });
}
Ticket Runtime::submit(Model model, const VideoRequest& request, VideoCallbacks callbacks) {
  return guarded(
      [&] { return Ticket{state_->find(model).submit(request, std::move(callbacks)).number}; });
}
Ticket Runtime::submit(Model model, const DescribeRequest& request, DescribeCallbacks callbacks) {
  return guarded(
      [&] { return Ticket{state_->find(model).submit(request, std::move(callbacks)).number}; });
}
Ticket Runtime::submit(Model model, std::vector<DescribeRequest> requests,
                       DescribeAllCallbacks callbacks) {
  return guarded([&] {
    return Ticket{state_->find(model).submit(std::move(requests), std::move(callbacks)).number};
  });
}
Ticket Runtime::submit(Model model, const CompleteRequest& request, CompleteCallbacks callbacks) {
  return guarded(
      [&] { return Ticket{state_->find(model).submit(request, std::move(callbacks)).number}; });
}
Ticket Runtime::submit(Model model, const AnswerRequest& request, AnswerCallbacks callbacks) {
  return guarded(
      [&] { return Ticket{state_->find(model).submit(request, std::move(callbacks)).number}; });
}

bool Runtime::step() {
  return guarded([&] {
    const State::Stepping alone(state_->stepping);
    try {
      const bool more = state_->runtime.step();
      state_->sweep(false);
      return more;
    } catch (...) {
      state_->sweep(true);
      throw;
    }
  });
}
bool Runtime::over(Ticket ticket) const {
  return guarded([&] { return state_->runtime.over({ticket.number}); });
}
void Runtime::finish(Ticket ticket) {
  while (!over(ticket)) step();
}
void Runtime::cancel(Ticket ticket) {
  guarded([&] {
    for (const auto& [number, task] : state_->models) {
      if (task->cancel({ticket.number})) return;
    }
  });
}

RuntimeStats Runtime::stats() const {
  return guarded([&] {
    const tessera::RuntimeStats stats = state_->runtime.stats();
    return RuntimeStats{.models = stats.lanes, .submitted = stats.submitted, .over = stats.over};
  });
}

GeneratedImage Runtime::generate(Model model, const ImageRequest& request) {
  GeneratedImage out;
  finish_here(*this, submit(model, request,
                            {.on_image = [&](GeneratedImage&& made) { out = std::move(made); }}));
  return out;
}

std::vector<Image> Runtime::generate_video(Model model, const VideoRequest& request) {
  std::vector<Image> out;
  finish_here(*this, submit(model, request, {.on_frame = [&](std::int64_t, Image&& frame) {
                              out.push_back(std::move(frame));
                            }}));
  return out;
}

std::string Runtime::describe(Model model, const DescribeRequest& request) {
  std::string out;
  finish_here(*this, submit(model, request, {.on_description = [&](Description&& made) {
                              out = std::move(made.text);
                            }}));
  return out;
}

std::string Runtime::complete(Model model, const CompleteRequest& request) {
  std::string out;
  finish_here(*this, submit(model, request, {.on_completion = [&](Completion&& made) {
                              out = std::move(made.text);
                            }}));
  return out;
}

}  // namespace tessera_v0
