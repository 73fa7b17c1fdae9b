// Attention weights of chosen query rows, one task a run of keys. Means are taken in double over
// rows and heads in order, so that neither threads nor the cut into tasks show in a result.
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/core/index.h"
#include "engine/ops/row_attention.h"

namespace tessera::cpu {

namespace {

constexpr std::int64_t kKeysOfATask = 16;

struct Rows {
  const RowAttentionArgs& args;
  const Kernels& kernels;
  std::int64_t count, heads, kv_heads, dim, keys;

  Rows(const RowAttentionArgs& a, const Kernels& k)
      : args(a),
        kernels(k),
        count(a.q.shape[0]),
        heads(a.q.shape[1]),
        kv_heads(a.keys.shape[1]),
        dim(a.q.shape[2]),
        keys(a.keys.shape[0]) {}

  float score(std::int64_t row, std::int64_t head, std::int64_t key) const {
    const float* q = args.q.f32() + (row * heads + head) * dim;
    const float* k = args.keys.f32() + (key * kv_heads + head / (heads / kv_heads)) * dim;
    const float product = kernels.dot(q, k, dim) * args.scale;
    return args.key_bias.empty() ? product : product + args.key_bias.f32()[key];
  }

  double log_sum(std::int64_t row, std::int64_t head) const {
    double peak = score(row, head, 0);
    for (std::int64_t key = 1; key < keys; ++key) {
      peak = std::max(peak, double{score(row, head, key)});
    }
    double total = 0.0;
    for (std::int64_t key = 0; key < keys; ++key) total += std::exp(score(row, head, key) - peak);
    return peak + std::log(total);
  }

  void write(std::int64_t key, const float* log_sums) const {
    const bool rows_away = args.mean == AttentionMean::kRows || args.mean == AttentionMean::kBoth;
    const bool heads_away = args.mean == AttentionMean::kHeads || args.mean == AttentionMean::kBoth;
    const std::int64_t row_step = rows_away ? count : 1;
    const std::int64_t head_step = heads_away ? heads : 1;
    float* out = args.out.f32() + key;
    for (std::int64_t row = 0; row < count; row += row_step) {
      for (std::int64_t head = 0; head < heads; head += head_step) {
        double sum = 0.0;
        for (std::int64_t r = row; r < row + row_step; ++r) {
          for (std::int64_t h = head; h < head + head_step; ++h) {
            sum += std::exp(score(r, h, key) - log_sums[r * heads + h]);
          }
        }
        *out = to_float(sum / to_double(row_step * head_step));
        out += keys;
      }
    }
  }
};

void row_attention(CpuBackend& cpu, const RowAttentionArgs& args) {
  const Rows rows(args, cpu.kernels());
  ThreadPool& pool = cpu.threads();
  std::vector<float> own;
  if (args.log_sum.empty()) {
    own.resize(to_size(rows.count * rows.heads));
    pool.parallel_for(rows.count * rows.heads, 1, [&](std::int64_t i, std::int64_t end, int) {
      for (; i < end; ++i) {
        nth(own, i) = to_float(rows.log_sum(i / rows.heads, i % rows.heads));
      }
    });
  }
  const float* log_sums = own.empty() ? args.log_sum.f32() : own.data();
  pool.parallel_for(rows.keys, kKeysOfATask, [&](std::int64_t key, std::int64_t end, int) {
    for (; key < end; ++key) rows.write(key, log_sums);
  });
}

}  // namespace

void add_row_attention_ops(OpTable& table) { table.add<row_attention>(); }

}  // namespace tessera::cpu
