// The rules for several candidates of one position by one block, and draws of candidates:
// engine/decoding/trees with the same decisions. Masses that the host adds one after another in
// single precision are added so here, by one thread over those that are not zero. Device code only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/backend/cuda/verify_rules.cuh"
#include "engine/core/index.h"

namespace tessera::cuda {

constexpr int kSiblings = static_cast<int>(kMaxSiblings);

// The candidates under test, in draw order: their tokens and their rows of the item.
struct TriedScratch {
  int tokens[kSiblings], rows[kSiblings];
};

// The candidates of one position.
struct BlockSiblings {
  BlockRow row;
  BlockDraft draft;         // that all were drawn from
  float* masses = nullptr;  // [codes], scratch
  const TriedScratch& tried;
  int count = 0;
  std::uint32_t position = 0;
};

struct BlockChoice {
  int chosen = -1;  // of the candidates
  int token = -1;
  float strict = 0;
};

// value(0) + value(1) + … one after another; none is negative. Zeros are passed over, which changes
// no bit.
template <typename Values>
__device__ float ordered_sum(const Values& value, int codes, VerifyScratch& s) {
  float* const some = reinterpret_cast<float*>(s.lanes[0]);
  const int t = verify_thread(), lane = t % kWarp, warps = verify_threads() / kWarp;
  float sum = 0;
  for (int begin = 0; begin < codes; begin += verify_threads()) {
    const float own = begin + t < codes ? value(begin + t) : 0.0f;
    const unsigned held = __ballot_sync(kAllLanes, own > 0 ? 1 : 0);
    if (lane == 0) s.ids[t / kWarp] = __popc(held);
    __syncthreads();
    int before = 0, all = 0;
    for (int warp = 0; warp < warps; ++warp) {
      before += warp < t / kWarp ? s.ids[warp] : 0;
      all += s.ids[warp];
    }
    if (own > 0) some[before + __popc(held & ((1u << lane) - 1))] = own;
    __syncthreads();
    if (t == 0) {
      for (int i = 0; i < all; ++i) sum += some[i];
    }
    __syncthreads();
  }
  if (t == 0) some[0] = sum;
  __syncthreads();
  sum = some[0];
  __syncthreads();
  return sum;
}

// What repeated refusals leave of a row (ResidualRow).
struct BlockResidual {
  float* masses;
  int codes;
  float total = 1;

  __device__ float mass(int token) const { return token < codes ? masses[token] : 0.0f; }
};

__device__ inline BlockResidual residual_of(const BlockSiblings& test) {
  for (int id = verify_thread(); id < test.row.codes; id += verify_threads()) {
    test.masses[id] = test.row.probs[id];
  }
  __syncthreads();
  return {test.masses, test.row.codes};
}

template <typename Taken>
struct LeftAfter {
  const float* masses;
  const Taken& taken;
  __device__ float operator()(int id) const {
    const float left = masses[id] - taken(id);
    return left > 0 ? left : 0.0f;
  }
};

template <typename Taken>
__device__ void subtract(BlockResidual& target, const Taken& taken, VerifyScratch& s) {
  const LeftAfter<Taken> after{target.masses, taken};
  const float left = ordered_sum(after, target.codes, s);
  if (!(left > 0)) return;
  for (int id = verify_thread(); id < target.codes; id += verify_threads()) {
    target.masses[id] = after(id);
  }
  target.total = left;
  __syncthreads();
}

__device__ inline bool among(const int* tokens, int count, int id) {
  bool found = false;
  for (int i = 0; i < count; ++i) found = found || tokens[i] == id;
  return found;
}

// A refused candidate's distribution, scaled to what is left of the target; nothing of ids refused before.
struct ScaledDistribution {
  BlockDraft draft;
  float scale;
  const int* gone;
  int count;
  __device__ float operator()(int id) const {
    return among(gone, count, id) ? 0.0f : draft.prob(id) * scale;
  }
};
struct DistributionWithout {
  BlockDraft draft;
  const int* gone;
  int count;
  __device__ float operator()(int id) const {
    return among(gone, count, id) ? 0.0f : draft.prob(id);
  }
};
struct OneMass {
  int token;
  float mass;
  __device__ float operator()(int id) const { return id == token ? mass : 0.0f; }
};

// The distribution's mass without some ids. A point may lie on a control id.
__device__ inline float mass_without(const BlockSiblings& test, int gone, VerifyScratch& s) {
  if (test.draft.kind == DraftKind::kPoint) {
    return among(test.tried.tokens, gone, test.draft.token) ? 0.0f : 1.0f;
  }
  return ordered_sum(DistributionWithout{test.draft, test.tried.tokens, gone}, test.row.codes, s);
}

__device__ inline float prob_of(const BlockSiblings& test, int token) {
  const bool known = token < test.row.codes || test.draft.kind == DraftKind::kPoint;
  return known ? test.draft.prob(token) : 0.0f;
}

__device__ inline bool sibling_passes(const BlockSiblings& test, int j, float chance, float of,
                                      const VerifiedItem& item) {
  const BlockChance chances = chance_at(item, test.position, Purpose::kAccept);
  return passes(uniform_of(chances.bits_of(static_cast<std::uint32_t>(j))[0]), chance, of);
}

__device__ inline int draw_left(const BlockSiblings& test, const VerifiedItem& item,
                                VerifyScratch& s) {
  const Plain left{test.masses};
  return first_clock(left, test.row.codes, heaviest(left, test.row.codes, s),
                     chance_at(item, test.position, Purpose::kResidual), s);
}

__device__ inline BlockChoice choose_recursively(const BlockSiblings& test, bool distinct,
                                                 const VerifiedItem& item, VerifyScratch& s) {
  BlockResidual target = residual_of(test);
  BlockChoice out;
  float left = 1;
  for (int j = 0; j < test.count; ++j) {
    const int token = test.tried.tokens[j];
    const float q = prob_of(test, token);
    const float chance = target.mass(token) * left, of = q * target.total;
    out.strict += chance < of ? chance / of : 1.0f;
    if (sibling_passes(test, j, chance, of, item)) {
      out.chosen = j;
      out.token = token;
      return out;
    }
    const float scale = target.total / left;
    subtract(target, ScaledDistribution{test.draft, scale, test.tried.tokens, distinct ? j : 0}, s);
    if (distinct) left = mass_without(test, j + 1, s);
  }
  out.token = draw_left(test, item, s);
  return out;
}

// b: the chance that one candidate is accepted.
__device__ inline double kseq_overlap(const BlockSiblings& test, double rho, VerifyScratch& s) {
  double sum[1] = {0};
  for (int id = verify_thread(); id < test.row.codes; id += verify_threads()) {
    const float p = test.row.probs[id];
    if (!(p > 0)) continue;
    sum[0] += kseq_term(double{p}, double{test.draft.prob(id)}, rho);
  }
  fold_lanes(sum, s);
  return sum[0];
}

// What k refused candidates took of a row.
struct KSeqTaken {
  BlockRow row;
  BlockDraft draft;
  float rho, share;
  __device__ float operator()(int id) const {
    const float q = draft.prob(id), most = row.probs[id] / rho;
    return (most < q ? most : q) * share;
  }
};

__device__ inline BlockChoice choose_kseq(const BlockSiblings& test, const VerifiedItem& item,
                                          VerifyScratch& s) {
  KSeqSearch search(static_cast<std::uint32_t>(test.count));
  while (search.open()) search.halve(kseq_overlap(test, search.middle(), s));
  const auto rho = to_float(search.high);
  BlockChoice out;
  for (int j = 0; j < test.count; ++j) {
    const int token = test.tried.tokens[j];
    const float chance = token < test.row.codes ? test.row.probs[token] : 0.0f;
    const float of = rho * prob_of(test, token);
    out.strict += chance < of ? chance / of : 1.0f;
    if (sibling_passes(test, j, chance, of, item)) {
      out.chosen = j;
      out.token = token;
      return out;
    }
  }
  const double b = kseq_overlap(test, double{rho}, s);
  const auto share = to_float(b > 0 ? kseq_chance(b, search.count) / b : 0.0);
  BlockResidual target = residual_of(test);
  subtract(target, KSeqTaken{test.row, test.draft, rho, share}, s);
  out.token = draw_left(test, item, s);
  return out;
}

__device__ inline BlockChoice choose_points(const BlockSiblings& test, const VerifiedItem& item,
                                            VerifyScratch& s) {
  BlockResidual target = residual_of(test);
  BlockChoice out;
  for (int j = 0; j < test.count; ++j) {
    const int token = test.tried.tokens[j];
    const float mass = target.mass(token);
    out.strict += mass / target.total;
    if (sibling_passes(test, j, mass, target.total, item)) {
      out.chosen = j;
      out.token = token;
      return out;
    }
    subtract(target, OneMass{token, mass}, s);
  }
  out.token = draw_left(test, item, s);
  return out;
}

// The candidate that a token is, if one is.
__device__ inline BlockChoice choose_equal(const BlockSiblings& test, int token) {
  BlockChoice out;
  out.token = token;
  for (int j = test.count - 1; j >= 0; --j) {
    if (test.tried.tokens[j] == token) out.chosen = j;
  }
  out.strict = out.chosen >= 0 ? 1.0f : 0.0f;
  return out;
}

__device__ inline BlockChoice choose(const VerifyNumbers& n, const BlockSiblings& test,
                                     const VerifiedItem& item, VerifyScratch& s) {
  switch (n.siblings) {
    case VerifySiblings::kRecursive:
      return choose_recursively(test, /*distinct=*/false, item, s);
    case VerifySiblings::kDistinct:
      return choose_recursively(test, /*distinct=*/true, item, s);
    case VerifySiblings::kKSeq:
      return choose_kseq(test, item, s);
    case VerifySiblings::kPoints:
      return choose_points(test, item, s);
    default:
      break;
  }
  return choose_equal(test, race(test.row, noise_at(item, test.position), n.fewest, s));
}

// A distribution without what was drawn of it.
struct LeftOfDistribution {
  const float* probs;
  const int* gone;
  int count;
  __device__ float operator()(int id) const { return among(gone, count, id) ? 0.0f : probs[id]; }
};

// The next candidate of a distribution; -1 where it has no more. `number` counts those of one node.
__device__ inline int next_candidate(VerifySiblings siblings, const LeftOfDistribution& dist, int codes,
                                     const VerifiedDraw& draw, int number, VerifyScratch& s) {
  const Word top = heaviest(dist, codes, s);
  if (top == 0) return -1;
  if (siblings == VerifySiblings::kPoints) return id_of(top);
  BlockChance chance{{draw.key[0], draw.key[1]}, draw.position, 0, Purpose::kSample};
  if (siblings != VerifySiblings::kEquality) {
    const auto lane = static_cast<std::uint32_t>(draw.lane + number);
    chance.pass = draw.pass;
    chance.purpose =
        static_cast<Purpose>(static_cast<std::uint32_t>(Purpose::kSibling) | lane << 8);
  }
  return first_clock(dist, codes, top, chance, s);
}

}  // namespace tessera::cuda
