// Passes at published dimensions whose outcomes follow a recorded trace: wall time at a stated
// acceptance is exact, while images and distribution mean nothing.
#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/lab/bench/decode_bench.h"
#include "apps/lab/bench/image_bench.h"
#include "apps/lab/bench/replay.h"
#include "apps/lab/eval/eval_statistics.h"
#include "apps/runtime/memory.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"
#include "engine/core/io.h"
#include "engine/core/json.h"
#include "engine/decoding/method_parts.h"
#include "engine/decoding/run_streams.h"
#include "engine/families/open_model.h"

namespace tessera {

namespace {

struct Generator {
  StreamLoop& loop;
  std::vector<Stream> items;
  std::int64_t tokens;

  // Seconds a token of an image after the prefill, until images have `tokens` in the mean: how
  // far the slowest lags after a few tokens says nothing of whole images.
  double run() {
    double began = 0, ended = 0, mean = 0;
    run_streams(loop, items, [&](const RunPass& event) {
      ended = monotonic_seconds();
      if (event.pass == 1) began = ended;
      mean = 0;
      for (std::size_t i = 0; i < event.items.size(); ++i) {
        const StreamResult& item = event.items[i];
        if (item.status == StreamStatus::kFailed) throw Error(item.error);
        mean += to_double(item.tokens.size()) / to_double(items.size());
      }
      return mean >= to_double(tokens) ? Flow::kStop : Flow::kContinue;
    });
    return (ended - began) / (mean - 1);
  }
};

Stream replay_item(const OpenedModel& opened, const StreamModel& model, std::uint64_t seed) {
  Stream item;
  if (model.config().prompt == PromptKind::kClass) {
    item.prompt.ids = {narrow<std::int32_t>(seed % 7)};
  } else {
    for (std::int32_t i = 0; i < 32; ++i) item.prompt.ids.push_back(7 + 31 * i % 100);
  }
  item.unconditional.ids = model.unconditional_prompt(item.prompt.ids, 0);
  item.dist.guidance = std::max(opened.spec.sampling.guidance, 2.0);
  item.seed = seed;
  return item;
}

// Of loops whose items are all like this one.
StreamLimits replay_limits(const Stream& item, const VocabularyGrammar& grammar, std::int64_t batch,
                           std::int64_t window, DType storage) {
  return {.items = batch,
          .prompt_rows = item.prompt.length(),
          .grammar = grammar,
          .window = window,
          .guided = true,
          .budget = 2 * batch * item.prompt.length(),
          .kv = beside(storage)};
}

std::vector<double> trace_of(const Json& written, const std::string& file) {
  const JsonReader reader(written, file, "", ErrorKind::kUsage);
  const JsonReader meters = reader.has("meters") ? reader.object("meters") : reader;
  constexpr std::int64_t kMax = std::int64_t{1} << 40;
  const auto tested = meters.integers("tested_by_depth", 1, kMax, 4096);
  auto accepted = meters.integers("accepted_by_depth", 0, kMax, 4096);
  accepted.resize(tested.size());
  std::vector<double> out;
  for (std::size_t j = 0; j < tested.size(); ++j) {
    out.push_back(std::min(1.0, to_double(accepted[j]) / to_double(tested[j])));
  }
  if (out.empty()) meters.fail("tested_by_depth", "counts of at least one depth", "none");
  return out;
}

// Whole images through a loop; its slots are filled again between passes.
struct FilledRun final : StreamListener {
  std::int64_t passes = 0, busy = 0;  // busy: slots with a stream, over all passes
  double seconds = 0, processor = 0;

  void on_pass(const StreamPass& event) override {
    ++passes;
    busy += std::ssize(event.streams);
  }
  void on_done(std::size_t, StreamResult&& result) override {
    if (result.status == StreamStatus::kFailed) throw Error(result.error);
  }

  void add(StreamLoop& loop, std::span<const Stream> streams) {
    const double began = monotonic_seconds();
    const std::clock_t began_work = std::clock();
    for (std::size_t next = 0; next < streams.size() || !loop.idle();) {
      while (next < streams.size() && !loop.full()) loop.add(streams[next++]);
      loop.step(*this);
    }
    seconds += monotonic_seconds() - began;
    processor += to_double(std::clock() - began_work) / CLOCKS_PER_SEC;
  }
  // In batches, each of which waits for its slowest image.
  void add_in_batches(StreamLoop& loop, std::span<const Stream> streams, std::size_t batch) {
    for (std::size_t first = 0; first < streams.size(); first += batch) {
      add(loop, streams.subspan(first, std::min(batch, streams.size() - first)));
    }
  }
};

}  // namespace

std::vector<double> read_accept_trace(const std::filesystem::path& path) {
  return trace_of(parse_json(read_file(path, std::size_t{1} << 20, ErrorKind::kUsage),
                             path.string(), {.kind = ErrorKind::kUsage}),
                  path.string());
}

std::vector<std::vector<double>> read_accept_traces(const std::filesystem::path& path) {
  std::istringstream lines(read_file(path, std::size_t{1} << 26, ErrorKind::kUsage));
  std::vector<std::vector<double>> out;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const std::string name = path.string() + ":" + std::to_string(out.size() + 1);
    out.push_back(trace_of(parse_json(line, name, {.kind = ErrorKind::kUsage}), name));
  }
  if (out.empty()) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_BAD_TRACE",
                 .file = path.string(),
                 .expected = "JSON Lines with meters",
                 .found = "no line"});
  }
  return out;
}

void run_replay_bench(const ReplayBenchOptions& options, Backend& backend, BenchReport& report) {
  OpenedModel opened = open_to_bench(options.model);
  const std::int64_t widest = *std::max_element(options.windows.begin(), options.windows.end());
  for (const std::int64_t batch : options.batch_sizes) {
    check_memory(plan_generation(opened, backend,
                                 {.storage = options.storage, .images = batch, .window = widest}),
                 options.model);
  }
  const StreamModel model = load_stream_model(opened, backend, options.storage);
  const DecodeAids aids{.grammar = model.config().grammar()};
  DecodeMethod method = settle_method(decode_method("gumbel"), aids, model.image_token_count());
  const OwnedParts<float, KeyedRandom> plain(DecodeMethod{}, aids), owned(method, aids);
  const AcceptTrace trace = AcceptTrace::of_hazards("recorded", options.trace);
  LoopParts parts = owned.parts();
  ReplayRule rule(*parts.rule, std::span(&trace, 1));
  WatchedVerifiers verifiers(backend, &trace);
  parts.rule = &rule;
  parts.verifiers = &verifiers;
  for (const std::int64_t batch : options.batch_sizes) {
    std::vector<Stream> items;
    for (std::int64_t i = 0; i < batch; ++i) {
      items.push_back(replay_item(opened, model, narrow<std::uint64_t>(i) + 1));
    }
    const auto loop_for = [&](std::int64_t window, const LoopParts& loop_parts,
                              WindowController* controller) {
      return StreamLoop(model, replay_limits(items[0], aids.grammar, batch, window, options.storage),
                        loop_parts, controller);
    };
    StreamLoop plain_loop = loop_for(1, plain.parts(), nullptr);
    Generator by_plain{plain_loop, items, options.tokens};
    for (std::size_t k = 0; k <= options.windows.size(); ++k) {
      const bool adaptive = k == options.windows.size();
      const std::int64_t window = adaptive ? widest : options.windows[k];
      WindowController controller(window);
      StreamLoop loop = loop_for(window, parts, adaptive ? &controller : nullptr);
      Generator by_method{loop, items, options.tokens};
      std::vector<double> ratios, seconds;
      for (std::int64_t pair = 0; pair < options.pairs; ++pair) {
        double took[2];
        for (int turn = 0; turn < 2; ++turn) {
          const int who = (turn + narrow<int>(pair)) % 2;
          took[who] = who == 0 ? by_plain.run() : by_method.run();
        }
        ratios.push_back(took[1] / took[0]);
        seconds.push_back(took[1]);
      }
      const Interval ratio = bootstrap_median(ratios);
      const std::string name = adaptive ? "replay.auto" : "replay.w" + std::to_string(window);
      Json object = report.start(name);
      object["model"] = options.model;
      object["dtype"] = dtype_name(options.storage);
      object["batch"] = batch;
      object["tokens"] = options.tokens;
      object["latency_ratio"] = interval_json(ratio);
      object["seconds_a_token"] = interval_json(bootstrap_median(seconds));
      object["quality"] = nullptr;
      if (adaptive) object["why"] = controller.why();
      report.emit(object);
      report.add_row(name, options.model + ", batch " + std::to_string(batch),
                     fixed_digits(bootstrap_median(seconds).mean * 1e3, 2) + " ms a token",
                     fixed_digits(ratio.mean, 3) + " (" + fixed_digits(ratio.low, 3) + "-" +
                         fixed_digits(ratio.high, 3) + ") of plain's time",
                     adaptive ? controller.why() : "");
    }
  }
}

void run_refill_bench(const RefillBenchOptions& options, Backend& backend, BenchReport& report) {
  OpenedModel opened = open_to_bench(options.model);
  const StreamModel model = load_stream_model(opened, backend, options.storage);
  const DecodeAids aids{.grammar = model.config().grammar()};
  const OwnedParts<float, KeyedRandom> owned(
      settle_method(decode_method("gumbel"), aids, model.image_token_count()), aids);
  std::vector<AcceptTrace> traces;
  for (const std::vector<double>& hazards : options.traces) {
    traces.push_back(AcceptTrace::of_hazards("recorded", hazards));
  }
  LoopParts parts = owned.parts();
  ReplayRule rule(*parts.rule, traces);
  parts.rule = &rule;
  std::vector<Stream> items;
  for (std::int64_t i = 0; i < options.images; ++i) {
    items.push_back(replay_item(opened, model, narrow<std::uint64_t>(i) + 1));
  }
  const double images = to_double(options.images);
  for (const std::int64_t batch : options.batch_sizes) {
    for (const std::int64_t window : options.windows) {
      StreamLoop loop(model, replay_limits(items[0], aids.grammar, batch, window, options.storage),
                      parts);
      std::vector<double> ratios, work_ratios, rates;
      FilledRun last[2];
      for (std::int64_t pair = 0; pair < options.pairs; ++pair) {
        for (std::int64_t turn = 0; turn < 2; ++turn) {
          FilledRun run;
          const bool batches = (turn + pair) % 2 == 0;
          if (batches) {
            run.add_in_batches(loop, items, to_size(batch));
          } else {
            run.add(loop, items);
          }
          last[batches ? 0 : 1] = run;
        }
        ratios.push_back(last[0].seconds / last[1].seconds);
        work_ratios.push_back(last[0].processor / last[1].processor);
        rates.push_back(images / last[1].seconds);
      }
      const Interval ratio = bootstrap_median(ratios), rate = bootstrap_median(rates);
      const auto work = [&](const FilledRun& run) {
        return to_double(run.busy) / to_double(run.passes * batch);
      };
      const std::string name = "replay.refill.w" + std::to_string(window);
      Json object = report.start(name);
      object["model"] = options.model;
      object["dtype"] = dtype_name(options.storage);
      object["batch"] = batch;
      object["images"] = options.images;
      object["images_per_second"] = interval_json(rate);
      object["against_batches"] = interval_json(ratio);
      object["processor_against_batches"] = interval_json(bootstrap_median(work_ratios));
      object["passes"] = {{"batches", last[0].passes}, {"refilled", last[1].passes}};
      object["slots_at_work"] = {{"batches", work(last[0])}, {"refilled", work(last[1])}};
      object["quality"] = nullptr;
      report.emit(object);
      report.add_row(name, options.model + ", batch " + std::to_string(batch),
                     fixed_digits(rate.mean, 3) + " images a second",
                     fixed_digits(ratio.mean, 3) + " (" + fixed_digits(ratio.low, 3) + "-" +
                         fixed_digits(ratio.high, 3) + ") times batches",
                     "slots at work " + fixed_digits(work(last[1]), 3) + ", batches " +
                         fixed_digits(work(last[0]), 3) + "; passes " +
                         std::to_string(last[1].passes) + ", batches " +
                         std::to_string(last[0].passes));
    }
  }
}

}  // namespace tessera
