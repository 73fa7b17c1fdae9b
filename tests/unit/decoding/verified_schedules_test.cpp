// Random schedules where a device verifies: each stream writes what it writes alone there.
#include <gtest/gtest.h>

#include "tests/support/devices.h"
#include "tests/unit/decoding/schedule_run.h"

namespace tessera::testing::verified_schedules_test {
namespace {

class VerifiedSchedules : public OnDevice {};

TEST_P(VerifiedSchedules, EachStreamWritesWhatItWritesAlone) {
  const bool slow = GetParam().name == "simt";
  const SmallText small = small_text_on(std::move(backend), small_text_spec());
  const StreamPool pool(small.model, slow ? 9 : 36);
  for (const ScheduledMethod& way : scheduled_methods()) {
    // Streams of one grammar alone share a device's memory of distributions.
    if (way.method.drafter == "neighbour-law") continue;
    if (slow && (way.name == "auto" || way.name == "lookup" || way.name == "kseq")) continue;
    ScheduleRun run(pool, way);
    for (std::uint32_t seed = 0; seed < (slow ? 3u : 30u); ++seed) {
      ASSERT_EQ(run.wrong(seed), 0u) << way.name << ", schedule " << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, VerifiedSchedules, ::testing::ValuesIn(cuda_devices()),
                         device_name);

}  // namespace
}  // namespace tessera::testing::verified_schedules_test
