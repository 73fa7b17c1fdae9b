#include "apps/lab/bench/device_bench.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/lab/models/random_weights.h"
#include "apps/runtime/cuda_driver.h"
#include "engine/backend/read_probe.h"
#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/ops/ops.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

Json device_json(const std::string& name, const DeviceLibraries* libraries) {
  Json out = {{"name", name}};
  if (libraries == nullptr) return out;
  const DeviceFacts& facts = libraries->facts();
  out["model"] = facts.name;
  out["driver"] = find_cuda_driver().version;
  out["cuda"] = cuda_version_text(facts.cuda);
  out["sm"] = std::to_string(facts.major) + "." + std::to_string(facts.minor);
  out["multiprocessors"] = facts.multiprocessors;
  out["clock_mhz"] = facts.clock_mhz;
  out["mem_clock_mhz"] = facts.memory_clock_mhz;
  return out;
}

// Few and short: they stand with every figure.
const BenchOptions kProbe{.min_reps = 5, .min_seconds = 0};
constexpr int kWays = 6;  // of a product by cuBLASLt that are tried

Timing scaled(Timing timing, int calls) {
  for (double& seconds : timing.seconds) seconds /= calls;
  timing.cpu_seconds /= calls;
  return timing;
}

}  // namespace

DeviceBench::DeviceBench(const DeviceBenchOptions& options, BenchReport::Sink sink)
    : options_(options),
      sink_(std::move(sink)),
      backend_(make_backend(options.device, {}, options.cuda)) {
  bench_.min_reps = options.quick ? 1 : 5;
  bench_.min_seconds = options.quick ? 0 : 0.04;
  bench_.git = options.git;
  const Device device = backend_->device();
  if (device.kind == DeviceKind::kCuda || options.libraries) {
    libraries_ = DeviceLibraries::open(device.index, options.libraries.value_or(LibraryFiles{}));
  }
  report_ = std::make_unique<BenchReport>(bench_, *backend_, sink_);
  const std::int64_t floats = std::int64_t{1} << (options.quick ? 18 : 28);  // 1 GiB
  probe_from_ = random({floats / 1024, 1024}, 1, 1.0f);
  probe_to_ = backend_->allocate(DType::kF32, probe_from_.shape());
  sums_ = backend_->allocate(DType::kF32, {kReadProbeSums});
  reads_ = tessera::read_probe(*backend_, std::as_const(probe_from_).view(), sums_.view());
}

DeviceBench DeviceBench::deterministic() const {
  DeviceBenchOptions options = options_;
  options.cuda.deterministic = true;
  return {options, sink_};
}

bool DeviceBench::has_peer() const {
  return libraries_ != nullptr && libraries_->has_products() && !library_failed_;
}

double DeviceBench::read_rate() {
  if (!reads_) return copy_rate();
  // Several to a wait, which costs as much as reading many megabytes.
  constexpr int kReads = 8;
  const Timing timing = measure(kProbe, [&] {
    for (int i = 0; i < kReads; ++i) {
      tessera::read_probe(*backend_, std::as_const(probe_from_).view(), sums_.view());
    }
    backend_->synchronize();
  });
  return kReads * to_double(probe_from_.bytes()) / timing.median() * 1e-9;
}

double DeviceBench::copy_rate() {
  const Timing timing = measure(kProbe, [&] {
    backend_->copy(std::as_const(probe_from_).view(), probe_to_.view());
    backend_->synchronize();
  });
  return 2 * to_double(probe_from_.bytes()) / timing.median() * 1e-9;
}

std::optional<double> DeviceBench::product_rate() {
  if (!has_peer()) return std::nullopt;
  const std::int64_t side = options_.quick ? 64 : 8192;
  const Tensor x = random({side, side}, 2, 1.0f, DType::kBF16);
  const Tensor w = random({side, side}, 3, 0.02f, DType::kBF16);
  Tensor out = backend_->allocate(DType::kF32, {side, side});
  backend_->synchronize();
  const auto timing = time_library(
      {.m = side, .n = side, .k = side, .x = x.view().data, .w = w.view().data, .out = out.f32()},
      4);
  if (!timing) return std::nullopt;
  return 2.0 * to_double(side * side) * to_double(side) / timing->median() * 1e-12;
}

Timing DeviceBench::time_calls(int calls, FunctionRef<void(int)> call) {
  const std::uint64_t key = next_key_++;
  if (options_.quick) calls = std::min(calls, 2);
  const Timing timing = measure(bench_, [&] {
    {
      const RecordedPass pass(*backend_, key);
      for (int i = 0; i < calls; ++i) call(i);
    }
    backend_->synchronize();
  });
  return scaled(timing, calls);
}

Timing DeviceBench::time_gap() {
  Tensor x = random({1, 32}, 5, 1.0f);
  return time_calls(kGapKernels, [&](int) { ops::add(*backend_, x.view(), x.view(), x.view()); });
}

std::optional<Timing> DeviceBench::time_library(LibraryCase what, int calls) {
  if (workspace_.empty()) {
    workspace_ = backend_->allocate(DType::kU8, Shape{to_index(LibraryProduct::kWorkspace)});
    backend_->synchronize();
  }
  what.workspace = workspace_.view().data;
  try {
    return fastest_way(*libraries_->product(what, kWays),
                       options_.quick ? std::min(calls, 2) : calls);
  } catch (const Error& error) {
    // A yardstick that breaks does not cost our own figures.
    std::fprintf(stderr, "cuBLASLt is left out: %s\n", format_error(error.info()).c_str());
    library_failed_ = true;
    return std::nullopt;
  }
}

std::optional<Timing> DeviceBench::fastest_way(LibraryProduct& product, int calls) const {
  std::optional<int> best;
  double best_seconds = 0;
  for (int way = 0; way < product.ways(); ++way) {
    if (!product.record(way, calls)) continue;
    const double seconds = measure(kProbe, [&] { product.run(); }).median();
    if (best && seconds >= best_seconds) continue;
    best = way;
    best_seconds = seconds;
  }
  if (!best || !product.record(*best, calls)) return std::nullopt;
  return scaled(measure(bench_, [&] { product.run(); }), calls);
}

Tensor DeviceBench::noise(Shape shape, std::uint64_t seed, float scale) {
  // Drawn once for the first rows and repeated: bandwidth cannot tell, and drawing takes long.
  const std::int64_t count = shape.elements();
  const std::int64_t drawn = std::min<std::int64_t>(count, std::int64_t{1} << 20);
  const Tensor few = random_weight("noise", {1, drawn}, {.seed = seed, .matrix_std = scale});
  Tensor host = Tensor::host(DType::kF32, shape);
  for (std::int64_t at = 0; at < count; at += drawn) {
    std::copy_n(few.f32(), std::min(drawn, count - at), host.f32() + at);
  }
  return host;
}

Tensor DeviceBench::random(Shape shape, std::uint64_t seed, float scale, DType dtype) {
  Tensor host = noise(shape, seed, scale);
  if (dtype == DType::kBF16) {
    Tensor narrow = Tensor::host(dtype, shape);
    std::transform(host.f32(), host.f32() + shape.elements(),
                   static_cast<std::uint16_t*>(narrow.view().data), float_to_bf16);
    host = std::move(narrow);
  }
  Tensor out = backend_->allocate(dtype, shape);
  backend_->upload(std::as_const(host).view(), out.view());
  backend_->synchronize();
  return out;
}

Json DeviceBench::start(const std::string& name, const std::string& impl) const {
  Json object = report_->start(name);
  object["dirty"] = options_.dirty;
  object["command"] = options_.command;
  object["device"] = device_json(backend_->name(), libraries_.get());
  Json without = Json::object();
  for (const auto& [library, why] : missing_libraries(*backend_)) without[library] = why;
  object["missing_libraries"] = without;
  object["deterministic"] = options_.cuda.deterministic;
  object["overlap"] = options_.cuda.overlap;
  object["quick"] = options_.quick;
  object["impl"] = impl;
  if (impl == kLibrary) object["peer_version"] = libraries_->products_version();
  return object;
}

void DeviceBench::finish(Json& object, const Timing& timing, double bytes, double flops,
                         const ProbePair& probe) {
  BenchReport::add_timing(object, timing);
  const double seconds = timing.median();
  object["bytes"] = bytes;
  object["flops"] = flops;
  object["probe_gbs"] = {{"before", probe.before}, {"after", probe.after}, {"by", read_probe()}};
  object["eff"] = bytes / (seconds * probe.mean() * 1e9);
  object["tflops"] = flops / seconds * 1e-12;
  object["floor_us"] = bytes / (probe.mean() * 1e9) * 1e6;
  object["share_of_floor"] = object["eff"];
}

void DeviceBench::emit(Json object, const std::string& summary) {
  if (!summary.empty()) object["summary"] = summary;
  report_->emit(object);
}

void run_device_probe(DeviceBench& bench) {
  const auto rate = [&](const std::string& name, double gbs, const std::string& how) {
    Json object = bench.start(name, bench.backend().name());
    object["gbs"] = gbs;
    object["by"] = how;
    bench.emit(object, name + ": " + fixed_digits(gbs, 0) + " GB/s by " + how);
  };
  rate("mem.read", bench.read_rate(), bench.read_probe());
  rate("mem.copy", bench.copy_rate(), "copy");
  const auto products = bench.product_rate();
  if (!products) return;
  Json object = bench.start("gemm.peak", kLibrary);
  object["tflops"] = *products;
  bench.emit(object, "gemm.peak: " + fixed_digits(*products, 0) + " Tflop/s by cuBLASLt, bf16");
}

}  // namespace tessera
