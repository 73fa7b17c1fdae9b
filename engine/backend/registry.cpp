// The list of devices. The only file that knows which device folders were built.
#include "engine/backend/factories.h"

namespace tessera {

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> devices;
  devices.push_back({.name = "cpu", .description = describe_cpu()});
  devices.push_back({.name = "cuda",
                     .description = "CUDA toolkit at build time: " TESSERA_CUDA_TOOLKIT,
                     .usable = false,
                     .why_not = "this version computes on the CPU only"});
  return devices;
}

std::unique_ptr<Backend> make_backend(const std::string& device, const CpuOptions& options) {
  if (device == "cpu" || device == "auto") return make_cpu_backend(options);
  std::string known = "auto";
  for (const DeviceInfo& info : list_devices()) {
    if (info.usable) known += ", " + info.name;
  }
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_DEVICE",
               .where = "device",
               .expected = "one of " + known,
               .found = "'" + device + "'"});
}

}  // namespace tessera
