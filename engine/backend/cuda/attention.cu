// Attention with the keys cut into splits of fixed size, counted from key 0. In a split a running
// maximum and sum (Milakov & Gimelshein 2018) is taken over blocks of 64 keys; splits are merged in
// ascending order. A score is a sum over 64 dimensions at a time, an output one over the keys in
// order, each by one thread: a row's result depends on the keys that it sees and on nothing else.
// Where few tiles of rows would leave the device idle, each split has a block of its own and what
// it summed goes through scratch; otherwise a block takes all splits. Outside
// the deterministic mode, segments of many rows go through wide_attention.cu.
#include <algorithm>
#include <limits>
#include <vector>

#include "engine/backend/cuda/attention.cuh"
#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/stored.cuh"
#include "engine/backend/cuda/wide_attention.h"

namespace tessera::cuda {

namespace {

// Keys of a split: the same for every table, so that a row's sum has one order whatever room its
// sequence was given.
constexpr std::int64_t kSplitKeys = 128;
// What a plan reckons with: tables up to 32,768 rows.
constexpr std::int64_t kPlannedSplits = 256;
constexpr std::size_t kMaxScratch = std::size_t{48} << 20;

template <typename T, int kEntries, int kSliceChunks>
void launch_chunks(CudaBackend& backend, const Work& work, Launch shape) {
  using P = Plan<kEntries, kSliceChunks>;
  shape.threads = P::kThreads;
  shape.shared =
      static_cast<std::size_t>(kEntries * (query_pitch(work.dim) + kScorePitch)) * sizeof(float) +
      static_cast<std::size_t>(P::kStages * kBlockKeys * kPitch<T>) * sizeof(T);
  launch(backend, "attention", shape, attend<T, kEntries, kSliceChunks>, work);
}

template <typename T>
void launch_tiles(CudaBackend& backend, const Work& work, int entries, const Launch& shape) {
  const auto chunks = divide_up(work.dim, kChunk);
  const bool one = chunks == 1, two = chunks == 2, four = chunks <= 4;
  const auto start = entries == 64   ? (one ? launch_chunks<T, 64, 1> : launch_chunks<T, 64, 2>)
                     : entries == 16 ? (one    ? launch_chunks<T, 16, 1>
                                        : two  ? launch_chunks<T, 16, 2>
                                        : four ? launch_chunks<T, 16, 4>
                                               : launch_chunks<T, 16, 8>)
                                     : (one    ? launch_chunks<T, 4, 1>
                                        : two  ? launch_chunks<T, 4, 2>
                                        : four ? launch_chunks<T, 4, 4>
                                               : launch_chunks<T, 4, 8>);
  start(backend, work, shape);
}

bool on_pieces(const ConstTensorView& table) {
  return reinterpret_cast<std::uintptr_t>(table.data) % 16 == 0 &&
         static_cast<std::size_t>(table.shape[2]) * dtype_size(table.dtype) % 16 == 0;
}

// The entries of a block: as many as the longest segment has, so that its keys are read once.
int entries_of_tile(const AttentionArgs& args, std::int64_t group) {
  std::int64_t most = 0;
  for (const AttentionSegment& segment : args.segments) most = std::max(most, segment.rows * group);
  const std::int64_t dim = args.q.shape[2];
  if (most <= 4 || dim > 512) return 4;
  return most <= 32 || dim > 128 ? 16 : 64;
}

struct Cut {
  std::vector<Tile> tiles;
  std::vector<std::int32_t> listed;
  std::int64_t splits = 0;  // of the largest table
};

Cut cut_segments(const AttentionArgs& args, std::int64_t group, int entries) {
  Cut cut;
  for (const AttentionSegment& segment : args.segments) {
    const std::int64_t capacity = segment.keys.shape[0];
    expects(capacity <= std::numeric_limits<std::int32_t>::max() &&
                segment.keys.dtype == args.segments[0].keys.dtype,
            "keys of one type, that 32 bits count");
    Tile tile{.keys = segment.keys.data,
              .values = segment.values.data,
              .bias = segment.key_bias.empty()
                          ? nullptr
                          : segment.key_bias.f32() + segment.bias_first,
              .listed_at = -1,
              .listed_from = std::numeric_limits<std::int32_t>::max(),
              .row_begin = static_cast<std::int32_t>(segment.row_begin),
              .first_visible = static_cast<std::int32_t>(segment.first_visible),
              .causal = segment.causal ? 1 : 0,
              .split_keys = static_cast<std::int32_t>(kSplitKeys),
              .aligned = on_pieces(segment.keys) && on_pieces(segment.values) ? 1 : 0,
              .bias_row_step = segment.bias_row_step,
              .bias_head_step = segment.bias_head_step};
    if (!segment.listed.empty()) {
      tile.listed_at = std::ssize(cut.listed);
      tile.listed_from = static_cast<std::int32_t>(segment.listed_from);
      for (const std::int32_t row : segment.listed) {
        cut.listed.push_back(narrow<std::int32_t>(row - segment.listed_base));
      }
    }
    const std::int64_t all = segment.rows * group;
    for (std::int64_t first = 0; first < all; first += entries) {
      tile.first = static_cast<std::int32_t>(first);
      tile.count = static_cast<std::int32_t>(std::min<std::int64_t>(entries, all - first));
      cut.tiles.push_back(tile);
    }
    cut.splits = std::max(cut.splits, divide_up(capacity, kSplitKeys));
  }
  return cut;
}

// Of the sums, maxima and totals of this many rows and heads, split by split.
std::size_t sums_bytes(std::int64_t entries, std::int64_t splits, std::int64_t dim) {
  return static_cast<std::size_t>(entries * splits * (dim + 2)) * sizeof(float);
}

// By the kernels here, whose results keep the row contract bit for bit.
void attend_exactly(CudaBackend& backend, const AttentionArgs& args) {
  if (args.segments.empty()) return;
  const std::int64_t heads = args.q.shape[1], dim = args.q.shape[2];
  const std::int64_t kv_heads = args.segments[0].keys.shape[1], group = heads / kv_heads;
  const int entries = entries_of_tile(args, group);
  const Cut cut = cut_segments(args, group, entries);
  const auto tiles = std::ssize(cut.tiles);
  Work work{.q = args.q.f32(),
            .out = args.out.f32(),
            .log_sum = args.log_sum.empty() ? nullptr : args.log_sum.f32(),
            .scale = args.scale,
            .tiles = backend.stage(std::span<const Tile>(cut.tiles)),
            .listed = backend.stage(std::span<const std::int32_t>(cut.listed)),
            .heads = static_cast<int>(heads),
            .kv_heads = static_cast<int>(kv_heads),
            .group = static_cast<int>(group),
            .dim = static_cast<int>(dim),
            .slices = static_cast<int>(divide_up(dim, 8 * kChunk))};
  const std::int64_t rows_and_heads = args.q.shape[0] * heads;
  const std::size_t bytes = sums_bytes(rows_and_heads, cut.splits, dim);
  const bool apart = cut.splits > 1 && bytes <= kMaxScratch &&
                     tiles * kv_heads * work.slices < 2 * backend.multiprocessors();
  Launch shape{.blocks = tiles * kv_heads, .blocks_y = work.slices, .overlaps = true};
  if (apart) {
    work.splits = static_cast<int>(cut.splits);
    work.sums = static_cast<float*>(backend.scratch(bytes));
    work.peaks = work.sums + rows_and_heads * cut.splits * dim;
    work.totals = work.peaks + rows_and_heads * cut.splits;
    if (entries <= kFewEntries) work.tickets = backend.tickets(shape.blocks);
    shape.blocks_y *= cut.splits;
  }
  with_stored(args.segments[0].keys.dtype,
              [&](auto number) { launch_tiles<decltype(number)>(backend, work, entries, shape); });
  if (!apart || entries <= kFewEntries) return;
  launch(
      backend, "merge of attention",
      {.blocks = tiles * kv_heads, .threads = kMergeThreads, .blocks_y = entries, .overlaps = true},
      merge_splits, work);
}

void attention(CudaBackend& backend, const AttentionArgs& args) {
  const auto is_wide = [&](const AttentionSegment& segment) {
    return goes_wide(backend.options(), args, segment);
  };
  if (std::none_of(args.segments.begin(), args.segments.end(), is_wide)) {
    return attend_exactly(backend, args);
  }
  std::vector<AttentionSegment> wide, narrow;
  for (const AttentionSegment& segment : args.segments) {
    (is_wide(segment) ? wide : narrow).push_back(segment);
  }
  AttentionArgs part = args;
  part.segments = wide;
  wide_attention(backend, part);
  part.segments = narrow;
  attend_exactly(backend, part);
}

}  // namespace

std::size_t CudaBackend::attention_scratch_bytes(std::int64_t rows, std::int64_t heads,
                                                 std::int64_t head_dim) const {
  return std::min(sums_bytes(rows * heads, kPlannedSplits, head_dim), kMaxScratch);
}

void add_attention_ops(OpTable& table) { table.add<attention>(); }

}  // namespace tessera::cuda
