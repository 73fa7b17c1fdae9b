// What `tessera doctor` says of devices: which there are, how much of their memory is free, and why
// CUDA cannot be used where it cannot.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/cli/findings.h"
#include "apps/runtime/cuda_driver.h"
#include "engine/backend/backend.h"

namespace tessera {

struct DeviceReport {
  DeviceInfo info;
  std::optional<DeviceMemory> memory;  // empty where the host's is used
  std::string failure;                 // why a device that is listed could not be opened
};

// Every device of list_devices(); those with memory of their own are opened to ask for it.
std::vector<DeviceReport> device_reports();

// `built_with` is the version of the CUDA toolkit whose code this program holds; 0 = none.
std::vector<Finding> device_findings(std::span<const DeviceReport> devices,
                                     const CudaDriver& driver, int built_with);

}  // namespace tessera
