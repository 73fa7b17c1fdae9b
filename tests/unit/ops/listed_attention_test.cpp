// Attention over keys that stand anywhere in the cache: with a list of their places each row must
// have the bits that it has over the same keys in order.
#include <algorithm>
#include <numeric>
#include <random>

#include "engine/ops/ops.h"
#include "tests/unit/ops/device_io.h"

namespace tessera::testing::listed_attention_test {
namespace {

struct Layout {
  std::int64_t heads, kv_heads, dim;
};

// Keys and values of one sequence, [positions, kv_heads, dim].
struct Table {
  Layout layout;
  std::int64_t positions;
  DType storage;
  std::vector<float> k, v;
  Tensor key_table, value_table;

  Table(const Layout& l, std::int64_t count, DType s, std::uint64_t stream)
      : layout(l), positions(count), storage(s) {
    const auto size = static_cast<std::size_t>(count * l.kv_heads * l.dim);
    k = normal(size, stream);
    v = normal(size, stream + 1);
    refresh();
  }
  std::int64_t width() const { return layout.kv_heads * layout.dim; }
  void refresh() {
    const Shape shape{positions, layout.kv_heads, layout.dim};
    key_table = cache_table(storage, k, shape);
    value_table = cache_table(storage, v, shape);
  }
};

struct Listed {
  Table table;
  std::vector<std::int32_t> rows;  // of the table, for keys from `from` on
};

// A larger table that holds the first `from` keys in place and the others in any order; all that
// nobody may see is NaN.
Listed scatter(const Table& in_order, std::int64_t from, unsigned seed) {
  Listed out{Table(in_order.layout, in_order.positions + 37, in_order.storage, 1), {}};
  std::fill(out.table.k.begin(), out.table.k.end(), NAN);
  std::fill(out.table.v.begin(), out.table.v.end(), NAN);
  std::vector<std::int32_t> places(static_cast<std::size_t>(out.table.positions - from));
  std::iota(places.begin(), places.end(), static_cast<std::int32_t>(from));
  std::shuffle(places.begin(), places.end(), std::mt19937(seed));
  const std::int64_t width = in_order.width();
  for (std::int64_t key = 0; key < in_order.positions; ++key) {
    const std::int64_t to = key < from ? key : places[static_cast<std::size_t>(key - from)];
    std::copy_n(in_order.k.begin() + key * width, width, out.table.k.begin() + to * width);
    std::copy_n(in_order.v.begin() + key * width, width, out.table.v.begin() + to * width);
  }
  out.table.refresh();
  out.rows.assign(places.begin(), places.begin() + (in_order.positions - from));
  return out;
}

std::vector<float> attend(Backend& backend, const Layout& layout, const std::vector<float>& q,
                          std::span<const AttentionSegment> segments) {
  const auto rows = static_cast<std::int64_t>(q.size()) / (layout.heads * layout.dim);
  const Shape shape{rows, layout.heads, layout.dim};
  std::vector<float> out(q.size(), NAN);
  DeviceIo io(backend);
  std::vector<AttentionSegment> there(segments.begin(), segments.end());
  for (AttentionSegment& segment : there) {
    segment.keys = io.in(segment.keys);
    segment.values = io.in(segment.values);
  }
  ops::attention(backend, {.q = io.in(view_of(q, shape)),
                           .out = io.out(view_of(out, shape)),
                           .segments = there,
                           .scale = 1.0f / std::sqrt(static_cast<float>(layout.dim))});
  io.fetch();
  return out;
}

// The last `rows` positions of a table ask.
AttentionSegment last_rows(const Table& table, std::int64_t total, std::int64_t rows) {
  return {table.key_table.view(), table.value_table.view(), 0, rows, total - rows};
}

AttentionSegment last_rows(const Listed& listed, std::int64_t total, std::int64_t rows,
                           std::int64_t from) {
  AttentionSegment out = last_rows(listed.table, total, rows);
  out.listed_from = from;
  out.listed = listed.rows;
  return out;
}

std::vector<float> queries(const Layout& layout, std::int64_t rows, std::uint64_t stream) {
  return normal(static_cast<std::size_t>(rows * layout.heads * layout.dim), stream);
}

class ListedAttention : public AtPlaceWithCache {};

// Lists from the first key on, inside of blocks, at their borders, and of the asking rows alone.
TEST_P(ListedAttention, EqualsKeysInOrder) {
  for (const int threads : thread_counts({1, 2, 3})) {
    const auto backend = open(threads);
    for (const Layout layout : {Layout{4, 4, 16}, Layout{4, 2, 20}, Layout{6, 1, 64}}) {
      for (const std::int64_t total : {1, 64, 130, 200}) {
        const Table in_order(layout, total, storage(), 10);
        for (const std::int64_t rows : {1, 3, 8, 40}) {
          if (rows > total) continue;
          const std::vector<float> q = queries(layout, rows, 30);
          const AttentionSegment plain = last_rows(in_order, total, rows);
          const std::vector<float> want = attend(*backend, layout, q, {&plain, 1});
          for (const std::int64_t from : {std::int64_t{0}, std::int64_t{37}, std::int64_t{64},
                                          std::int64_t{128}, total - rows, total - 1}) {
            if (from >= total) continue;
            const Listed listed = scatter(in_order, from, static_cast<unsigned>(from + rows));
            const AttentionSegment segment = last_rows(listed, total, rows, from);
            ASSERT_TRUE(same_bits(attend(*backend, layout, q, {&segment, 1}), want))
                << total << " keys, " << rows << " rows, listed from " << from << ", " << threads
                << " threads, head size " << layout.dim;
          }
        }
      }
    }
  }
}

// Segments with lists, without, and two of one table, as the paths of a tree are: each as alone.
TEST_P(ListedAttention, SegmentsAreIndependent) {
  const Layout layout{4, 2, 24};
  const std::int64_t width = layout.heads * layout.dim;
  const Table one(layout, 90, storage(), 40), other(layout, 130, storage(), 50);
  const Listed listed = scatter(one, 70, 3), far = scatter(other, 0, 4);
  const std::vector<float> q = queries(layout, 20, 60);
  const std::int64_t begins[] = {0, 9, 10, 17, 20};
  AttentionSegment segments[] = {last_rows(listed, 90, 9, 70), last_rows(listed, 81, 1, 70),
                                 last_rows(other, 130, 7), last_rows(far, 130, 3, 0)};
  for (const int threads : thread_counts({1, 2, 3})) {
    const auto backend = open(threads);
    std::vector<float> want;
    for (std::size_t i = 0; i < 4; ++i) {
      AttentionSegment alone = segments[i];
      alone.row_begin = 0;
      const std::vector<float> part(q.begin() + begins[i] * width,
                                    q.begin() + begins[i + 1] * width);
      const std::vector<float> out = attend(*backend, layout, part, {&alone, 1});
      want.insert(want.end(), out.begin(), out.end());
      segments[i].row_begin = begins[i];
    }
    EXPECT_TRUE(same_bits(attend(*backend, layout, q, segments), want)) << threads << " threads";
  }
}

// Order matters: two listed keys of different blocks that change places change bits, as their sums
// are taken in another order.
TEST_P(ListedAttention, TheOrderOfTheListIsTheOrderOfTheSums) {
  const Layout layout{2, 2, 32};
  const Table in_order(layout, 120, storage(), 70);
  Listed listed = scatter(in_order, 10, 5);
  const std::vector<float> q = queries(layout, 1, 80);
  const AttentionSegment right = last_rows(listed, 120, 1, 10);
  const std::vector<float> before = attend(*backend_, layout, q, {&right, 1});
  std::reverse(listed.rows.begin(), listed.rows.end());
  const AttentionSegment turned = last_rows(listed, 120, 1, 10);
  const std::vector<float> after = attend(*backend_, layout, q, {&turned, 1});
  EXPECT_FALSE(same_bits(before, after));
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(before[i], after[i], 1e-5) << i;
  // One key too few is another result altogether.
  listed.rows[50] = listed.rows[51];
  const AttentionSegment twice = last_rows(listed, 120, 1, 10);
  const std::vector<float> wrong = attend(*backend_, layout, q, {&twice, 1});
  double most = 0;
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(wrong[i]) - after[i]));
  }
  EXPECT_GT(most, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Devices, ListedAttention, with_cached_types(places_of_kernels()), place_name);

TEST(ListedAttentionIsas, AgreeBitForBit) {
  for (const DType storage : {DType::kF32, DType::kBF16}) {
    for (const Layout layout : {Layout{4, 2, 20}, Layout{2, 2, 128}}) {
      const Table in_order(layout, 140, storage, 90);
      const Listed listed = scatter(in_order, 75, 6);
      const std::vector<float> q = queries(layout, 20, 95);
      const AttentionSegment segment = last_rows(listed, 140, 20, 75);
      std::vector<float> first;
      for (const Isa isa : isas_here()) {
        const std::vector<float> out = attend(*backend_of(isa), layout, q, {&segment, 1});
        if (first.empty()) first = out;
        EXPECT_TRUE(same_bits(out, first)) << isa_name(isa) << ", hd " << layout.dim;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing::listed_attention_test
