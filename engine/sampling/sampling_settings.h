// The settings that shape a token's distribution, one row each, in the order of records.
#pragma once

#include "engine/core/setting.h"
#include "engine/sampling/dist.h"

namespace tessera {

namespace setting {

inline constexpr double kMinMass = 1e-6;
inline constexpr Doors kWhereSampled = Door::kGenerate | Door::kVideo | Door::kBatch | Door::kEval |
                                       Door::kField | Door::kViewer | Door::kRecord;

inline constexpr Setting kTemperature{.name = "temp",
                                      .help = "temperature; 0 = greedy",
                                      .low = 0,
                                      .high = 100,
                                      .doors = kWhereSampled | Door::kCaption | Door::kBench,
                                      .record = "temp",
                                      .word = "temperature",
                                      .start = 1,
                                      .step = 0.05};
inline constexpr Setting kTopK{.name = "top-k",
                               .kind = SettingKind::kInteger,
                               .help = "keep the k likeliest; 0 = all",
                               .low = 0,
                               .high = 1 << 20,
                               .unit = "codes",
                               .doors = kWhereSampled | Door::kCaption,
                               .record = "top_k",
                               .start = 100,
                               .step = 1};
inline constexpr Setting kTopP{.name = "top-p",
                               .help = "keep the likeliest that hold this mass",
                               .low = kMinMass,
                               .high = 1,
                               .doors = kWhereSampled | Door::kCaption,
                               .record = "top_p",
                               .start = 1,
                               .step = 0.01};
inline constexpr Setting kMinP{.name = "min-p",
                               .help = "keep what is this fraction as likely",
                               .low = 0,
                               .high = 1,
                               .doors = kWhereSampled | Door::kCaption,
                               .record = "min_p",
                               .start = 0,
                               .step = 0.01};
inline constexpr Setting kTypical{.name = "typical",
                                  .help = "keep the most typical of this mass",
                                  .low = kMinMass,
                                  .high = 1,
                                  .doors = kWhereSampled | Door::kCaption,
                                  .record = "typical",
                                  .start = 1,
                                  .step = 0.01};
// Below 1 the unconditional branch weighs more; at 0 it is alone.
inline constexpr Setting kGuidance{.name = "cfg-scale",
                                   .help = "classifier-free guidance; 1 = off",
                                   .low = 0,
                                   .high = 100,
                                   .doors = kWhereSampled | Door::kCaption,
                                   .record = "cfg_scale",
                                   .word = "guidance",
                                   .start = 3,
                                   .step = 0.5};

}  // namespace setting

// Of everything whose tokens are sampled.
const SettingGroup& sampling_group();
// Those that a model may bring values of its own for, in the order of a job's identity.
std::span<const Setting* const> preset_rows();
// Values under which every id may be drawn, whatever cuts a model brings.
SettingValues without_cuts();

// What was chosen, and the model's own for the rest.
DistributionSettings settle_dist(DistributionSettings preset, const SettingValues& chosen);
// Every row of it.
SettingValues values_of(const DistributionSettings& dist);

// The rows that records have; those that older records lack only where they change something.
void write_dist(Json& object, const DistributionSettings& dist);
// Error as JsonReader's.
DistributionSettings read_dist(const JsonReader& reader);

}  // namespace tessera
