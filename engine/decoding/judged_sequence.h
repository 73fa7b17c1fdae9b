// The seam between streams that a device judges and whoever puts passes together: a stream says
// what each of its rows is about and takes the records that come back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/backend/row_judge.h"
#include "engine/decoding/meters.h"
#include "engine/sampling/law.h"
#include "engine/sampling/randomness.h"

namespace tessera {

// The pass that is put together.
struct JudgedBatch {
  std::vector<JudgedItem> items;
  std::vector<JudgedRow> rows;
  std::vector<JudgedNode> nodes;  // of trees, one a row

  void clear() {
    items.clear();
    rows.clear();
    nodes.clear();
  }
};

class JudgedSequence {
 public:
  virtual ~JudgedSequence() = default;
  // The next pass: appends this item and its rows, whose logits are rows of the pass's from `cond`
  // on, and from `uncond` on under guidance.
  virtual void describe(std::int32_t cond, std::int32_t uncond, JudgedBatch& batch) = 0;
  // Its records, of which the first item.sound count, at least one.
  virtual void take(std::span<const RowRecord> records, const JudgedCount& item) = 0;
  // When the drafter is through: appends laws of its last pass that a memory is to keep.
  virtual void remember(std::vector<KeptLaw>&) {}
  // When the drafter is through: appends what is to be drawn before the rows are complete, and
  // takes it, width + 1 entries a draw; by a memory, one.
  virtual void wish(std::vector<JudgedDraw>&) {}
  virtual void take_drawn(std::span<const DrawnId>) {}
};

JudgedLaw judged_law(const LawSettings& law);
// `rows` rows of a pass from `first` on, with the chance of `random`.
JudgedItem judged_item(const LawSettings& law, const KeyedRandom& random, std::int32_t first,
                       std::int32_t rows);
// A row of item `item` by logits `cond` and, under guidance, `uncond`.
JudgedRow judged_row(const LawSettings& law, std::int32_t item, std::int64_t cond,
                     std::int64_t uncond);
DraftKind draft_kind(LawKind kind);
RowFigures figures_of(const RowRecord& record);

}  // namespace tessera
