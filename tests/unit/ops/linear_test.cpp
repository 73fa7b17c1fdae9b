// Matrix products against double precision, and the row contract: a row's bits depend neither on
// the rows next to it, nor on the threads, nor on the instruction set.
#include "engine/ops/ops.h"
#include "tests/unit/ops/places.h"

namespace tessera::testing::linear_test {
namespace {

struct Size {
  std::int64_t n, k;
};

struct Problem {
  Size size;
  std::vector<float> w, x, bias;
  Problem(Size s, std::int64_t rows)
      : size(s),
        w(normal(static_cast<std::size_t>(s.n * s.k), 1)),
        x(normal(static_cast<std::size_t>(rows * s.k), 2)),
        bias(normal(static_cast<std::size_t>(s.n), 3)) {}
};

LinearWeight pack(Backend& backend, const Problem& p, DType storage) {
  const ConstTensorView matrix = view_of(p.w, {p.size.n, p.size.k});
  return backend.pack_linear({&matrix, 1}, storage);
}

// Rows [first, first + rows) of the problem.
std::vector<float> run(Backend& backend, const Problem& p, const LinearWeight& w, std::int64_t rows,
                       bool with_bias = true, std::int64_t first = 0) {
  const auto begin = p.x.begin() + first * p.size.k;
  const Tensor x = send(backend, {begin, begin + rows * p.size.k}, {rows, p.size.k});
  const Tensor bias = send(backend, p.bias, {p.size.n});
  Tensor out = send(backend, std::vector<float>(static_cast<std::size_t>(rows * p.size.n), NAN),
                    {rows, p.size.n});
  ops::linear(backend, x.view(), w, with_bias ? bias.view() : ConstTensorView{}, out.view());
  return fetch(backend, out.view());
}

struct Expected {
  std::vector<double> value, tolerance;
};

// The sum in double, and a tolerance of 4 roundings of |x| |w|: the chains are 256 long, so the
// accumulated rounding of random signs stays below one rounding of that product.
Expected expected(const Place& place, const Problem& p, DType storage, std::int64_t rows) {
  const std::vector<float> w = rounded_rows(storage, p.w, p.size.k);
  const std::vector<float> activations = place.read(storage, p.x, p.size.k);
  Expected out;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* x = activations.data() + r * p.size.k;
    for (std::int64_t j = 0; j < p.size.n; ++j) {
      const float* row = w.data() + j * p.size.k;
      double sum = 0, xx = 0, ww = 0;
      for (std::int64_t i = 0; i < p.size.k; ++i) {
        sum += static_cast<double>(x[i]) * row[i];
        xx += static_cast<double>(x[i]) * x[i];
        ww += static_cast<double>(row[i]) * row[i];
      }
      const double bias = p.bias[static_cast<std::size_t>(j)];
      out.value.push_back(sum + bias);
      out.tolerance.push_back(4 * kEpsilon * (std::sqrt(xx * ww) + std::abs(bias)));
    }
  }
  return out;
}

class Linear : public AtPlace {};
class LinearThreads : public AtPlace {};

TEST_P(Linear, EqualsDoublePrecision) {
  const DType storage = this->storage();
  for (const Size size : {Size{1, 1}, Size{16, 256}, Size{17, 255}, Size{100, 300}, Size{33, 513},
                          Size{64, 7}, Size{257, 129}, Size{17, 1030}, Size{16, 2048}}) {
    const std::int64_t most = place().slow() ? 70 : 250;
    const Problem problem(size, most);
    const LinearWeight w = pack(*backend, problem, storage);
    const Expected want = expected(place(), problem, storage, most);
    for (const std::int64_t rows :
         {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 17, 25, 64, 65, 70, 193, 250}) {
      if (rows > most || (place().slow() && (rows == 4 || rows == 6 || rows == 12 || rows == 64))) {
        continue;
      }
      Expected part = want;
      part.value.resize(static_cast<std::size_t>(rows * size.n));
      part.tolerance.resize(static_cast<std::size_t>(rows * size.n));
      EXPECT_TRUE(close(run(*backend, problem, w, rows), part.value, part.tolerance))
          << rows << " rows, n " << size.n << ", k " << size.k;
    }
  }
}

TEST_P(Linear, ToleranceCatchesOneWrongWeight) {
  const DType storage = this->storage();
  Problem problem({40, 300}, 3);
  const Expected want = expected(place(), problem, storage, 3);
  // More than bf16 rounds away, or half of the largest one of a block of 4 bits.
  float& wrong = problem.w[7 * 300 + 11];
  wrong = storage_of(storage).integers ? 2.0f : wrong * 1.02f;
  const std::vector<float> got = run(*backend, problem, pack(*backend, problem, storage), 3);
  EXPECT_EQ(first_difference(got, want.value, want.tolerance), 7);
}

TEST_P(LinearThreads, NorTheNumberOfRowsChangeARow) {
  const DType storage = this->storage();
  const Problem problem({70, 600}, 2048);
  std::vector<std::vector<float>> single;
  for (const int threads : {1, 2, 3, 7}) {
    backend = place().open(threads);
    const LinearWeight w = pack(*backend, problem, storage);
    std::vector<std::int64_t> counts;
    const bool slow = place().slow();
    for (std::int64_t rows = 1; rows <= 130; rows += slow ? 13 : 1) counts.push_back(rows);
    if (!slow) counts.push_back(2048);
    if (single.empty()) {
      for (std::int64_t row = 0; row < (slow ? 130 : 2048); ++row) {
        single.push_back(run(*backend, problem, w, 1, true, row));
      }
    }
    for (const std::int64_t rows : counts) {
      const std::vector<float> out = run(*backend, problem, w, rows);
      for (std::int64_t row = 0; row < rows; ++row) {
        ASSERT_TRUE(
            same_bits(out.data() + row * 70, single[static_cast<std::size_t>(row)].data(), 70))
            << "row " << row << " of " << rows << ", " << threads << " threads";
      }
    }
  }
}

TEST_P(Linear, StackedMatricesAndSlicesAreTheirRows) {
  const DType storage = this->storage();
  const Problem problem({45, 130}, 5);
  const std::vector<float> whole = run(*backend, problem, pack(*backend, problem, storage), 5);
  const ConstTensorView parts[] = {{DType::kF32, {20, 130}, problem.w.data(), {}},
                                   {DType::kF32, {3, 130}, problem.w.data() + 20 * 130, {}},
                                   {DType::kF32, {22, 130}, problem.w.data() + 23 * 130, {}}};
  EXPECT_TRUE(same_bits(run(*backend, problem, backend->pack_linear(parts, storage), 5), whole));

  Problem slice({22, 130}, 5);
  slice.bias.assign(problem.bias.begin() + 23, problem.bias.end());
  const std::vector<float> tail =
      run(*backend, slice, backend->pack_linear({&parts[2], 1}, storage), 5);
  for (std::size_t row = 0; row < 5; ++row) {
    EXPECT_TRUE(same_bits(tail.data() + row * 22, whole.data() + row * 45 + 23, 22));
  }
}

TEST_P(Linear, PacksEverySourceType) {
  const DType storage = this->storage();
  Problem problem({19, 40}, 2);
  problem.w = rounded_to(DType::kBF16, problem.w);
  for (float& value : problem.w) {  // kept in f16's exact range, so that all three types agree
    if (std::abs(value) < 1e-3f) value = 0.0f;
  }
  const std::vector<float> whole = run(*backend, problem, pack(*backend, problem, storage), 2);
  const std::vector<std::uint16_t> bf16 = to_bf16(problem.w);
  const ConstTensorView as_bf16 = view_of(bf16, {19, 40});
  EXPECT_TRUE(
      same_bits(run(*backend, problem, backend->pack_linear({&as_bf16, 1}, storage), 2), whole));

  std::vector<std::uint16_t> f16;
  for (const float value : problem.w) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const std::uint32_t exponent = (bits >> 23) & 0xffu;
    f16.push_back(static_cast<std::uint16_t>(
        ((bits >> 16) & 0x8000u) |
        (exponent == 0 ? 0u : ((exponent - 112u) << 10 | ((bits >> 13) & 0x3ffu)))));
  }
  ConstTensorView as_f16 = view_of(f16, {19, 40});
  as_f16.dtype = DType::kF16;
  EXPECT_TRUE(
      same_bits(run(*backend, problem, backend->pack_linear({&as_f16, 1}, storage), 2), whole));
}

TEST_P(Linear, NanReachesItsOwnOutputsOnly) {
  const DType storage = this->storage();
  for (const std::int64_t rows : {1, 2, 9, 70}) {
    Problem problem({35, 300}, rows);
    problem.w[17 * 300 + 299] = NAN;
    std::vector<float> out = run(*backend, problem, pack(*backend, problem, storage), rows);
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isnan(out[i]), i % 35 == 17) << i;
    problem = Problem({35, 300}, rows);
    problem.x[static_cast<std::size_t>((rows - 1) * 300)] = NAN;
    out = run(*backend, problem, pack(*backend, problem, storage), rows);
    const auto last = static_cast<std::size_t>((rows - 1) * 35);
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isnan(out[i]), i >= last) << i;
  }
}

TEST_P(Linear, BytesOfThePackedFormAreAsPlanned) {
  const Problem problem({45, 130}, 1);
  EXPECT_EQ(pack(*backend, problem, storage()).packed.bytes(),
            backend->packed_linear_bytes(45, 130, storage()));
}

INSTANTIATE_TEST_SUITE_P(Places, Linear, with_storage(every_place()), place_name);
INSTANTIATE_TEST_SUITE_P(Cpu, LinearThreads, with_storage(cpu_places()), place_name);

TEST(LinearIsas, AgreeBitForBit) {
  for (const DType storage : every_storage()) {
    for (const std::int64_t rows : {1, 2, 5, 23, 70}) {
      const Problem problem({75, 520}, rows);
      std::vector<float> first;
      for (const Isa isa : isas_here()) {
        const auto backend = backend_of(isa);
        const std::vector<float> out =
            run(*backend, problem, pack(*backend, problem, storage), rows, rows % 2 == 0);
        if (first.empty()) first = out;
        EXPECT_TRUE(same_bits(out, first)) << isa_name(isa) << ", " << rows << " rows";
      }
    }
  }
}

TEST(LinearChecks, MismatchesEndTheProgram) {
  const auto backend = backend_of(Isa::kReference, 1);
  const Problem problem({8, 5}, 2);
  const LinearWeight w = pack(*backend, problem, DType::kF32);
  std::vector<float> out(16);
  const ConstTensorView x = view_of(problem.x, {2, 5});
  EXPECT_DEATH(ops::linear(*backend, view_of(problem.x, {5, 2}), w, {}, view_of(out, {2, 8})),
               "as many columns");
  EXPECT_DEATH(ops::linear(*backend, x, w, {}, view_of(out, {4, 4})), "out is \\[M, n\\]");
  std::vector<float> bias(7);
  EXPECT_DEATH(ops::linear(*backend, x, w, view_of(bias, {7}), view_of(out, {2, 8})), "bias is");
}

}  // namespace
}  // namespace tessera::testing::linear_test
