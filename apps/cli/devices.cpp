// Device flags and the list of devices.
#include "apps/cli/devices.h"

#include <nlohmann/json.hpp>

#include "apps/cli/doctor_devices.h"
#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "apps/runtime/memory.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"

namespace tessera {

std::optional<DType> storage_choice(const DeviceFlags& flags) {
  return storage_named(flags.dtype);
}

CudaOptions cuda_choice(const DeviceFlags& flags) {
  return {.deterministic = flags.deterministic, .tf32 = flags.tf32};
}

GenerateOptions generation_options(const std::optional<std::string>& model, const DeviceFlags& device,
                                 const SizeFlags& size, std::int64_t batch_size) {
  GenerateOptions options;
  options.model = model.value_or("");
  options.device = device.device;
  options.cuda = cuda_choice(device);
  options.threads = narrow<int>(device.threads);
  options.storage = storage_choice(device);
  options.batch_size = batch_size;
  options.width = size.width.value_or(0);
  options.height = size.height.value_or(0);
  return options;
}

void text_encoder_flag(CLI::App& app, std::optional<std::string>& target) {
  text_flag(app, "--text-encoder", target,
            "folder of the T5 whose rows the model reads; else found in or next to the model's");
}

int print_devices(const Session& session) {
  for (const auto& [device, memory, failure] : device_reports()) {
    const bool usable = device.usable && failure.empty();
    const std::string& why_not = device.usable ? failure : device.why_not;
    if (session.json) {
      nlohmann::ordered_json line = {{"device", device.name},
                                     {"description", device.description},
                                     {"usable", usable},
                                     {"why_not", why_not}};
      if (memory) {
        line["memory_free"] = memory->free;
        line["memory_total"] = memory->total;
      }
      print_json_line(line);
    } else {
      print_line(
          device.name + "  " + device.description +
          (memory ? "; " + format_bytes(memory->free) + " free of " + format_bytes(memory->total)
                  : "") +
          (usable ? "" : "  (not usable: " + why_not + ")"));
    }
  }
  return 0;
}

}  // namespace tessera
