// The phases of tessera-gpu-check on devices with memory of their own: one whose memory the host
// cannot touch and whose ops run late, and the simulated CUDA device, which judges rows itself.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "apps/bench/device_bench.h"
#include "tests/support/devices.h"
#include "tests/support/guarded_backend.h"

namespace tessera {
namespace {

class DevicePhases : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    static const bool offered = [] {
      offer_guarded_devices();
      if (tessera::testing::TestDevice{"simt"}.open(1) == nullptr) return true;
      offer_device({{.name = "simt:0", .description = "simulated"},
                    [](const CpuOptions&, const CudaOptions&) {
                      return tessera::testing::TestDevice{"simt"}.open(1);
                    }});
      return true;
    }();
    ASSERT_TRUE(offered);
  }
};

TEST_P(DevicePhases, RunToTheirEnd) {
  bool there = false;
  for (const DeviceInfo& info : list_devices()) there = there || info.name == GetParam();
  if (!there) GTEST_SKIP() << "no " << GetParam() << " in this build";
  std::set<std::string> names;
  DeviceBench bench({.device = GetParam(), .quick = true},
                    [&](const nlohmann::ordered_json& object) {
                      EXPECT_NE(object.at("device").at("name"), "cpu");
                      names.insert(object.at("name"));
                    });
  run_device_probe(bench);
  run_device_micro(bench);
  run_device_macro(bench, {"test:tiny"});
  for (const char* name : {"mem.read", "mem.copy", "graph.gap", "linear.skinny", "attn.window",
                           "fuse.qkv_rope_cache", "fuse.silu_mul", "fuse.addrms", "step.sweep"}) {
    EXPECT_TRUE(names.contains(name)) << "nothing of " << name;
  }
  EXPECT_EQ(names.contains("law.accept"), bench.backend().row_judges() != nullptr);
}

INSTANTIATE_TEST_SUITE_P(Devices, DevicePhases, ::testing::Values("guarded:0", "simt:0"));

}  // namespace
}  // namespace tessera
