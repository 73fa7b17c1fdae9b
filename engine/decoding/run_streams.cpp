#include "engine/decoding/run_streams.h"

#include <utility>

#include "engine/core/index.h"

namespace tessera {

namespace {

struct Run final : StreamListener {
  Run(std::size_t streams, std::size_t slots, FunctionRef<Flow(const RunPass&)> heard)
      : results(streams), shown(streams), stream_of(slots, streams), on_pass_of(heard) {
    for (std::size_t i = 0; i < streams; ++i) shown[i] = &results[i];
  }

  void on_pass(const StreamPass& event) override {
    for (const StreamView& view : event.streams) shown[stream_of[view.slot]] = view.result;
    flow = on_pass_of({++passes, RunResults(shown), event.times, event.prompt_rows});
    for (const StreamView& view : event.streams) {
      shown[stream_of[view.slot]] = &results[stream_of[view.slot]];
    }
  }
  void on_done(std::size_t slot, StreamResult&& result) override {
    results[std::exchange(stream_of[slot], results.size())] = std::move(result);
  }

  std::vector<StreamResult> results;
  std::vector<const StreamResult*> shown;
  std::vector<std::size_t> stream_of;  // by slot; their number where it is free
  FunctionRef<Flow(const RunPass&)> on_pass_of;
  std::int64_t passes = 0;
  Flow flow = Flow::kContinue;
};

}  // namespace

std::vector<StreamResult> run_streams(
    StreamLoop& loop, std::span<const Stream> streams, FunctionRef<Flow(const RunPass&)> on_pass,
    FunctionRef<void(std::size_t slot, std::size_t number)> on_add) {
  Run run(streams.size(), to_size(loop.limits().items), on_pass);
  std::size_t next = 0;
  while (run.flow == Flow::kContinue && (next < streams.size() || !loop.idle())) {
    while (next < streams.size() && !loop.full()) {
      const std::size_t slot = loop.add(streams[next]);
      run.stream_of[slot] = next;
      on_add(slot, next++);
    }
    loop.step(run);
  }
  for (std::size_t slot = 0; slot < run.stream_of.size(); ++slot) {
    const std::size_t stream = run.stream_of[slot];
    if (stream < streams.size()) run.results[stream] = loop.drop(slot);
  }
  for (StreamResult& result : run.results) {
    if (result.status == StreamStatus::kRunning) result.status = StreamStatus::kStopped;
  }
  return std::move(run.results);
}

std::vector<StreamResult> run_streams(StreamLoop& loop, std::span<const Stream> streams,
                                      FunctionRef<Flow(const RunPass&)> on_pass) {
  return run_streams(loop, streams, on_pass, [](std::size_t, std::size_t) {});
}

std::vector<StreamResult> run_streams(StreamLoop& loop, std::span<const Stream> streams) {
  return run_streams(loop, streams, [](const RunPass&) { return Flow::kContinue; });
}

}  // namespace tessera
