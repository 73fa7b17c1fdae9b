// The distribution of one row by one block: the stages of engine/sampling/dist.h in the same order with the
// same bits. Logits of ids that a stage drops become NaN. Device code only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/backend/cuda/verify_block.cuh"
#include "engine/backend/row_verifier.h"
#include "engine/core/dist_math.h"
#include "engine/core/index.h"

namespace tessera::cuda {

// A row while its distribution is made, and afterwards: logits and probabilities by id.
struct BlockRow {
  float* logits = nullptr;  // [codes], NaN = dropped
  float* probs = nullptr;   // [codes]
  int codes = 0;

  __device__ bool has(int id) const { return logits[id] == logits[id]; }
  __device__ void drop(int id) const { logits[id] = __uint_as_float(0x7fc00000u); }
};

// What logits processors make of a row: an edit an id.
struct BlockEdits {
  const LogitEdit* edits = nullptr;
  int count = 0;
  bool only = false;  // ids without an edit are dropped
};

// Ids by something that orders them, the largest first, the lowest id among equals.
__device__ inline Word ranked(std::uint32_t key, int id) {
  return Word{key} << 32 | static_cast<std::uint32_t>(~id);
}
__device__ inline int id_of(Word rank) {
  return ~static_cast<int>(static_cast<std::uint32_t>(rank));
}

// The id with the largest logit, the lowest one on a tie.
__device__ inline int likeliest(const BlockRow& row, VerifyScratch& s) {
  Word best = 0;
  for (int id = verify_thread(); id < row.codes; id += verify_threads()) {
    if (!row.has(id)) continue;
    const Word own = ranked(order_key(row.logits[id]), id);
    best = own > best ? own : best;
  }
  return id_of(largest_word(best, s));
}

// probs = softmax of the logits; returns what the exponentials were divided by. Threads see their
// own ids alone until the next barrier.
__device__ inline float weigh(const BlockRow& row, float largest, VerifyScratch& s) {
  double sum[1] = {0};
  for (int id = verify_thread(); id < row.codes; id += verify_threads()) {
    const float weight = row.has(id) ? fixed_exp(row.logits[id] - largest) : 0.0f;
    row.probs[id] = weight;
    sum[0] += weight;
  }
  fold_lanes(sum, s);
  const float total = to_float(sum[0]);
  for (int id = verify_thread(); id < row.codes; id += verify_threads()) row.probs[id] /= total;
  return total;
}

struct ByLogit {
  BlockRow row;
  __device__ bool has(int id) const { return row.has(id); }
  __device__ std::uint32_t key(int id) const { return order_key(row.logits[id]); }
  __device__ Word mass(int) const { return 1; }
};
struct ByLogitMass : ByLogit {
  __device__ Word mass(int id) const { return mass_of(row.probs[id]); }
};
// Ids that share a key of the logits, lowest first.
struct ByIdAmong : ByLogit {
  std::uint32_t shared = 0;
  __device__ bool has(int id) const { return row.has(id) && ByLogit::key(id) == shared; }
  __device__ std::uint32_t key(int id) const { return ~static_cast<std::uint32_t>(id); }
};
// Most typical first.
struct ByTypicality {
  BlockRow row;
  double entropy = 0;
  __device__ bool has(int id) const { return row.has(id); }
  __device__ std::uint32_t key(int id) const {
    return ~order_key(typical_gap(row.probs[id], entropy));
  }
  __device__ Word mass(int id) const { return mass_of(row.probs[id]); }
};

__device__ inline void keep_greedy(const BlockRow& row, VerifyScratch& s) {
  const int best = likeliest(row, s);
  for (int id = verify_thread(); id < row.codes; id += verify_threads()) {
    row.drop(id);
    if (id == best) row.logits[id] = 0;
  }
}

__device__ inline void keep_top_k(const BlockRow& row, std::int64_t k, VerifyScratch& s) {
  if (k >= row.codes) return;
  const Selected edge = select_mass(ByLogit{row}, row.codes, static_cast<Word>(k), s);
  for (int id = verify_thread(); edge.reached && id < row.codes; id += verify_threads()) {
    if (row.has(id) && order_key(row.logits[id]) < edge.key) row.drop(id);
  }
}

__device__ inline void keep_top_p(const BlockRow& row, double top_p, float largest,
                                  VerifyScratch& s) {
  const float total = weigh(row, largest, s);
  ByLogitMass by_mass;
  by_mass.row = row;
  const Selected edge = select_mass(by_mass, row.codes, mass_bound<float>(top_p), s);
  if (!edge.reached) return;
  // Equal logits have equal masses, and go by id.
  const Word each = mass_of(fixed_exp(logit_of_key(edge.key) - largest) / total);
  const Word need = (edge.rest + each - 1) / each;
  int last = row.codes;
  if (need * each < edge.at) {
    ByIdAmong by_id;
    by_id.row = row;
    by_id.shared = edge.key;
    last = static_cast<int>(~select_mass(by_id, row.codes, need, s).key);
  }
  for (int id = verify_thread(); id < row.codes; id += verify_threads()) {
    if (!row.has(id)) continue;
    const std::uint32_t key = order_key(row.logits[id]);
    if (key < edge.key || (key == edge.key && id > last)) row.drop(id);
  }
}

__device__ inline void keep_min_p(const BlockRow& row, double min_p, float largest) {
  for (int id = verify_thread(); id < row.codes; id += verify_threads()) {
    if (row.has(id) && !reaches_min_p(row.logits[id], largest, min_p)) row.drop(id);
  }
}

__device__ inline void keep_typical(const BlockRow& row, double typical, float largest,
                                    VerifyScratch& s) {
  weigh(row, largest, s);
  double entropy[1] = {0};
  for (int id = verify_thread(); id < row.codes; id += verify_threads()) {
    if (row.has(id)) entropy[0] += entropy_term(row.probs[id]);
  }
  fold_lanes(entropy, s);
  const ByTypicality by_gap{row, entropy[0]};
  const Selected edge = select_mass(by_gap, row.codes, mass_bound<float>(typical), s);
  for (int id = verify_thread(); edge.reached && id < row.codes; id += verify_threads()) {
    if (row.has(id) && by_gap.key(id) < edge.key) row.drop(id);
  }
}

// The first unsound id of the conditional row, codes + that of the other one, or -1.
__device__ inline int first_unsound_id(const float* cond, const float* uncond, int codes,
                                       VerifyScratch& s) {
  Word first = 0;  // largest for the lowest place
  for (int id = verify_thread(); id < codes; id += verify_threads()) {
    int place = -1;
    if (uncond != nullptr && unsound(uncond[id])) place = codes + id;
    if (unsound(cond[id])) place = id;
    if (place < 0) continue;
    const Word own = ranked(1, place);
    first = own > first ? own : first;
  }
  first = largest_word(first, s);
  return first == 0 ? -1 : id_of(first);
}

// An edit is of an id that another thread guided, and may be the one that stays.
__device__ inline void edit_row(const BlockRow& row, const BlockEdits& edits) {
  for (int id = verify_thread(); edits.only && id < row.codes; id += verify_threads()) row.drop(id);
  __syncthreads();
  for (int i = verify_thread(); i < edits.count; i += verify_threads()) {
    const LogitEdit& edit = edits.edits[i];
    if (edit.kind == EditKind::kDrop) {
      row.drop(edit.id);
    } else {
      row.logits[edit.id] = edited_logit(row.logits[edit.id], edit);
    }
  }
  __syncthreads();
}

// Guidance and edits. Threads see their own ids alone until the next barrier.
__device__ inline void make_logits(const VerifiedDistribution& dist, const float* cond,
                                   const float* uncond, const BlockEdits& edits,
                                   const BlockRow& row) {
  const auto scale = static_cast<float>(dist.guidance);
  for (int id = verify_thread(); id < row.codes; id += verify_threads()) {
    row.logits[id] = uncond != nullptr ? guided_logit(cond[id], uncond[id], scale) : cond[id];
  }
  if (edits.count > 0) edit_row(row, edits);
}

// probs = softmax of the whole row, whatever the temperature; returns the likeliest id.
__device__ inline int make_warm(const BlockRow& row, VerifyScratch& s) {
  __syncthreads();
  const int best = likeliest(row, s);
  weigh(row, row.logits[best], s);
  __syncthreads();
  return best;
}

// The stages after them. Afterwards every thread sees the whole row.
__device__ inline void cut_dist(const VerifiedDistribution& dist, const BlockRow& row,
                                VerifyScratch& s) {
  float largest = 0;
  if (dist.temperature == 0) {
    keep_greedy(row, s);
  } else {
    __syncthreads();
    largest = row.logits[likeliest(row, s)];
    const float temperature = temperature_of<float>(dist.temperature);
    if (temperature != 1.0f) {
      __syncthreads();  // everyone has read the largest
      for (int id = verify_thread(); id < row.codes; id += verify_threads()) {
        row.logits[id] = heated_logit(row.logits[id], largest, temperature);
      }
      largest = 0;
    }
    if (dist.top_k > 0) keep_top_k(row, dist.top_k, s);
    if (dist.top_p < 1) keep_top_p(row, dist.top_p, largest, s);
    if (dist.min_p > 0) keep_min_p(row, dist.min_p, largest);
    if (dist.typical < 1) {
      keep_typical(row, dist.typical, largest, s);
      __syncthreads();
      largest = row.logits[likeliest(row, s)];
    }
  }
  weigh(row, largest, s);
  __syncthreads();
}

__device__ inline void make_dist(const VerifiedDistribution& dist, const float* cond, const float* uncond,
                                const BlockEdits& edits, const BlockRow& row, VerifyScratch& s) {
  make_logits(dist, cond, uncond, edits, row);
  cut_dist(dist, row, s);
}

}  // namespace tessera::cuda
