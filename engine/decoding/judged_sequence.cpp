#include "engine/decoding/judged_sequence.h"

namespace tessera {

JudgedLaw judged_law(const LawSettings& law) {
  return {.guidance = law.guidance,
          .temperature = law.temperature,
          .top_p = law.top_p,
          .min_p = law.min_p,
          .typical = law.typical,
          .top_k = law.top_k};
}

DraftKind draft_kind(LawKind kind) {
  if (kind == LawKind::kDense) return DraftKind::kRow;
  return kind == LawKind::kUniform ? DraftKind::kUniform : DraftKind::kPoint;
}

RowFigures figures_of(const RowRecord& record) {
  return {record.probability, record.above, record.mean, record.spread};
}

}  // namespace tessera
