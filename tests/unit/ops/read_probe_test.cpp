// The kernel that benchmarks divide by reads every number once.
#include "engine/backend/read_probe.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/devices.h"

namespace tessera::testing::read_probe_test {
namespace {

class ReadProbe : public OnDevice {
 protected:
  bool read(ConstTensorView x, TensorView sums) {
#ifdef TESSERA_SIMULATED_DEVICE
    if (GetParam().name == "simt") return simt::read_all(*backend, x, sums);
#endif
    return read_probe(*backend, x, sums);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, ReadProbe, ::testing::ValuesIn(test_devices()), device_name);

TEST_P(ReadProbe, SumsEveryNumberOnceOrSaysThatItCannot) {
  for (const std::int64_t count : {std::int64_t{4}, std::int64_t{8192}, std::int64_t{100'004}}) {
    std::vector<float> ones(static_cast<std::size_t>(count), 1.0f);
    const Tensor x = upload(ones, {count});
    Tensor sums = upload(std::vector<float>(kReadProbeSums, 0.0f), {kReadProbeSums});
    if (GetParam().name == "cpu") {
      EXPECT_FALSE(read(x.view(), sums.view()));
      continue;
    }
    ASSERT_TRUE(read(x.view(), sums.view()));
    const std::vector<float> parts = download(sums.view());
    EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), 0.0), static_cast<double>(count));
  }
}

}  // namespace
}  // namespace tessera::testing::read_probe_test
