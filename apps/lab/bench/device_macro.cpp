// Passes of the stream loop at published dimensions, window by window, next to what the cost model
// says of them; what one order of sums costs; what distribution, acceptance and commitment take of a pass.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/lab/bench/device_model.h"
#include "engine/backend/row_verifier.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/decoding/model_pass.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

// Where passes are timed: after a prompt and about half of an image.
struct Place {
  std::int64_t prompt = 32, given = 256, passes = 24;

  explicit Place(bool quick) {
    if (!quick) return;
    prompt = given = 4;
    passes = 1;
  }
};

DeviceRates probed_rates(DeviceBench& bench) {
  DeviceRates rates{.bytes_per_second = bench.read_rate() * 1e9};
  // Without a library's rate arithmetic is left out of the prediction.
  rates.flops_per_second = bench.product_rate().value_or(1e9) * 1e12;
  rates.gap_seconds = bench.time_gap().median();
  return rates;
}

struct Sweep {
  DeviceBench& bench;
  const BenchModel& made;
  DeviceRates rates;
  Place place;

  LoopPasses run(std::int64_t window, ProbePair& probe) const {
    const Stream item = bench_item(*made.model, place.prompt, place.given);
    probe.before = bench.read_rate();
    LoopPasses out = time_loop(bench, *made.model, item, window, place.passes);
    probe.after = bench.read_rate();
    return out;
  }

  Json start(const std::string& name, std::int64_t window, const LoopPasses& passes,
             const ProbePair& probe) const {
    const StepShape shape = step_shape(made.config(), DType::kBF16, DType::kBF16);
    const StepPass pass{.window = window, .live_rows = to_double(place.prompt + place.given)};
    Json object = bench.start(name, bench.backend().name());
    object["model"] = made.json();
    object["shape"] = {
        {"b", 1}, {"c", 2}, {"w", window}, {"S", place.prompt + place.given}, {"V", shape.codes}};
    const double bytes = floor_seconds(rates, shape, pass) * rates.bytes_per_second;
    bench.finish(object, passes.timing, bytes, 4.0 * shape.parameters * to_double(window), probe);
    object["passes"] = passes.timing.seconds.size();
    object["quality"] = nullptr;
    DeviceRates reached = rates;
    reached.kernels_a_layer = kernels_of_a_layer(pass.images * pass.branches * pass.window);
    object["kernels_a_layer"] = reached.kernels_a_layer;
    object["gap_us"] = reached.gap_seconds * 1e6;
    const double predicted = predict_step(reached, shape, pass).total();
    const double measured = passes.timing.median();
    object["predicted_us"] = predicted * 1e6;
    object["predicted_over_measured"] = predicted / measured;
    object["miss_percent"] = 100 * (measured / predicted - 1);
    return object;
  }

  void emit(std::int64_t window, const LoopPasses& passes, double first,
            const ProbePair& probe) const {
    Json object = start("step.sweep", window, passes, probe);
    const double measured = passes.timing.median();
    object["t_over_t1"] = measured / first;
    const double miss = object["miss_percent"].get<double>();
    const bool shown = window == 1 || window == 64;
    std::string text;
    if (shown) {
      text = "step.sweep, " + made.opened.spec.title + ", window " + std::to_string(window) + ": " +
             fixed_digits(measured * 1e3, 3) + " ms, T(w)/T(1) " +
             fixed_digits(measured / first, 2) + ", floor is " +
             fixed_digits(100 * object["eff"].get<double>(), 0) + " % of it, model said " +
             fixed_digits(object["predicted_us"].get<double>() * 1e-3, 3) + " ms" +
             (std::abs(miss) > 15 ? ", off by " + fixed_digits(miss, 0) + " %" : "");
    }
    bench.emit(object, text);
  }
};

std::vector<double> sweep_model(DeviceBench& bench, const std::string& name,
                                const DeviceRates& rates, std::span<const std::int64_t> windows) {
  const std::int64_t widest = windows.back();
  const BenchModel made = load_bench_model(bench, name, widest);
  const Sweep sweep{bench, made, rates, Place(bench.options().quick)};
  std::vector<double> out;
  for (const std::int64_t window : windows) {
    ProbePair probe;
    const LoopPasses passes = sweep.run(window, probe);
    out.push_back(passes.timing.median());
    sweep.emit(window, passes, out.front(), probe);
  }
  return out;
}

// The same with one order of sums, and what that costs.
void sweep_deterministic(DeviceBench& bench, const std::string& name, const DeviceRates& rates,
                         std::span<const std::int64_t> windows, std::span<const double> fast,
                         std::span<const std::int64_t> all) {
  const BenchModel made = load_bench_model(bench, name, windows.back());
  const Sweep sweep{bench, made, rates, Place(bench.options().quick)};
  std::string text = "step.deterministic, " + made.opened.spec.title + ":";
  for (const std::int64_t window : windows) {
    ProbePair probe;
    const LoopPasses passes = sweep.run(window, probe);
    const auto at = std::find(all.begin(), all.end(), window) - all.begin();
    const double ratio = passes.timing.median() / nth(fast, at);
    Json object = sweep.start("step.deterministic", window, passes, probe);
    object["over_fast"] = ratio;
    text += " " + fixed_digits(ratio, 2) + " of the fast pass at window " + std::to_string(window);
    bench.emit(object, window == windows.back() ? text : "");
    text += ",";
  }
}

// Passes of one shape after the same cached rows: as they are, and verified.
class DistributionCase {
 public:
  DistributionCase(DeviceBench& bench, const BenchModel& made, std::int64_t window)
      : bench_(bench),
        window_(window),
        place_(middle(bench.options().quick)),
        pass_(*made.model, limits(window, place_)) {
    const Stream item = bench_item(*made.model, place_.prompt, place_.given);
    pass_.begin();
    pass_.add_prompt(0, item.prompt.ids);
    pass_.add_prompt(1, item.unconditional.ids);
    pass_.run_layers();
    const std::span<const std::int32_t> given = item.given;
    for (std::size_t at = 0; at < given.size(); at += kPart) {
      const auto part = given.subspan(at, std::min(kPart, given.size() - at));
      pass_.begin();
      for (const std::int32_t branch : {0, 1}) pass_.add_tokens(branch, part);
      pass_.run_layers();
    }
    cached_ = pass_.cache().length(0);
    tokens_.resize(to_size(window));
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      tokens_[i] = narrow<std::int32_t>(i * 37 % to_size(made.config().codes));
    }
    RowVerifierMaker* verifiers = bench.backend().row_verifiers();
    if (verifiers == nullptr) return;
    const VerifyMethod method =
        window == 1 ? VerifyMethod{} : VerifyMethod{.redraft_policy = VerifyRedraft::kMaximal, .dists = true};
    verifier_ = verifiers->make(method, {.codes = made.config().codes, .rows = window, .items = 1});
  }

  bool on_device() const { return verifier_ != nullptr; }

  // Seconds. Verified: with records on the host, or with the logits there where the host verifies.
  double once(bool verified) {
    const double began = monotonic_seconds();
    pass_.begin();
    for (const std::int32_t branch : {0, 1}) pass_.add_tokens(branch, tokens_);
    pass_.run();
    if (!verified) {
      bench_.backend().synchronize();
    } else if (verifier_ == nullptr) {
      pass_.fetch_logits();
    } else {
      verify();
    }
    const double ended = monotonic_seconds();
    for (const std::int32_t branch : {0, 1}) pass_.cache().truncate(branch, cached_);
    return ended - began;
  }

 private:
  static constexpr std::size_t kPart = 64;

  // Where the loop is in the middle of its timed passes, of which each brings about a token.
  static Place middle(bool quick) {
    Place out(quick);
    out.given += 3 + out.passes;
    return out;
  }

  static ModelPass::Limits limits(std::int64_t window, const Place& place) {
    return {.sequences = 2,
            .capacity = place.prompt + place.given + window,
            .logit_rows = 2 * window,
            .token_rows = 2 * std::max(window, to_index(kPart)),
            .prompt_rows = 2 * place.prompt,
            .kv = DType::kBF16};
  }

  // Drafts that were drawn evenly.
  void verify() {
    rows_.clear();
    for (std::int32_t row = 0; row < window_; ++row) {
      const bool last = row + 1 == window_;
      rows_.push_back({.cond = row,
                       .uncond = narrow<std::int32_t>(window_) + row,
                       .draft = last ? -1 : tokens_[to_size(row) + 1],
                       .kind = last ? DraftKind::kNone : DraftKind::kUniform});
    }
    const VerifiedItem item{.dist = {.guidance = 5}, .rows = narrow<std::int32_t>(window_)};
    verifier_->verify({pass_.device_logits(), {&item, 1}, rows_});
    verifier_->rows();
  }

  DeviceBench& bench_;
  std::int64_t window_, cached_ = 0;
  Place place_;
  ModelPass pass_;
  std::unique_ptr<RowVerifier> verifier_;
  std::vector<std::int32_t> tokens_;
  std::vector<VerifiedRow> rows_;
};

void dist_of(DeviceBench& bench, const BenchModel& made, std::int64_t window) {
  const Place place(bench.options().quick);
  DistributionCase one(bench, made, window);
  Timing bare, verified;
  bare.warmup = verified.warmup = 3;
  const int pairs = bench.options().quick ? 1 : 40;
  for (int i = 0; i < bare.warmup + pairs; ++i) {
    for (const bool with : {false, true}) {
      const double seconds = one.once(with);
      if (i >= bare.warmup) (with ? verified : bare).seconds.push_back(seconds);
    }
  }
  for (Timing* timing : {&bare, &verified}) {
    std::sort(timing->seconds.begin(), timing->seconds.end());
  }
  const Stream item = bench_item(*made.model, place.prompt, place.given);
  const LoopPasses steps = time_loop(bench, *made.model, item, window, 2 * place.passes);
  // What stands next to the bare pass: the verifier's kernels and their records, by turns with it, and
  // the host's part.
  const double dist = verified.median() - bare.median();
  const double step = verified.median() + steps.host_seconds;
  const double of_step = (dist + steps.host_seconds) / step;
  Json object = bench.start("law.share", bench.backend().name());
  object["model"] = made.json();
  object["shape"] = {{"M", 2 * window},
                     {"w", window},
                     {"c", 2},
                     {"b", 1},
                     {"S", place.prompt + place.given},
                     {"V", made.config().codes}};
  BenchReport::add_timing(object, steps.timing);
  object["pass_us"] = bare.median() * 1e6;
  object["judged_pass_us"] = verified.median() * 1e6;
  object["host_us"] = steps.host_seconds * 1e6;
  object["step_us"] = step * 1e6;
  object["law_share"] = dist / verified.median();
  object["share_of_step"] = of_step;
  object["judged_by"] = one.on_device() ? "device" : "host";
  const auto passes = to_double(steps.passes);
  object["host_reads_a_pass"] = to_double(steps.reads) / passes;
  object["host_bytes_a_pass"] = to_double(steps.bytes) / passes;
  object["quality"] = nullptr;
  bench.emit(object, "law.share, " + made.opened.spec.title + ", " + std::to_string(2 * window) +
                         " rows: distribution, acceptance and commit " +
                         fixed_digits(100 * of_step, 1) + " % of a step, " +
                         fixed_digits(to_double(steps.reads) / passes, 1) + " reads of " +
                         fixed_digits(to_double(steps.bytes) / passes, 0) + " bytes a pass");
}

}  // namespace

void run_device_macro(DeviceBench& bench, const std::vector<std::string>& models) {
  const bool quick = bench.options().quick;
  const std::vector<std::int64_t> windows =
      quick ? std::vector<std::int64_t>{1, 2}
            : std::vector<std::int64_t>{1, 2, 4, 8, 16, 32, 48, 64, 96, 128};
  const std::vector<std::int64_t> few = quick ? windows : std::vector<std::int64_t>{1, 16, 64};
  const DeviceRates rates = probed_rates(bench);
  std::vector<std::vector<double>> fast;
  for (const std::string& model : models) {
    fast.push_back(sweep_model(bench, model, rates, windows));
  }
  if (bench.options().cuda.deterministic) return;
  DeviceBench deterministic = bench.deterministic();
  for (std::size_t i = 0; i < models.size(); ++i) {
    sweep_deterministic(deterministic, models[i], rates, few, fast[i], windows);
  }
}

void run_device_dist(DeviceBench& bench, const std::vector<std::string>& models) {
  const std::vector<std::int64_t> windows = bench.options().quick
                                                ? std::vector<std::int64_t>{1, 2}
                                                : std::vector<std::int64_t>{1, 16, 32, 64};
  for (const std::string& model : models) {
    const BenchModel made = load_bench_model(bench, model, windows.back());
    for (const std::int64_t window : windows) dist_of(bench, made, window);
  }
}

}  // namespace tessera
