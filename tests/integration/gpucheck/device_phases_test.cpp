// The phases of tessera-lab gpu-check on devices with memory of their own: one whose memory the host
// cannot touch and whose ops run late, and the simulated CUDA device, which verifies rows itself.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/lab/bench/device_bench.h"
#include "engine/backend/row_verifier.h"
#include "tests/support/devices.h"
#include "tests/support/guarded_backend.h"

namespace tessera::device_phases_test {
namespace {

class DevicePhases : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    static const bool offered = [] {
      offer_guarded_devices();
      if (tessera::testing::TestDevice{"simt"}.open(1) == nullptr) return true;
      offer_device({{.name = "simt:0", .description = "simulated"},
                    [](const CpuOptions&, const CudaOptions& cuda) {
                      return tessera::testing::TestDevice{"simt", cuda.deterministic}.open(1);
                    }});
      return true;
    }();
    ASSERT_TRUE(offered);
  }
};

// Objects of one phase. `there` is false where this build has no such device.
class Phase {
 public:
  explicit Phase(const std::string& device) {
    for (const DeviceInfo& info : list_devices()) there = there || info.name == device;
    if (!there) return;
    bench.emplace(DeviceBenchOptions{.device = device, .quick = true},
                  [this](const nlohmann::ordered_json& object) {
                    EXPECT_NE(object.at("device").at("name"), "cpu");
                    EXPECT_EQ(object.at("quick"), true);
                    objects[object.at("name")].push_back(object);
                  });
  }
  bool verifiers() { return bench->backend().row_verifiers() != nullptr; }

  bool there = false;
  std::optional<DeviceBench> bench;
  std::map<std::string, std::vector<nlohmann::ordered_json>> objects;
};

TEST_P(DevicePhases, RunToTheirEnd) {
  Phase phase(GetParam());
  if (!phase.there) GTEST_SKIP() << "no " << GetParam() << " in this build";
  run_device_probe(*phase.bench);
  run_device_micro(*phase.bench);
  for (const char* name :
       {"mem.read", "mem.copy", "graph.gap", "linear.skinny", "linear.skinny.gain", "attn.window",
        "fuse.qkv_rope_cache", "fuse.silu_mul", "fuse.addrms"}) {
    EXPECT_TRUE(phase.objects.contains(name)) << "nothing of " << name;
  }
  EXPECT_EQ(phase.objects.contains("law.accept"), phase.verifiers());
}

TEST_P(DevicePhases, SweepsAreFastAndDeterministic) {
  Phase phase(GetParam());
  if (!phase.there) GTEST_SKIP() << "no " << GetParam() << " in this build";
  run_device_macro(*phase.bench, {"test:tiny"});
  ASSERT_EQ(phase.objects["step.sweep"].size(), 2u);
  ASSERT_EQ(phase.objects["step.deterministic"].size(), 2u);
  for (const auto& object : phase.objects["step.sweep"]) {
    EXPECT_FALSE(object.at("deterministic"));
    EXPECT_GT(object.at("predicted_us").get<double>(), 0);
    EXPECT_TRUE(object.at("miss_percent").is_number());
  }
  for (const auto& object : phase.objects["step.deterministic"]) {
    EXPECT_TRUE(object.at("deterministic"));
    EXPECT_GT(object.at("over_fast").get<double>(), 0);
  }
}

TEST_P(DevicePhases, WhatTheHostReadsOfAPassIsCounted) {
  Phase phase(GetParam());
  if (!phase.there) GTEST_SKIP() << "no " << GetParam() << " in this build";
  run_device_dist(*phase.bench, {"test:tiny"});
  ASSERT_EQ(phase.objects["law.share"].size(), 2u);
  for (const auto& object : phase.objects["law.share"]) {
    EXPECT_EQ(object.at("judged_by"), phase.verifiers() ? "device" : "host");
    EXPECT_EQ(object.at("host_reads_a_pass"), 1.0);
    const auto rows = object.at("shape").at("M").get<double>();
    const double bytes = object.at("host_bytes_a_pass");
    if (phase.verifiers()) {
      // A record a row of one branch, at most, and one count.
      EXPECT_LE(bytes, rows / 2 * sizeof(RowRecord) + sizeof(VerifiedCount));
      EXPECT_GT(bytes, sizeof(RowRecord));
    } else {
      EXPECT_EQ(bytes, rows * 64 * 4) << "all logits of 64 codes";
    }
  }
}

TEST_P(DevicePhases, WholeImagesFollowTheirTraces) {
  Phase phase(GetParam());
  if (!phase.there) GTEST_SKIP() << "no " << GetParam() << " in this build";
  run_device_image(*phase.bench, {"test:null"});
  for (const char* name : {"image.plain", "image.sjd", "image.coupled", "image.gsd"}) {
    ASSERT_TRUE(phase.objects.contains(name)) << "nothing of " << name;
    const bool plain = name == std::string("image.plain");
    EXPECT_EQ(phase.objects[name].size(), plain ? 1u : 2u);
    for (const auto& object : phase.objects[name]) {
      EXPECT_EQ(object.at("tokens"), 4);
      EXPECT_EQ(object.contains("replayed"), !plain);
      EXPECT_TRUE(object.at("quality").is_null());
      EXPECT_GT(object.at("gain_over_plain").at("median").get<double>(), 0);
      double parts = 0;
      for (const char* part : {"prefill", "passes", "law", "vq"}) {
        EXPECT_GE(object.at("split_us").at(part).get<double>(), 0) << name << ", " << part;
        parts += object.at("split_us").at(part).get<double>();
      }
      EXPECT_NEAR(parts, object.at("split_us").at("total").get<double>(), 0.1);
    }
  }
  EXPECT_EQ(phase.objects["image.vq"].size(), 2u);
}

TEST_P(DevicePhases, PromptsOfTilesAreTimed) {
  Phase phase(GetParam());
  if (!phase.there) GTEST_SKIP() << "no " << GetParam() << " in this build";
  run_device_prefill(*phase.bench);
  for (const char* name : {"prefill.llava", "prefill.ttft", "vit.encode"}) {
    ASSERT_EQ(phase.objects[name].size(), 1u) << name;
    EXPECT_GT(phase.objects[name][0].at("flops").get<double>(), 0);
    EXPECT_GT(phase.objects[name][0].at("tflops").get<double>(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, DevicePhases, ::testing::Values("guarded:0", "simt:0"));

}  // namespace
}  // namespace tessera::device_phases_test
