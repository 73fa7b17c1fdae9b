// A pass as a device verifies it, put together out of what streams say of their rows.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/backend/row_judge.h"
#include "engine/sampling/law.h"
#include "engine/sampling/randomness.h"

namespace tessera {

struct DeviceBatch {
  std::vector<JudgedItem> items;
  std::vector<JudgedRow> rows;
  std::vector<JudgedNode> nodes;  // of trees, one a row

  void clear() {
    items.clear();
    rows.clear();
    nodes.clear();
  }
};

JudgedLaw judged_law(const LawSettings& law);
// `rows` rows of a pass from `first` on, with the chance of `random`.
JudgedItem judged_item(const LawSettings& law, const KeyedRandom& random, std::int32_t first,
                       std::int32_t rows);
// A row of item `item` by logits `cond` and, under guidance, `uncond`.
JudgedRow judged_row(const LawSettings& law, std::int32_t item, std::int64_t cond,
                     std::int64_t uncond);

}  // namespace tessera
