// A pass as a device verifies it, put together out of what streams say of their rows.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/backend/row_verifier.h"
#include "engine/sampling/dist.h"
#include "engine/sampling/randomness.h"

namespace tessera {

struct DeviceBatch {
  std::vector<VerifiedItem> items;
  std::vector<VerifiedRow> rows;
  std::vector<VerifiedNode> nodes;  // of trees, one a row
  std::vector<LogitEdit> edits;     // of rows that logits processors change

  void clear() {
    items.clear();
    rows.clear();
    nodes.clear();
    edits.clear();
  }
};

// What logits processors make of row `number` of the batch.
void add_edits(DeviceBatch& batch, std::size_t number, const RowEdits& edits);

VerifiedDistribution verified_dist(const DistributionSettings& dist);
// `rows` rows of a pass from `first` on, with the chance of `random`.
VerifiedItem verified_item(const DistributionSettings& dist, const KeyedRandom& random, std::int32_t first,
                       std::int32_t rows);
// A row of item `item` by logits `cond` and, under guidance, `uncond`.
VerifiedRow verified_row(const DistributionSettings& dist, std::int32_t item, std::int64_t cond,
                     std::int64_t uncond);

}  // namespace tessera
