// Passes of the decode loop at published dimensions, window by window, beside what the cost model
// says of them: weights are noise, so tokens mean nothing and times do.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/bench/device_bench.h"
#include "apps/pipeline/memory.h"
#include "engine/core/io.h"
#include "engine/decoding/decode_loop.h"
#include "engine/decoding/method_parts.h"
#include "engine/families/open_model.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

// The same noise for every tensor, as long as the longest of them: a model of any size is loaded
// without drawing each of its numbers. Norms are ones.
class NoiseSource final : public TensorSource {
 public:
  explicit NoiseSource(const FamilySpec& spec) {
    std::int64_t longest = 0, row = 0;
    for (const TensorSpec& tensor : spec.tensors) {
      shapes_.emplace(tensor.name, tensor.shape);
      longest = std::max(longest, tensor.shape.elements());
      if (tensor.shape.rank() < 2) row = std::max(row, tensor.shape.elements());
    }
    noise_ = DeviceBench::noise({longest}, 21, 0.02f);
    ones_ = Tensor::host(DType::kF32, {std::max<std::int64_t>(row, 1)});
    std::fill_n(ones_.f32(), ones_.shape().elements(), 1.0f);
  }
  ConstTensorView get(const std::string& name) override {
    const Shape& shape = shapes_.at(name);
    const bool norm = shape.rank() < 2 && name.ends_with(".weight");
    ConstTensorView view = std::as_const(norm ? ones_ : noise_).view();
    view.shape = shape;
    return view;
  }
  void done(const std::string&) override {}
  std::string file_of(const std::string&) const override { return "noise"; }

 private:
  std::map<std::string, Shape> shapes_;
  Tensor noise_, ones_;
};

struct Sweep {
  DeviceBench& bench;
  const OpenedModel& opened;
  const ImageModel& model;
  DeviceRates rates;
  std::int64_t prompt = 32, given = 256, passes = 24;

  DecodeItem item() const {
    DecodeItem out;
    if (model.config().prompt == PromptKind::kClass) {
      out.prompt = {1};
    } else {
      for (std::int64_t i = 0; i < prompt; ++i) {
        out.prompt.push_back(static_cast<std::int32_t>((7 + 31 * i) % model.config().prompt_vocab));
      }
    }
    out.unconditional = model.unconditional_prompt(out.prompt, 0);
    out.law.guidance = 5;
    out.seed = 1;
    for (std::int64_t i = 0; i < given; ++i) {
      const auto forced = model.config().grammar().forced(static_cast<std::size_t>(i));
      out.given.push_back(forced ? *forced : static_cast<std::int32_t>(i % model.config().codes));
    }
    return out;
  }

  // Times of passes of this window, plain decoding where it is 1.
  Timing time_of(std::int64_t window) const {
    const DecodeAids aids{.grammar = model.config().grammar()};
    DecodeMethod method;
    if (window > 1) {
      method = decode_method("coupled");
      method.window = window;
      method = settle_method(method, aids, model.image_token_count());
    }
    const OwnedParts<float, KeyedRandom> parts(method, aids);
    const DecodeItem one = item();
    DecodeLoop loop(model, {.prompt_tokens = static_cast<std::int64_t>(one.prompt.size()),
                            .window = window,
                            .kv = DType::kBF16,
                            .laws = keeps_laws(method),
                            .given_tokens = given});
    Timing timing;
    timing.warmup = 3;  // plain, recorded, repeated for the first time
    const double cpu = process_cpu_seconds();
    double last = 0;
    const auto results = loop.run({&one, 1}, parts.parts(), [&](const PassEvent& event) {
      const double now = monotonic_seconds();
      if (event.pass > 1 + timing.warmup) timing.seconds.push_back(now - last);
      last = now;
      return event.pass < 1 + timing.warmup + passes ? Flow::kContinue : Flow::kStop;
    });
    if (results[0].status == DecodeStatus::kFailed) throw Error(results[0].error);
    expects(!timing.seconds.empty(), "a sweep has passes to time");
    timing.cpu_seconds = (process_cpu_seconds() - cpu) / static_cast<double>(timing.seconds.size());
    std::sort(timing.seconds.begin(), timing.seconds.end());
    return timing;
  }

  void emit(std::int64_t window, const Timing& timing, double first, const ProbePair& probe) const {
    const StepShape shape = step_shape(model.config(), DType::kBF16, DType::kBF16);
    const StepPass pass{.window = window, .live_rows = static_cast<double>(prompt + given)};
    const double predicted = predict_step(rates, shape, pass).total();
    const double bytes = floor_seconds(rates, shape, pass) * rates.bytes_per_second;
    Json object = bench.start("step.sweep", bench.backend().name());
    const ModelConfig& lm = model.config().transformer;
    object["model"] = {{"family", opened.spec.family},
                       {"dims", std::to_string(lm.layers) + "x" + std::to_string(lm.width)},
                       {"params_read", shape.parameters},
                       {"dtype", "bf16"},
                       {"kv_dtype", "bf16"},
                       {"weights", "noise:21"}};
    object["shape"] = {
        {"b", 1}, {"c", 2}, {"w", window}, {"S", prompt + given}, {"V", shape.codes}};
    bench.finish(object, timing, bytes, 4.0 * shape.parameters * static_cast<double>(window),
                 probe);
    const double measured = timing.median();
    object["t_over_t1"] = measured / first;
    object["predicted_us"] = predicted * 1e6;
    object["predicted_over_measured"] = predicted / measured;
    object["passes"] = timing.seconds.size();
    object["quality"] = nullptr;
    const bool shown = window == 1 || window == 32 || window == 64;
    bench.emit(object,
               shown ? "step.sweep, " + opened.spec.title + ", window " + std::to_string(window) +
                           ": " + fixed_digits(measured * 1e3, 3) + " ms, T(w)/T(1) " +
                           fixed_digits(measured / first, 2) + ", floor is " +
                           fixed_digits(100 * object["eff"].get<double>(), 0) +
                           " % of it, model said " + fixed_digits(predicted * 1e3, 3) + " ms"
                     : "");
  }
};

void sweep_model(DeviceBench& bench, const std::string& name, const DeviceRates& rates) {
  OpenedModel opened = open_model(name);
  const bool quick = bench.options().quick;
  const std::int64_t widest = quick ? 2 : 128;
  const MemoryRequest asked{
      .storage = DType::kBF16, .prompt_tokens = 32, .window = widest, .laws = true};
  const auto plan_of = [&](const MemoryRequest& request) {
    return plan_generation(opened, bench.backend(), request);
  };
  MemoryPlan plan = plan_of(asked);
  plan_device(plan, bench.backend(), asked, plan_of);
  check_memory(plan, name);
  opened.source = std::make_unique<NoiseSource>(opened.spec);
  const ImageModel model = load_image_model(opened, bench.backend(), DType::kBF16);
  opened.source.reset();
  Sweep sweep{bench, opened, model, rates};
  if (quick) {
    sweep.prompt = 4;
    sweep.given = 4;
    sweep.passes = 1;
  }
  double first = 0;
  for (const std::int64_t window : {1, 2, 4, 8, 16, 32, 64, 96, 128}) {
    if (window > widest) break;
    ProbePair probe;
    probe.before = bench.read_rate();
    const Timing timing = sweep.time_of(window);
    probe.after = bench.read_rate();
    if (window == 1) first = timing.median();
    sweep.emit(window, timing, first, probe);
  }
}

}  // namespace

void run_device_macro(DeviceBench& bench, const std::vector<std::string>& models) {
  DeviceRates rates{.bytes_per_second = bench.read_rate() * 1e9};
  // Without a library's rate arithmetic is left out of the prediction.
  rates.flops_per_second = bench.product_rate().value_or(1e9) * 1e12;
  for (const std::string& model : models) sweep_model(bench, model, rates);
}

}  // namespace tessera
