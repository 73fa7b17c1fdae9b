#include "apps/runtime/describe_task.h"

#include <algorithm>
#include <utility>

#include "apps/runtime/describe_model.h"
#include "apps/runtime/describe_submission.h"

namespace tessera {

struct DescribeTask::State {
  State(Runtime& owner, const DescribeOptions& options)
      : runtime(owner),
        model(owner, options),
        lane(model, owner,
             {.slots = options.batch_size,
              .prompt_rows = options.prompt_rows,
              .all_slots = options.all_slots}),
        slots(options.batch_size),
        pruning(model.pruning(options.prune)) {
    runtime.attach(lane);
  }
  ~State() { runtime.detach(lane); }
  State(const State&) = delete;

  Runtime& runtime;
  DescribeModel model;
  StreamLane lane;
  std::int64_t slots;  // texts at once, as asked for
  std::shared_ptr<const DescribePruning> pruning;
};

DescribeTask::DescribeTask(Runtime& runtime, const DescribeOptions& options)
    : state_(std::make_unique<State>(runtime, options)) {}
DescribeTask::~DescribeTask() = default;
DescribeTask::DescribeTask(DescribeTask&&) noexcept = default;

const CaptionModel& DescribeTask::model() const { return state_->model.model(); }
const std::string& DescribeTask::model_name() const { return state_->model.name(); }
const std::vector<std::string>& DescribeTask::model_notes() const { return state_->model.notes(); }
const DecodeMethod& DescribeTask::method() const { return state_->model.method(); }
DType DescribeTask::storage() const { return state_->model.storage(); }
const Backend& DescribeTask::backend() const { return state_->model.backend(); }
StreamTimes DescribeTask::times() const { return state_->lane.times(); }

std::string DescribeTask::window_report() const {
  const WindowController* controller = state_->model.controller();
  return controller == nullptr ? std::string() : controller->why();
}

CaptionMemoryPlan DescribeTask::plan(const ChatQuestion& prompt,
                                     std::span<const PreprocessPlan> images) const {
  const DescribeModel& own = state_->model;
  const auto rows = std::ssize(own.model().prompt_ids(prompt, images));
  const PreprocessPlan usual = plan_preprocess(own.model().describe().policy, 640, 480);
  const auto fewer_views = [](const PreprocessPlan& a, const PreprocessPlan& b) {
    return a.views < b.views;
  };
  return own.plan(
      {.slots = own.options().batch_size, .prompt_rows = rows, .guided = own.dist().guided()},
      images.empty() ? usual : *std::max_element(images.begin(), images.end(), fewer_views));
}

void DescribeTask::check(const DescribeRequest& request) const {
  state_->model.dist_of(request.sampling);
  state_->model.max_tokens_of(request.max_tokens);
  check_describe_request(request, request.images.size());
}

void DescribeTask::check_memory() const { state_->model.check_memory(); }

void DescribeTask::load() { state_->model.load(); }

void DescribeTask::set_pruning(const PruneChoice& prune) {
  state_->pruning = state_->model.pruning(prune);
}

void DescribeTask::set_texts_at_once(std::int64_t texts) {
  expects(texts >= 1, "texts are written one at a time at least");
  state_->slots = texts;
}

void DescribeTask::release() { state_->lane.release(); }

Ticket DescribeTask::submit(DescribeSource source, std::int64_t slots, DescribeListener& listener) {
  if (state_->lane.idle()) {
    state_->lane.set_slots(state_->slots);
    state_->lane.reset_times();
  }
  const Ticket ticket = state_->runtime.next_ticket();
  state_->lane.submit(
      ticket, std::make_unique<DescribeSubmission>(state_->model, state_->lane, state_->pruning,
                                                   std::move(source), slots, listener));
  return ticket;
}

Ticket DescribeTask::submit(DescribeSource source, DescribeListener& listener) {
  return submit(std::move(source), state_->slots, listener);
}

Ticket DescribeTask::submit(std::vector<DescribeRequest> requests, DescribeListener& listener) {
  const std::int64_t slots = std::clamp<std::int64_t>(std::ssize(requests), 1, state_->slots);
  auto list = std::make_shared<std::vector<DescribeRequest>>(std::move(requests));
  return submit(
      [list, next = std::size_t{0}]() mutable -> std::optional<DescribeRequest> {
        if (next == list->size()) return std::nullopt;
        return std::move((*list)[next++]);
      },
      slots, listener);
}

}  // namespace tessera
