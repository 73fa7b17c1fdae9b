// Attention: one task is a sequence's key and value head with up to 16 query rows that share it.
#include <algorithm>

#include "engine/backend/cpu/cpu_backend.h"

namespace tessera::cpu {

namespace {

struct Heads {
  std::int64_t heads, kv_heads, group, dim;
};

std::int64_t task_count(const AttentionSegment& segment, const Heads& heads) {
  return heads.kv_heads * divide_up(segment.rows * heads.group, kQueryRows);
}

const void* head_start(const ConstTensorView& cache, std::int64_t kv_head, std::int64_t dim) {
  return static_cast<const std::byte*>(cache.data) +
         static_cast<std::size_t>(kv_head * dim) * dtype_size(cache.dtype);
}

void run_task(const AttentionArgs& args, const AttentionSegment& segment, const Heads& heads,
              std::int64_t index, const Kernels& kernels) {
  const std::int64_t tiles = divide_up(segment.rows * heads.group, kQueryRows);
  const std::int64_t kv_head = index / tiles;
  const std::int64_t first = index % tiles * kQueryRows;
  AttentionTask task;
  task.rows = static_cast<int>(std::min<std::int64_t>(kQueryRows, segment.rows * heads.group - first));
  for (int i = 0; i < task.rows; ++i) {
    const std::int64_t row = (first + i) / heads.group;
    const std::int64_t head = kv_head * heads.group + (first + i) % heads.group;
    const std::int64_t at = ((segment.row_begin + row) * heads.heads + head) * heads.dim;
    task.q[i] = args.q.f32() + at;
    task.out[i] = args.out.f32() + at;
    task.visible[i] = segment.causal ? segment.first_visible + row + 1 : segment.first_visible;
  }
  task.keys = head_start(segment.keys, kv_head, heads.dim);
  task.values = head_start(segment.values, kv_head, heads.dim);
  task.kv_stride = heads.kv_heads * heads.dim;
  task.head_dim = heads.dim;
  task.scale = args.scale;
  task.bf16 = segment.keys.dtype == DType::kBF16;
  kernels.attention(task);
}

}  // namespace

void CpuBackend::attention(const AttentionArgs& args) {
  if (args.segments.empty()) return;
  const std::int64_t kv_heads = args.segments[0].keys.shape[1];
  const Heads heads{args.q.shape[1], kv_heads, args.q.shape[1] / kv_heads, args.q.shape[2]};
  std::int64_t tasks = 0;
  for (const AttentionSegment& segment : args.segments) tasks += task_count(segment, heads);
  pool_.parallel_for(tasks, 1, [&](std::int64_t task, std::int64_t end, int) {
    for (; task < end; ++task) {
      std::int64_t index = task;
      std::size_t at = 0;
      while (index >= task_count(args.segments[at], heads)) {
        index -= task_count(args.segments[at++], heads);
      }
      run_task(args, args.segments[at], heads, index, kernels_);
    }
  });
}

}  // namespace tessera::cpu
