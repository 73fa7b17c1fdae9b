// Draws over one row by one block: the race of a position and draws by weight, won by the same ids
// as engine/sampling/sampler.h says. Ids that cannot win are passed over; which ones are tried does
// not change who wins. Device code only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/backend/cuda/verify_dist.cuh"
#include "engine/core/acceptance_math.h"
#include "engine/core/keyed_noise.h"
#include "engine/core/philox.h"

namespace tessera::cuda {

// The numbers of one decision at one position.
struct BlockChance {
  std::uint32_t key[2] = {};
  std::uint32_t position = 0, pass = 0;
  Purpose purpose = Purpose::kSample;

  // Random bits of the ids 4 quad … 4 quad + 3.
  __device__ PhiloxBlock bits_of(std::uint32_t quad) const {
    return philox4x32({position, pass, static_cast<std::uint32_t>(purpose), quad},
                      {key[0], key[1]});
  }
  __device__ std::uint32_t bits(int id) const {
    return bits_of(static_cast<std::uint32_t>(id) / 4)[static_cast<std::uint32_t>(id) % 4];
  }
  // A decision of its own.
  __device__ double uniform() const { return uniform_of(bits_of(0)[0]); }
};

// Of a decision of an item's pass; of its position's own noise, which all passes share.
__device__ inline BlockChance chance_at(const VerifiedItem& item, std::uint32_t position,
                                        Purpose purpose) {
  return {{item.key[0], item.key[1]}, position, item.pass, purpose};
}
__device__ inline BlockChance noise_at(const VerifiedItem& item, std::uint32_t position) {
  return {{item.key[0], item.key[1]}, position, 0, Purpose::kSample};
}

// The random bits of ids in turn, four at a time.
struct QuadBits {
  BlockChance chance;
  std::uint32_t quad = 0xffffffffu;
  PhiloxBlock four = {};

  __device__ std::uint32_t operator()(int id) {
    const std::uint32_t wanted = static_cast<std::uint32_t>(id) / 4;
    if (wanted != quad) {
      four = chance.bits_of(wanted);
      quad = wanted;
    }
    return four[static_cast<std::uint32_t>(id) % 4];
  }
};

// The id with the largest logit + noise, the lowest one on a tie. `fewest` is fewest_gumbel_bits().
__device__ inline int race(const BlockRow& row, const BlockChance& chance,
                           const std::uint32_t* fewest, VerifyScratch& s) {
  const int mode = likeliest(row, s);
  QuadBits bits{chance};
  int best_id = mode;
  double best = row.logits[mode] + gumbel_of(chance.bits(mode));
  for (int first = 4 * verify_thread(); first < row.codes; first += 4 * verify_threads()) {
    for (int id = first; id < first + 4 && id < row.codes; ++id) {
      if (id == mode || !row.has(id)) continue;
      const double own = row.logits[id], gap = best - own;
      if (gap > kLargestGumbel) continue;
      const std::uint32_t drawn = bits(id);
      if (gap > 0 && drawn < fewest[gumbel_step(gap)]) continue;
      const double value = own + gumbel_of(drawn);
      if (value > best || (value == best && id < best_id)) {
        best = value;
        best_id = id;
      }
    }
  }
  return best_scored(best, best_id, s);
}

// The distribution that a draft was drawn from.
struct BlockDraft {
  DraftKind kind = DraftKind::kNone;
  int token = -1;              // kPoint
  const float* row = nullptr;  // kRow
  float uniform = 0;           // kUniform

  __device__ float prob(int id) const {
    if (kind == DraftKind::kRow) return row[id];
    if (kind == DraftKind::kUniform) return uniform;
    return kind == DraftKind::kPoint && id == token ? 1.0f : 0.0f;
  }
};

// What a refused draft's distribution leaves of p: max(p - min(q, factor p), 0); without a factor, max(p -
// q, 0).
constexpr float kNoFactor = -1;
struct Residual {
  const float* probs;
  BlockDraft draft;
  float factor;
  __device__ float operator()(int id) const {
    const float p = probs[id];
    float taken = draft.prob(id);
    if (factor >= 0) taken = factor * p < taken ? factor * p : taken;
    return left_of(p, taken);
  }
};
struct Plain {
  const float* probs;
  __device__ float operator()(int id) const { return probs[id]; }
};

// The first weight of all, by size and then by id, packed; 0 where all are 0.
template <typename Weights>
__device__ Word heaviest(const Weights& weight, int codes, VerifyScratch& s) {
  Word best = 0;
  for (int id = verify_thread(); id < codes; id += verify_threads()) {
    const float own = weight(id);
    if (!(own > 0)) continue;
    const Word rank = ranked(__float_as_uint(own), id);
    best = rank > best ? rank : best;
  }
  return largest_word(best, s);
}

// The id whose clock rings first, the lowest one on a tie; `top` is the heaviest.
template <typename Weights>
__device__ int first_clock(const Weights& weight, int codes, Word top, const BlockChance& chance,
                           VerifyScratch& s) {
  const int mode = id_of(top);
  QuadBits bits{chance};
  int best_id = mode;
  double best = clock_of(chance.bits(mode), static_cast<double>(weight(mode)));
  for (int first = 4 * verify_thread(); first < codes; first += 4 * verify_threads()) {
    for (int id = first; id < first + 4 && id < codes; ++id) {
      const double own = static_cast<double>(weight(id)), latest = best * own;
      if (never_rings(latest) || id == mode) continue;
      const std::uint32_t drawn = bits(id);
      if (rings_late(drawn, latest)) continue;
      const double rings = clock_of(drawn, own);
      if (rings < best || (rings == best && id < best_id)) {
        best = rings;
        best_id = id;
      }
    }
  }
  return best_scored(-best, best_id, s);
}

// A draw from what is left, or from p where rounding leaves nothing.
__device__ inline int draw_residual(const BlockRow& row, const BlockDraft& draft, float factor,
                                    const BlockChance& chance, VerifyScratch& s) {
  const Residual residual{row.probs, draft, factor};
  const Word top = heaviest(residual, row.codes, s);
  if (top != 0) return first_clock(residual, row.codes, top, chance, s);
  const Plain plain{row.probs};
  return first_clock(plain, row.codes, heaviest(plain, row.codes, s), chance, s);
}

}  // namespace tessera::cuda
