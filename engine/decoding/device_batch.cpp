#include "engine/decoding/device_batch.h"

namespace tessera {

JudgedLaw judged_law(const LawSettings& law) {
  return {.guidance = law.guidance,
          .temperature = law.temperature,
          .top_p = law.top_p,
          .min_p = law.min_p,
          .typical = law.typical,
          .top_k = law.top_k};
}

JudgedItem judged_item(const LawSettings& law, const KeyedRandom& random, std::int32_t first,
                       std::int32_t rows) {
  return {.law = judged_law(law),
          .key = random.key(),
          .pass = random.pass(),
          .first = first,
          .rows = rows};
}

JudgedRow judged_row(const LawSettings& law, std::int32_t item, std::int64_t cond,
                     std::int64_t uncond) {
  JudgedRow row{.item = item, .cond = static_cast<std::int32_t>(cond)};
  if (law.guided()) row.uncond = static_cast<std::int32_t>(uncond);
  return row;
}

}  // namespace tessera
