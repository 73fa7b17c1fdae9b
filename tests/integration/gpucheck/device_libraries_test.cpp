// cuBLASLt as a yardstick, against a library of the same functions on the host: what a product's
// layouts mean, graphs of several calls, weights in turn, ways that are refused.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "apps/lab/bench/device_bench.h"
#include "apps/lab/bench/measure.h"
#include "engine/core/dtype.h"

namespace tessera::device_libraries_test {
namespace {

const LibraryFiles kFakes{TESSERA_FAKE_LIBRARIES, {"no-such-library.so", TESSERA_FAKE_LIBRARIES}};

struct Sums {
  std::vector<std::uint16_t> x, w;
  std::vector<float> out, wanted;
  std::vector<char> workspace = std::vector<char>(LibraryProduct::kWorkspace);
  LibraryCase what;

  // Small whole numbers, so that every sum is exact; `wanted` is what the last copy gives.
  Sums(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t copies)
      : out(static_cast<std::size_t>(m * n), -1) {
    for (std::int64_t i = 0; i < m * k; ++i) {
      x.push_back(float_to_bf16(static_cast<float>(i % 7 - 3)));
    }
    for (std::int64_t i = 0; i < copies * n * k; ++i) {
      w.push_back(float_to_bf16(static_cast<float>(i % 5 - 2 + i / (n * k))));
    }
    for (std::int64_t row = 0; row < m; ++row) {
      for (std::int64_t column = 0; column < n; ++column) {
        float sum = 0;
        for (std::int64_t i = 0; i < k; ++i) {
          sum += bf16_to_float(x[static_cast<std::size_t>(row * k + i)]) *
                 bf16_to_float(w[static_cast<std::size_t>(((copies - 1) * n + column) * k + i)]);
        }
        wanted.push_back(sum);
      }
    }
    what = {m, n, k, x.data(), w.data(), copies, out.data(), workspace.data()};
  }
};

TEST(DeviceLibraries, FactsComeFromTheDriver) {
  const auto libraries = DeviceLibraries::open(0, kFakes);
  ASSERT_NE(libraries, nullptr);
  EXPECT_EQ(libraries->facts().name, "a device of the host");
  EXPECT_EQ(libraries->facts().clock_mhz, abi::kClockKilohertz);
  EXPECT_TRUE(libraries->has_products());
  EXPECT_EQ(libraries->products_version(), "cublaslt 130000");
  EXPECT_EQ(DeviceLibraries::open(1, kFakes), nullptr) << "no such device";
  EXPECT_EQ(DeviceLibraries::open(0, {"no-such-driver.so", {}}), nullptr);
  const auto bare = DeviceLibraries::open(0, {kFakes.driver, {"no-such-library.so"}});
  ASSERT_NE(bare, nullptr);
  EXPECT_FALSE(bare->has_products());
}

TEST(DeviceLibraries, ProductsAreThoseOfRowMajorMatrices) {
  const auto libraries = DeviceLibraries::open(0, kFakes);
  ASSERT_NE(libraries, nullptr);
  Sums sums(3, 5, 8, 4);
  const auto product = libraries->product(sums.what, 6);
  ASSERT_EQ(product->ways(), 3) << "one way wants more workspace than there is";
  EXPECT_FALSE(product->record(1, 4)) << "the library refuses this way";
  for (const int way : {0, 2}) {
    std::fill(sums.out.begin(), sums.out.end(), -1.0f);
    ASSERT_TRUE(product->record(way, 4));
    std::fill(sums.out.begin(), sums.out.end(), -1.0f);
    product->run();
    EXPECT_EQ(sums.out, sums.wanted) << "call 3 of way " << way << " reads copy 3 of the weights";
  }
}

TEST(DeviceLibraries, AGraphHoldsAllCallsAndNoOther) {
  const auto libraries = DeviceLibraries::open(0, kFakes);
  ASSERT_NE(libraries, nullptr);
  Sums sums(1, 2, 2, 1);
  const auto product = libraries->product(sums.what, 1);
  ASSERT_EQ(product->ways(), 1);
  for (const int calls : {2, 6}) {
    ASSERT_TRUE(product->record(0, calls));
    // Every call of this way takes a millisecond.
    const Timing timing = measure({.min_reps = 3, .min_seconds = 0}, [&] { product->run(); });
    EXPECT_GE(timing.seconds.front(), 1e-3 * calls);
  }
}

// The whole yardstick where device memory is the host's.
TEST(DeviceLibraries, StandNextToOwnProducts) {
  std::map<std::string, std::vector<nlohmann::ordered_json>> objects;
  DeviceBench bench({.device = "cpu", .quick = true, .libraries = kFakes},
                    [&](const nlohmann::ordered_json& object) {
                      if (object.at("impl") == kLibrary) {
                        EXPECT_EQ(object.at("peer_version"), "cublaslt 130000");
                      }
                      objects[object.at("name")].push_back(object);
                    });
  ASSERT_TRUE(bench.has_peer());
  run_device_probe(bench);
  ASSERT_EQ(objects["gemm.peak"].size(), 1u);
  EXPECT_GT(objects["gemm.peak"][0].at("tflops").get<double>(), 0);
  run_device_micro(bench);
  std::set<std::int64_t> rows;
  for (const auto& object : objects["linear.skinny"]) {
    if (object.at("impl") == kLibrary) rows.insert(object.at("shape").at("M").get<std::int64_t>());
  }
  EXPECT_EQ(rows, (std::set<std::int64_t>{1, 2, 16}));
  ASSERT_EQ(objects["linear.skinny.gain"].size(), 1u);
  EXPECT_GT(objects["linear.skinny.gain"][0].at("cublaslt_over_own").get<double>(), 0);
  EXPECT_EQ(objects["linear.skinny.gain"][0].at("products"), 1) << "16 rows alone";
  EXPECT_EQ(objects["linear.skinny.mean"].size(), 3u);
}

}  // namespace
}  // namespace tessera::device_libraries_test
