// The backend that a test program runs on: the CPU, or what TESSERA_TEST_DEVICE names ("simt", the
// simulated device, or "cuda"). ctest runs some programs once a device; where a device is missing
// the program ends with a code that ctest shows as skipped.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "engine/backend/backend.h"
#include "tests/support/simt/simulated_device.h"

namespace tessera {

inline std::string chosen_device() {
  const char* name = std::getenv("TESSERA_TEST_DEVICE");
  return name == nullptr ? "cpu" : name;
}

inline std::unique_ptr<Backend> chosen_backend(const CpuOptions& options = {}) {
  constexpr int kSkipped = 77;
  constexpr CudaOptions kEveryRowAlike{.deterministic = true};
  const std::string device = chosen_device();
#ifdef TESSERA_SIMULATED_DEVICE
  if (device == "simt") return simt::make_device(options, kEveryRowAlike);
#endif
  if (device == "cpu") return make_backend("cpu", options);
  for (const DeviceInfo& info : list_devices()) {
    if (device == "cuda" && info.name == "cuda:0" && info.usable) {
      return make_backend(info.name, options, kEveryRowAlike);
    }
  }
  std::printf("skipped: no usable device '%s' here\n", device.c_str());
  std::exit(kSkipped);
}

}  // namespace tessera
