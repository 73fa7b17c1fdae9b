// Ops at published dimensions. Weights are seeded normal numbers, never zeros, and rotate through
// several copies, so that no measurement runs from a cache that the real use would miss.
#include "apps/lab/bench/ops_bench.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/lab/bench/gemm_library.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"
#include "engine/core/philox.h"
#include "engine/ops/ops.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kRotate = std::size_t{160} << 20;  // bytes of weight copies to walk through

struct Size {
  const char* layer;
  std::int64_t n, k;
};

// One layer's products at the dimensions of LlamaGen-B, LlamaGen-L and Janus-Pro-1B, and the heads.
constexpr Size kSizes[] = {
    {"llamagen-b.qkv", 2304, 768},     {"llamagen-b.down", 768, 2048},
    {"llamagen-l.qkv", 3072, 1024},    {"llamagen-l.gate_up", 5632, 1024},
    {"llamagen-l.down", 1024, 2816},   {"janus-pro-1b.qkv", 6144, 2048},
    {"janus-pro-1b.out", 2048, 2048},  {"janus-pro-1b.gate_up", 11264, 2048},
    {"janus-pro-1b.down", 2048, 5632}, {"janus-pro-1b.head", 16384, 2048},
};

// Uniform with the variance of N(0, std^2): cheap to draw, and bandwidth cannot tell.
void fill_random(float* out, std::int64_t count, std::uint64_t stream, float std,
                 ThreadPool& pool) {
  const auto key = philox_key(stream, 0);
  const float width = std * 3.4641016f;
  pool.parallel_for((count + 3) / 4, 1 << 14, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const PhiloxBlock block = philox4x32(
          {narrow<std::uint32_t>(i), 0, static_cast<std::uint32_t>(Purpose::kWeights), 0}, key);
      for (std::int64_t j = 0; j < 4 && 4 * i + j < count; ++j) {
        out[4 * i + j] = (uniform_open(nth(block, j)) - 0.5f) * width;
      }
    }
  });
}

Tensor random_tensor(Shape shape, std::uint64_t stream, float std, ThreadPool& pool) {
  Tensor tensor = Tensor::host(DType::kF32, shape);
  fill_random(tensor.f32(), shape.elements(), stream, std, pool);
  return tensor;
}

class OpsBench {
 public:
  OpsBench(const BenchOptions& options, Backend& backend, BenchReport& report)
      : options_(options), backend_(backend), report_(report), probe_(backend.threads()) {}

  void run() {
    if (options_.wants("mem.read")) mem_read();
    if (options_.wants("gemm.peak") || options_.wants("linear.prefill")) gemm_peak();
    if (options_.wants("linear.skinny")) linear_skinny();
    if (options_.wants("linear.prefill")) linear_prefill();
    if (options_.wants("attn.window")) attn_window();
    if (options_.wants("conv.vq")) conv_vq();
  }

 private:
  struct GemmShape {
    std::int64_t m, n, k;
  };
  ThreadPool& pool() { return backend_.threads(); }

  void mem_read() {
    const double rate = probe_.gigabytes_per_second(8);
    Json object = report_.start("mem.read");
    object["bytes"] = probe_.bytes();
    object["gbs"] = rate;
    report_.emit(object);
    report_.add_row("mem.read", std::to_string(probe_.bytes() >> 20) + " MiB", "", gbs(rate), "");
  }

  // The same product by the backend and by a library, rates of 10^9 operations a second.
  void gemm_peak() {
    constexpr std::int64_t kSide = 2048;
    const Tensor x = random_tensor({kSide, kSide}, 1, 1.0f, pool());
    const Tensor w = random_tensor({kSide, kSide}, 2, 0.02f, pool());
    Tensor out = Tensor::host(DType::kF32, {kSide, kSide});
    library_ = GemmLibrary::open(pool().threads());
    if (library_) library_product("gemm.peak", "2048^3", x, w, out);
    own_product("gemm.peak", "2048^3", x, w, DType::kF32, out);
  }

  void library_product(const std::string& name, const std::string& what, const Tensor& x,
                       const Tensor& w, Tensor& out) {
    const GemmShape shape{x.shape()[0], w.shape()[0], w.shape()[1]};
    const Timing timing = measure(options_, [&] {
      library_->product(shape.m, shape.n, shape.k, x.f32(), w.f32(), out.f32());
    });
    gemm_record(name, what, shape, DType::kF32, library_->name(), timing);
  }

  void own_product(const std::string& name, const std::string& what, const Tensor& x,
                   const Tensor& w, DType storage, Tensor& out) {
    const ConstTensorView view = w.view();
    const LinearWeight packed = backend_.pack_linear({&view, 1}, storage);
    const Timing timing =
        measure(options_, [&] { ops::linear(backend_, x.view(), packed, {}, out.view()); });
    gemm_record(name, what, {x.shape()[0], packed.n, packed.k}, storage, backend_.name(), timing);
  }

  void gemm_record(const std::string& name, const std::string& what, GemmShape shape, DType storage,
                   const std::string& impl, const Timing& timing) {
    const double flops = 2.0 * to_double(shape.m * shape.n) * to_double(shape.k);
    const double rate = flops / timing.median() * 1e-9;
    Json object = report_.start(name);
    object["shape"] = {{"M", shape.m}, {"N", shape.n}, {"K", shape.k}};
    object["model"] = {{"dtype", dtype_name(storage)}};
    object["impl"] = impl;
    if (library_ && impl == library_->name()) object["peer_version"] = library_->version();
    BenchReport::add_timing(object, timing);
    object["flops"] = flops;
    object["tflops"] = rate * 1e-3;
    // With one thread the rate while this process has the processor, for busy machines.
    const double rate_cpu = flops / timing.cpu_seconds * 1e-9;
    const bool alone = pool().threads() == 1;
    if (alone) object["tflops_cpu"] = rate_cpu * 1e-3;
    std::string share;
    if (impl != backend_.name()) {
      library_rate_ = std::max(library_rate_, rate);
      library_rate_cpu_ = std::max(library_rate_cpu_, rate_cpu);
    } else if (library_rate_ > 0) {
      object["share_of_library"] = rate / library_rate_;
      share = percent(rate / library_rate_) + " of " + library_->name();
      if (alone) {
        object["share_of_library_cpu"] = rate_cpu / library_rate_cpu_;
        share += ", " + percent(rate_cpu / library_rate_cpu_) + " by processor time";
      }
    }
    report_.emit(object);
    report_.add_row(name, what + ", " + std::string(dtype_name(storage)) + ", " + impl,
                    milliseconds(timing.median()), fixed_digits(rate, 1) + " Gflop/s", share);
  }

  void linear_skinny() {
    for (const Size& size : kSizes) {
      const Tensor w = random_tensor({size.n, size.k}, 3, 0.02f, pool());
      for (const StorageType& type : storage_types()) {
        if (type.write == nullptr) continue;
        const DType storage = type.dtype;
        std::vector<LinearWeight> copies;
        const ConstTensorView view = w.view();
        const std::size_t bytes = backend_.packed_linear_bytes(size.n, size.k, storage);
        for (std::size_t held = 0; copies.size() < 4 || held < kRotate; held += bytes) {
          copies.push_back(backend_.pack_linear({&view, 1}, storage));
        }
        double two_rows = 0;
        for (const std::int64_t rows : {2, 1, 3, 4, 6, 8, 12, 16, 32, 64}) {
          skinny_rows(size, storage, rows, copies, two_rows);
        }
      }
    }
  }

  void skinny_rows(const Size& size, DType storage, std::int64_t rows,
                   const std::vector<LinearWeight>& copies, double& two_rows) {
    const Tensor x = random_tensor({rows, size.k}, 4, 1.0f, pool());
    Tensor out = Tensor::host(DType::kF32, {rows, size.n});
    const double before = probe_.gigabytes_per_second(1);
    std::size_t turn = 0;
    const Timing timing = measure(options_, [&] {
      ops::linear(backend_, x.view(), copies[turn++ % copies.size()], {}, out.view());
    });
    const double after = probe_.gigabytes_per_second(1);
    if (rows == 2) two_rows = timing.median();
    const std::size_t bytes = copies[0].packed.bytes();
    const double eff = to_double(bytes) / (timing.median() * 1e9 * (before + after) / 2);
    Json object = report_.start("linear.skinny");
    object["model"] = {
        {"layer", size.layer}, {"dtype", dtype_name(storage)}, {"weights", "random:3"}};
    object["shape"] = {{"M", rows}, {"N", size.n}, {"K", size.k}};
    object["impl"] = backend_.name();
    BenchReport::add_timing(object, timing);
    object["bytes"] = bytes;
    object["probe_gbs"] = {{"before", before}, {"after", after}};
    object["eff"] = eff;
    object["t_over_t2"] = timing.median() / two_rows;
    report_.emit(object);
    if (rows <= 2 || rows == 8 || rows == 64) {
      report_.add_row("linear.skinny",
                      std::string(size.layer) + ", " + std::string(dtype_name(storage)) + ", " +
                          std::to_string(rows) + (rows == 1 ? " row" : " rows"),
                      milliseconds(timing.median()), gbs(to_double(bytes) / timing.median() * 1e-9),
                      percent(eff) + " of mem.read");
    }
  }

  void linear_prefill() {
    for (const Size& size : kSizes) {
      if (size.n * size.k < 4000000) continue;
      const Tensor w = random_tensor({size.n, size.k}, 5, 0.02f, pool());
      for (const std::int64_t rows : {512, 2048}) {
        const Tensor x = random_tensor({rows, size.k}, 6, 1.0f, pool());
        Tensor out = Tensor::host(DType::kF32, {rows, size.n});
        const std::string what = std::string(size.layer) + ", " + std::to_string(rows) + " rows";
        if (library_) library_product("linear.prefill", what, x, w, out);
        for (const StorageType& type : storage_types()) {
          if (type.write != nullptr) own_product("linear.prefill", what, x, w, type.dtype, out);
        }
      }
    }
  }

  struct WindowShape {
    std::int64_t heads, kv_heads, dim;
  };

  void attn_window() {
    for (const WindowShape shape : {WindowShape{16, 16, 128}, {12, 12, 64}, {32, 8, 128}}) {
      for (const DType storage : {DType::kF32, DType::kBF16}) {
        for (const std::int64_t cached : {300, 1000}) {
          for (const std::int64_t window : {1, 4}) attn_case(shape, storage, cached, window);
        }
      }
    }
  }

  // Two sequences (guidance) of `window` rows, keys and values of several layers in turn.
  void attn_case(const WindowShape& shape, DType storage, std::int64_t cached,
                 std::int64_t window) {
    const std::int64_t live = cached + window;
    const Shape cache_shape{live, shape.kv_heads, shape.dim};
    const std::size_t bytes = 4 * to_size(cache_shape.elements()) * dtype_size(storage);
    std::vector<Tensor> layers;
    for (std::size_t held = 0; held < kRotate; held += bytes) {
      for (int part = 0; part < 4; ++part) layers.push_back(random_cache(cache_shape, storage));
    }
    const Tensor q = random_tensor({2 * window, shape.heads, shape.dim}, 8, 1.0f, pool());
    Tensor out = Tensor::host(DType::kF32, q.shape());
    const double before = probe_.gigabytes_per_second(1);
    std::size_t turn = 0;
    const Timing timing = measure(options_, [&] {
      const Tensor* kv = &layers[4 * (turn++ % (layers.size() / 4))];
      const AttentionSegment segments[] = {
          {kv[0].view(), kv[1].view(), 0, window, cached, true},
          {kv[2].view(), kv[3].view(), window, window, cached, true}};
      ops::attention(backend_, {.q = q.view(),
                                .out = out.view(),
                                .segments = segments,
                                .scale = 1.0f / std::sqrt(to_float(shape.dim))});
    });
    const double after = probe_.gigabytes_per_second(1);
    const double eff = to_double(bytes) / (timing.median() * 1e9 * (before + after) / 2);
    Json object = report_.start("attn.window");
    object["model"] = {{"kv_dtype", dtype_name(storage)}};
    object["shape"] = {{"b", 1},         {"c", 2},           {"w", window},
                       {"S", cached},    {"H", shape.heads}, {"KV", shape.kv_heads},
                       {"hd", shape.dim}};
    object["impl"] = backend_.name();
    BenchReport::add_timing(object, timing);
    object["bytes"] = bytes;
    object["probe_gbs"] = {{"before", before}, {"after", after}};
    object["eff"] = eff;
    report_.emit(object);
    report_.add_row("attn.window",
                    std::to_string(shape.heads) + "/" + std::to_string(shape.kv_heads) + "x" +
                        std::to_string(shape.dim) + ", S " + std::to_string(cached) + ", w " +
                        std::to_string(window) + ", " + std::string(dtype_name(storage)),
                    milliseconds(timing.median()), gbs(to_double(bytes) / timing.median() * 1e-9),
                    percent(eff) + " of mem.read");
  }

  Tensor random_cache(Shape shape, DType storage) {
    Tensor values = random_tensor(shape, 7, 1.0f, pool());
    if (storage == DType::kF32) return values;
    Tensor rounded = Tensor::host(storage, shape);
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      rounded.view().as<std::uint16_t>()[i] = float_to_bf16(values.f32()[i]);
    }
    return rounded;
  }

  struct ConvShape {
    const char* layer;
    std::int64_t side, c_in, c_out, kernel;
    int upsample;
  };

  // The distinct convolutions of a 16-fold VQ decoder for 384 pixels.
  void conv_vq() {
    for (const ConvShape& shape : {ConvShape{"mid", 24, 512, 512, 3, 1},
                                   {"up0", 24, 512, 512, 3, 2},
                                   {"level1", 48, 512, 256, 3, 1},
                                   {"level2", 96, 256, 256, 3, 1},
                                   {"level3", 192, 256, 128, 3, 1},
                                   {"level4", 384, 128, 128, 3, 1},
                                   {"out", 384, 128, 3, 3, 1},
                                   {"shortcut", 192, 256, 128, 1, 1}}) {
      for (const DType storage : {DType::kF32, DType::kBF16}) conv_case(shape, storage);
    }
  }

  void conv_case(const ConvShape& shape, DType storage) {
    const std::int64_t side = shape.side * shape.upsample;
    const Tensor in = random_tensor({shape.side, shape.side, shape.c_in}, 9, 1.0f, pool());
    const Tensor kernel =
        random_tensor({shape.c_out, shape.c_in, shape.kernel, shape.kernel}, 10, 0.02f, pool());
    const Tensor scale = random_tensor({shape.c_in}, 11, 1.0f, pool());
    const Tensor bias = random_tensor({shape.c_out}, 12, 1.0f, pool());
    const ConvWeight weight = backend_.pack_conv(kernel.view(), storage);
    Tensor out = Tensor::host(DType::kF32, {side, side, shape.c_out});
    const int pad = narrow<int>(shape.kernel / 2);
    Conv2dArgs args{.in = in.view(), .weight = &weight, .bias = bias.view()};
    if (shape.upsample == 1 && shape.kernel == 3) {  // as in a residual block
      args.scale = args.shift = scale.view();
      args.swish = true;
    }
    args.upsample = shape.upsample;
    args.pad_top = args.pad_left = args.pad_bottom = args.pad_right = pad;
    args.out = out.view();
    const Timing timing = measure(options_, [&] { ops::conv2d(backend_, args); });
    const double flops = 2.0 * to_double(side * side * shape.c_out) *
                         to_double(shape.c_in * shape.kernel * shape.kernel);
    const double rate = flops / timing.median() * 1e-9;
    Json object = report_.start("conv.vq");
    object["model"] = {{"layer", shape.layer}, {"dtype", dtype_name(storage)}};
    object["shape"] = {{"H", shape.side},      {"W", shape.side},   {"c_in", shape.c_in},
                       {"c_out", shape.c_out}, {"k", shape.kernel}, {"upsample", shape.upsample}};
    object["impl"] = backend_.name();
    BenchReport::add_timing(object, timing);
    object["flops"] = flops;
    object["tflops"] = rate * 1e-3;
    object["scratch_bytes"] = backend_.conv_scratch_bytes(args);
    report_.emit(object);
    report_.add_row("conv.vq",
                    std::string(shape.layer) + " " + std::to_string(shape.side) + "^2 " +
                        std::to_string(shape.c_in) + " to " + std::to_string(shape.c_out) + ", " +
                        std::string(dtype_name(storage)),
                    milliseconds(timing.median()), fixed_digits(rate, 1) + " Gflop/s",
                    library_rate_ > 0 ? percent(rate / library_rate_) + " of gemm.peak" : "");
  }

  static std::string milliseconds(double seconds) { return fixed_digits(seconds * 1e3, 3) + " ms"; }
  static std::string gbs(double rate) { return fixed_digits(rate, 1) + " GB/s"; }
  static std::string percent(double share) { return fixed_digits(share * 100, 0) + " %"; }

  const BenchOptions& options_;
  Backend& backend_;
  BenchReport& report_;
  ReadProbe probe_;
  std::unique_ptr<GemmLibrary> library_;
  double library_rate_ = 0, library_rate_cpu_ = 0;  // best so far, 10^9 operations a second
};

}  // namespace

std::vector<std::string> ops_bench_names() {
  return {"mem.read", "gemm.peak", "linear.skinny", "linear.prefill", "attn.window", "conv.vq"};
}

void run_ops_bench(const BenchOptions& options, Backend& backend, BenchReport& report) {
  OpsBench(options, backend, report).run();
}

}  // namespace tessera
