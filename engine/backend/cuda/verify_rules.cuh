// The rules of acceptance and the tails by one block: engine/decoding/rules and tails with the same
// decisions. A rule is a struct with a name and a function, and a row of DeviceRules. Device code,
// but for the search by name.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string_view>

#include "engine/backend/cuda/verify_chance.cuh"
#include "engine/core/index.h"

namespace tessera::cuda {

// A method's rule and tail; tables on the device.
struct VerifyNumbers {
  int rule;  // its place in DeviceRules
  VerifyRedraft redraft_policy;
  VerifySiblings siblings;
  bool likeliest;
  double numbers[4];  // as DeviceRule has them
  const float* reals;
  const std::int32_t* ids[3];
  const std::uint32_t* fewest;  // fewest_gumbel_bits()

  __device__ int whole(int at) const { return static_cast<int>(numbers[at]); }
};

// One draft under test.
struct BlockTest {
  BlockRow row;
  BlockDraft draft;
  int token = -1;
  std::uint32_t position = 0, depth = 0;
  // Of rules that read the row without temperature where that is 0, what they found there.
  bool warm = false, wins = false;

  // Control ids, which a window may hold where a row's grammar forces none, have no probability.
  __device__ float p() const { return token < row.codes ? row.probs[token] : 0.0f; }
  __device__ float q() const {
    const bool known = token < row.codes || draft.kind == DraftKind::kPoint;
    return known ? draft.prob(token) : 0.0f;
  }
};

struct BlockVerdict {
  bool accepted = false;
  int token = -1;
  float strict = 0, chance = 0;
  bool bounded = false;  // a budget may take from the mass
  float p = 0, q = 0, mass = 0;
};

__device__ inline BlockVerdict verify_by_mass(const BlockTest& test, float p, float q, float mass,
                                             const VerifiedItem& item, VerifyScratch& s) {
  BlockVerdict out;
  out.strict = chance_of(p, q);
  out.bounded = true;
  out.p = p;
  out.q = q;
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

__device__ inline BlockVerdict verify_by_ratio(const BlockTest& test, float mass,
                                               const VerifiedItem& item, VerifyScratch& s) {
  const float p = test.p();
  // What the cuts of the target forbid stays forbidden, however like its neighbours.
  return verify_by_mass(test, p, test.q(), p > 0 ? mass : 0.0f, item, s);
}

// --- rules, as engine/decoding/rules has them
// -----------------------------------------------------

struct Exact {
  static constexpr std::string_view kName = "exact";
  static __device__ BlockVerdict verify(const VerifyNumbers&, const BlockTest& test,
                                        const VerifiedItem& item, VerifyScratch& s) {
    return verify_by_ratio(test, test.p(), item, s);
  }
};

struct Gumbel {
  static constexpr std::string_view kName = "gumbel";
  static __device__ BlockVerdict verify(const VerifyNumbers& n, const BlockTest& test,
                                        const VerifiedItem& item, VerifyScratch& s) {
    BlockVerdict out;
    out.token = race(test.row, noise_at(item, test.position), n.fewest, s);
    out.accepted = out.token == test.token;
    out.strict = out.chance = out.accepted ? 1.0f : 0.0f;
    return out;
  }
};

// P(C) and Q(C) of a group while it is summed.
struct GroupSums {
  float target = 0, draft = 0;
};

// Numbers: size, max gap, max distance, width of a vector. Reals: vectors of unit length
// [codes, width].
struct Grouped {
  static constexpr std::string_view kName = "grouped";
  static __device__ BlockVerdict verify(const VerifyNumbers& n, const BlockTest& test,
                                        const VerifiedItem& item, VerifyScratch& s) {
    const float p = test.p(), q = test.q();
    if (test.token >= test.row.codes) return verify_by_ratio(test, p, item, s);
    GroupSums sums{p, q};
    const int size = n.whole(0), upper = (size - 1) / 2;
    add_side(n, test, upper, /*above=*/true, sums, s);
    add_side(n, test, size - 1 - upper, /*above=*/false, sums, s);
    return verify_by_ratio(test, group_mass(sums.target, sums.draft, p, q), item, s);
  }

 private:
  static __device__ void add_neighbour(const VerifyNumbers& n, const BlockTest& test, int id,
                                       GroupSums& sums) {
    const float p = test.row.probs[id];
    const double gap = p - test.row.probs[test.token];
    if ((gap < 0 ? -gap : gap) >= n.numbers[1]) return;
    const int width = n.whole(3);
    const float *a = n.reals + std::int64_t{test.token} * width,
                *b = n.reals + std::int64_t{id} * width;
    double distance = 0;
    for (int d = 0; d < width; ++d) distance += distance_term(a[d], b[d]);
    if (distance >= n.numbers[2]) return;
    sums.target += p;
    sums.draft += test.draft.prob(id);
  }

  // The `count` ids whose probability comes next above (or below) the draft's, nearest first, equal
  // ones by id.
  static __device__ void add_side(const VerifyNumbers& n, const BlockTest& test, int count,
                                  bool above, GroupSums& sums, VerifyScratch& s) {
    const float p = test.row.probs[test.token];
    Word last = 0;  // ranks fall from one id to the next
    for (int taken = 0; taken < count; ++taken) {
      Word best = 0;
      for (int id = verify_thread(); id < test.row.codes; id += verify_threads()) {
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
};

// Grouped with fixed groups. Ids: group of a code [codes], members [codes], first member of a group
// [groups + 1].
struct Partition {
  static constexpr std::string_view kName = "partition";
  static __device__ BlockVerdict verify(const VerifyNumbers& n, const BlockTest& test,
                                        const VerifiedItem& item, VerifyScratch& s) {
    const float p = test.p(), q = test.q();
    if (test.token >= test.row.codes) return verify_by_ratio(test, p, item, s);
    GroupSums sums{p, q};
    const std::int32_t *members = n.ids[1], *first = n.ids[2];
    const int group = n.ids[0][test.token];
    for (int i = first[group]; i < first[group + 1]; ++i) {
      const int id = members[i];
      if (id == test.token) continue;
      sums.target += test.row.probs[id];
      sums.draft += test.draft.prob(id);
    }
    return verify_by_ratio(test, group_mass(sums.target, sums.draft, p, q), item, s);
  }
};

// Numbers: neighbours that are read, neighbours in the table, delta, lambda. Ids: nearest codes
// [codes, in the table].
struct Relaxed {
  static constexpr std::string_view kName = "relaxed";
  static __device__ BlockVerdict verify(const VerifyNumbers& n, const BlockTest& test,
                                        const VerifiedItem& item, VerifyScratch& s) {
    if (!test.warm) return verify_by_ratio(test, mass(n, test, s), item, s);
    const float p = test.p();
    return verify_by_mass(test, p, 1.0f, p > 0 || test.wins ? 1.0f : 0.0f, item, s);
  }
  // By the row without temperature, where that is 0; `likeliest` is its first id.
  static __device__ bool wins(const VerifyNumbers& n, const BlockTest& test, int likeliest,
                              VerifyScratch& s) {
    if (test.token >= test.row.codes) return false;
    return moved_mass_wins(test.p(), mass(n, test, s), test.token, test.row.probs[likeliest],
                           likeliest);
  }

 private:
  // p and what may be borrowed of the nearest codes. Their probabilities are fetched by all
  // threads; every thread adds them up in order.
  static __device__ float mass(const VerifyNumbers& n, const BlockTest& test, VerifyScratch& s) {
    const float p = test.p();
    if (test.token >= test.row.codes) return p;
    const int neighbours = n.whole(0);
    const float bound = borrowed_bound(n.numbers[2], n.numbers[3], p);
    const std::int32_t* nearest = n.ids[0] + std::int64_t{test.token} * n.whole(1);
    float borrowed = 0;
    bool open = true;
    for (int begin = 0; open && begin < neighbours; begin += verify_threads()) {
      const int some = neighbours - begin < verify_threads() ? neighbours - begin : verify_threads();
      if (verify_thread() < some) {
        s.lanes[0][verify_thread()] = test.row.probs[nearest[begin + verify_thread()]];
      }
      __syncthreads();
      for (int i = 0; open && i < some; ++i) {
        const float more = borrowed + to_float(s.lanes[0][i]);
        open = !(more > bound);
        if (open) borrowed = more;
      }
      __syncthreads();
    }
    return p + borrowed;
  }
};

// Numbers: peak, decay.
struct Cool {
  static constexpr std::string_view kName = "cool";
  static __device__ BlockVerdict verify(const VerifyNumbers& n, const BlockTest& test,
                                        const VerifiedItem& item, VerifyScratch& s) {
    const float factor = cool_factor<float>(n.numbers[0], n.numbers[1], test.depth);
    const float p = test.p(), q = test.q();
    if (factor >= 1) return verify_by_ratio(test, factor * p, item, s);
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
};

template <typename... Rules>
struct RuleList {
  // -1 where there is none of that name.
  static constexpr int place_of(std::string_view name) {
    int at = 0, out = -1;
    ((Rules::kName == name ? void(out = at) : void(), ++at), ...);
    return out;
  }
  // Whether the rule reads rows without temperature where that is 0, and then what it finds.
  static __device__ __forceinline__ bool reads_warm(const VerifyNumbers& n) {
    int at = 0;
    bool out = false;
    static_cast<void>(((n.rule == at++ ? (out = requires { &Rules::wins; }, true) : false) || ...));
    return out;
  }
  static __device__ __forceinline__ bool wins(const VerifyNumbers& n, const BlockTest& test,
                                              int likeliest, VerifyScratch& s) {
    const auto ask = [&]<typename Rule>(Rule) {
      if constexpr (requires { &Rule::wins; }) return Rule::wins(n, test, likeliest, s);
      return false;
    };
    int at = 0;
    bool out = false;
    static_cast<void>(((n.rule == at++ ? (out = ask(Rules{}), true) : false) || ...));
    return out;
  }
  // Inlined, so that the numbers stay where a kernel's arguments are.
  static __device__ __forceinline__ BlockVerdict verify(const VerifyNumbers& n,
                                                        const BlockTest& test,
                                                        const VerifiedItem& item, VerifyScratch& s) {
    BlockVerdict out;
    int at = 0;
    static_cast<void>(
        ((n.rule == at++ ? (out = Rules::verify(n, test, item, s), true) : false) || ...));
    return out;
  }
};

// What a device can verify by.
using DeviceRules = RuleList<Exact,      //
                             Gumbel,     //
                             Grouped,    //
                             Partition,  //
                             Relaxed,    //
                             Cool>;

// The next draft of a row's position. `draft` none where nothing stood there.
__device__ inline int redraft(const VerifyNumbers& n, const BlockTest& old, const VerifiedItem& item,
                              VerifyScratch& s) {
  if (n.redraft_policy == VerifyRedraft::kGumbel) return race(old.row, noise_at(item, old.position), n.fewest, s);
  if (n.redraft_policy == VerifyRedraft::kMaximal && old.draft.kind != DraftKind::kNone) {
    const double uniform = chance_at(item, old.position, Purpose::kKeep).uniform();
    if (passes(uniform, old.p(), old.q())) return old.token;
    return draw_residual(old.row, old.draft, kNoFactor,
                         chance_at(item, old.position, Purpose::kMove), s);
  }
  return draw_residual(old.row, BlockDraft{}, kNoFactor,
                       chance_at(item, old.position, Purpose::kDraft), s);
}

}  // namespace tessera::cuda
