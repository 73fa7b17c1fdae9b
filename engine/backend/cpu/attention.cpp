// Attention: one task is a few neighbouring key and value heads of one sequence with up to 16 query
// rows over all of them, or one head with up to 64. How rows and heads are grouped changes no
// result.
#include <algorithm>
#include <cmath>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/core/index.h"
#include "engine/ops/attention.h"

namespace tessera::cpu {

namespace {

struct Heads {
  std::int64_t heads, kv_heads, group, dim;
  std::int64_t wanted;  // tasks that keep all threads busy, over all segments
};

// How the rows of a segment are cut into tasks.
struct Cut {
  std::int64_t rows;         // query rows of one key head
  std::int64_t row_tiles;    // tasks along them
  std::int64_t head_groups;  // tasks along the heads

  std::int64_t tasks() const { return row_tiles * head_groups; }
};

Cut cut_segment(const AttentionSegment& segment, const Heads& heads) {
  Cut cut{};
  cut.rows = segment.rows * heads.group;
  cut.row_tiles = divide_up(cut.rows, kTaskRows);
  const std::int64_t at_once =
      std::max<std::int64_t>(1, kQueryRows / std::max<std::int64_t>(cut.rows, 1));
  cut.head_groups =
      std::min(std::max(divide_up(heads.kv_heads, at_once), heads.wanted), heads.kv_heads);
  // Tasks that copy keys take one head each.
  if (cut.rows > kFewRows || !segment.listed.empty()) cut.head_groups = heads.kv_heads;
  return cut;
}

const void* head_start(const ConstTensorView& cache, std::int64_t kv_head) {
  return cache.raw() + to_size(kv_head * cache.shape[2]) * dtype_size(cache.dtype);
}

HeadNumbers numbers_of(const ConstTensorView& cache) {
  if (cache.dtype == DType::kI8) return HeadNumbers::kScaled;
  return cache.dtype == DType::kBF16 ? HeadNumbers::kBF16 : HeadNumbers::kF32;
}

void run_task(const AttentionArgs& args, const AttentionSegment& segment, const Heads& heads,
              std::int64_t index, const Kernels& kernels, float* scratch) {
  const Cut cut = cut_segment(segment, heads);
  const std::int64_t group = index / cut.row_tiles;
  const std::int64_t tile = index % cut.row_tiles;
  const std::int64_t first_head = heads.kv_heads * group / cut.head_groups;
  const std::int64_t first = cut.rows * tile / cut.row_tiles;
  AttentionTask task;
  task.heads = narrow<int>(heads.kv_heads * (group + 1) / cut.head_groups - first_head);
  task.rows = narrow<int>(cut.rows * (tile + 1) / cut.row_tiles - first);
  for (int head = 0; head < task.heads; ++head) {
    for (int i = 0; i < task.rows; ++i) {
      const std::int64_t row = (first + i) / heads.group;
      const std::int64_t q_head = (first_head + head) * heads.group + (first + i) % heads.group;
      const std::int64_t at = ((segment.row_begin + row) * heads.heads + q_head) * heads.dim;
      const int entry = head * task.rows + i;
      task.q[entry] = args.q.f32() + at;
      task.out[entry] = args.out.f32() + at;
      task.visible[entry] = segment.first_visible + (segment.causal ? row + 1 : 0);
      if (segment.key_bias.empty()) continue;
      task.key_bias[entry] = segment.key_bias.f32() + segment.bias_of(row, q_head);
    }
  }
  task.keys = head_start(segment.keys, first_head);
  task.values = head_start(segment.values, first_head);
  task.head_stride = segment.keys.shape[2];
  task.kv_stride = heads.kv_heads * task.head_stride;
  if (!segment.listed.empty()) {
    task.listed = segment.listed.data();
    task.listed_from = segment.listed_from;
    task.listed_base = segment.listed_base;
  }
  task.biased = !segment.key_bias.empty();
  float peak[kTaskRows];
  float total[kTaskRows];
  if (!args.log_sum.empty()) {
    task.peak = peak;
    task.total = total;
  }
  task.head_dim = heads.dim;
  task.scale = args.scale;
  task.numbers = numbers_of(segment.keys);
  task.scratch = scratch;
  kernels.attention(task);
  if (args.log_sum.empty()) return;
  for (int entry = 0; entry < task.heads * task.rows; ++entry) {
    const std::int64_t at = (task.out[entry] - args.out.f32()) / heads.dim;  // row * heads + head
    args.log_sum.f32()[at] = to_float(peak[entry] + std::log(double{total[entry]}));
  }
}

void attention(CpuBackend& cpu, const AttentionArgs& args) {
  if (args.segments.empty()) return;
  ThreadPool& pool = cpu.threads();
  const std::int64_t kv_heads = args.segments[0].keys.shape[1];
  const auto segments = std::ssize(args.segments);
  const Heads heads{args.q.shape[1], kv_heads, args.q.shape[1] / kv_heads, args.q.shape[2],
                    pool.threads() == 1 ? 1 : divide_up(3 * pool.threads(), segments)};
  cpu.ensure_scratch(to_size(attention_scratch_floats(heads.dim)));
  std::int64_t tasks = 0;
  for (const AttentionSegment& segment : args.segments)
    tasks += cut_segment(segment, heads).tasks();
  pool.parallel_for(tasks, 1, [&](std::int64_t task, std::int64_t end, int worker) {
    for (; task < end; ++task) {
      std::int64_t index = task;
      std::size_t at = 0;
      for (std::int64_t skip = cut_segment(args.segments[0], heads).tasks(); index >= skip;
           skip = cut_segment(args.segments[at], heads).tasks()) {
        index -= skip;
        ++at;
      }
      run_task(args, args.segments[at], heads, index, cpu.kernels(), cpu.scratch(worker));
    }
  });
}

}  // namespace

std::size_t CpuBackend::attention_scratch_bytes(std::int64_t, std::int64_t,
                                                std::int64_t head_dim) const {
  return to_size(attention_scratch_floats(head_dim) * pool_.threads()) * sizeof(float);
}

void add_attention_ops(OpTable& table) { table.add<attention>(); }

}  // namespace tessera::cpu
