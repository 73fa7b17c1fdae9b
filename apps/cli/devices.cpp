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

PipelineOptions painting_options(const std::optional<std::string>& model, const DeviceFlags& device,
                                 const SizeFlags& size, std::int64_t batch_size) {
  PipelineOptions options;
  options.model = model.value_or("");
  options.device = device.device;
  options.threads = static_cast<int>(device.threads);
  options.storage = storage_choice(device);
  options.batch_size = batch_size;
  options.width = size.width.value_or(0);
  options.height = size.height.value_or(0);
  return options;
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
