#include "engine/decoding/device_batch.h"
#include "engine/core/index.h"

namespace tessera {

void add_edits(DeviceBatch& batch, std::size_t number, const RowEdits& edits) {
  VerifiedRow& row = batch.rows[number];
  row.edits_begin = static_cast<std::int32_t>(batch.edits.size());
  row.edits = static_cast<std::int32_t>(edits.edits.size());
  row.only = edits.only ? 1 : 0;
  batch.edits.insert(batch.edits.end(), edits.edits.begin(), edits.edits.end());
}

VerifiedDistribution verified_dist(const DistributionSettings& dist) {
  return {.guidance = dist.guidance,
          .temperature = dist.temperature,
          .top_p = dist.top_p,
          .min_p = dist.min_p,
          .typical = dist.typical,
          .top_k = dist.top_k};
}

VerifiedItem verified_item(const DistributionSettings& dist, const KeyedRandom& random, std::int32_t first,
                       std::int32_t rows) {
  return {.dist = verified_dist(dist),
          .key = random.key(),
          .pass = random.pass(),
          .first = first,
          .rows = rows};
}

VerifiedRow verified_row(const DistributionSettings& dist, std::int32_t item, std::int64_t cond,
                     std::int64_t uncond) {
  VerifiedRow row{.item = item, .cond = narrow<std::int32_t>(cond)};
  if (dist.guided()) row.uncond = narrow<std::int32_t>(uncond);
  return row;
}

}  // namespace tessera
