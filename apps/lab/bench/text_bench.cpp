#include "apps/lab/bench/text_bench.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "apps/lab/bench/random_text_model.h"
#include "engine/core/cached_type.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/storage.h"
#include "engine/decoding/method_parts.h"
#include "engine/decoding/stream_loop.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

struct Case {
  std::int64_t rows, batch;
  DType cache;
};

// Times of a run: passes that took prompts in, and passes of one row a sequence alone.
struct TextRun final : StreamListener {
  const std::int64_t batch;
  double last, last_cpu;
  double prompts = 0, prompts_cpu = 0;  // seconds
  std::vector<double> steps;            // seconds
  double steps_cpu = 0;

  explicit TextRun(std::int64_t sequences)
      : batch(sequences), last(monotonic_seconds()), last_cpu(process_cpu_seconds()) {}

  void on_pass(const StreamPass& pass) override {
    const double now = monotonic_seconds(), now_cpu = process_cpu_seconds();
    if (pass.prompt_rows > 0) {
      prompts += now - last;
      prompts_cpu += now_cpu - last_cpu;
    } else if (pass.decode_rows == batch) {
      steps.push_back(now - last);
      steps_cpu += now_cpu - last_cpu;
    }
    last = now;
    last_cpu = now_cpu;
  }
  void on_done(std::size_t, StreamResult&& result) override {
    if (result.status == StreamStatus::kFailed) throw Error(result.error);
  }
};

Stream make_stream(const Case& what, std::int64_t number, std::int64_t vocab) {
  Stream item{.kind = StreamKind::kText};
  for (std::int64_t i = 0; i < what.rows; ++i) {
    item.prompt.ids.push_back(narrow<std::int32_t>((7 + 31 * i + 101 * number) % vocab));
  }
  item.dist.temperature = 0;
  return item;
}

class TextBench {
 public:
  TextBench(const TextBenchOptions& options, Backend& backend, BenchReport& report)
      : options_(options),
        backend_(backend),
        report_(report),
        probe_(backend.threads()),
        wanted_{.size = options.size,
                .flag = "--random llamagen:" + options.size,
                .positions = positions(options)},
        model_(random_text_model(wanted_, backend, options.storage)) {}

  // Caches in turn, so that they meet the same moments of the machine.
  void measure(std::int64_t rows, std::int64_t batch) {
    std::vector<DType> caches = options_.caches;
    if (caches.empty()) caches.push_back(beside(options_.storage));
    const OwnedParts<float, KeyedRandom> parts(DecodeMethod{}, DecodeAids{});
    std::vector<std::unique_ptr<StreamLoop>> loops;
    for (const DType cache : caches) {
      loops.push_back(std::make_unique<StreamLoop>(
          model_,
          StreamLimits{.items = batch,
                       .prompt_rows = rows,
                       .grammar = VocabularyGrammar::line(wanted_.vocab,
                                                          narrow<int>(wanted_.positions - rows)),
                       .kv = cache},
          parts.parts()));
    }
    for (std::int64_t run = 0; run < options_.runs; ++run) {
      for (std::size_t i = 0; i < caches.size(); ++i) {
        measure({rows, batch, caches[i]}, run, *loops[i]);
      }
    }
  }

 private:
  void measure(const Case& what, std::int64_t run, StreamLoop& loop) {
    const double before = probe_.gigabytes_per_second(1);
    TextRun times(what.batch);
    std::vector<std::size_t> slots;
    for (std::int64_t i = 0; i < what.batch; ++i) {
      slots.push_back(loop.add(make_stream(what, i, wanted_.vocab)));
    }
    while (std::ssize(times.steps) < options_.tokens) loop.step(times);
    for (const std::size_t slot : slots) loop.drop(slot);
    record(what, run, times, (before + probe_.gigabytes_per_second(1)) / 2);
  }

  // Sequences that came first write while the prompts of the others go in.
  static std::int64_t positions(const TextBenchOptions& options) {
    const std::int64_t rows = std::ranges::max(options.rows);
    return rows + 2 * options.tokens + std::ranges::max(options.batch_sizes) * (rows / 32 + 8);
  }

  void record(const Case& what, std::int64_t run, const TextRun& times, double probe) {
    Timing timing;
    timing.seconds = times.steps;
    timing.cpu_seconds = times.steps_cpu / to_double(times.steps.size());
    std::ranges::sort(timing.seconds);
    const ModelConfig& dims = model_.config().transformer;
    const std::size_t cached = to_size(what.batch * (what.rows + options_.tokens / 2));
    const std::size_t bytes =
        model_.step_weight_bytes() + cached * 2 * to_size(dims.layers * dims.kv_heads) *
                                         cached_type(what.cache).bytes(dims.head_dim);
    const double rate = to_double(bytes) / timing.median() * 1e-9;
    Json object = report_.start("text.plain");
    object["model"] = {{"family", "llamagen"},
                       {"size", options_.size},
                       {"dims", std::to_string(dims.layers) + "x" + std::to_string(dims.width)},
                       {"dtype", dtype_name(options_.storage)},
                       {"kv_dtype", dtype_name(what.cache)},
                       {"weights", "random:1"}};
    object["shape"] = {
        {"b", what.batch}, {"c", 1}, {"w", 1}, {"S", what.rows}, {"V", wanted_.vocab}};
    object["impl"] = backend_.name();
    BenchReport::add_timing(object, timing);
    object["run"] = run + 1;
    object["prefill_s"] = times.prompts;
    object["prefill_cpu_s"] = times.prompts_cpu;
    object["bytes"] = bytes;
    object["probe_gbs"] = probe;
    object["eff"] = rate / probe;
    const bool alone = backend_.threads().threads() == 1;
    const double rate_cpu = to_double(bytes) / timing.cpu_seconds * 1e-9;
    if (alone) object["eff_cpu"] = rate_cpu / probe;
    report_.emit(object);
    report_.add_row(
        "text.plain",
        "llamagen:" + options_.size + ", " + std::string(dtype_name(options_.storage)) +
            ", cache " + std::string(dtype_name(what.cache)) + ", " + std::to_string(what.batch) +
            " x " + std::to_string(what.rows) + " rows",
        fixed_digits(times.prompts, 3) + " s, then " + fixed_digits(timing.median() * 1e3, 2) +
            " ms a pass",
        fixed_digits(rate, 1) + " of " + fixed_digits(probe, 1) + " GB/s",
        fixed_digits(100 * rate / probe, 0) + " %" +
            (alone ? ", " + fixed_digits(100 * rate_cpu / probe, 0) + " % of processor time" : ""));
  }

  const TextBenchOptions& options_;
  Backend& backend_;
  BenchReport& report_;
  ReadProbe probe_;
  RandomTextModel wanted_;
  StreamModel model_;
};

}  // namespace

void run_text_bench(const TextBenchOptions& options, Backend& backend, BenchReport& report) {
  TextBench bench(options, backend, report);
  for (const std::int64_t rows : options.rows) {
    for (const std::int64_t batch : options.batch_sizes) bench.measure(rows, batch);
  }
}

}  // namespace tessera
