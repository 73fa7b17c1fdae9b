// A lane over a small image model, and submissions of listed streams, for tests of the runtime.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/lab/models/test_models.h"
#include "apps/runtime/lane.h"
#include "apps/runtime/runtime.h"
#include "engine/decoding/method_parts.h"
#include "engine/families/open_model.h"

namespace tessera {

// test:tiny, writing images of 3x4 codes.
class ListModel final : public LaneModel {
 public:
  explicit ListModel(DecodeMethod method = {})
      : backend_(make_backend("cpu", {.threads = 1})),
        opened_(make_up_model("test:tiny")),
        method_(std::move(method)) {
    aids_.grammar = opened_.spec.model.grammar();
    parts_ = std::make_unique<OwnedParts<float, KeyedRandom>>(method_, aids_);
  }

  void load() override {
    if (!model_) model_.emplace(load_stream_model(opened_, *backend_, DType::kF32));
  }
  const Backend& backend() const override { return *backend_; }
  const TokenModel& tokens() const override { return *model_; }
  StreamLimits limits(const LoopNeeds& needs) const override {
    return {.items = needs.slots,
            .prompt_rows = needs.prompt_rows,
            .grammar = aids_.grammar,
            .window = method_.window,
            .guided = needs.guided,
            .dists = keeps_dists(method_),
            .shape = method_.shape()};
  }
  LoopParts parts() const override { return parts_->parts(); }
  std::size_t loop_bytes(const StreamLimits& limits, const LoopNeeds& /*needs*/) const override {
    const auto scratch = [&](std::int64_t rows) {
      return StreamModel::scratch_bytes(opened_.spec.model, rows, *backend_);
    };
    const StreamModelShape shape{opened_.spec.model.transformer, opened_.spec.model.codes, scratch};
    return stream_cache_bytes(shape, *backend_, limits) +
           stream_activation_bytes(shape, *backend_, limits);
  }
  ErrorInfo no_room(const LoopNeeds& needs) const override {
    return {.kind = ErrorKind::kMemory,
            .code = "E_LIST_MEMORY",
            .where = std::to_string(needs.slots) + " streams",
            .hint = "fewer"};
  }

  // Bytes of a loop with so many slots for prompts of so many rows.
  std::size_t bytes(const LoopNeeds& needs) const { return loop_bytes(limits(needs), needs); }
  // An image of its own prompt and noise; guided, or not.
  Stream stream(int number) const {
    Stream out;
    for (int i = 0; i < 2 + number % 5; ++i) {
      out.prompt.ids.push_back(1 + (number * 7 + i * 3) % 40);
      out.unconditional.ids.push_back(1 + i);
    }
    out.grammar = VocabularyGrammar{.codes = aids_.grammar.codes, .rows = 3, .columns = 4};
    out.dist.guidance = number % 3 == 0 ? 1 : 2.5;
    if (!out.dist.guided()) out.unconditional.ids.clear();
    out.seed = static_cast<std::uint64_t>(number / 3);
    out.item = static_cast<std::uint64_t>(number);
    return out;
  }
  static LoopNeeds needs_of(const Stream& stream) {
    return {.prompt_rows = std::max(stream.prompt.length(), stream.unconditional.length()),
            .guided = stream.dist.guided()};
  }

 private:
  std::unique_ptr<Backend> backend_;
  OpenedModel opened_;
  DecodeMethod method_;
  DecodeAids aids_;
  std::unique_ptr<OwnedParts<float, KeyedRandom>> parts_;
  std::optional<StreamModel> model_;
};

// What became of a listed submission.
struct ListOutcome {
  std::map<int, StreamResult> done, stopped;  // by number of the stream
  std::vector<ErrorInfo> no_room;
  std::vector<std::pair<std::int64_t, std::int64_t>> fewer;
  bool over = false;
};

class ListSubmission final : public Submission {
 public:
  // `holds_back`: while it says so, next() gives nothing.
  ListSubmission(const ListModel& model, std::vector<int> numbers, ListOutcome& outcome,
                 bool takes_fewer = false, std::function<bool()> holds_back = {})
      : model_(model),
        numbers_(std::move(numbers)),
        outcome_(outcome),
        takes_fewer_(takes_fewer),
        holds_back_(std::move(holds_back)) {}

  LoopNeeds needs() const override { return {.slots = std::ssize(numbers_)}; }
  std::optional<NextStream> next(Wait) override {
    if (holds_back_ && holds_back_()) return std::nullopt;
    const int number = numbers_[next_++];
    NextStream out{.number = static_cast<std::size_t>(number),
                   .stream = model_.stream(number),
                   .needs = {},
                   .on_slot = {}};
    out.needs = ListModel::needs_of(out.stream);
    return out;
  }
  bool more() const override { return next_ < numbers_.size(); }
  std::optional<SlidingStream> on_done(std::size_t number, StreamResult&& result) override {
    outcome_.done[static_cast<int>(number)] = std::move(result);
    return std::nullopt;
  }
  void on_stopped(std::size_t number, StreamResult&& result) override {
    outcome_.stopped[static_cast<int>(number)] = std::move(result);
  }
  bool takes_fewer_slots() const override { return takes_fewer_; }
  void on_fewer_slots(std::int64_t had, std::int64_t have) override {
    outcome_.fewer.emplace_back(had, have);
  }
  void on_no_room(std::size_t, const ErrorInfo& error) override {
    outcome_.no_room.push_back(error);
  }
  void on_over(const ErrorInfo*) override { outcome_.over = true; }

 private:
  const ListModel& model_;
  std::vector<int> numbers_;
  std::size_t next_ = 0;
  ListOutcome& outcome_;
  bool takes_fewer_;
  std::function<bool()> holds_back_;
};

// A lane of such a model that takes part in a runtime.
class ListLane {
 public:
  ListLane(Runtime& runtime, std::int64_t slots, DecodeMethod method = {})
      : runtime_(runtime), model_(std::move(method)), lane_(model_, runtime, {.slots = slots}) {
    runtime_.attach(lane_);
  }
  ~ListLane() { runtime_.detach(lane_); }
  ListLane(const ListLane&) = delete;

  Ticket submit(std::vector<int> numbers, ListOutcome& outcome, bool takes_fewer = false,
                std::function<bool()> holds_back = {}) {
    const Ticket ticket = runtime_.next_ticket();
    lane_.submit(ticket, std::make_unique<ListSubmission>(model_, std::move(numbers), outcome,
                                                          takes_fewer, std::move(holds_back)));
    return ticket;
  }
  StreamLane& lane() { return lane_; }
  const ListModel& model() const { return model_; }
  // Bytes of the loop that it holds.
  std::size_t held() const {
    const StreamLoop* loop = lane_.loop();
    return loop == nullptr ? 0 : model_.loop_bytes(loop->limits(), {});
  }

 private:
  Runtime& runtime_;
  ListModel model_;
  StreamLane lane_;
};

}  // namespace tessera
