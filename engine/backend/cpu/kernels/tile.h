// The register tile of every matrix product and convolution: R rows times P panels of 16 columns,
// one chain of fused multiply-adds along the inputs per output. R and P change speed, not results.
#pragma once

#include "engine/backend/cpu/kernels/kernels.h"
#include "engine/backend/cpu/kernels/simd.h"
#include "engine/core/index.h"

namespace tessera::cpu {
namespace {

// How far ahead of the sum bf16 weights are asked for. Each line takes twice the arithmetic of an
// f32 line, so the processor alone does not look far enough; for f32 asking only takes its slots.
constexpr std::int64_t kAheadInputs = 128;
// The same in bytes where more than kFewRows rows take longer than the bytes of their weights:
// without it memory rests meanwhile.
constexpr std::int64_t kAheadOfRows = 8192;

template <bool kValue>
struct Asks {
  static constexpr bool value = kValue;
};

template <int R, int P, typename B>
void tile(const TileArgs& args) {
  // Few rows: the weights come from memory once and bandwidth decides. Many: they sit in cache.
  constexpr bool kStreams = R <= kFewRows && sizeof(B) == sizeof(std::uint16_t);
  V16 sum[R][P];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) sum[r][p] = zero();
  }
  const B* b = static_cast<const B*>(args.b);
  const std::int64_t b_stride = args.b_stride;
  for (int run = 0; run < args.runs; ++run) {
    const float* a[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) a[r] = args.a + args.run_offsets[run] + r * args.a_stride;
    std::int64_t k = 0;
    // `asks` is known at compile time.
    const auto add_inputs = [&](auto asks, std::int64_t end, [[maybe_unused]] const B* ahead)
        __attribute__((always_inline)) {
      for (; k < end; ++k) {
        V16 weight[P];
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
          weight[p] = load_panel(b + p * b_stride);
          if constexpr (asks.value) __builtin_prefetch(ahead + p * b_stride, 0, 2);
        }
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
          const V16 x = broadcast(a[r][k]);
#pragma GCC unroll 4
          for (int p = 0; p < P; ++p) sum[r][p] = fma(x, weight[p], sum[r][p]);
        }
        b += kLanes;
        ahead += kLanes;
      }
    };
    if (kStreams && args.b_next != nullptr && args.run_length > kAheadInputs) {
      add_inputs(Asks<kStreams>{}, args.run_length - kAheadInputs, b + kAheadInputs * kLanes);
      add_inputs(Asks<kStreams>{}, args.run_length, static_cast<const B*>(args.b_next));
    } else if (R > kFewRows && args.from_memory) {
      add_inputs(Asks<(R > kFewRows)>{}, args.run_length, b + kAheadOfRows / to_index(sizeof(B)));
    } else {
      add_inputs(Asks<kStreams>{}, args.run_length, b + kAheadInputs * kLanes);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      float* out = args.out + r * args.out_stride + p * kLanes;
      const std::int64_t columns = args.columns - p * kLanes;
      if (columns <= 0) continue;
      V16 total = sum[r][p];
      if (!args.first) total = add(load_some(out, columns), total);
      if (args.bias != nullptr) total = add(total, load_some(args.bias + p * kLanes, columns));
      store_some(out, total, columns);
    }
  }
}

using TileFunction = void (*)(const TileArgs&);

#if defined(__AVX512F__)
constexpr int kTileRows = 12;
constexpr int panels_of(int rows) { return rows <= 4 ? 4 : rows <= 8 ? 1 : 2; }
#elif defined(__AVX2__)
constexpr int kTileRows = 6;
constexpr int panels_of(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
#else
constexpr int kTileRows = 2;  // no registers to fill, and each tile takes a second to compile
constexpr int panels_of(int) { return 1; }
#endif

template <typename B>
struct TileTable {
  TileFunction at[kTileRows + 1][5];  // [rows][panels]
};

// Rows are cut evenly, so that a tile may have one row less than the one that panels are cut for.
constexpr int most_panels(int rows) {
  const int own = panels_of(rows), next = rows < kTileRows ? panels_of(rows + 1) : 1;
  return own > next ? own : next;
}

template <typename B, int R = 1, int P = 1>
constexpr void fill_tiles(TileTable<B>& table) {
  table.at[R][P] = &tile<R, P, B>;
  if constexpr (P < most_panels(R)) {
    fill_tiles<B, R, P + 1>(table);
  } else if constexpr (R < kTileRows) {
    fill_tiles<B, R + 1, 1>(table);
  }
}

template <typename B>
constexpr TileTable<B> make_tiles() {
  TileTable<B> table{};
  fill_tiles<B>(table);
  return table;
}

template <typename B>
void run_tile(const TileArgs& args, int rows, int panels) {
  static constexpr TileTable<B> kTiles = make_tiles<B>();
  kTiles.at[rows][panels](args);
}

template <typename B>
void expand_panel(const std::uint16_t* in, float* out, std::int64_t count) {
  constexpr std::int64_t kAsked = kAheadOfRows / to_index(sizeof(B));
  const B* from = reinterpret_cast<const B*>(in);
  for (std::int64_t k = 0; k < count; ++k, from += kLanes, out += kLanes) {
    store(out, load_panel(from));
    __builtin_prefetch(from + kAsked, 0, 2);
  }
}

}  // namespace
}  // namespace tessera::cpu
