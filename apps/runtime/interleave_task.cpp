// Turns of answers as streams of a lane.
#include "apps/runtime/interleave_task.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "apps/runtime/interleave_model.h"
#include "apps/runtime/text_stream.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

using Ids = InterleaveModel::Ids;

// The temperature of images holds for texts as well.
DistributionSettings text_dist(const InterleaveModel& model, const SettingValues& chosen) {
  SettingValues own;
  if (chosen.has(setting::kTemperature)) {
    own.set(setting::kTemperature, chosen.number(setting::kTemperature));
  }
  const InterleaveSpec& spec = *model.spec().interleave;
  DistributionSettings out = settle_sampling(own, spec.text);
  out.repetition_penalty = spec.text_repetition;
  // A text has no codes and no control ids of images; their begin alone.
  std::string& list = out.suppress_tokens;
  const auto suppress = [&](std::int32_t id) {
    list += (list.empty() ? "" : ",") + std::to_string(id);
  };
  std::ranges::for_each(model.joint(), suppress);
  std::ranges::for_each(std::span(model.opening()).subspan(1), suppress);
  std::ranges::for_each(spec.unwritten, suppress);
  if (model.max_images() == 0) suppress(model.opening().front());
  return out;
}

// One answer on its way: the next turn as a stream, and what a turn left.
class Answer {
 public:
  Answer(const InterleaveModel& model, const InterleaveRequest& request, std::size_t number,
         Ids question)
      : model_(model),
        request_(request),
        ids_(std::move(question)),
        prompt_(ids_.size()),
        image_dist_(model.image_dist(request.sampling)),
        text_dist_(text_dist(model, request.sampling)) {
    out_.number = number;
    out_.prompt_tokens = to_index(prompt_);
  }

  // None: the answer is over, as it was cut short.
  std::optional<NextStream> next() {
    const std::int64_t left = model_.max_tokens() - out_.text_tokens;
    const bool enough = image_ ? out_.images == model_.max_images() : left == 0;
    if (enough || std::ssize(ids_) > model_.prompt_rows()) {
      out_.cut_short = true;
      return std::nullopt;
    }
    NextStream next{.number = out_.number, .stream = {}, .needs = {}, .on_slot = {}};
    next.stream.prompt.ids = ids_;
    next.stream.seed = request_.seed;
    next.stream.item = turns_++;
    if (image_) {
      begin_image(next.stream);
    } else {
      begin_text(next.stream, left);
    }
    return next;
  }

  bool writes_image() const { return image_; }
  const DistributionSettings& image_dist() const { return image_dist_; }
  std::int64_t images() const { return out_.images; }

  // What tokens of a text add to it.
  std::string add(std::span<const std::int32_t> tokens) {
    return image_ ? "" : text_->add(tokens, stops_);
  }

  // A turn that ended before it was whole: of a text, what was written counts. What of it was not
  // said yet.
  std::string leave(const StreamResult& result) {
    out_.passes += result.passes;
    if (image_) return "";
    out_.text_tokens += std::ssize(result.tokens);
    ids_.insert(ids_.end(), result.tokens.begin(), result.tokens.end());
    return end_text();
  }

  // After a text's last token: what of it was not said yet.
  std::string end_text() {
    std::string rest = text_->rest();
    out_.text += text_->whole();
    return rest;
  }

  // Whether another turn follows a text's.
  bool take_text(const Ids& tokens) {
    out_.text_tokens += std::ssize(tokens);
    ids_.insert(ids_.end(), tokens.begin(), tokens.end());
    image_ = tokens.back() == model_.opening().front();
    if (image_) ids_.insert(ids_.end(), model_.opening().begin() + 1, model_.opening().end());
    out_.cut_short = std::ranges::find(stops_, tokens.back()) == stops_.end();
    return image_;
  }

  // Those of an image; its codes.
  Ids take_image(const Ids& tokens) {
    for (const std::int32_t id : tokens) ids_.push_back(nth(model_.joint(), id));
    image_ = false;
    ++out_.images;
    return model_.config().grammar().image_codes(tokens);
  }

  void count_passes(std::int64_t passes) { out_.passes += passes; }
  void fail(const ErrorInfo& error) {
    out_.failed = true;
    out_.error = error;
  }
  void stop() { out_.stopped = true; }

  Interleaved take() {
    // A cut image has its opening alone.
    out_.ids.assign(ids_.begin() + to_index(prompt_), ids_.end());
    return std::move(out_);
  }

 private:
  void begin_text(Stream& stream, std::int64_t left) {
    stream.kind = StreamKind::kText;
    stream.processed = ids_;
    stream.before = ids_;
    stream.max_tokens = left;
    stops_ = model_.ends();
    stops_.push_back(model_.opening().front());
    stream.grammars = {{.space = InterleaveModel::kText,
                        .grammar = model_.text_grammar(left),
                        .dist = text_dist_,
                        .stops = stops_}};
    text_.emplace(model_.tokenizer());
  }
  void begin_image(Stream& stream) const {
    if (image_dist_.guided()) {
      stream.unconditional.ids = unconditional_prompt(model_.config(), ids_, 0);
      stream.images.ids = model_.images_of(ids_, stream.unconditional.ids);
      if (!stream.images.ids.empty()) stream.images_share = model_.images_share(image_dist_);
    }
    const VocabularyGrammar grammar = model_.config().grammar();
    stream.max_tokens = to_index(grammar.length());
    stream.grammars = {{.space = InterleaveModel::kImage, .grammar = grammar, .dist = image_dist_}};
  }

  const InterleaveModel& model_;
  const InterleaveRequest& request_;
  Ids ids_;             // the prompt, and all that was written
  std::size_t prompt_;  // ids of it
  DistributionSettings image_dist_, text_dist_;
  bool image_ = false;  // the turn at hand
  std::uint64_t turns_ = 0;
  Ids stops_;
  std::optional<TextStream> text_;
  Interleaved out_;
};

class InterleaveSubmission final : public Submission {
 public:
  InterleaveSubmission(InterleaveModel& model, std::vector<InterleaveRequest> requests,
                       InterleaveListener& listener)
      : model_(model), requests_(std::move(requests)), listener_(listener) {
    for (std::size_t i = 0; i < requests_.size(); ++i) prepare(i);
  }

  LoopNeeds needs() const override {
    LoopNeeds out = room_;
    const std::int64_t left = std::ssize(requests_) - to_index(over_);
    out.slots = std::clamp<std::int64_t>(left, 1, model_.options().batch_size);
    return out;
  }
  bool more() const override { return !stopped_ && (!ready_.empty() || next_ < requests_.size()); }
  bool takes_fewer_slots() const override { return true; }

  std::optional<NextStream> next(Wait /*wait*/) override {
    if (stop_asked()) return std::nullopt;
    while (more()) {
      const bool begun = !ready_.empty();
      const std::size_t number = begun ? ready_.front() : next_++;
      if (begun) ready_.pop_front();
      if (std::optional<NextStream> stream = stream_of(number)) return stream;
    }
    return std::nullopt;
  }

  Flow on_pass(const SubmissionPass& /*pass*/) override {
    return stop_asked() ? Flow::kStop : Flow::kContinue;
  }
  void on_tokens(std::size_t number, std::span<const std::int32_t> tokens) override {
    say(number, answers_.at(number).add(tokens));
  }

  std::optional<SlidingStream> on_done(std::size_t number, StreamResult&& result) override {
    Answer& answer = answers_.at(number);
    if (result.status != StreamStatus::kDone) {
      say(number, answer.leave(result));
      answer.fail(result.error);
      end(number);
      return std::nullopt;
    }
    answer.count_passes(result.passes);
    bool goes_on = true;
    if (answer.writes_image()) {
      show_image(number, answer, result);
    } else {
      say(number, answer.end_text());
      goes_on = answer.take_text(result.tokens);
    }
    if (goes_on) {
      ready_.push_back(number);
    } else {
      end(number);
    }
    return std::nullopt;
  }
  void on_stopped(std::size_t number, StreamResult&& result) override {
    stopped_ = true;
    Answer& answer = answers_.at(number);
    say(number, answer.leave(result));
    answer.stop();
    end(number);
  }
  void on_fewer_slots(std::int64_t had, std::int64_t have) override {
    listener_.on_notice("not enough memory for " + std::to_string(had) +
                        " answers at once: " + std::to_string(have) + " from here on");
  }
  void on_no_room(std::size_t number, const ErrorInfo& error) override {
    answers_.at(number).fail(error);
    end(number);
  }
  // Answers between two turns are stopped, too.
  void on_over(const ErrorInfo* error) override {
    while (error == nullptr && !answers_.empty()) {
      const auto first = answers_.begin();
      first->second.stop();
      end(first->first);
    }
    listener_.on_over(error == nullptr && over_ == requests_.size() && !stopped_);
  }

 private:
  // Its prompt's ids, or why there are none.
  struct Question {
    Ids ids;
    LoopNeeds needs;
    std::optional<ErrorInfo> error;
  };

  void prepare(std::size_t number) {
    const InterleaveRequest& request = requests_[number];
    Question& question = questions_.emplace_back();
    try {
      question.ids = model_.question(request);
      question.needs = model_.needs_of_answer(question.ids, request);
      room_ = both(room_, question.needs);
    } catch (const Error& error) {  // the boundary of one answer
      if (error.info().kind != ErrorKind::kUsage) throw;
      question.error = error.info();
    }
  }

  // The next turn of an answer; none where it is over.
  std::optional<NextStream> stream_of(std::size_t number) {
    auto at = answers_.find(number);
    if (at == answers_.end()) {
      Question& question = questions_[number];
      if (question.error) {
        Interleaved failed;
        failed.number = number;
        failed.failed = true;
        failed.error = *question.error;
        ++over_;
        listener_.on_answer(std::move(failed));
        return std::nullopt;
      }
      model_.load();
      model_.see(requests_[number], question.ids);
      at = answers_.emplace(number, Answer(model_, requests_[number], number, question.ids)).first;
    }
    Answer& answer = at->second;
    std::optional<NextStream> out = answer.next();
    if (!out) {
      end(number);
      return out;
    }
    out->needs = questions_[number].needs;
    if (!answer.writes_image()) return out;
    DraftRequest draft =
        model_.draft_of(out->stream.prompt.ids, out->stream.unconditional.ids, answer.image_dist());
    if (draft.prompt.empty()) return out;
    out->on_slot = [this, draft = std::move(draft)](std::size_t slot) {
      model_.announce(slot, draft);
    };
    return out;
  }

  bool stop_asked() {
    stopped_ = stopped_ || listener_.on_pass() == Flow::kStop;
    return stopped_;
  }
  void say(std::size_t number, const std::string& more) {
    if (!more.empty()) listener_.on_text(number, more);
  }
  void show_image(std::size_t number, Answer& answer, const StreamResult& result) {
    AnswerImage out;
    out.facts = model_.facts_of(requests_[number], answer.image_dist());
    out.facts.tokens = std::ssize(result.tokens);
    out.facts.passes = result.passes;
    out.codes = answer.take_image(result.tokens);
    out.facts.answer_image = answer.images();
    out.image = model_.pixels().decode(out.codes);
    listener_.on_image(number, std::move(out));
  }
  void end(std::size_t number) {
    Interleaved done = answers_.extract(number).mapped().take();
    ++over_;
    listener_.on_answer(std::move(done));
  }

  InterleaveModel& model_;
  std::vector<InterleaveRequest> requests_;
  InterleaveListener& listener_;
  std::vector<Question> questions_;  // of each request
  LoopNeeds room_;                   // for any of them
  std::size_t next_ = 0, over_ = 0;  // requests: begun, finished
  bool stopped_ = false;
  std::map<std::size_t, Answer> answers_;  // begun and not over, by number
  std::deque<std::size_t> ready_;          // of those, the ones between two turns
};

}  // namespace

struct InterleaveTask::State {
  State(Runtime& in, const InterleaveOptions& options)
      : runtime(in),
        model(in, options),
        lane(model, in,
             {.slots = options.generate.batch_size, .all_slots = options.generate.all_slots}) {
    runtime.attach(lane);
  }
  ~State() { runtime.detach(lane); }
  State(const State&) = delete;

  Runtime& runtime;
  InterleaveModel model;
  StreamLane lane;  // last: its loop is of all that is above
};

InterleaveTask::InterleaveTask(Runtime& runtime, const InterleaveOptions& options)
    : state_(std::make_unique<State>(runtime, options)) {}
InterleaveTask::~InterleaveTask() = default;
InterleaveTask::InterleaveTask(InterleaveTask&&) noexcept = default;

const ModelSpec& InterleaveTask::spec() const { return state_->model.spec(); }
const std::string& InterleaveTask::model_name() const { return state_->model.name(); }
const DecodeMethod& InterleaveTask::method() const { return state_->model.options().method; }
DType InterleaveTask::storage() const { return state_->model.storage(); }
const Backend& InterleaveTask::backend() const { return state_->model.backend(); }

void InterleaveTask::check(const InterleaveRequest& request) const {
  const InterleaveModel& model = state_->model;
  model.question(request);
  model.image_dist(request.sampling);
}

MemoryPlan InterleaveTask::plan(std::span<const InterleaveRequest> requests) const {
  const InterleaveModel& model = state_->model;
  LoopNeeds needs;
  for (const InterleaveRequest& request : requests) {
    try {
      needs = both(needs, model.needs_of_answer(model.question(request), request));
    } catch (const Error& error) {  // that answer fails when its turn comes
      if (error.info().kind != ErrorKind::kUsage) throw;
    }
  }
  needs.slots = std::ssize(requests);
  return model.plan_answers(needs);
}

Ticket InterleaveTask::submit(std::vector<InterleaveRequest> requests,
                              InterleaveListener& listener) {
  const Ticket ticket = state_->runtime.next_ticket();
  state_->lane.submit(
      ticket, std::make_unique<InterleaveSubmission>(state_->model, std::move(requests), listener));
  return ticket;
}

}  // namespace tessera
