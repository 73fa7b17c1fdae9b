// Single ops on a device at the dimensions of published models: skinny products next to cuBLASLt,
// the attention of a window, verification of rows, what is fused, the gap between two kernels.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/lab/bench/device_bench.h"
#include "engine/backend/row_verifier.h"
#include "engine/core/index.h"
#include "engine/ops/ops.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kCaches = 240e6;  // bytes of copies in turn, so that no cache helps

struct Product {
  const char* model;
  std::int64_t n, k;
};
constexpr Product kProducts[] = {
    {"janus-pro-1b", 6144, 2048}, {"janus-pro-1b", 2048, 2048},  {"janus-pro-1b", 11264, 2048},
    {"janus-pro-1b", 2048, 5632}, {"janus-pro-1b", 16384, 2048}, {"7b", 12288, 4096},
    {"7b", 4096, 4096},           {"7b", 22016, 4096},           {"7b", 4096, 11008},
    {"7b", 8194, 4096},           {"emu3", 6144, 4096},          {"emu3", 28672, 4096},
    {"emu3", 4096, 14336},        {"emu3", 32772, 4096},         {"llamagen-b", 2304, 768},
    {"llamagen-b", 4096, 768},    {"llamagen-b", 768, 2048},     {"llamagen-3b", 9600, 3200},
    {"llamagen-3b", 17408, 3200}, {"llamagen-3b", 3200, 8704},
};
// So many that the wait after them, and the first launch, do not count.
constexpr int kCallsOfATime = 64;
constexpr std::int64_t kRows[] = {2, 1, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};

int copies_of(double bytes) {
  return truncate<int>(std::clamp(std::ceil(kCaches / bytes), 1.0, 64.0));
}

double geometric_mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return std::exp(sum / to_double(values.size()));
}

class Micro {
 public:
  explicit Micro(DeviceBench& bench) : bench_(bench), quick_(bench.options().quick) {}

  void run() {
    graph_gap();
    skinny_products();
    windows();
    decision();
    fused();
  }

 private:
  ProbePair probe_around(FunctionRef<void()> body) {
    ProbePair probe;
    probe.before = bench_.read_rate();
    body();
    probe.after = bench_.read_rate();
    return probe;
  }

  void graph_gap() {
    const int chain = quick_ ? 2 : DeviceBench::kGapKernels;
    const Timing timing = bench_.time_gap();
    Json object = bench_.start("graph.gap", bench_.backend().name());
    object["shape"] = {{"kernels", chain}};
    BenchReport::add_timing(object, timing);
    bench_.emit(object, "graph.gap: " + fixed_digits(timing.median() * 1e6, 2) +
                            " us a kernel of 32 numbers, " + std::to_string(chain) + " in a row");
  }

  struct Compared {
    std::vector<double> eff;            // of weights from 16 MB on
    std::vector<double> against, wide;  // cuBLASLt's time by ours: all weights, those
  };

  void skinny_products() {
    std::map<std::int64_t, Compared> by_rows;
    if (quick_) {
      skinny_product({"tiny", 128, 64}, by_rows);
    } else {
      for (const Product& product : kProducts) skinny_product(product, by_rows);
    }
    for (const auto& [rows, compared] : by_rows) {
      const bool shown = rows == 1 || rows == 2 || rows == 16 || rows == 64 || rows == 128;
      if (shown && !compared.eff.empty()) emit_mean(rows, compared);
    }
    emit_gain(by_rows);
  }

  void emit_mean(std::int64_t rows, const Compared& compared) {
    Json object = bench_.start("linear.skinny.mean", bench_.backend().name());
    object["shape"] = {{"M", rows}};
    object["eff"] = geometric_mean(compared.eff);
    std::string text = "linear.skinny, " + std::to_string(rows) +
                       " rows: " + fixed_digits(100 * geometric_mean(compared.eff), 0) +
                       " % of mem." + bench_.read_probe();
    if (!compared.against.empty()) {
      object["cublaslt_over_own"] = geometric_mean(compared.against);
      text += ", cuBLASLt takes " + fixed_digits(geometric_mean(compared.against), 2) +
              " times as long";
    }
    bench_.emit(object, text);
  }

  // All products of 16 to 128 rows in one figure.
  void emit_gain(const std::map<std::int64_t, Compared>& by_rows) {
    Compared all;
    for (const auto& [rows, compared] : by_rows) {
      if (rows < 16 || rows > 128) continue;
      all.against.insert(all.against.end(), compared.against.begin(), compared.against.end());
      all.wide.insert(all.wide.end(), compared.wide.begin(), compared.wide.end());
      all.eff.insert(all.eff.end(), compared.eff.begin(), compared.eff.end());
    }
    if (all.eff.empty()) return;
    Json object = bench_.start("linear.skinny.gain", bench_.backend().name());
    object["shape"] = {{"M", "16..128"}};
    object["eff"] = geometric_mean(all.eff);
    object["products"] = all.against.size();
    std::string text =
        "linear.skinny, 16 to 128 rows: " + fixed_digits(100 * geometric_mean(all.eff), 0) +
        " % of mem." + bench_.read_probe();
    if (!all.against.empty()) {
      object["peer_version"] = bench_.libraries()->products_version();
      object["cublaslt_over_own"] = geometric_mean(all.against);
      text += ", cuBLASLt takes " + fixed_digits(geometric_mean(all.against), 2) + " times as long";
    }
    if (!all.wide.empty()) object["cublaslt_over_own_16mb"] = geometric_mean(all.wide);
    bench_.emit(object, text);
  }

  void skinny_product(const Product& product, std::map<std::int64_t, Compared>& by_rows) {
    Backend& backend = bench_.backend();
    const Tensor w = DeviceBench::noise({product.n, product.k}, 3, 0.02f);
    const ConstTensorView view = w.view();
    const double bytes = to_double(backend.packed_linear_bytes(product.n, product.k, DType::kBF16));
    const int count = quick_ ? 1 : copies_of(bytes);
    std::vector<LinearWeight> copies;
    for (int i = 0; i < count; ++i) copies.push_back(backend.pack_linear({&view, 1}, DType::kBF16));
    Tensor plain;  // row-major, of cuBLASLt; in turn, too
    const bool peer = bench_.has_peer();
    if (peer) plain = bench_.random({count, product.n, product.k}, 3, 0.02f, DType::kBF16);
    double own_two = 0;
    for (const std::int64_t rows : kRows) {
      if (quick_ && rows > 2 && rows != 16) continue;
      const Tensor x = bench_.random({rows, product.k}, 4, 1.0f);
      Tensor out = backend.allocate(DType::kF32, {rows, product.n});
      Timing timing;
      const ProbePair probe = probe_around([&] {
        timing = bench_.time_calls(std::max(count, kCallsOfATime), [&](int call) {
          ops::linear(backend, x.view(), nth(copies, call % count), {}, out.view());
        });
      });
      if (rows == 2) own_two = timing.median();
      emit_product(product, rows, backend.name(), timing, bytes, probe, own_two);
      Compared& compared = by_rows[rows];
      if (bytes >= 16e6 || quick_) {
        compared.eff.push_back(bytes / (timing.median() * probe.mean() * 1e9));
      }
      if (!peer || !bench_.has_peer()) continue;
      const Tensor narrow = bench_.random({rows, product.k}, 4, 1.0f, DType::kBF16);
      const auto theirs = bench_.time_library({.m = rows,
                                               .n = product.n,
                                               .k = product.k,
                                               .x = narrow.view().data,
                                               .w = plain.view().data,
                                               .copies = count,
                                               .out = out.f32()},
                                              std::max(count, kCallsOfATime));
      if (!theirs) continue;
      emit_product(product, rows, kLibrary, *theirs, bytes, probe, 0);
      compared.against.push_back(theirs->median() / timing.median());
      if (bytes >= 16e6) compared.wide.push_back(compared.against.back());
    }
  }

  void emit_product(const Product& product, std::int64_t rows, const std::string& impl,
                    const Timing& timing, double bytes, const ProbePair& probe, double own_two) {
    Json object = bench_.start("linear.skinny", impl);
    object["model"] = {{"dims", product.model}, {"dtype", "bf16"}, {"weights", "random:3"}};
    object["shape"] = {{"M", rows}, {"N", product.n}, {"K", product.k}};
    const double flops = 2.0 * to_double(rows * product.n) * to_double(product.k);
    bench_.finish(object, timing, bytes, flops, probe);
    if (own_two > 0) object["t_over_t2"] = timing.median() / own_two;
    bench_.emit(object);
  }

  struct Heads {
    std::int64_t heads, kv_heads, dim;
  };

  void windows() {
    if (quick_) return windows_of({2, 2, 64}, 8);
    const std::int64_t lengths[] = {64, 300, 1000, 4000, 8200};
    for (const Heads heads : {Heads{16, 16, 128},
                              {32, 32, 128},
                              {32, 8, 128},
                              {12, 12, 64},
                              {32, 32, 100},
                              {28, 4, 128}}) {
      for (const std::int64_t cached : lengths) {
        windows_of(heads, cached);
      }
    }
  }

  // Keys and values of two sequences in several layers, which are read in turn; bf16.
  struct Cache {
    Tensor tables;
    int layers = 1;
    std::int64_t rows = 0;  // of a table

    ConstTensorView part(int layer, int which, std::int64_t live, const Heads& heads) const {
      ConstTensorView view = std::as_const(tables).view();
      view.shape = Shape{live, heads.kv_heads, heads.dim};
      view.data = static_cast<const std::uint16_t*>(view.data) +
                  (4 * layer + which) * rows * heads.kv_heads * heads.dim;
      return view;
    }
  };

  void windows_of(const Heads& heads, std::int64_t cached) {
    Cache cache;
    cache.rows = cached + 128;
    const double bytes = 8.0 * to_double(cached * heads.kv_heads * heads.dim);
    cache.layers = quick_ ? 1 : std::min(copies_of(bytes), 32);
    cache.tables = bench_.random({4 * cache.layers * cache.rows, heads.kv_heads, heads.dim}, 7,
                                 1.0f, DType::kBF16);
    for (const std::int64_t window : {1, 4, 16, 32, 64, 128}) {
      if (!quick_ || window == 1) window_case(heads, cached, window, cache);
    }
  }

  // Two sequences (guidance) of `window` rows.
  void window_case(const Heads& shape, std::int64_t cached, std::int64_t window,
                   const Cache& cache) {
    Backend& backend = bench_.backend();
    const std::int64_t live = cached + window;
    const double bytes = 8.0 * to_double(live * shape.kv_heads * shape.dim);
    const int layers = cache.layers;
    const Tensor q = bench_.random({2 * window, shape.heads, shape.dim}, 8, 1.0f);
    Tensor out = backend.allocate(DType::kF32, q.shape());
    const auto part = [&](int layer, int which) { return cache.part(layer, which, live, shape); };
    Timing timing;
    const ProbePair probe = probe_around([&] {
      timing = bench_.time_calls(std::max(layers, 8), [&](int call) {
        const int layer = call % layers;
        const AttentionSegment segments[] = {
            {part(layer, 0), part(layer, 1), 0, window, cached, true},
            {part(layer, 2), part(layer, 3), window, window, cached, true}};
        ops::attention(backend, {.q = q.view(),
                                 .out = out.view(),
                                 .segments = segments,
                                 .scale = 1.0f / std::sqrt(to_float(shape.dim))});
      });
    });
    Json object = bench_.start("attn.window", backend.name());
    object["model"] = {{"dtype", "bf16"}, {"kv_dtype", "bf16"}};
    object["shape"] = {{"H", shape.heads}, {"KV", shape.kv_heads}, {"hd", shape.dim}, {"b", 1},
                       {"c", 2},           {"w", window},          {"S", cached}};
    const double flops = 4.0 * to_double(2 * window * shape.heads * live * shape.dim);
    bench_.finish(object, timing, bytes, flops, probe);
    std::string text;
    if (shape.heads == 32 && shape.kv_heads == 32 && shape.dim == 128 && cached == 1000 &&
        (window == 1 || window == 32 || window == 64)) {
      text = "attn.window, 32 heads of 128, 1000 cached, window " + std::to_string(window) + ": " +
             fixed_digits(timing.median() * 1e6, 1) + " us, " +
             fixed_digits(100 * bytes / (timing.median() * probe.mean() * 1e9), 0) + " % of mem." +
             bench_.read_probe();
    }
    bench_.emit(object, text);
  }

  void decision() {
    RowVerifierMaker* verifiers = bench_.backend().row_verifiers();
    if (verifiers == nullptr) return;
    if (quick_) return verify_case(*verifiers, 64, 2);
    for (const std::int64_t codes : {8194, 16384, 32772, 65536}) {
      for (const std::int64_t rows : {1, 16, 64, 256}) verify_case(*verifiers, codes, rows);
    }
  }

  // One image's window with guidance, drafts that were drawn evenly; the records are waited for.
  void verify_case(RowVerifierMaker& verifiers, std::int64_t codes, std::int64_t rows) {
    struct Kind {
      const char* name;
      VerifyMethod method;
    };
    const Kind kinds[] = {
        {"gumbel", {.rule = {.name = "gumbel"}, .redraft_policy = VerifyRedraft::kGumbel}},
        {"coupled", {.redraft_policy = VerifyRedraft::kMaximal, .dists = true}}};
    const Tensor logits = bench_.random({2 * rows, codes}, 9, 3.0f);
    std::vector<VerifiedRow> verified(to_size(rows));
    for (std::int32_t row = 0; row < rows; ++row) {
      const bool last = row + 1 == rows;
      nth(verified, row) = {.cond = row,
                            .uncond = narrow<std::int32_t>(rows) + row,
                            .draft = last ? -1 : narrow<std::int32_t>(row * 37 % codes),
                            .kind = last ? DraftKind::kNone : DraftKind::kUniform,
                            .place = row};
    }
    const VerifiedItem item{.dist = {.guidance = 5}, .rows = narrow<std::int32_t>(rows)};
    for (const Kind& kind : kinds) {
      const auto verifier = verifiers.make(kind.method, {.codes = codes, .rows = rows, .items = 1});
      Timing timing;
      const ProbePair probe = probe_around([&] {
        timing = bench_.time_waited([&] {
          verifier->verify({logits.view(), {&item, 1}, verified});
          verifier->rows();
        });
      });
      Json object = bench_.start("law.accept", bench_.backend().name());
      object["shape"] = {{"M", rows}, {"V", codes}, {"c", 2}};
      object["decode"] = kind.name;
      bench_.finish(object, timing, 8.0 * to_double(rows * codes), 0, probe);
      const bool shown = codes == 16384 && rows >= 64 && kind.method.dists;
      bench_.emit(object, shown ? "law.accept, " + std::to_string(rows) +
                                      " rows of 16384, waited for: " +
                                      fixed_digits(timing.median() * 1e6, 1) + " us"
                                : "");
    }
  }

  void fused() {
    Backend& backend = bench_.backend();
    const std::int64_t heads = quick_ ? 2 : 16, dim = quick_ ? 16 : 128, width = heads * dim;
    const std::int64_t ffn = quick_ ? 64 : 5632;
    for (const std::int64_t rows : {2, 32, 128}) {
      if (quick_ && rows > 2) return;
      const Tensor qkv = bench_.random({rows, 3 * width}, 10, 1.0f);
      const Tensor table = bench_.random({rows, dim / 2}, 11, 1.0f);
      Tensor q = backend.allocate(DType::kF32, {rows, heads, dim});
      Tensor k = backend.allocate(DType::kF32, {rows, heads, dim});
      Tensor keys = backend.allocate(DType::kBF16, {rows, heads, dim});
      Tensor values = backend.allocate(DType::kBF16, {rows, heads, dim});
      std::vector<std::int64_t> slots(to_size(rows));
      std::iota(slots.begin(), slots.end(), 0);
      fused_case("fuse.qkv_rope_cache", rows, width, to_double(rows * width) * (12 + 4 + 4),
                 [&](int) {
                   ops::qkv_rope(backend, {.qkv = qkv.view(),
                                           .cos = table.view(),
                                           .sin = table.view(),
                                           .slots = slots,
                                           .identity = slots,
                                           .q = q.view(),
                                           .k = k.view(),
                                           .keys = keys.view(),
                                           .values = values.view()});
                 });
      const Tensor gate_up = bench_.random({rows, 2 * ffn}, 12, 1.0f);
      Tensor gated = backend.allocate(DType::kF32, {rows, ffn});
      fused_case("fuse.silu_mul", rows, ffn, to_double(rows * ffn) * 12,
                 [&](int) { ops::silu_mul(backend, gate_up.view(), gated.view()); });
      const Tensor x = bench_.random({rows, width}, 13, 1.0f);
      const Tensor weight = bench_.random({width}, 14, 1.0f);
      Tensor normed = backend.allocate(DType::kF32, {rows, width});
      fused_case("fuse.addrms", rows, width, to_double(rows * width) * 20, [&](int) {
        ops::add(backend, x.view(), normed.view(), normed.view());
        ops::rms_norm(backend, normed.view(), weight.view(), 1e-6f, normed.view());
      });
    }
  }

  void fused_case(const std::string& name, std::int64_t rows, std::int64_t width, double bytes,
                  FunctionRef<void(int)> call) {
    Timing timing;
    const ProbePair probe = probe_around([&] { timing = bench_.time_calls(64, call); });
    Json object = bench_.start(name, bench_.backend().name());
    object["shape"] = {{"M", rows}, {"N", width}};
    bench_.finish(object, timing, bytes, 0, probe);
    bench_.emit(object, rows == 128
                            ? name + ", 128 rows: " + fixed_digits(timing.median() * 1e6, 2) + " us"
                            : "");
  }

  DeviceBench& bench_;
  bool quick_;
};

}  // namespace

void run_device_micro(DeviceBench& bench) { Micro(bench).run(); }

}  // namespace tessera
