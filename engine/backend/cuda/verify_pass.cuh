// What the kernels that verify a pass share: the pass as they see it, and the records they write.
// Device code only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/backend/cuda/verify_rules.cuh"
#include "engine/core/index.h"

namespace tessera::cuda {

// What a budget needs of a row's test: the mass may become less, by what the tests before it spend.
struct BoundedTest {
  int bounded = 0;
  float p = 0, q = 0, mass = 0;
};

// Of one pass, all on the device.
struct PassArrays {
  const float* logits;
  const VerifiedItem* items;
  const VerifiedRow* rows;
  const VerifiedNode* nodes;    // null where drafts stand in a line
  const std::int64_t* sides;  // where in `distributions` this pass writes, and where the last one wrote
  float *processed, *dists;    // [rows, codes], [sides, kept, codes]
  const float* guest;         // [any, codes]
  float* masses;              // [items, codes], of trees
  BoundedTest* tests;         // [rows]; null without budgets
  RowRecord* records;
  VerifiedCount* item_records;
  const LogitEdit* edits;     // null where no row has any
  int codes;
};

__device__ inline BlockRow row_of(const PassArrays& pass, int row) {
  const int keep = pass.rows[row].keep;
  return {pass.processed + std::int64_t{row} * pass.codes,
          pass.dists + pass.sides[0] + std::int64_t{keep < 0 ? row : keep} * pass.codes,
          pass.codes};
}

__device__ inline BlockEdits edits_of(const PassArrays& pass, const VerifiedRow& row) {
  return {pass.edits + row.edits_begin, row.edits, row.only != 0};
}

__device__ inline BlockTest test_of(const PassArrays& pass, int number) {
  const VerifiedRow& row = pass.rows[number];
  const VerifiedItem& item = pass.items[row.item];
  BlockTest out;
  out.row = row_of(pass, number);
  out.draft.kind = row.kind;
  out.draft.token = out.token = row.draft;
  const bool guest = row.kind == DraftKind::kGuest;
  if (guest) out.draft.kind = DraftKind::kRow;
  out.draft.row =
      (guest ? pass.guest : pass.dists + pass.sides[1]) + std::int64_t{row.dist_row} * pass.codes;
  out.draft.uniform = 1.0f / to_float(pass.codes);
  out.depth = static_cast<std::uint32_t>(row.place);
  out.position = item.position + out.depth;
  return out;
}

// The record of a token that stands by a row.
__device__ inline void put_figures(const BlockRow& row, int token, RowRecord& record,
                                   VerifyScratch& s) {
  const float own = row.probs[token];
  const double total = row.logits[token] - log_of_probability(own);
  double sums[3] = {0, 0, 0};
  for (int id = verify_thread(); id < row.codes; id += verify_threads()) {
    const float p = row.probs[id];
    if (!(p > 0)) continue;
    if (comes_before(p, id, own, token)) sums[0] += p;
    const double log_p = row.logits[id] - total;
    const double share = p * log_p;
    sums[1] += share;
    sums[2] += share * log_p;
  }
  fold_lanes(sums, s);
  record.token = token;
  record.probability = own;
  record.above = sums[0];
  record.mean = sums[1];
  record.spread = sums[2];
}

// By probability, not by logit: rounding makes equals.
__device__ inline int likeliest_of(const BlockRow& row, VerifyScratch& s) {
  return id_of(heaviest(Plain{row.probs}, row.codes, s));
}

__device__ inline void put_forced(int forced, RowRecord& record) {
  record.token = record.redraft = forced;
  record.probability = 1;
  record.above = record.mean = record.spread = 0;
}

// Lowest place of the block at which something holds, `none` where it holds nowhere.
__device__ inline int first_place(bool holds, int place, int none, VerifyScratch& s) {
  const Word found = largest_word(holds ? ranked(1, place) : 0, s);
  return found == 0 ? none : id_of(found);
}

}  // namespace tessera::cuda
