// A transformer run in parts of its layers, with rows dropped between them, against a plain one in
// double precision that masks them instead (FastV, arXiv 2403.06764: dropping with original
// positions and masking are the same); biases of q, k and v, and rotary embedding by three axes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "engine/core/philox.h"
#include "engine/model/transformer.h"
#include "tests/support/model_runner.h"

namespace tessera::layer_parts_test {
namespace {

using Place = std::array<std::int64_t, 3>;

constexpr std::int64_t kLayers = 4, kWidth = 32, kHeads = 4, kKvHeads = 2, kHeadDim = 16, kFfn = 40;
constexpr std::int64_t kHalf = kHeadDim / 2, kPlaces = 600;
constexpr std::array<std::int64_t, 3> kSections = {4, 2, 2};

std::vector<float> noise(std::int64_t count, std::uint32_t number, double scale, double shift = 0) {
  std::vector<float> out(static_cast<std::size_t>(count));
  for (std::uint32_t i = 0; i < out.size(); ++i) {
    const PhiloxBlock bits = philox4x32({i, number, 0, 0}, {21, 22});
    out[i] = static_cast<float>(shift + scale * (2.0 * uniform_open(bits[0]) - 1));
  }
  return out;
}

struct PlainLayer {
  std::vector<float> attention_norm, qkv, bias, out, ffn_norm, gate_up, down;
};

struct PlainWeights {
  std::vector<PlainLayer> layers;
  std::vector<float> final_norm;
};

PlainWeights plain_weights() {
  PlainWeights out;
  const std::int64_t qkv = (kHeads + 2 * kKvHeads) * kHeadDim;
  for (std::uint32_t l = 0; l < kLayers; ++l) {
    const std::uint32_t at = 10 * l;
    out.layers.push_back({noise(kWidth, at, 0.2, 1), noise(qkv * kWidth, at + 1, 0.4),
                          noise(qkv, at + 2, 0.5), noise(kWidth * kHeads * kHeadDim, at + 3, 0.2),
                          noise(kWidth, at + 4, 0.2, 1), noise(2 * kFfn * kWidth, at + 5, 0.3),
                          noise(kWidth * kFfn, at + 6, 0.3)});
  }
  out.final_norm = noise(kWidth, 99, 0.2, 1);
  return out;
}

Transformer make_transformer(Backend& backend, const PlainWeights& plain) {
  const auto vector = [&](const std::vector<float>& values) {
    Tensor out = backend.allocate(DType::kF32, Shape{static_cast<std::int64_t>(values.size())});
    backend.upload({DType::kF32, out.shape(), values.data(), Device{}}, out.view());
    return out;
  };
  const auto matrix = [&](const std::vector<float>& values, std::int64_t inputs) {
    const Shape shape{static_cast<std::int64_t>(values.size()) / inputs, inputs};
    const ConstTensorView view{DType::kF32, shape, values.data(), Device{}};
    return backend.pack_linear({&view, 1}, DType::kF32);
  };
  TransformerWeights weights;
  for (const PlainLayer& layer : plain.layers) {
    weights.layers.push_back({vector(layer.attention_norm), matrix(layer.qkv, kWidth),
                              vector(layer.bias), matrix(layer.out, kHeads * kHeadDim),
                              vector(layer.ffn_norm), matrix(layer.gate_up, kWidth),
                              matrix(layer.down, kFfn)});
  }
  weights.final_norm = vector(plain.final_norm);
  const ModelConfig config{.layers = kLayers,
                           .width = kWidth,
                           .heads = kHeads,
                           .kv_heads = kKvHeads,
                           .head_dim = kHeadDim,
                           .ffn_width = kFfn,
                           .qkv_bias = true,
                           .rope = {.theta = 1000.0, .positions = kPlaces, .sections = kSections}};
  return {backend, config, std::move(weights)};
}

using Rows = std::vector<std::vector<double>>;

// The same in double, straight from the formulas. From layer `cut` on rows see only those that are
// `alive`; what becomes of the others there is nobody's business.
class PlainTransformer {
 public:
  explicit PlainTransformer(const PlainWeights& weights) : weights_(weights) {}

  Rows run(Rows x, const std::vector<Place>& places, std::int64_t cut,
           const std::vector<bool>& alive) const {
    for (std::int64_t l = 0; l < kLayers; ++l) {
      const PlainLayer& layer = weights_.layers[static_cast<std::size_t>(l)];
      attend(x, layer, places, l >= cut, alive);
      for (auto& row : x) {
        const auto both = product(norm(row, layer.ffn_norm), layer.gate_up, {});
        std::vector<double> gated(kFfn);
        for (std::size_t i = 0; i < gated.size(); ++i) {
          gated[i] = both[i] / (1 + std::exp(-both[i])) * both[i + kFfn];
        }
        add(row, product(gated, layer.down, {}));
      }
    }
    for (auto& row : x) row = norm(row, weights_.final_norm);
    return x;
  }

 private:
  static std::vector<double> norm(const std::vector<double>& x, const std::vector<float>& weight) {
    double sum = 0;
    for (const double v : x) sum += v * v;
    const double scale = 1 / std::sqrt(sum / static_cast<double>(x.size()) + 1e-6);
    std::vector<double> out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      out[i] = x[i] * scale * static_cast<double>(weight[i]);
    return out;
  }
  static std::vector<double> product(const std::vector<double>& x, const std::vector<float>& w,
                                     const std::vector<float>& bias) {
    std::vector<double> out(w.size() / x.size());
    for (std::size_t o = 0; o < out.size(); ++o) {
      out[o] = bias.empty() ? 0 : static_cast<double>(bias[o]);
      for (std::size_t i = 0; i < x.size(); ++i) {
        out[o] += x[i] * static_cast<double>(w[o * x.size() + i]);
      }
    }
    return out;
  }
  static void add(std::vector<double>& x, const std::vector<double>& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  static void turn(double* head, const Place& place) {
    for (std::int64_t pair = 0; pair < kHalf; ++pair) {
      const std::size_t axis = pair < kSections[0] ? 0 : pair < kSections[0] + kSections[1] ? 1 : 2;
      const double angle = static_cast<double>(place[axis]) *
                           std::pow(1000.0, -2.0 * static_cast<double>(pair) / kHeadDim);
      const double a = head[pair], b = head[pair + kHalf];
      head[pair] = a * std::cos(angle) - b * std::sin(angle);
      head[pair + kHalf] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
  static void attend(Rows& x, const PlainLayer& layer, const std::vector<Place>& places,
                     bool masked, const std::vector<bool>& alive) {
    Rows qkv;
    for (std::size_t r = 0; r < x.size(); ++r) {
      qkv.push_back(product(norm(x[r], layer.attention_norm), layer.qkv, layer.bias));
      for (std::int64_t h = 0; h < kHeads + kKvHeads; ++h) {
        turn(qkv.back().data() + h * kHeadDim, places[r]);
      }
    }
    for (std::size_t r = 0; r < x.size(); ++r) {
      std::vector<double> mixed(kHeads * kHeadDim, 0.0);
      for (std::int64_t h = 0; h < kHeads; ++h) {
        const double* q = qkv[r].data() + h * kHeadDim;
        const std::int64_t group = h * kKvHeads / kHeads;
        double total = 0;
        std::vector<double> sum(kHeadDim, 0.0);
        for (std::size_t s = 0; s <= r; ++s) {
          if (masked && !alive[s]) continue;
          const double* k = qkv[s].data() + (kHeads + group) * kHeadDim;
          const double* v = k + kKvHeads * kHeadDim;
          const double weight = std::exp(std::inner_product(q, q + kHeadDim, k, 0.0) / 4.0);
          total += weight;
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weight * v[i];
        }
        for (std::size_t i = 0; i < sum.size(); ++i) {
          mixed[static_cast<std::size_t>(h) * kHeadDim + i] = total > 0 ? sum[i] / total : 0;
        }
      }
      add(x[r], product(mixed, layer.out, {}));
    }
  }

  const PlainWeights& weights_;
};

// An image of 2 x 3 cells between texts, as M-RoPE places it.
std::vector<Place> image_places(std::int64_t count) {
  std::vector<Place> out;
  for (std::int64_t i = 0; i < count; ++i) {
    if (i >= 4 && i < 10) {
      out.push_back({4, 4 + (i - 4) / 3, 4 + (i - 4) % 3});
    } else {
      const std::int64_t at = i < 4 ? i : i - 10 + 7;
      out.push_back({at, at, at});
    }
  }
  return out;
}

struct Fixture {
  explicit Fixture(std::int64_t count, std::int64_t sequences = 1, int threads = 2)
      : backend(make_backend("cpu", {.threads = threads})),
        plain(plain_weights()),
        transformer(make_transformer(*backend, plain)),
        cache(*backend, {.layers = kLayers,
                         .kv_heads = kKvHeads,
                         .head_dim = kHeadDim,
                         .capacity = count + 8,
                         .sequences = sequences}),
        arena(Transformer::scratch_bytes(transformer.config(), count * sequences, *backend) +
              4096) {}

  // Runs a part of the layers over rows [n, D] of one sequence.
  std::vector<float> run(const std::vector<float>& rows, const std::vector<Place>& places,
                         LayerRange range, const Taps& taps = {}, std::int32_t sequence = 0) {
    const auto n = static_cast<std::int64_t>(rows.size()) / kWidth;
    const std::vector<std::int32_t> sequences(static_cast<std::size_t>(n), sequence);
    const std::vector<std::int64_t> positions(static_cast<std::size_t>(n), 0);
    std::vector<float> out(rows.size());
    const ForwardBatch batch{.rows = {DType::kF32, Shape{n, kWidth}, rows.data(), Device{}},
                             .sequences = sequences,
                             .positions = positions,
                             .places = places};
    transformer.forward_layers(batch, range, cache, arena,
                               {DType::kF32, Shape{n, kWidth}, out.data(), Device{}}, taps);
    return out;
  }

  std::unique_ptr<Backend> backend;
  PlainWeights plain;
  Transformer transformer;
  KvCache cache;
  Arena arena;
};

Rows in_rows(const std::vector<float>& flat) {
  Rows out;
  for (std::size_t at = 0; at < flat.size(); at += kWidth) {
    out.emplace_back(flat.begin() + static_cast<std::ptrdiff_t>(at),
                     flat.begin() + static_cast<std::ptrdiff_t>(at + kWidth));
  }
  return out;
}

template <typename Row>
std::vector<float> flat_of(const std::vector<Row>& rows, const std::vector<std::size_t>& which) {
  std::vector<float> out;
  for (const std::size_t r : which) {
    for (const auto v : rows[r]) out.push_back(static_cast<float>(v));
  }
  return out;
}

std::vector<std::size_t> all_of(std::size_t count) {
  std::vector<std::size_t> out(count);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

template <typename T>
std::vector<T> picked(const std::vector<T>& from, const std::vector<std::size_t>& which) {
  std::vector<T> out;
  for (const std::size_t i : which) out.push_back(from[i]);
  return out;
}

std::vector<float> gathered(const std::vector<float>& rows, const std::vector<std::size_t>& which) {
  return flat_of(in_rows(rows), which);
}

TEST(LayerParts, BiasesAndThreeAxesEqualThePlainForm) {
  const std::int64_t count = 40;
  Fixture fixture(count);
  const std::vector<float> rows = noise(count * kWidth, 7, 1);
  const auto places = image_places(count);
  const Rows want = PlainTransformer(fixture.plain).run(in_rows(rows), places, kLayers, {});
  EXPECT_LE(relative_difference(fixture.run(rows, places, {0, kLayers}),
                                flat_of(want, all_of(want.size()))),
            3e-6);
}

TEST(LayerParts, PartsGiveTheBitsOfTheWhole) {
  const std::int64_t count = 300;  // more than runs at once
  const std::vector<float> rows = noise(count * kWidth, 8, 1);
  const auto places = image_places(count);
  Fixture whole(count);
  const auto want = whole.run(rows, places, {0, kLayers});
  for (const std::int64_t at : {1, 2, 3}) {
    Fixture parts(count);
    const auto lower = parts.run(rows, places, {0, at});
    EXPECT_EQ(parts.run(lower, places, {at, kLayers}), want) << at;
  }
}

// Runs a prompt with rows dropped before layer `cut`; the hidden states of those that are left.
std::vector<float> run_pruned(Fixture& fixture, const std::vector<float>& rows,
                              const std::vector<Place>& places, std::int64_t cut,
                              const std::vector<std::size_t>& kept, std::int32_t sequence = 0) {
  const auto lower = fixture.run(rows, places, {0, cut}, {}, sequence);
  const auto count = static_cast<std::int64_t>(places.size());
  fixture.cache.cut(sequence, cut, count - static_cast<std::int64_t>(kept.size()));
  return fixture.run(gathered(lower, kept), picked(places, kept), {cut, kLayers}, {}, sequence);
}

TEST(LayerParts, DroppingRowsIsMaskingThem) {
  const std::int64_t count = 30, more = 5;
  const std::vector<float> rows = noise((count + more) * kWidth, 9, 1);
  const std::vector<float> prompt(rows.begin(), rows.begin() + count * kWidth);
  const auto all_places = image_places(count + more);
  const std::vector<Place> places(all_places.begin(), all_places.begin() + count);
  for (const std::int64_t cut : {1, 2, 3}) {
    std::vector<std::size_t> kept;
    std::vector<bool> alive(static_cast<std::size_t>(count + more), true);
    for (std::size_t r = 0; r < static_cast<std::size_t>(count); ++r) {
      alive[r] = r < 4 || r >= 20 || r % 3 == 1;
      if (alive[r]) kept.push_back(r);
    }
    Fixture fixture(count + more);
    const auto got = run_pruned(fixture, prompt, places, cut, kept);
    const Rows want = PlainTransformer(fixture.plain).run(in_rows(rows), all_places, cut, alive);
    EXPECT_LE(relative_difference(got, flat_of(want, kept)), 3e-6) << cut;
    EXPECT_EQ(fixture.cache.missing(cut - 1, 0), 0);
    EXPECT_EQ(fixture.cache.missing(cut, 0), count - static_cast<std::int64_t>(kept.size()));
    // Later rows see what each layer has kept.
    std::vector<float> decoded;
    for (std::int64_t i = 0; i < more; ++i) {
      const auto at = static_cast<std::size_t>(count + i);
      const auto row = fixture.run(gathered(rows, {at}), {all_places[at]}, {0, kLayers});
      decoded.insert(decoded.end(), row.begin(), row.end());
    }
    std::vector<std::size_t> later(static_cast<std::size_t>(more));
    std::iota(later.begin(), later.end(), static_cast<std::size_t>(count));
    EXPECT_LE(relative_difference(decoded, flat_of(want, later)), 3e-6) << cut;
    // All at once gives the same bits, also after rows were forgotten again.
    fixture.cache.truncate(0, count);
    EXPECT_EQ(fixture.run(gathered(rows, later), picked(all_places, later), {0, kLayers}), decoded);
  }
}

TEST(LayerParts, KeepingEveryRowChangesNoBit) {
  const std::int64_t count = 25;
  const std::vector<float> rows = noise(count * kWidth, 10, 1);
  const auto places = image_places(count);
  Fixture whole(count), pruned(count);
  EXPECT_EQ(run_pruned(pruned, rows, places, 2, all_of(static_cast<std::size_t>(count))),
            whole.run(rows, places, {0, kLayers}));
}

TEST(LayerParts, CutsInTurnAndSequencesNextToEachOther) {
  const std::int64_t count = 24;
  const std::vector<float> rows = noise(count * kWidth, 11, 1);
  const auto places = image_places(count);
  const std::vector<std::size_t> first{0, 1, 2, 3, 5, 7, 9, 10, 11, 12, 20, 21, 22, 23};
  const std::vector<std::size_t> second{0, 1, 3, 6, 9, 10, 12, 13};  // of the first
  const auto run_both = [&](Fixture& fixture, std::int32_t sequence) {
    auto x = fixture.run(rows, places, {0, 1}, {}, sequence);
    auto at = picked(places, first);
    fixture.cache.cut(sequence, 1, count - 14);
    x = fixture.run(gathered(x, first), at, {1, 3}, {}, sequence);
    fixture.cache.cut(sequence, 3, 14 - 8);
    return fixture.run(gathered(x, second), picked(at, second), {3, kLayers}, {}, sequence);
  };
  Fixture alone(count), next_to(count, 3);
  const auto want = run_both(alone, 0);
  next_to.run(noise(12 * kWidth, 12, 1), image_places(12), {0, kLayers}, {}, 0);
  EXPECT_EQ(run_both(next_to, 1), want);
  // A fork has what its parent has, in every layer.
  next_to.cache.fork(1, 2);
  const std::vector<float> next = noise(kWidth, 13, 1);
  const std::vector<Place> place{{50, 50, 50}};
  const auto after = alone.run(next, place, {0, kLayers});
  for (const std::int32_t sequence : {1, 2}) {
    EXPECT_EQ(next_to.run(next, place, {0, kLayers}, {}, sequence), after) << sequence;
  }
  // Forgetting everything forgets the cuts.
  next_to.cache.truncate(1, 0);
  EXPECT_EQ(next_to.cache.missing(3, 1), 0);
  EXPECT_EQ(run_both(next_to, 1), want);
}

// The weights that a row gives to all rows, from the queries an observer saw and the cached keys.
TEST(LayerParts, AnObserverSeesQueriesAndActivations) {
  struct Seen final : LayerObserver {
    std::vector<float> last_query, active;
    std::int64_t wanted = 0;
    void queries(std::int64_t layer, std::int64_t first, ConstTensorView q) override {
      if (layer != 1 || wanted < first || wanted >= first + q.shape[0]) return;
      const float* row = q.f32() + (wanted - first) * kHeads * kHeadDim;
      last_query.assign(row, row + kHeads * kHeadDim);
    }
    void activations(std::int64_t layer, std::int64_t, ConstTensorView gated) override {
      if (layer == 2)
        active.insert(active.end(), gated.f32(), gated.f32() + gated.shape.elements());
    }
  };
  const std::int64_t count = 280;
  const std::vector<float> rows = noise(count * kWidth, 14, 1);
  const auto places = image_places(count);
  Fixture fixture(count);
  Seen seen;
  seen.wanted = count - 1;
  std::vector<float> entering(rows.size()), after(rows.size());
  std::vector<std::vector<float>> hidden(kLayers, std::vector<float>(rows.size()));
  std::vector<TensorView> taps;
  for (auto& tap : hidden)
    taps.push_back({DType::kF32, Shape{count, kWidth}, tap.data(), Device{}});
  fixture.run(rows, places, {0, kLayers}, {taps, &seen});
  ASSERT_EQ(seen.last_query.size(), static_cast<std::size_t>(kHeads * kHeadDim));
  ASSERT_EQ(seen.active.size(), static_cast<std::size_t>(count * kFfn));
  // What layer 1 adds to its last row, rebuilt from the query: attention, output, then the FFN.
  const PlainLayer& layer = fixture.plain.layers[1];
  const float* keys = fixture.cache.keys(1, 0).f32();
  const float* values = fixture.cache.values(1, 0).f32();
  std::vector<double> mixed(kHeads * kHeadDim, 0.0);
  for (std::int64_t h = 0; h < kHeads; ++h) {
    double total = 0;
    for (std::int64_t s = 0; s < count; ++s) {
      const std::int64_t at = (s * kKvHeads + h * kKvHeads / kHeads) * kHeadDim;
      const double weight =
          std::exp(std::inner_product(keys + at, keys + at + kHeadDim,
                                      seen.last_query.begin() + h * kHeadDim, 0.0) /
                   4.0);
      total += weight;
      for (std::int64_t i = 0; i < kHeadDim; ++i) {
        mixed[static_cast<std::size_t>(h * kHeadDim + i)] +=
            weight * static_cast<double>(values[at + i]);
      }
    }
    for (std::int64_t i = 0; i < kHeadDim; ++i)
      mixed[static_cast<std::size_t>(h * kHeadDim + i)] /= total;
  }
  std::vector<double> x(hidden[1].end() - kWidth, hidden[1].end());
  const auto product = [](const std::vector<double>& in, const std::vector<float>& w) {
    std::vector<double> out(w.size() / in.size(), 0.0);
    for (std::size_t o = 0; o < out.size(); ++o) {
      for (std::size_t i = 0; i < in.size(); ++i)
        out[o] += in[i] * static_cast<double>(w[o * in.size() + i]);
    }
    return out;
  };
  const auto attended = product(mixed, layer.out);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += attended[i];
  // Layer 2's activations times its down projection are what it adds after its own attention; here
  // it is enough that layer 1's sum, its FFN included, is what enters layer 2.
  double square = 0;
  for (const double v : x) square += v * v;
  std::vector<double> normed(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    normed[i] = x[i] / std::sqrt(square / kWidth + 1e-6) * static_cast<double>(layer.ffn_norm[i]);
  }
  const auto both = product(normed, layer.gate_up);
  std::vector<double> gated(kFfn);
  for (std::size_t i = 0; i < gated.size(); ++i) {
    gated[i] = both[i] / (1 + std::exp(-both[i])) * both[i + kFfn];
  }
  const auto fed = product(gated, layer.down);
  std::vector<float> want, got(hidden[2].end() - kWidth, hidden[2].end());
  for (std::size_t i = 0; i < x.size(); ++i) want.push_back(static_cast<float>(x[i] + fed[i]));
  EXPECT_LE(relative_difference(got, want), 3e-6);
}

}  // namespace
}  // namespace tessera::layer_parts_test
