// Why CUDA cannot be used, in every case that there is; and what is said of devices that can.
#include "apps/cli/doctor_devices.h"

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace tessera::doctor_devices_test {
namespace {

constexpr int kBuiltWith = 13000;
const DeviceReport kNone{{.name = "cuda",
                          .description = "built with CUDA 13.0",
                          .usable = false,
                          .why_not = "insufficient driver"},
                         std::nullopt,
                         ""};

Finding finding(const DeviceReport& device, const CudaDriver& driver, int built_with) {
  return device_findings({&device, 1}, driver, built_with).front();
}

template <typename T>
T field(const Finding& finding, const std::string& name) {
  for (const auto& [key, value] : finding.more) {
    if (key == name) return std::get<T>(value);
  }
  ADD_FAILURE() << "no field " << name;
  return {};
}

TEST(DoctorDevices, NoDriver) {
  const Finding said = finding(kNone, {}, kBuiltWith);
  EXPECT_EQ(said.health, Health::kNote) << "the program works without";
  EXPECT_EQ(said.text, "built with CUDA 13.0; no NVIDIA driver is installed");
  EXPECT_NE(said.fix, "");
  EXPECT_FALSE(field<bool>(said, "usable"));
  EXPECT_EQ(field<std::string>(said, "driver_cuda"), "");
}

TEST(DoctorDevices, DriverTooOldGivesBothVersions) {
  const Finding said = finding(kNone, {"535.104.05", 12020}, kBuiltWith);
  EXPECT_EQ(said.text, "built with CUDA 13.0; the driver 535.104.05 serves CUDA 12.2");
  EXPECT_EQ(said.fix, "install a driver that serves CUDA 13.0 or newer");
  EXPECT_EQ(field<std::string>(said, "driver"), "535.104.05");
  EXPECT_EQ(field<std::string>(said, "driver_cuda"), "12.2");
  EXPECT_EQ(field<std::string>(said, "built_with_cuda"), "13.0");
  // Minor versions serve one another: then it is something else.
  EXPECT_EQ(finding(kNone, {"580.65.06", 13000}, 13020).text,
            "built with CUDA 13.0; insufficient driver");
}

TEST(DoctorDevices, DeviceTooOldIsOneOfSeveral) {
  const DeviceReport devices[] = {
      {{.name = "cpu", .description = "AVX2+FMA, 2 threads"}, std::nullopt, ""},
      {{.name = "cuda:0", .description = "a card, compute 9.0"},
       DeviceMemory{std::size_t{70} << 30, std::size_t{79} << 30},
       ""},
      {{.name = "cuda:1",
        .description = "an old card, compute 7.5",
        .usable = false,
        .why_not = "compute capability 8.0 or newer is needed"},
       std::nullopt,
       ""},
      {{.name = "cuda:2", .description = "a busy card, compute 9.0"}, std::nullopt, "E_CUDA"}};
  const std::vector<Finding> said = device_findings(devices, {"580.65.06", 13000}, kBuiltWith);
  ASSERT_EQ(said.size(), 4u);
  EXPECT_EQ(said[0].health, Health::kGood);
  EXPECT_EQ(said[1].health, Health::kGood);
  EXPECT_EQ(said[1].text, "a card, compute 9.0; 70.0 GiB free of 79.0 GiB");
  EXPECT_EQ(field<std::uint64_t>(said[1], "memory_free"), std::uint64_t{70} << 30);
  EXPECT_EQ(field<std::uint64_t>(said[1], "memory_total"), std::uint64_t{79} << 30);
  EXPECT_EQ(said[2].health, Health::kNote);
  EXPECT_EQ(said[2].text, "an old card, compute 7.5; compute capability 8.0 or newer is needed");
  EXPECT_EQ(said[3].health, Health::kNote);
  EXPECT_FALSE(field<bool>(said[3], "usable"));
}

TEST(DoctorDevices, BuiltWithoutSaysWhatTheMachineHas) {
  const DeviceReport without{
      {.name = "cuda", .description = "none", .usable = false, .why_not = "built without"},
      std::nullopt,
      ""};
  EXPECT_EQ(finding(without, {}, 0).text, "none; built without");
  EXPECT_EQ(finding(without, {}, 0).fix, "") << "nothing to mend on a machine without such a card";
  EXPECT_NE(finding(without, {"580.65.06", 13000}, 0).fix.find("580.65.06 serves CUDA 13.0"),
            std::string::npos);
}

TEST(CudaDriver, IsAskedThroughItsLibrary) {
  const TempFolder folder;
  put_file(folder / "version",
           "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15\n"
           "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n");
  const CudaDriver there = find_cuda_driver(TESSERA_FAKE_DRIVER, folder / "version");
  EXPECT_EQ(there.version, "535.104.05");
  EXPECT_EQ(there.cuda, 12020);
  put_file(folder / "open",
           "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n");
  EXPECT_EQ(find_cuda_driver(TESSERA_FAKE_DRIVER, folder / "open").version, "580.65.06");
  const CudaDriver none = find_cuda_driver("libtessera_no_such_driver.so", folder / "nothing");
  EXPECT_FALSE(none.installed());
  EXPECT_EQ(none.version, "");
}

TEST(CudaDriver, VersionsAreText) {
  EXPECT_EQ(cuda_version_text(13000), "13.0");
  EXPECT_EQ(cuda_version_text(12080), "12.8");
  EXPECT_EQ(cuda_version_of("13.0.88"), 13000);
  EXPECT_EQ(cuda_version_of("12.8.93"), 12080);
  for (const char* bad : {"", "none", "13", "13."}) EXPECT_EQ(cuda_version_of(bad), 0) << bad;
}

}  // namespace
}  // namespace tessera::doctor_devices_test
