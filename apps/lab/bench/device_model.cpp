#include "apps/lab/bench/device_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/lab/bench/cost_model.h"
#include "apps/lab/bench/image_bench.h"
#include "apps/lab/bench/replay.h"
#include "apps/runtime/memory.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/decoding/method_parts.h"
#include "engine/decoding/run_streams.h"

namespace tessera {

NoiseSource::NoiseSource(const std::vector<TensorSpec>& tensors) {
  std::int64_t longest = 0, row = 0;
  for (const TensorSpec& tensor : tensors) {
    shapes_.emplace(tensor.name, tensor.shape);
    longest = std::max(longest, tensor.shape.elements());
    if (tensor.shape.rank() < 2) row = std::max(row, tensor.shape.elements());
  }
  noise_ = DeviceBench::noise({longest}, 21, 0.02f);
  ones_ = Tensor::host(DType::kF32, {std::max<std::int64_t>(row, 1)});
  std::fill_n(ones_.f32(), ones_.shape().elements(), 1.0f);
}

ConstTensorView NoiseSource::get(const std::string& name) {
  const Shape& shape = shapes_.at(name);
  const bool norm = shape.rank() < 2 && name.ends_with(".weight");
  ConstTensorView view = std::as_const(norm ? ones_ : noise_).view();
  view.shape = shape;
  return view;
}

nlohmann::ordered_json BenchModel::json() const {
  const ModelConfig& lm = config().transformer;
  return {{"family", opened.spec.family},
          {"name", opened.spec.title},
          {"dims", std::to_string(lm.layers) + "x" + std::to_string(lm.width)},
          {"params_read", step_shape(config(), DType::kBF16, DType::kBF16).parameters},
          {"dtype", "bf16"},
          {"kv_dtype", "bf16"},
          {"weights", "noise:21"}};
}

BenchModel load_bench_model(DeviceBench& bench, const std::string& name, std::int64_t window) {
  BenchModel out{open_to_bench(name), nullptr};
  const MemoryRequest asked{
      .storage = DType::kBF16, .prompt_tokens = 32, .window = window, .dists = true};
  const auto plan_of = [&](const MemoryRequest& request) {
    return plan_generation(out.opened, bench.backend(), request);
  };
  MemoryPlan plan = plan_of(asked);
  plan_device(plan, bench.backend(), asked, plan_of);
  check_memory(plan, name);
  out.opened.source = std::make_unique<NoiseSource>(out.opened.spec.tensors);
  out.model =
      std::make_unique<StreamModel>(load_stream_model(out.opened, bench.backend(), DType::kBF16));
  out.opened.source.reset();
  return out;
}

Stream bench_item(const StreamModel& model, std::int64_t prompt, std::int64_t given) {
  Stream out;
  const StreamModelConfig& config = model.config();
  if (config.prompt == PromptKind::kClass) {
    out.prompt.ids = {1};
  } else {
    for (std::int64_t i = 0; i < prompt; ++i) {
      out.prompt.ids.push_back(narrow<std::int32_t>((7 + 31 * i) % config.prompt_vocab));
    }
  }
  out.unconditional.ids = model.unconditional_prompt(out.prompt.ids, 0);
  out.dist.guidance = 5;
  out.seed = 1;
  for (std::int64_t i = 0; i < given; ++i) {
    const auto forced = config.grammar().forced(to_size(i));
    out.given.push_back(forced ? *forced : narrow<std::int32_t>(i % config.codes));
  }
  return out;
}

LoopPasses time_loop(DeviceBench& bench, const StreamModel& model, const Stream& item,
                     std::int64_t window, std::int64_t passes) {
  const DecodeAids aids{.grammar = model.config().grammar()};
  DecodeMethod method;
  if (window > 1) {
    method = decode_method("coupled");
    method.window = window;
    method = settle_method(method, aids, model.image_token_count());
  }
  const OwnedParts<float, KeyedRandom> owned(method, aids);
  LoopParts parts = owned.parts();
  WatchedVerifiers verifiers(bench.backend(), nullptr);
  const bool on_device = bench.backend().row_verifiers() != nullptr;
  if (on_device) parts.verifiers = &verifiers;
  StreamLoop loop(model,
                  {.prompt_rows = item.prompt.length(),
                   .grammar = aids.grammar,
                   .window = window,
                   .guided = true,
                   .budget = 2 * bench.backend().rows_at_once(),
                   .kv = DType::kBF16,
                   .dists = keeps_dists(method),
                   .given_tokens = std::ssize(item.given)},
                  parts);
  LoopPasses out;
  out.timing.warmup = 3;  // plain, recorded, repeated for the first time
  const double cpu = process_cpu_seconds();
  double last = 0;
  std::vector<double> host;
  const auto results = run_streams(loop, {&item, 1}, [&](const RunPass& event) {
    const double now = monotonic_seconds();
    out.passes = event.items[0].passes;
    if (out.passes > 1 + out.timing.warmup) {
      out.timing.seconds.push_back(now - last);
      host.push_back(event.times.draft + event.times.verify);
    }
    last = now;
    return out.passes < 1 + out.timing.warmup + passes ? Flow::kContinue : Flow::kStop;
  });
  if (results[0].status == StreamStatus::kFailed) throw Error(results[0].error);
  expects(!out.timing.seconds.empty(), "a sweep has passes to time");
  out.timing.cpu_seconds = (process_cpu_seconds() - cpu) / to_double(out.timing.seconds.size());
  std::sort(out.timing.seconds.begin(), out.timing.seconds.end());
  std::sort(host.begin(), host.end());
  out.host_seconds = host[host.size() / 2];
  out.reads = verifiers.seen().reads;
  out.bytes = verifiers.seen().bytes;
  if (!on_device) {
    // Logits of both branches.
    out.reads = out.passes;
    out.bytes = out.passes * 2 * window * model.config().codes * to_index(sizeof(float));
  }
  return out;
}

}  // namespace tessera
