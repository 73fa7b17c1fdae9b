// Products with weights in blocks as files have them, of every such format: against double
// precision of the numbers that readers make of the blocks, and the row contract.
#include <algorithm>
#include <random>

#include "engine/backend/precise_products.h"
#include "engine/core/index.h"
#include "engine/ops/ops.h"
#include "tests/unit/ops/places.h"

namespace tessera::testing::linear_blocks_test {
namespace {

// A block's f16 scales, bytes from its begin, and the largest number that they are multiplied by.
struct Scales {
  DType type;
  std::vector<int> at;
  float most;
};
const Scales kScales[] = {
    {DType::kQ8, {0}, 127},         {DType::kQ4, {0}, 8},       {DType::kQ4_1, {0, 2}, 15},
    {DType::kQ5_0, {0}, 16},        {DType::kQ5_1, {0, 2}, 31}, {DType::kQ2K, {80, 82}, 45},
    {DType::kQ3K, {108}, 128},      {DType::kQ4K, {0, 2}, 945}, {DType::kQ5K, {0, 2}, 1953},
    {DType::kQ6K, {208}, 127 * 32},
};

std::vector<DType> block_types() {
  std::vector<DType> out;
  for (const StorageType& type : storage_types()) {
    if (type.block > 1) out.push_back(type.dtype);
  }
  return out;
}

// Any bits are numbers of such blocks, so that every field has every value; scales are sane.
struct Blocks {
  DType type;
  std::int64_t n, k;
  std::vector<std::byte> bytes;

  Blocks(DType of, std::int64_t rows, std::int64_t inputs, unsigned seed)
      : type(of), n(rows), k(inputs), bytes(storage_of(of).bytes(rows, inputs)) {
    std::mt19937 random(seed);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    const auto found = std::find_if(std::begin(kScales), std::end(kScales),
                                    [&](const Scales& scales) { return scales.type == of; });
    expects(found != std::end(kScales), "the test knows where scales stand");
    for (std::size_t block = 0; block < bytes.size(); block += storage_of(of).block_bytes) {
      for (const int at : found->at) {
        const float sign = random() % 2 == 0 ? 1.0f : -1.0f;
        const std::uint16_t half = float_to_f16(
            sign * (0.5f + static_cast<float>(random() % 1000) / 1000.0f) / found->most);
        std::memcpy(bytes.data() + block + to_size(at), &half, sizeof half);
      }
    }
  }
  ConstTensorView view() const { return {type, {n, k}, bytes.data(), {}}; }
  std::vector<float> numbers() const {
    std::vector<float> out(to_size(n * k));
    read_numbers(view(), 0, 1, n * k, out.data());
    return out;
  }
};

std::vector<float> run(Backend& backend, const std::vector<float>& x, const LinearWeight& w,
                       const std::vector<float>& bias) {
  const std::int64_t rows = to_index(x.size()) / w.k;
  const Tensor in = send(backend, x, {rows, w.k}), own = send(backend, bias, {w.n});
  Tensor out = send(backend, std::vector<float>(to_size(rows * w.n), NAN), {rows, w.n});
  ops::linear(backend, in.view(), w, bias.empty() ? ConstTensorView{} : own.view(), out.view());
  return fetch(backend, out.view());
}
std::vector<float> run(Backend& backend, const std::vector<float>& x, const LinearWeight& w) {
  return run(backend, x, w, normal(to_size(w.n), 3));
}

LinearWeight pack(Backend& backend, const Blocks& blocks) {
  const ConstTensorView view = blocks.view();
  return backend.pack_linear({&view, 1}, DType::kFile);
}

struct Expected {
  std::vector<double> value, tolerance;
};

// As in linear_test.cpp; the numbers of a reader are rounded once, and a scale's part and an
// offset's are together several times as large as what is left of them.
Expected expected(const Blocks& blocks, const std::vector<float>& x, bool precise = false) {
  constexpr double kRoundings = 24;
  const std::vector<float> w = blocks.numbers(),
                           rounded = precise ? x : rounded_to_8_bits(x, blocks.k);
  const std::vector<float> bias = normal(to_size(blocks.n), 3);
  Expected out;
  for (auto row = rounded.begin(); row != rounded.end(); row += blocks.k) {
    for (std::int64_t j = 0; j < blocks.n; ++j) {
      double sum = 0, xx = 0, ww = 0;
      for (std::int64_t i = 0; i < blocks.k; ++i) {
        const double own = w[to_size(j * blocks.k + i)];
        sum += row[i] * own;
        xx += double{row[i]} * row[i];
        ww += own * own;
      }
      const double add = bias[to_size(j)];
      out.value.push_back(sum + add);
      out.tolerance.push_back(kRoundings * kEpsilon * (std::sqrt(xx * ww) + std::abs(add)));
    }
  }
  return out;
}

class LinearBlocks : public AtPlace {
 protected:
  void SetUp() override {
    backend = place().open();
    if (backend == nullptr) GTEST_SKIP() << "no usable " << place() << " device here";
  }
  // The CPU rounds inputs to 8 bits; a device takes them as they are.
  Expected wanted(const Blocks& blocks, const std::vector<float>& x) const {
    return expected(blocks, x, !place().is_cpu());
  }
  // A backend whose inputs are not rounded.
  std::unique_ptr<Backend> precise(int threads) const {
    std::unique_ptr<Backend> out = place().open(threads);
    EXPECT_TRUE(!place().is_cpu() || set_precise(*out, true));
    return out;
  }
};

TEST_P(LinearBlocks, EqualsDoublePrecision) {
  for (const auto& [n, k] : {std::pair{1, 256}, {17, 512}, {100, 768}, {33, 1280}}) {
    const Blocks blocks(storage(), n, k, 7);
    const LinearWeight w = pack(*backend, blocks);
    EXPECT_EQ(w.storage, storage());
    EXPECT_EQ(w.packed.bytes(), backend->packed_linear_bytes(n, k, storage()));
    for (const std::int64_t rows : {1, 2, 3, 5, 6, 7, 13, 64, 300}) {
      if (place().slow() && rows > 13) continue;
      const std::vector<float> x = normal(to_size(rows * k), 2);
      const Expected want = wanted(blocks, x);
      EXPECT_TRUE(close(run(*backend, x, w), want.value, want.tolerance))
          << rows << " rows, n " << n << ", k " << k;
    }
  }
}

// A precise product is that of f32 weights with the numbers of the blocks, bit for bit, and so has
// its error and its row contract.
TEST_P(LinearBlocks, PreciseIsTheProductOfTheirNumbers) {
  for (const auto& [n, k] : {std::pair{1, 256}, {17, 512}, {100, 768}, {33, 1280}}) {
    const Blocks blocks(storage(), n, k, 7);
    const LinearWeight w = pack(*backend, blocks);
    const std::vector<float> numbers = blocks.numbers();
    const ConstTensorView wide = view_of(numbers, {n, k});
    const LinearWeight f32 = backend->pack_linear({&wide, 1}, DType::kF32);
    for (const std::int64_t rows : {1, 2, 3, 5, 6, 7, 13, 64, 300}) {
      if (place().slow() && rows > 13) continue;
      const std::vector<float> x = normal(to_size(rows * k), 2);
      const std::vector<float> got = run(*precise(rows % 3 == 0 ? 3 : 1), x, w);
      EXPECT_TRUE(same_bits(got, run(*backend, x, f32))) << rows << " rows, n " << n << ", k " << k;
      const Expected want = expected(blocks, x, true);
      EXPECT_TRUE(close(got, want.value, want.tolerance)) << rows;
      const Expected coarse = expected(blocks, x);
      EXPECT_FALSE(close(got, coarse.value, coarse.tolerance)) << "inputs of 8 bits";
    }
  }
}

// Every byte counts: with one of its bits flipped the product is that of the other numbers, and
// nearly always far from what it was.
TEST_P(LinearBlocks, FollowsEveryFlippedBit) {
  Blocks blocks(storage(), 6, 256, 8);
  const std::vector<float> x = normal(256, 2);
  const Expected before = wanted(blocks, x);
  const std::vector<float> numbers = blocks.numbers();
  const std::size_t row = blocks.bytes.size() / 6;
  std::size_t changed = 0, caught = 0;
  for (std::size_t at = 0; at < row; ++at) {
    std::byte& byte = blocks.bytes[5 * row + at];
    const std::byte flip{static_cast<unsigned char>(1u << at % 8)};
    byte ^= flip;
    if (const auto all = blocks.numbers();
        all != numbers && std::ranges::all_of(all, [](float w) { return std::abs(w) < 1e4f; })) {
      const auto got = run(*backend, x, pack(*backend, blocks));
      const Expected now = wanted(blocks, x);
      EXPECT_TRUE(close(got, now.value, now.tolerance)) << "byte " << at;
      ++changed;
      caught += first_difference(got, before.value, before.tolerance) == 5;
    }
    byte ^= flip;
  }
  EXPECT_GT(10 * changed, 9 * row);
  EXPECT_GT(10 * caught, 9 * changed);
}

TEST_P(LinearBlocks, NeitherThreadsNorRowsChangeARow) {
  const Blocks blocks(storage(), 70, 512, 9);
  const std::vector<float> x = normal(40 * 512, 2);
  std::vector<float> single;
  for (const int threads : {1, 3}) {
    backend = place().open(threads);
    const LinearWeight w = pack(*backend, blocks);
    for (std::int64_t row = 0; single.size() < 40 * 70; ++row) {
      const auto one = run(*backend, {x.begin() + row * 512, x.begin() + (row + 1) * 512}, w);
      single.insert(single.end(), one.begin(), one.end());
    }
    for (std::int64_t rows = 2; rows <= 40; rows += place().slow() ? 13 : 1) {
      const auto out = run(*backend, {x.begin(), x.begin() + rows * 512}, w);
      EXPECT_TRUE(same_bits(out.data(), single.data(), out.size())) << rows << " rows";
    }
  }
}

// A block with a number that is none makes its own outputs so, and no others.
TEST_P(LinearBlocks, NanReachesItsOwnOutputsOnly) {
  const Blocks blocks(storage(), 35, 512, 10);
  std::vector<float> x = normal(9 * 512, 2);
  x[8 * 512 + 300] = NAN;
  const auto out = run(*backend, x, pack(*backend, blocks));
  for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isnan(out[i]), i >= 8 * 35) << i;
}

// The CPU, and devices of one mode: no product with blocks goes to a library.
std::vector<Place> places() {
  std::vector<Place> out = cpu_places();
  for (const TestDevice& device : cuda_devices()) out.push_back({.device = device});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Every, LinearBlocks,
                         ::testing::Combine(::testing::ValuesIn(places()),
                                            ::testing::ValuesIn(block_types())),
                         place_name);

TEST(LinearBlockIsas, AgreeBitForBit) {
  for (const DType type : block_types()) {
    const Blocks blocks(type, 75, 768, 11);
    for (const std::int64_t rows : {1, 2, 5, 23}) {
      std::vector<float> first;
      for (const Isa isa : isas_here()) {
        const auto backend = backend_of(isa);
        const auto out = run(*backend, normal(to_size(rows * 768), 2), pack(*backend, blocks));
        if (first.empty()) first = out;
        EXPECT_TRUE(same_bits(out, first))
            << dtype_name(type) << " " << isa_name(isa) << ", " << rows << " rows";
      }
    }
  }
}

// Numbers written as blocks and packed are the blocks packed.
TEST(LinearBlockWriters, GiveWhatTheirBlocksGive) {
  const auto backend = backend_of(Isa::kAuto);
  for (const DType type : block_types()) {
    const StorageType& storage = storage_of(type);
    if (storage.write == nullptr) continue;
    const std::vector<float> numbers = normal(20 * 256, 4), x = normal(3 * 256, 2);
    Blocks blocks(type, 20, 256, 1);
    storage.write(numbers.data(), 20 * 256, blocks.bytes.data());
    const ConstTensorView view = view_of(numbers, {20, 256});
    EXPECT_TRUE(same_bits(run(*backend, x, backend->pack_linear({&view, 1}, type)),
                          run(*backend, x, pack(*backend, blocks))));
  }
}

class LinearStacks : public ::testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    backend = GetParam().open();
    if (backend == nullptr) GTEST_SKIP() << "no usable " << GetParam() << " device here";
  }
  std::vector<std::int64_t> row_counts() const {
    if (GetParam().slow()) return {1, 4, 9};
    return {1, 4, 9, 70};
  }
  std::unique_ptr<Backend> backend;
};

// Rows of several types: each part's columns are those of its product alone.
TEST_P(LinearStacks, OfSeveralTypesAreTheirParts) {
  const Blocks q(DType::kQ4K, 24, 256, 1), k(DType::kQ4K, 10, 256, 2), v(DType::kQ6K, 35, 256, 3),
      other(DType::kQ8, 16, 256, 4);
  const std::vector<float> plain = normal(7 * 256, 5);
  const ConstTensorView f32 = view_of(plain, {7, 256});
  const ConstTensorView all[] = {q.view(), k.view(), v.view(), f32, other.view()};
  const LinearWeight w = backend->pack_linear(all, DType::kFile);
  EXPECT_EQ(w.n, 24 + 10 + 35 + 7 + 16);
  ASSERT_EQ(w.parts.size(), 4u) << "q and k are of one type";
  EXPECT_EQ(w.parts[0].n, 34);
  std::size_t bytes = 0;
  for (const LinearPart& part : w.parts) {
    bytes += backend->packed_linear_bytes(part.n, 256, part.storage);
  }
  EXPECT_EQ(w.packed.bytes(), bytes);
  const std::vector<float> bias = normal(to_size(w.n), 6);
  for (const std::int64_t rows : row_counts()) {
    const std::vector<float> x = normal(to_size(rows * 256), 2);
    const auto whole = run(*backend, x, w, bias);
    std::int64_t column = 0;
    for (const ConstTensorView& part : all) {
      const std::int64_t n = part.shape[0];
      const auto own = run(*backend, x, backend->pack_linear({&part, 1}, DType::kFile),
                           {bias.begin() + column, bias.begin() + column + n});
      for (std::int64_t row = 0; row < rows; ++row) {
        EXPECT_TRUE(same_bits(whole.data() + row * w.n + column, own.data() + row * n, to_size(n)))
            << rows << " rows, column " << column;
      }
      column += n;
    }
  }
}

// Gates of one type and what they let through of another.
TEST_P(LinearStacks, GatesMayBeOfAnotherTypeThanTheRest) {
  const Blocks gate(DType::kQ4K, 32, 256, 1), up(DType::kQ6K, 32, 256, 2);
  const ConstTensorView both[] = {gate.view(), up.view()};
  const LinearWeight w = backend->pack_linear(both, DType::kFile);
  for (const std::int64_t rows : {1, 5}) {
    const std::vector<float> x = normal(to_size(rows * 256), 2), nothing(to_size(rows * 64), NAN);
    const Tensor in = send(*backend, x, {rows, 256});
    Tensor scratch = send(*backend, nothing, {rows, 64}),
           out = send(*backend, {nothing.begin(), nothing.begin() + rows * 32}, {rows, 32});
    ops::gated_linear(*backend, in.view(), w, scratch.view(), out.view());
    const auto got = fetch(*backend, out.view());
    ops::linear(*backend, in.view(), w, ConstTensorView{}, scratch.view());
    ops::silu_mul(*backend, scratch.view(), out.view());
    EXPECT_TRUE(same_bits(got, fetch(*backend, out.view()))) << rows;
  }
}

// f16 is f32 without a loss: the same bits come out.
TEST_P(LinearStacks, HalvesAreTheirNumbers) {
  std::vector<float> numbers = normal(45 * 300, 1);
  std::vector<std::uint16_t> halves;
  for (float& number : numbers) {
    halves.push_back(float_to_f16(number));
    number = f16_to_float(halves.back());
  }
  const ConstTensorView wide = view_of(numbers, {45, 300});
  const ConstTensorView narrow{DType::kF16, {45, 300}, halves.data(), {}};
  const LinearWeight w = backend->pack_linear({&narrow, 1}, DType::kFile);
  EXPECT_EQ(w.packed.bytes(), backend->packed_linear_bytes(45, 300, DType::kF16));
  for (const std::int64_t rows : row_counts()) {
    const std::vector<float> x = normal(to_size(rows * 300), 2);
    EXPECT_TRUE(same_bits(run(*backend, x, w),
                          run(*backend, x, backend->pack_linear({&wide, 1}, DType::kF32))));
  }
}

// Rows of a table of blocks or f16 are the numbers of its reader.
TEST_P(LinearStacks, TablesAreRead) {
  std::vector<DType> types = block_types();
  types.push_back(DType::kF16);
  const std::int64_t width = 512;
  const std::vector<std::int32_t> ids = {4, 0, 6, 4};
  for (const DType type : types) {
    std::vector<std::uint16_t> halves;
    for (const float number : normal(7 * 512, 3)) halves.push_back(float_to_f16(number));
    const Blocks blocks(type == DType::kF16 ? DType::kQ8 : type, 7, width, 12);
    const ConstTensorView host = type == DType::kF16
                                     ? ConstTensorView{type, {7, width}, halves.data(), {}}
                                     : blocks.view();
    Tensor table = backend->allocate(type, {7, width});
    backend->upload(host, table.view());
    Tensor out = send(*backend, std::vector<float>(4 * 512, NAN), {4, width});
    ops::embedding(*backend, table.view(), ids, out.view());
    const std::vector<float> got = fetch(*backend, out.view());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      std::vector<float> want(512);
      read_numbers(host, ids[i] * width, 1, width, want.data());
      EXPECT_TRUE(same_bits(got.data() + i * 512, want.data(), 512)) << dtype_name(type) << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, LinearStacks, ::testing::ValuesIn(places()),
                         [](const auto& of) { return of.param.name(); });

}  // namespace
}  // namespace tessera::testing::linear_blocks_test
