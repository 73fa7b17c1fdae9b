// The row contract of matrix products with everything that is done to their results: a row's bits
// are those of the row alone, however many stand next to it, in passes that are recorded as well.
#include "engine/ops/ops.h"
#include "tests/unit/ops/places.h"

namespace tessera::testing::linear_rows_test {
namespace {

enum class After { kBias, kSum, kGate, kNorm, kNormAndGate };  // norms come before
constexpr After kAll[] = {After::kBias, After::kSum, After::kGate, After::kNorm,
                          After::kNormAndGate};
constexpr float kEps = 1e-5f;

constexpr bool has_norm(After after) {
  return after == After::kNorm || after == After::kNormAndGate;
}
constexpr bool has_gate(After after) {
  return after == After::kGate || after == After::kNormAndGate;
}

// A product of n outputs (2 n with a gate) and what it is given.
struct Rows {
  std::int64_t n, k, outputs;
  After after;
  std::vector<float> w, bias, x, start, norm;
  Rows(After what, std::int64_t width, std::int64_t inputs, std::int64_t rows)
      : n(width),
        k(inputs),
        outputs(has_gate(what) ? 2 * width : width),
        after(what),
        w(normal(static_cast<std::size_t>(outputs * inputs), 1, 0.3f)),
        bias(normal(static_cast<std::size_t>(outputs), 2)),
        x(normal(static_cast<std::size_t>(rows * inputs), 3)),
        start(normal(static_cast<std::size_t>(rows * width), 4)),
        norm(normal(static_cast<std::size_t>(inputs), 5, 0.5f)) {
    if (!has_norm(what)) return;
    // Rows of very different size, one where eps counts, one of zeros; of the others every second
    // one has nearly all its squares where one thread of a GPU's adds them up, so that its order
    // shows.
    for (std::int64_t row = 0; row < rows; ++row) {
      const float size = row % 5 == 3 ? 1e-3f : row % 7 == 6 ? 0.0f : row % 3 == 1 ? 50.0f : 1.0f;
      for (std::int64_t i = 0; i < k; ++i) {
        const bool of_one = i / 8 % 4 == 0 && i / 64 % 4 == 0;
        x[static_cast<std::size_t>(row * k + i)] *= row % 2 == 0 && of_one ? 100 * size : size;
      }
    }
    for (float& value : norm) value += 1.0f;
  }

  // What meets the weights, and what a row is multiplied by after.
  std::vector<float> factors() const {
    std::vector<float> out = x;
    for (std::size_t i = 0; has_norm(after) && i < out.size(); ++i) {
      out[i] *= norm[i % static_cast<std::size_t>(k)];
    }
    return out;
  }
  double scale(std::int64_t row) const {
    if (!has_norm(after)) return 1;
    double squares = 0;
    for (std::int64_t i = 0; i < k; ++i) {
      const double value = x[static_cast<std::size_t>(row * k + i)];
      squares += value * value;
    }
    return 1 / std::sqrt(squares / static_cast<double>(k) + static_cast<double>(kEps));
  }

  LinearWeight pack(Backend& backend, DType storage) const {
    const ConstTensorView matrix = view_of(w, {outputs, k});
    return backend.pack_linear({&matrix, 1}, storage);
  }
};

// Memory of a pass, so that passes can be repeated on the same tensors.
struct Pass {
  Tensor x, bias, out, scratch, norm, normed;
  std::int64_t rows;
  Pass(Backend& backend, const Rows& p, std::int64_t count)
      : x(backend.allocate(DType::kF32, {count, p.k})),
        bias(send(backend, p.bias, {p.outputs})),
        out(backend.allocate(DType::kF32, {count, p.n})),
        scratch(backend.allocate(DType::kF32, {count, p.outputs})),
        norm(send(backend, p.norm, {p.k})),
        normed(backend.allocate(DType::kF32, {count, p.k})),
        rows(count) {}

  void give(Backend& backend, const Rows& p, std::int64_t first) {
    backend.upload({DType::kF32, {rows, p.k}, p.x.data() + first * p.k, {}}, x.view());
    backend.upload({DType::kF32, {rows, p.n}, p.start.data() + first * p.n, {}}, out.view());
  }
  void run(Backend& backend, const Rows& p, const LinearWeight& w) {
    switch (p.after) {
      case After::kBias:
        return ops::linear(backend, x.view(), w, bias.view(), out.view());
      case After::kSum:
        return ops::linear_add(backend, x.view(), w, bias.view(), out.view(), scratch.view());
      case After::kGate:
        return ops::gated_linear(backend, x.view(), w, scratch.view(), out.view());
      case After::kNorm:
        return ops::normed_linear(backend, x.view(), norm.view(), kEps, w, bias.view(),
                                  normed.view(), out.view());
      case After::kNormAndGate:
        return ops::normed_gated_linear(backend, x.view(), norm.view(), kEps, w, normed.view(),
                                        scratch.view(), out.view());
    }
  }
};

std::vector<float> run(Backend& backend, const Rows& p, const LinearWeight& w, std::int64_t first,
                       std::int64_t rows) {
  Pass pass(backend, p, rows);
  pass.give(backend, p, first);
  pass.run(backend, p, w);
  return fetch(backend, pass.out.view());
}

class LinearRows : public AtPlace {};
class LinearAfter : public AtPlace {};

TEST_P(LinearRows, EachOf130IsTheRowAlone) {
  for (const After after : kAll) {
    const Rows p(after, 17, 100, 130);
    const LinearWeight w = p.pack(*backend, storage());
    const std::vector<float> all = run(*backend, p, w, 0, 130);
    for (std::int64_t row = 0; row < 130; ++row) {
      ASSERT_TRUE(same_bits(run(*backend, p, w, row, 1).data(), all.data() + row * p.n, 17))
          << "row " << row << ", epilogue " << static_cast<int>(after);
    }
  }
}

TEST_P(LinearRows, OfEveryShapeAndNumberAreTheRowAlone) {
  for (const std::int64_t n : {1, 17, 100}) {
    for (const std::int64_t k : {8, 63, 100, 128, 200, 1030, 1088}) {
      if (place().slow() && (k == 128 || (n == 100 && k > 128))) continue;
      for (const After after : kAll) {
        if (place().slow() && has_norm(after)) continue;  // the test below has fewer shapes
        const Rows p(after, n, k, 130);
        const LinearWeight w = p.pack(*backend, storage());
        // The widest kernels of a GPU are met by rows 0, 8 and 64 of a batch.
        for (const std::int64_t rows : {2, 4, 8, 9, 16, 17, 33, 65, 130}) {
          if (place().slow() && (rows == 4 || rows == 16 || (rows > 33 && n * k > 5000))) continue;
          const std::vector<float> all = run(*backend, p, w, 0, rows);
          for (const std::int64_t row : {std::int64_t{0}, rows / 2, rows - 1}) {
            ASSERT_TRUE(same_bits(run(*backend, p, w, row, 1).data(), all.data() + row * n,
                                  static_cast<std::size_t>(n)))
                << "row " << row << " of " << rows << ", n " << n << ", k " << k << ", epilogue "
                << static_cast<int>(after);
          }
        }
      }
    }
  }
}

// What norms rows differs with their number: the blocks of the product, or a kernel before it; with
// split or padded inputs it is always the kernel. 576 inputs are some steps of every slice.
TEST_P(LinearRows, NormedRowsAreTheRowAlone) {
  for (const auto& [n, k] :
       {std::pair<std::int64_t, std::int64_t>{40, 576}, {17, 1088}, {40, 200}}) {
    for (const After after : {After::kNorm, After::kNormAndGate}) {
      if (place().slow() && k == 1088 && after == After::kNormAndGate) continue;
      const Rows p(after, n, k, 130);
      const LinearWeight w = p.pack(*backend, storage());
      std::vector<std::vector<float>> alone(130);
      for (const std::int64_t rows : {2, 8, 9, 16, 17, 33, 65, 128, 130}) {
        if (place().slow() && k == 1088 && rows > 33 && rows != 65) continue;
        const std::vector<float> all = run(*backend, p, w, 0, rows);
        for (const std::int64_t row : {std::int64_t{0}, rows / 3, rows / 2, rows - 1}) {
          std::vector<float>& single = alone[static_cast<std::size_t>(row)];
          if (single.empty()) single = run(*backend, p, w, row, 1);
          ASSERT_TRUE(same_bits(single.data(), all.data() + row * n, static_cast<std::size_t>(n)))
              << "row " << row << " of " << rows << ", n " << n << ", k " << k;
        }
      }
    }
  }
}

TEST_P(LinearRows, NormedRowsMayBeginAnywhereInMemory) {
  for (const std::int64_t rows : {1, 9, 20}) {
    const Rows p(After::kNorm, 40, 128, rows);
    const LinearWeight w = p.pack(*backend, storage());
    const std::vector<float> want = run(*backend, p, w, 0, rows);
    const auto shifted = [&](const std::vector<float>& values) {
      std::vector<float> out(1);
      out.insert(out.end(), values.begin(), values.end());
      return send(*backend, out, {static_cast<std::int64_t>(out.size())});
    };
    const auto after_first = [](const Tensor& memory, Shape shape) {
      return ConstTensorView{DType::kF32, shape, memory.view().f32() + 1, memory.view().device};
    };
    const Tensor x = shifted(p.x), norm = shifted(p.norm), bias = send(*backend, p.bias, {p.n});
    Tensor out = send(*backend, p.start, {rows, p.n});
    Tensor normed = backend->allocate(DType::kF32, {rows, p.k});
    const Pass own(*backend, p, rows);
    for (const bool both : {false, true}) {
      ops::normed_linear(*backend, after_first(x, {rows, p.k}),
                         both ? after_first(norm, {p.k}) : own.norm.view(), kEps, w, bias.view(),
                         normed.view(), out.view());
      EXPECT_TRUE(same_bits(fetch(*backend, out.view()), want)) << rows << " rows";
    }
  }
}

TEST_P(LinearRows, MayBeginAnywhereInMemory) {
  for (const std::int64_t rows : {1, 20}) {
    const Rows p(After::kBias, 17, 128, rows);
    const LinearWeight w = p.pack(*backend, storage());
    std::vector<float> shifted(1);
    shifted.insert(shifted.end(), p.x.begin(), p.x.end());
    const Tensor memory = send(*backend, shifted, {rows * p.k + 1});
    ConstTensorView x = memory.view();
    x.shape = {rows, p.k};
    x.data = static_cast<const float*>(x.data) + 1;
    Tensor out = send(*backend, p.start, {rows, p.n});
    const Tensor bias = send(*backend, p.bias, {p.n});
    ops::linear(*backend, x, w, bias.view(), out.view());
    EXPECT_TRUE(same_bits(fetch(*backend, out.view()), run(*backend, p, w, 0, rows)));
  }
}

// Larger than the pieces in which weights are sent: every number is where it belongs.
TEST_P(LinearRows, LargeMatricesArriveWhole) {
  const std::int64_t n = 3001, k = 1500;
  std::vector<float> w(static_cast<std::size_t>(n * k));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i * 7919 % 251);
  const ConstTensorView matrix = view_of(w, {n, k});
  const LinearWeight packed = backend->pack_linear({&matrix, 1}, storage());
  const std::vector<float> kept = rounded_rows(storage(), w, k);
  std::vector<float> ones(static_cast<std::size_t>(2 * k));
  const std::int64_t taken[] = {3, 1499};
  for (std::int64_t row = 0; row < 2; ++row) {
    ones[static_cast<std::size_t>(row * k + taken[row])] = 1.0f;
  }
  const Tensor x = send(*backend, ones, {2, k});
  Tensor out = backend->allocate(DType::kF32, {2, n});
  ops::linear(*backend, x.view(), packed, {}, out.view());
  const std::vector<float> got = fetch(*backend, out.view());
  for (std::int64_t row = 0; row < 2; ++row) {
    for (std::int64_t j = 0; j < n; ++j) {
      const float value = kept[static_cast<std::size_t>(j * k + taken[row])];
      ASSERT_NEAR(got[static_cast<std::size_t>(row * n + j)], value,
                  storage_of(storage()).integers ? 1e-6f * value : 0.0f)
          << "row " << j << ", input " << taken[row];
    }
  }
}

// In doubles, with the rounding of a product carried through what is done to it.
TEST_P(LinearAfter, EqualsDoublePrecision) {
  for (const std::int64_t n : {1, 17, 50}) {
    for (const std::int64_t rows : {1, 9, 20, 70}) {
      for (const After after : kAll) {
        // Where 8 bits round up depends on the last bit of a norm: the ops of one are tested alone.
        if (has_norm(after) && storage_of(storage()).integers) continue;
        for (const std::int64_t k : {100, 1088}) {
          const Rows p(after, n, k, rows);
          const std::vector<float> weights = rounded_rows(storage(), p.w, k);
          const std::vector<float> x = place().read(storage(), p.factors(), k);
          std::vector<double> want, tolerance;
          const auto product = [&](std::int64_t row, std::int64_t j) {
            double sum = 0, size = 0;
            const double scale = p.scale(row);
            for (std::int64_t i = 0; i < k; ++i) {
              const double term = scale * x[static_cast<std::size_t>(row * k + i)] *
                                  weights[static_cast<std::size_t>(j * k + i)];
              sum += term;
              size += term * term;
            }
            // That of the row's scale comes on top: a sum of squares of one sign, and a root.
            return std::pair(sum, 8 * kEpsilon *
                                      (std::sqrt(size * static_cast<double>(k)) +
                                       (has_norm(after) ? std::abs(sum) : 0.0)));
          };
          for (std::int64_t row = 0; row < rows; ++row) {
            for (std::int64_t j = 0; j < n; ++j) {
              const auto [sum, error] = product(row, j);
              const double bias = p.bias[static_cast<std::size_t>(j)];
              const double start = p.start[want.size()];
              if (has_gate(after)) {
                const auto [up, up_error] = product(row, n + j);
                const double silu = sum / (1 + std::exp(-sum));
                want.push_back(silu * up);
                // The slope of silu stays below 1.1.
                tolerance.push_back(1.1 * error * std::abs(up) + up_error * std::abs(silu) +
                                    8 * kEpsilon * std::abs(silu * up) + 1e-12);
              } else {
                want.push_back(sum + bias + (after == After::kSum ? start : 0));
                tolerance.push_back(error + 4 * kEpsilon * (std::abs(bias) + std::abs(start)));
              }
            }
          }
          const LinearWeight w = p.pack(*backend, storage());
          EXPECT_TRUE(close(run(*backend, p, w, 0, rows), want, tolerance))
              << "n " << n << ", k " << k << ", " << rows << " rows, epilogue "
              << static_cast<int>(after);
        }
      }
    }
  }
}

// The first pass of a key is enqueued as it comes, the next one recorded, the others repeated.
TEST_P(LinearAfter, RecordedPassesReadWhatStandsThereNow) {
  for (const std::int64_t rows : {1, 20, 70}) {
    for (const After after : kAll) {
      const Rows p(after, 17, 1030, 4 * rows);
      const LinearWeight w = p.pack(*backend, storage());
      Pass pass(*backend, p, rows);
      const auto key = static_cast<std::uint64_t>(rows * 8 + static_cast<int>(after));
      for (std::int64_t turn = 0; turn < 4; ++turn) {
        pass.give(*backend, p, turn * rows);
        {
          const RecordedPass recorded(*backend, key);
          pass.run(*backend, p, w);
        }
        EXPECT_TRUE(
            same_bits(fetch(*backend, pass.out.view()), run(*backend, p, w, turn * rows, rows)))
            << rows << " rows, turn " << turn << ", epilogue " << static_cast<int>(after);
      }
    }
  }
}

// More rows than go anywhere at once, in the deterministic mode and by the vendor's library.
TEST_P(LinearAfter, LongBatchesAreTheirParts) {
  const std::int64_t rows = place().slow() ? 2050 : 5000;
  for (const std::int64_t n : {1, 3}) {  // the library of the simulated device refuses one output
    for (const After after : kAll) {
      const Rows p(after, n, 9, rows);
      const LinearWeight w = p.pack(*backend, storage());
      const std::vector<float> all = run(*backend, p, w, 0, rows);
      for (const std::int64_t first : {std::int64_t{0}, std::int64_t{250}, rows - 70}) {
        const std::vector<float> part = run(*backend, p, w, first, 70);
        const std::vector<double> want(part.begin(), part.end());
        const std::vector<float> got(all.begin() + first * n, all.begin() + (first + 70) * n);
        // The library gets rows that were normed and then rounded: half a unit of bf16 apart in
        // each of k factors.
        const bool otherwise =
            has_norm(after) && storage() == DType::kBF16 && !place().device.deterministic;
        std::vector<double> tolerance;
        for (const double value : want) {
          tolerance.push_back(otherwise ? 0.03 * (1 + std::abs(value)) : 2e-6);
        }
        EXPECT_TRUE(close(got, want, tolerance))
            << "rows from " << first << ", epilogue " << static_cast<int>(after);
      }
    }
  }
}

std::vector<Place> deterministic_places() {
  std::vector<Place> out;
  for (const Place& place : every_place()) {
    if (place.device.deterministic) out.push_back(place);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Places, LinearRows, with_storage(deterministic_places()), place_name);
INSTANTIATE_TEST_SUITE_P(Places, LinearAfter, with_storage(every_place()), place_name);

}  // namespace
}  // namespace tessera::testing::linear_rows_test
