// A lane over the seeded tiny model, submissions that a test can spoil at any call, and the fixture
// of both.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "apps/runtime/runtime.h"
#include "engine/decoding/method_parts.h"
#include "tests/unit/decoding/tiny_run.h"

namespace tessera {

// Grids of 2 to 4 rows of 4 codes; every second one has guidance, prompts have 3 to 7 rows.
inline Stream small_stream(const TinyRun& tiny, int number) {
  Stream out = tiny.item(number);
  out.grammar = VocabularyGrammar{.codes = tiny.model.config().grammar().codes,
                                  .rows = 2 + static_cast<std::size_t>(number % 3),
                                  .columns = 4};
  if (number % 2 == 1) {
    out.dist.guidance = 1;
    out.unconditional = {};
  }
  return out;
}

inline LoopNeeds needs_of_stream(const Stream& stream) {
  return {.prompt_rows = std::max(stream.prompt.length(), stream.unconditional.length()),
          .guided = stream.dist.guided()};
}

class TinyLaneModel final : public LaneModel {
 public:
  explicit TinyLaneModel(const TinyRun& tiny, DecodeMethod method = decode_method("plain"))
      : tiny_(tiny),
        method_(settle_method(std::move(method), tiny.aids(), 16)),
        parts_(method_, tiny.aids()) {}

  void load() override {
    ++loads;
    if (broken) throw Error({.kind = ErrorKind::kModel, .code = "E_TEST_BROKEN"});
  }
  const Backend& backend() const override {
    return device != nullptr ? *device : tiny_.model.backend();
  }
  const TokenModel& tokens() const override { return tiny_.model; }
  StreamLimits limits(const LoopNeeds& needs) const override {
    StreamLimits out = image_limits(tiny_.model, {.items = needs.slots,
                                                  .prompt_rows = needs.prompt_rows,
                                                  .window = method_.window,
                                                  .dists = keeps_dists(method_),
                                                  .shape = method_.shape()});
    out.guided = needs.guided;
    return out;
  }
  // Made right before each loop: where memory is refused.
  void make_drafter(const StreamLimits& limits, const LoopNeeds&) override {
    loops.push_back(limits);
    if (refused && refused(limits)) throw std::bad_alloc();
  }
  LoopParts parts() const override { return parts_.parts(); }
  std::size_t loop_bytes(const StreamLimits& limits, const LoopNeeds&) const override {
    return static_cast<std::size_t>(limits.items) * bytes_a_slot;
  }
  ErrorInfo no_room(const LoopNeeds&) const override {
    return {.kind = ErrorKind::kMemory, .code = "E_TEST_ROOM", .where = "a stream"};
  }

  // What it writes alone.
  const Tokens& alone(int number) {
    const auto [at, fresh] = alone_.try_emplace(number);
    if (!fresh) return at->second;
    const Stream stream = small_stream(tiny_, number);
    StreamLoop loop(tiny_.model, limits(needs_of_stream(stream)), parts());
    at->second = tokens_of(run_streams(loop, std::vector{stream})).front();
    return at->second;
  }
  const TinyRun& tiny() const { return tiny_; }

  int loads = 0;
  bool broken = false;
  std::vector<StreamLimits> loops;  // of every try to make one
  std::function<bool(const StreamLimits&)> refused;
  std::size_t bytes_a_slot = 1000;
  const Backend* device = nullptr;  // that it says to write on; null = the model's

 private:
  const TinyRun& tiny_;
  DecodeMethod method_;
  OwnedParts<float, KeyedRandom> parts_;
  std::map<int, Tokens> alone_;
};

// A host with all the memory that is asked for.
struct RoomyHost final : LaneHost {
  RoomAnswer make_room(std::size_t, const Backend&, const Lane&) override { return {}; }
};

// What a submission of a test heard; it outlives the submission.
struct Heard {
  std::map<std::size_t, Tokens> done;
  std::map<std::size_t, Tokens> written;  // by on_tokens()
  std::vector<std::size_t> begun, stopped, no_room;
  std::vector<std::pair<std::int64_t, std::int64_t>> fewer;
  std::vector<std::string> codes;
  std::int64_t passes = 0;      // with streams of it
  std::int64_t all_passes = 0;  // calls
  int over = 0, called_when_over = 0;
};

class ListSubmission final : public Submission {
 public:
  // Called with the name of the call before it does anything.
  using Spoil = std::function<void(const char* call, std::size_t number)>;

  ListSubmission(const TinyRun& tiny, std::vector<int> streams, Heard& heard, Spoil spoil = nullptr)
      : tiny_(tiny), streams_(std::move(streams)), heard_(heard), spoil_(std::move(spoil)) {}

  LoopNeeds needs() const override {
    if (!knows_needs) return {.slots = static_cast<std::int64_t>(streams_.size())};
    LoopNeeds out{.slots = static_cast<std::int64_t>(streams_.size())};
    for (const int number : streams_) {
      LoopNeeds own = needs_of_stream(small_stream(tiny_, number));
      own.slots = out.slots;
      out = both(out, own);
    }
    return out;
  }
  std::optional<NextStream> next(Wait wait) override {
    hear("next", next_);
    waits.push_back(wait);
    if (ready && !ready(next_, wait)) return std::nullopt;
    const std::size_t number = next_++;
    Stream stream = small_stream(tiny_, streams_[number]);
    const LoopNeeds needs = needs_of_stream(stream);
    return NextStream{number, std::move(stream), needs, [this, number](std::size_t) {
                        hear("on_slot", number);
                        heard_.begun.push_back(number);
                      }};
  }
  bool more() const override { return next_ < streams_.size(); }
  Flow on_pass(const SubmissionPass& pass) override {
    ++heard_.all_passes;
    if (!pass.streams.empty()) ++heard_.passes;
    EXPECT_LE(pass.streams.size(), pass.streams_of_all);
    hear("on_pass", next_);
    return stop_at > 0 && heard_.passes >= stop_at ? Flow::kStop : Flow::kContinue;
  }
  void on_tokens(std::size_t number, std::span<const std::int32_t> tokens) override {
    hear("on_tokens", number);
    Tokens& own = heard_.written[number];
    own.insert(own.end(), tokens.begin(), tokens.end());
  }
  std::optional<SlidingStream> on_done(std::size_t number, StreamResult&& result) override {
    hear("on_done", number);
    EXPECT_EQ(result.status, StreamStatus::kDone);
    EXPECT_TRUE(heard_.done.emplace(number, result.tokens).second) << "twice";
    return std::nullopt;
  }
  void on_stopped(std::size_t number, StreamResult&& result) override {
    hear("on_stopped", number);
    EXPECT_EQ(result.status, StreamStatus::kStopped);
    heard_.stopped.push_back(number);
  }
  bool takes_fewer_slots() const override { return takes_fewer; }
  void on_fewer_slots(std::int64_t had, std::int64_t have) override {
    hear("on_fewer_slots", 0);
    heard_.fewer.emplace_back(had, have);
  }
  void on_no_room(std::size_t number, const ErrorInfo& error) override {
    hear("on_no_room", number);
    heard_.no_room.push_back(number);
    heard_.codes.push_back(error.code);
  }
  void on_over(const ErrorInfo* error) override {
    ++heard_.over;
    if (error != nullptr) heard_.codes.push_back(error->code);
    if (spoil_) spoil_("on_over", 0);
  }

  bool takes_fewer = false, knows_needs = true;
  std::int64_t stop_at = 0;  // passes with streams of it; 0 = never
  std::function<bool(std::size_t number, Wait wait)> ready;
  std::vector<Wait> waits;

 private:
  void hear(const char* call, std::size_t number) {
    if (heard_.over > 0) ++heard_.called_when_over;
    if (spoil_) spoil_(call, number);
  }

  const TinyRun& tiny_;
  std::vector<int> streams_;
  std::size_t next_ = 0;
  Heard& heard_;
  Spoil spoil_;
};

// All streams are there, each as it is alone, and nothing is called any more.
inline void expect_written(TinyLaneModel& model, const std::vector<int>& streams,
                           const Heard& heard) {
  EXPECT_EQ(heard.over, 1);
  EXPECT_EQ(heard.called_when_over, 0);
  EXPECT_TRUE(heard.stopped.empty());
  ASSERT_EQ(heard.done.size(), streams.size());
  for (std::size_t i = 0; i < streams.size(); ++i) {
    EXPECT_EQ(heard.done.at(i), model.alone(streams[i])) << "stream " << streams[i];
    EXPECT_EQ(heard.written.at(i), model.alone(streams[i])) << "stream " << streams[i];
  }
}

inline std::vector<int> numbers(int first, int count) {
  std::vector<int> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

// One lane of three slots over the seeded tiny model.
class StreamLanes : public ::testing::Test {
 protected:
  static const TinyRun& tiny() {
    static const TinyRun run(1);
    return run;
  }
  void SetUp() override { make({.slots = 3}); }
  void make(const LaneOptions& options) {
    lane_.reset();
    lane_ = std::make_unique<StreamLane>(model_, host_, options);
  }
  // The submission stays readable until it is over.
  ListSubmission& submit(std::uint64_t ticket, std::vector<int> streams, Heard& heard,
                         ListSubmission::Spoil spoil = nullptr) {
    auto made = std::make_unique<ListSubmission>(tiny(), std::move(streams), heard, spoil);
    ListSubmission& out = *made;
    lane_->submit({ticket}, std::move(made));
    return out;
  }
  void run() {
    for (int steps = 0; !lane_->idle(); ++steps) {
      ASSERT_LT(steps, 5000) << "it does not end";
      lane_->step(Wait::kYes);
    }
    EXPECT_EQ(lane_->stats().slots_taken, 0);
    EXPECT_TRUE(lane_->loop() == nullptr || lane_->loop()->idle());
  }

  TinyLaneModel model_{tiny()};
  RoomyHost host_;
  std::unique_ptr<StreamLane> lane_;
};

}  // namespace tessera
