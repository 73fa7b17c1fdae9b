// The rules of acceptance and the tails by one block: engine/decoding/rules and tails with the same
// decisions. Device code only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/backend/cuda/judge_chance.cuh"

namespace tessera::cuda {

// A method's rule and tail; tables on the device.
struct JudgeNumbers {
  JudgeRule rule;
  JudgeTail tail;
  JudgeSiblings siblings;
  bool likeliest;
  int group_size, width, listed, neighbours;
  double max_gap, max_distance, delta, lambda, peak, decay;
  const float* vectors;
  const std::int32_t *group_of, *members, *first, *nearest;
  const std::uint32_t* fewest;  // fewest_gumbel_bits()
};

// One draft under test.
struct BlockTest {
  BlockRow row;
  BlockDraft draft;
  int token = -1;
  std::uint32_t position = 0, depth = 0;

  // Control ids, which a window may hold where a row's grammar forces none, have no probability.
  __device__ float p() const { return token < row.codes ? row.probs[token] : 0.0f; }
  __device__ float q() const {
    const bool known = token < row.codes || draft.kind == DraftKind::kPoint;
    return known ? draft.prob(token) : 0.0f;
  }
};

// P(C) and Q(C) of a group while it is summed.
struct GroupSums {
  float target = 0, draft = 0;
};

__device__ inline void add_neighbour(const JudgeNumbers& n, const BlockTest& test, int id,
                                     GroupSums& sums) {
  const float p = test.row.probs[id];
  const double gap = static_cast<double>(p - test.row.probs[test.token]);
  if ((gap < 0 ? -gap : gap) >= n.max_gap) return;
  const float *a = n.vectors + static_cast<std::int64_t>(test.token) * n.width,
              *b = n.vectors + static_cast<std::int64_t>(id) * n.width;
  double distance = 0;
  for (int d = 0; d < n.width; ++d) distance += distance_term(a[d], b[d]);
  if (distance >= n.max_distance) return;
  sums.target += p;
  sums.draft += test.draft.prob(id);
}

// The `count` ids whose probability comes next above (or below) the draft's, nearest first, equal
// ones by id.
__device__ inline void add_side(const JudgeNumbers& n, const BlockTest& test, int count, bool above,
                                GroupSums& sums, JudgeScratch& s) {
  const float p = test.row.probs[test.token];
  Word last = 0;  // ranks fall from one id to the next
  for (int taken = 0; taken < count; ++taken) {
    Word best = 0;
    for (int id = judge_thread(); id < test.row.codes; id += judge_threads()) {
      if (id == test.token || !test.row.has(id)) continue;
      const float value = test.row.probs[id];
      const bool mine = above ? value > p || (value == p && id < test.token)
                              : value < p || (value == p && id > test.token);
      if (!mine) continue;
      const float gap = above ? value - p : p - value;
      const Word rank = ranked(~__float_as_uint(gap), id);
      if ((taken == 0 || rank < last) && rank > best) best = rank;
    }
    best = largest_word(best, s);
    if (best == 0) return;
    add_neighbour(n, test, id_of(best), sums);
    last = best;
  }
}

__device__ inline float grouped_mass(const JudgeNumbers& n, const BlockTest& test,
                                     JudgeScratch& s) {
  const float p = test.p(), q = test.q();
  if (test.token >= test.row.codes) return p;
  GroupSums sums{p, q};
  if (n.rule == JudgeRule::kPartition) {
    const int group = n.group_of[test.token];
    for (int i = n.first[group]; i < n.first[group + 1]; ++i) {
      const int id = n.members[i];
      if (id == test.token) continue;
      sums.target += test.row.probs[id];
      sums.draft += test.draft.prob(id);
    }
  } else {
    const int upper = (n.group_size - 1) / 2;
    add_side(n, test, upper, /*above=*/true, sums, s);
    add_side(n, test, n.group_size - 1 - upper, /*above=*/false, sums, s);
  }
  return group_mass(sums.target, sums.draft, p, q);
}

// p and what may be borrowed of the nearest codes. Their probabilities are fetched by all threads;
// every thread adds them up in order.
__device__ inline float relaxed_mass(const JudgeNumbers& n, const BlockTest& test,
                                     JudgeScratch& s) {
  const float p = test.p();
  if (test.token >= test.row.codes) return p;
  const float bound = borrowed_bound(n.delta, n.lambda, p);
  const std::int32_t* nearest = n.nearest + static_cast<std::int64_t>(test.token) * n.listed;
  float borrowed = 0;
  bool open = true;
  for (int begin = 0; open && begin < n.neighbours; begin += judge_threads()) {
    const int some =
        n.neighbours - begin < judge_threads() ? n.neighbours - begin : judge_threads();
    if (judge_thread() < some) {
      s.lanes[0][judge_thread()] = test.row.probs[nearest[begin + judge_thread()]];
    }
    __syncthreads();
    for (int i = 0; open && i < some; ++i) {
      const float more = borrowed + static_cast<float>(s.lanes[0][i]);
      open = !(more > bound);
      if (open) borrowed = more;
    }
    __syncthreads();
  }
  return p + borrowed;
}

struct BlockVerdict {
  bool accepted = false;
  int token = -1;
  float strict = 0, chance = 0;
  bool bounded = false;  // a budget may take from the mass
  float mass = 0;
};

__device__ inline BlockVerdict judge_cool(const BlockTest& test, float factor,
                                          const JudgedItem& item, JudgeScratch& s) {
  const float p = test.p(), q = test.q();
  BlockVerdict out;
  out.strict = chance_of(p, q);
  out.chance = chance_of(factor * p, q);
  const double uniform = chance_at(item, test.position, Purpose::kAccept).uniform();
  out.accepted = passes(uniform, factor * p, q);
  out.token = test.token;
  if (out.accepted) return out;
  out.token = draw_residual(test.row, test.draft, factor,
                            chance_at(item, test.position, Purpose::kResidual), s);
  return out;
}

__device__ inline BlockVerdict judge_by_mass(const BlockTest& test, float mass,
                                             const JudgedItem& item, JudgeScratch& s) {
  const float p = test.p(), q = test.q();
  BlockVerdict out;
  out.strict = chance_of(p, q);
  // What the cuts of the target forbid stays forbidden, however like its neighbours.
  if (!(p > 0)) mass = 0;
  out.bounded = true;
  out.mass = mass;
  out.chance = chance_of(mass, q);
  const double uniform = chance_at(item, test.position, Purpose::kAccept).uniform();
  out.accepted = passes(uniform, mass, q);
  out.token = test.token;
  if (out.accepted) return out;
  out.token = draw_residual(test.row, test.draft, kNoFactor,
                            chance_at(item, test.position, Purpose::kResidual), s);
  return out;
}

__device__ inline BlockVerdict judge_draft(const JudgeNumbers& n, const BlockTest& test,
                                           const JudgedItem& item, JudgeScratch& s) {
  switch (n.rule) {
    case JudgeRule::kGumbel: {
      BlockVerdict out;
      out.token = race(test.row, noise_at(item, test.position), n.fewest, s);
      out.accepted = out.token == test.token;
      out.strict = out.chance = out.accepted ? 1.0f : 0.0f;
      return out;
    }
    case JudgeRule::kGrouped:
    case JudgeRule::kPartition:
      return judge_by_mass(test, grouped_mass(n, test, s), item, s);
    case JudgeRule::kRelaxed:
      return judge_by_mass(test, relaxed_mass(n, test, s), item, s);
    case JudgeRule::kCool: {
      const float factor = cool_factor<float>(n.peak, n.decay, test.depth);
      if (factor >= 1) return judge_by_mass(test, factor * test.p(), item, s);
      return judge_cool(test, factor, item, s);
    }
    case JudgeRule::kExact:
      break;
  }
  return judge_by_mass(test, test.p(), item, s);
}

// The next draft of a row's position. `draft` none where nothing stood there.
__device__ inline int redraft(const JudgeNumbers& n, const BlockTest& old, const JudgedItem& item,
                              JudgeScratch& s) {
  if (n.tail == JudgeTail::kGumbel) return race(old.row, noise_at(item, old.position), n.fewest, s);
  if (n.tail == JudgeTail::kMaximal && old.draft.kind != DraftKind::kNone) {
    const double uniform = chance_at(item, old.position, Purpose::kKeep).uniform();
    if (passes(uniform, old.p(), old.q())) return old.token;
    return draw_residual(old.row, old.draft, kNoFactor,
                         chance_at(item, old.position, Purpose::kMove), s);
  }
  return draw_residual(old.row, BlockDraft{}, kNoFactor,
                       chance_at(item, old.position, Purpose::kDraft), s);
}

}  // namespace tessera::cuda
