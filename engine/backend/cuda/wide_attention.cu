// Attention of many rows: segments cut into tiles of queries, each against all the keys that it
// sees. Late tiles of a causal segment see the most keys and start first.
#include "engine/backend/cuda/wide_attention.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/packing.h"
#include "engine/backend/cuda/stored.cuh"
#include "engine/backend/cuda/wide_attention.cuh"

namespace tessera::cuda {

namespace {

// Of heads of bf16 keys, of f32 ones, and of tiles with twice the queries.
constexpr std::int64_t kMaxDims = 256, kMaxFloatDims = 128, kMaxDimsTwice = 128;

std::vector<WideTile> cut_wide(const AttentionArgs& args, std::int64_t group,
                               std::int64_t entries) {
  std::vector<WideTile> tiles;
  for (const AttentionSegment& segment : args.segments) {
    expects(segment.keys.shape[0] <= std::numeric_limits<std::int32_t>::max() &&
                segment.keys.dtype == args.segments[0].keys.dtype,
            "keys of one type, that 32 bits count");
    WideTile tile{.keys = segment.keys.data,
                  .values = segment.values.data,
                  .bias = segment.key_bias.empty() ? nullptr : segment.key_bias.f32(),
                  .row_begin = static_cast<std::int32_t>(segment.row_begin),
                  .first_visible = static_cast<std::int32_t>(segment.first_visible),
                  .causal = segment.causal ? 1 : 0};
    const std::int64_t all = segment.rows * group;
    for (std::int64_t first = 0; first < all; first += entries) {
      tile.first = static_cast<std::int32_t>(first);
      tile.count = static_cast<std::int32_t>(std::min(entries, all - first));
      tiles.push_back(tile);
    }
  }
  std::reverse(tiles.begin(), tiles.end());
  return tiles;
}

template <typename T, int kDim, int kRowTiles>
void start(CudaBackend& backend, const AttentionArgs& args, WideWork work) {
  using P = WidePlan<T, kDim, kRowTiles>;
  const std::vector<WideTile> tiles = cut_wide(args, work.group, P::kEntries);
  work.tiles = backend.stage(std::span<const WideTile>(tiles));
  launch(
      backend, "attention of many rows",
      {.blocks = std::ssize(tiles) * work.kv_heads, .threads = kWideThreads, .shared = P::kShared},
      attend_wide<T, kDim, kRowTiles>, work);
}

// Tiles of twice the queries read keys half as often, where enough of them are there to leave no
// multiprocessor idle. Parts of f32 keys take the registers that these want.
template <typename T, int kDim>
void start_tiles(CudaBackend& backend, const AttentionArgs& args, const WideWork& work) {
  if constexpr (kDim <= kMaxDimsTwice && sizeof(T) == 2) {
    std::int64_t tiles = 0;
    for (const AttentionSegment& segment : args.segments) {
      tiles += divide_up(segment.rows * work.group, WidePlan<T, kDim, 2>::kEntries);
    }
    if (tiles * work.kv_heads >= 2 * backend.multiprocessors()) {
      return start<T, kDim, 2>(backend, args, work);
    }
  }
  start<T, kDim, 1>(backend, args, work);
}

template <typename T>
void start_dims(CudaBackend& backend, const AttentionArgs& args, const WideWork& work) {
  if (work.dim <= 64) return start_tiles<T, 64>(backend, args, work);
  if (work.dim <= 80) return start_tiles<T, 80>(backend, args, work);
  if (work.dim <= 96) return start_tiles<T, 96>(backend, args, work);
  if (work.dim <= 128) return start_tiles<T, 128>(backend, args, work);
  if constexpr (sizeof(T) == 2) start_tiles<T, 256>(backend, args, work);
}

}  // namespace

bool goes_wide(const CudaOptions& options, const AttentionArgs& args,
               const AttentionSegment& segment) {
  const std::int64_t dim = args.q.shape[2];
  const bool half = segment.keys.dtype == DType::kBF16;
  const bool apart = segment.bias_row_step != 0 || segment.bias_head_step != 0;
  return !options.deterministic && (half || options.tf32) && segment.listed.empty() && !apart &&
         segment.rows >= kWideQueries && dim % 4 == 0 &&
         dim <= (half ? kMaxDims : kMaxFloatDims) && is_aligned(args.q.data) &&
         is_aligned(args.out.data) && is_aligned(segment.keys.data) &&
         is_aligned(segment.values.data);
}

void wide_attention(CudaBackend& backend, const AttentionArgs& args) {
  if (args.segments.empty()) return;
  const std::int64_t heads = args.q.shape[1], dim = args.q.shape[2];
  const ConstTensorView& keys = args.segments[0].keys;
  const std::int64_t kv_heads = keys.shape[1];
  const WideWork work{.q = args.q.f32(),
                      .out = args.out.f32(),
                      .log_sum = args.log_sum.empty() ? nullptr : args.log_sum.f32(),
                      .scale = args.scale,
                      .tiles = nullptr,
                      .heads = static_cast<int>(heads),
                      .kv_heads = static_cast<int>(kv_heads),
                      .group = static_cast<int>(heads / kv_heads),
                      .dim = static_cast<int>(dim),
                      .by_eight = dim % 8 == 0};
  with_stored(keys.dtype, [&](auto number) { start_dims<decltype(number)>(backend, args, work); });
}

}  // namespace tessera::cuda
