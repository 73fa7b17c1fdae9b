// Device flags and the list of devices.
#include "apps/cli/devices.h"

#include <nlohmann/json.hpp>

#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "engine/backend/backend.h"

namespace tessera {

std::optional<DType> storage_choice(const DeviceFlags& flags) {
  if (flags.dtype == "f32") return DType::kF32;
  if (flags.dtype == "bf16") return DType::kBF16;
  return std::nullopt;
}

int print_devices(const Session& session) {
  for (const DeviceInfo& device : list_devices()) {
    if (session.json) {
      print_json_line({{"device", device.name},
                       {"description", device.description},
                       {"usable", device.usable},
                       {"why_not", device.why_not}});
    } else {
      print_line(device.name + "  " + device.description +
                 (device.usable ? "" : "  (not usable: " + device.why_not + ")"));
    }
  }
  return 0;
}

}  // namespace tessera
