#include "apps/cli/doctor_devices.h"

#include "apps/runtime/memory.h"

namespace tessera {

namespace {

struct Reason {
  std::string text, fix;
};

std::string driver_text(const CudaDriver& driver) {
  return "driver" + (driver.version.empty() ? "" : " " + driver.version) + " serves CUDA " +
         cuda_version_text(driver.cuda);
}

// Why CUDA as a whole cannot be used, or else what is wrong with this device alone. CUDA's minor
// versions serve one another.
Reason why_unusable(const DeviceInfo& device, const CudaDriver& driver, int built_with) {
  if (built_with == 0) {
    return {device.description + "; " + device.why_not,
            driver.installed() ? "the " + driver_text(driver) +
                                     ": install the CUDA toolkit and build with --preset cuda"
                               : ""};
  }
  const std::string built = "built with CUDA " + cuda_version_text(built_with);
  if (!driver.installed()) {
    return {built + "; no NVIDIA driver is installed",
            "install NVIDIA's driver, if this machine has such a device"};
  }
  if (driver.cuda / 1000 < built_with / 1000) {
    return {built + "; the " + driver_text(driver),
            "install a driver that serves CUDA " + cuda_version_text(built_with) + " or newer"};
  }
  return {device.description + "; " + device.why_not, ""};
}

Finding finding_of(const DeviceReport& device, const CudaDriver& driver, int built_with) {
  const DeviceInfo& info = device.info;
  const bool cuda = info.name.starts_with("cuda");
  Finding out{Health::kGood, "device " + info.name, info.description, "", {}};
  if (!info.usable) {
    const Reason why = cuda ? why_unusable(info, driver, built_with)
                            : Reason{info.description + "; " + info.why_not, ""};
    out = {Health::kNote, out.subject, why.text, why.fix, {}};
  } else if (!device.failure.empty()) {
    out = {Health::kNote,
           out.subject,
           info.description + "; " + device.failure,
           "end other programs that use the device",
           {}};
  } else if (device.memory) {
    out.text +=
        "; " + format_bytes(device.memory->free) + " free of " + format_bytes(device.memory->total);
  }
  out.more = {{"device", info.name},
              {"usable", info.usable && device.failure.empty()},
              {"why_not", info.usable ? device.failure : out.text}};
  if (device.memory) {
    out.more.emplace_back("memory_free", std::uint64_t{device.memory->free});
    out.more.emplace_back("memory_total", std::uint64_t{device.memory->total});
  }
  if (cuda) {
    out.more.emplace_back("driver", driver.version);
    out.more.emplace_back("driver_cuda",
                          driver.installed() ? cuda_version_text(driver.cuda) : std::string());
    out.more.emplace_back("built_with_cuda",
                          built_with == 0 ? std::string() : cuda_version_text(built_with));
  }
  return out;
}

}  // namespace

std::vector<DeviceReport> device_reports() {
  std::vector<DeviceReport> out;
  for (DeviceInfo& info : list_devices()) {
    DeviceReport report{std::move(info), std::nullopt, ""};
    if (report.info.usable && report.info.name != "cpu") {
      try {
        report.memory = make_backend(report.info.name, {.threads = 1})->memory();
      } catch (const Error& error) {  // part of the result
        report.failure = format_error(error.info());
      }
    }
    out.push_back(std::move(report));
  }
  return out;
}

std::vector<Finding> device_findings(std::span<const DeviceReport> devices,
                                     const CudaDriver& driver, int built_with) {
  std::vector<Finding> out;
  for (const DeviceReport& device : devices) out.push_back(finding_of(device, driver, built_with));
  return out;
}

}  // namespace tessera
