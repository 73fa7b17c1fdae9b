#include "apps/runtime/complete_task.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "apps/runtime/clock.h"
#include "apps/runtime/complete_lane.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

// Prompts of one listener on their way to texts.
class CompleteSubmission final : public Submission {
 public:
  CompleteSubmission(CompleteLane& lane, std::vector<CompleteRequest> requests,
                     CompleteListener& listener)
      : lane_(lane), requests_(std::move(requests)), listener_(listener) {}

  LoopNeeds needs() const override {
    return {.slots = std::clamp<std::int64_t>(std::ssize(requests_) - to_index(next_), 1,
                                              lane_.options().batch_size)};
  }
  bool more() const override { return !stopped_ && next_ < requests_.size(); }
  bool takes_fewer_slots() const override { return true; }

  std::optional<NextStream> next(Wait /*wait*/) override {
    if (stop_asked()) return std::nullopt;
    while (next_ < requests_.size()) {
      const std::size_t number = next_++;
      try {
        NextStream made = make_stream(number);
        lane_.load(made.needs.guided);
        return made;
      } catch (const Error& error) {  // the boundary of one prompt
        if (error.info().kind != ErrorKind::kUsage) throw;
        Completion failed;
        failed.number = number;
        fail(std::move(failed), error.info());
      }
    }
    return std::nullopt;
  }

  bool drops(std::size_t number) const override { return at_work_.at(number).text.ended(); }
  Flow on_pass(const SubmissionPass& /*pass*/) override {
    return stop_asked() ? Flow::kStop : Flow::kContinue;
  }
  void on_logprobs(std::size_t number, std::span<const TokenLogprobs> of_tokens) override {
    at_work_.at(number).logprobs = of_tokens;
  }
  void on_tokens(std::size_t number, std::span<const std::int32_t> tokens) override {
    Work& work = at_work_.at(number);
    if (work.completion.first_seconds == 0) work.completion.first_seconds = since(work.start);
    show(number, work, work.text.add(tokens, lane_.model().stops(), work.logprobs));
    work.logprobs = {};
  }
  std::optional<SlidingStream> on_done(std::size_t number, StreamResult&& result) override {
    Work work = std::move(at_work_.at(number));
    at_work_.erase(number);
    show(number, work, work.text.rest());
    Completion& completion = work.completion;
    completion.text = work.text.whole();
    completion.listed = work.text.take_listed();
    completion.seconds = since(work.start);
    completion.tokens = work.text.tokens();
    completion.stopped_by_text = work.text.ended();
    completion.passes = result.passes;
    completion.reused_tokens = result.reused;
    completion.meters = std::move(result.meters);
    completion.cut_short = !result.stopped && !completion.stopped_by_text;
    if (result.status == StreamStatus::kFailed) {
      fail(std::move(completion), result.error);
    } else {
      listener_.on_completion(std::move(completion));
    }
    return std::nullopt;
  }
  void on_stopped(std::size_t number, StreamResult&& result) override {
    if (at_work_.at(number).text.ended()) {
      on_done(number, std::move(result));
      return;
    }
    stopped_ = true;
    at_work_.erase(number);
  }
  void on_fewer_slots(std::int64_t had, std::int64_t have) override {
    listener_.on_notice("not enough memory for " + std::to_string(had) +
                        " texts at once: " + std::to_string(have) + " from here on");
  }
  void on_no_room(std::size_t number, const ErrorInfo& error) override {
    Completion completion = std::move(at_work_.at(number).completion);
    at_work_.erase(number);
    fail(std::move(completion), error);
  }
  void on_over(const ErrorInfo* error) override {
    listener_.on_over(error == nullptr && !stopped_ && next_ == requests_.size());
  }

 private:
  struct Work {
    Completion completion;
    WrittenText text;
    Clock::time_point start;
    std::span<const TokenLogprobs> logprobs = {};  // of the tokens that come next
  };

  void show(std::size_t number, Work& work, const std::string& more) {
    if (more.empty()) return;
    const std::span<const TextToken> listed = work.text.newly_listed();
    if (!listed.empty()) listener_.on_listed(number, listed);
    listener_.on_text(number, more);
  }

  bool stop_asked() {
    stopped_ = stopped_ || listener_.on_pass() == Flow::kStop;
    return stopped_;
  }

  void fail(Completion completion, const ErrorInfo& error) {
    completion.failed = true;
    completion.error = error;
    listener_.on_completion(std::move(completion));
  }

  NextStream make_stream(std::size_t number) {
    NextStream out;
    out.number = number;
    out.stream = lane_.stream_of(requests_[number]);
    Stream& stream = out.stream;
    stream.item = requests_[number].number.value_or(number);
    out.needs = lane_.needs_of(stream);
    if (lane_.drafts(stream)) {
      out.on_slot = [this, item = draft_item(stream)](std::size_t slot) {
        lane_.draft()->set_stream(slot, item);
      };
    }
    Work work{{},
              WrittenText(lane_.model().tokenizer(), requests_[number].stop,
                          WrittenText::Ends::kAsWritten),
              Clock::now()};
    work.completion.number = number;
    work.completion.prompt_tokens = stream.prompt.length();
    at_work_.emplace(number, std::move(work));
    return out;
  }

  DraftStreamItem draft_item(const Stream& stream) const {
    DraftStreamItem out;
    out.branches.push_back({.ids = stream.prompt.ids});
    if (stream.dist.guided()) out.branches.push_back({.ids = stream.unconditional.ids});
    out.grammar = VocabularyGrammar::line(to_size(lane_.model().spec().model.vocab),
                                          to_size(stream.max_tokens));
    out.dist = stream.dist;
    out.stops = stream.stops;
    out.processed = stream.processed;
    out.in_parts = true;
    return out;
  }

  CompleteLane& lane_;
  std::vector<CompleteRequest> requests_;
  CompleteListener& listener_;
  std::size_t next_ = 0;
  bool stopped_ = false;
  std::map<std::size_t, Work> at_work_;  // by number
};

}  // namespace

struct CompleteTask::State {
  State(Runtime& owner, const CompleteOptions& options)
      : runtime(owner),
        model(owner, options),
        lane(model, owner, {.slots = options.batch_size,
                             .all_slots = options.all_slots,
                             .prompts_go_on = options.all_slots}) {
    runtime.attach(lane);
  }
  ~State() { runtime.detach(lane); }
  State(const State&) = delete;

  Runtime& runtime;
  CompleteLane model;
  StreamLane lane;
};

CompleteTask::CompleteTask(Runtime& runtime, const CompleteOptions& options)
    : state_(std::make_unique<State>(runtime, options)) {}
CompleteTask::~CompleteTask() = default;
CompleteTask::CompleteTask(CompleteTask&&) noexcept = default;

const CompletionModel& CompleteTask::model() const { return state_->model.model(); }
const std::string& CompleteTask::model_name() const { return state_->model.name(); }
const std::vector<std::string>& CompleteTask::model_notes() const { return state_->model.notes(); }
const DecodeMethod& CompleteTask::method() const { return state_->model.options().method; }
DType CompleteTask::storage() const { return state_->model.storage(); }
const Backend& CompleteTask::backend() const { return state_->model.backend(); }

void CompleteTask::check(const CompleteRequest& request) const { state_->model.stream_of(request); }

CaptionMemoryPlan CompleteTask::plan(const CompleteRequest& request) const {
  const CompleteLane& own = state_->model;
  LoopNeeds needs = own.needs_of(own.stream_of(request));
  needs.slots = own.options().batch_size;
  if (own.options().all_slots) needs.prompt_rows = with_room_to_go_on(needs.prompt_rows);
  return own.plan(needs);
}

void CompleteTask::check_memory(const CompleteRequest& request) const {
  state_->model.check_memory(state_->model.dist_of(request).guided());
}

Ticket CompleteTask::submit(std::vector<CompleteRequest> requests, CompleteListener& listener) {
  for (const CompleteRequest& request : requests) state_->model.dist_of(request);
  const Ticket ticket = state_->runtime.next_ticket();
  state_->lane.submit(
      ticket, std::make_unique<CompleteSubmission>(state_->model, std::move(requests), listener));
  return ticket;
}

}  // namespace tessera
