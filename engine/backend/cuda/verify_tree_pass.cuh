// The kernels of drafts that branch: a block an item walks its tree from the root over rows whose
// distributions are made, a block a row makes drafts of those after the walk's end, and a block a node
// draws candidates of the next tree. Device code of row_verifier.cu alone.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/backend/cuda/verify_pass.cuh"
#include "engine/backend/cuda/verify_trees.cuh"

namespace tessera::cuda {

// The item's rows before the first unsound one.
__device__ inline int sound_rows(const PassArrays& pass, const VerifiedItem& item, VerifyScratch& s) {
  int sound = item.rows;
  for (int begin = 0; begin < item.rows; begin += verify_threads()) {
    const int j = begin + verify_thread();
    const bool broken = j < item.rows && pass.records[item.first + j].unsound >= 0;
    const int place = first_place(broken, j, item.rows, s);
    sound = place < sound ? place : sound;
  }
  return sound;
}

// Collects the candidates after a row that stand before `sound`; how many.
__device__ inline int candidates_after(const PassArrays& pass, const VerifiedItem& item, int at,
                                        int sound, TriedScratch& tried) {
  const VerifiedNode* const nodes = pass.nodes + item.first;
  __syncthreads();  // everyone is through with the last ones
  int count = 0;
  for (int c = nodes[at].child; c >= 0; c = nodes[c].sibling) {
    if (c >= sound || count == kSiblings) continue;
    if (verify_thread() == 0) {
      tried.tokens[count] = nodes[c].token;
      tried.rows[count] = c;
    }
    ++count;
  }
  __syncthreads();
  return count;
}

__global__ __launch_bounds__(kVerifyLanes, 1) void walk_tree(PassArrays pass, VerifyNumbers numbers) {
  __shared__ VerifyScratch s;
  __shared__ TriedScratch tried;
  const int number = static_cast<int>(blockIdx.x);
  const VerifiedItem& item = pass.items[number];
  VerifiedCount out;
  out.sound = sound_rows(pass, item, s);
  for (int at = out.sound > 0 ? 0 : -1; at >= 0;) {
    const VerifiedRow& row = pass.rows[item.first + at];
    const BlockTest first = test_of(pass, item.first + at);
    const BlockSiblings test{first.row,
                             first.draft,
                             pass.masses + std::int64_t{number} * pass.codes,
                             tried,
                             candidates_after(pass, item, at, out.sound, tried),
                             first.position};
    RowRecord record;
    BlockChoice choice;
    if (row.forced >= 0) {
      choice = choose_equal(test, row.forced);
      put_forced(row.forced, record);
    } else {
      if (test.count > 0) {
        choice = choose(numbers, test, item, s);
      } else {
        choice.token = race(test.row, noise_at(item, test.position), numbers.fewest, s);
      }
      put_figures(test.row, choice.token, record, s);
      if (numbers.likeliest) record.likeliest = likeliest_of(test.row, s);
    }
    if (test.count > 0) {
      record.accepted = choice.chosen >= 0 ? 1 : 0;
      record.strict = choice.strict;
      record.chance = row.forced >= 0 ? 0.0f : prob_of(test, tried.tokens[0]);
      ++out.tested;
    }
    record.next = choice.chosen >= 0 ? tried.rows[choice.chosen] : -1;
    out.right += choice.chosen >= 0 ? 1 : 0;
    out.last = at;
    if (verify_thread() == 0) pass.records[item.first + at] = record;
    at = record.next;
  }
  if (verify_thread() == 0) pass.item_records[number] = out;
}

// Below a row along first candidates to a place; -1 where there is none before `sound`.
__device__ inline int row_below(const PassArrays& pass, const VerifiedItem& item, int at, int place,
                                int sound) {
  while (at >= 0 && pass.rows[item.first + at].place < place) {
    at = pass.nodes[item.first + at].child;
  }
  return at < sound ? at : -1;
}

__global__ __launch_bounds__(kVerifyLanes, 1) void redraft_tree(PassArrays pass,
                                                               VerifyNumbers numbers) {
  __shared__ VerifyScratch s;
  const int number = static_cast<int>(blockIdx.x);
  const VerifiedRow& row = pass.rows[number];
  const VerifiedItem& item = pass.items[row.item];
  const VerifiedCount& count = pass.item_records[row.item];
  if (numbers.redraft_policy == VerifyRedraft::kDrop || count.sound == 0) return;
  const int end = count.last;
  if (row.place <= pass.rows[item.first + end].place) return;
  int chosen = row_below(pass, item, end, row.place, count.sound);
  if (chosen < 0) chosen = row_below(pass, item, 0, row.place, count.sound);
  if (chosen != number - item.first) return;
  int token = row.forced;
  double allowed[1] = {0};
  if (row.forced < 0) {
    BlockTest old = test_of(pass, number);
    if (row.draft < 0) old.draft.kind = DraftKind::kNone;
    token = redraft(numbers, old, item, s);
    for (int id = verify_thread(); id < pass.codes; id += verify_threads()) {
      allowed[0] += old.row.probs[id] > 0 ? 1 : 0;
    }
    fold_lanes(allowed, s);
  }
  if (verify_thread() != 0) return;
  pass.records[number].redraft = token;
  pass.records[number].next = static_cast<int>(allowed[0]);
}

// Of one call.
struct DrawArrays {
  const VerifiedDraw* draws;
  const float* dists;  // of the last pass
  DrawnId* drawn;     // [draws, width + 1]
  int codes, width;
};

__global__ __launch_bounds__(kVerifyLanes, 1) void draw_candidates(DrawArrays arrays,
                                                                  VerifyNumbers numbers) {
  __shared__ VerifyScratch s;
  __shared__ int gone[kSiblings + 1];
  const int number = static_cast<int>(blockIdx.x);
  const VerifiedDraw& draw = arrays.draws[number];
  const float* const dist = arrays.dists + std::int64_t{draw.dist_row} * arrays.codes;
  DrawnId* const to = arrays.drawn + std::int64_t{number} * (arrays.width + 1);
  const bool again =
      numbers.siblings == VerifySiblings::kRecursive || numbers.siblings == VerifySiblings::kKSeq;
  int held = 0;
  if (draw.without >= 0 && !again) {
    if (verify_thread() == 0) gone[0] = draw.without;
    held = 1;
  }
  if (verify_thread() == 0) to[0] = {draw.asked, draw.asked < 0 ? 0.0f : dist[draw.asked]};
  __syncthreads();
  for (int i = 0; i < draw.count; ++i) {
    const int token = next_candidate(numbers.siblings, {dist, gone, held}, arrays.codes, draw, i, s);
    if (verify_thread() == 0) to[i + 1] = {token, token < 0 ? 0.0f : dist[token]};
    if (token < 0 || again) continue;
    if (verify_thread() == 0) gone[held] = token;
    ++held;
    __syncthreads();
  }
}

}  // namespace tessera::cuda
