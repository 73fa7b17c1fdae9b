// The list of devices. The only file that knows which device folders were built.
#include <algorithm>
#include <mutex>

#include "engine/backend/factories.h"
#include "engine/backend/precise_products.h"
#include "engine/backend/read_probe.h"

namespace tessera {

namespace {

struct Offers {
  std::mutex mutex;
  std::vector<DeviceOffer> list;
};

Offers& offers() {
  static Offers all;
  return all;
}

std::vector<DeviceOffer> devices_here() {
  std::vector<DeviceOffer> devices;
  devices.push_back(
      {{.name = "cpu", .description = describe_cpu()},
       [](const CpuOptions& options, const CudaOptions&) { return make_cpu_backend(options); }});
#ifdef TESSERA_WITH_CUDA
  for (const DeviceInfo& info : list_cuda_devices()) {
    devices.push_back({info, [name = info.name](const CpuOptions& cpu, const CudaOptions& cuda) {
                         return make_cuda_backend(name, cpu, cuda);
                       }});
  }
#else
  devices.push_back({{.name = "cuda",
                      .description = "CUDA toolkit at build time: " TESSERA_CUDA_TOOLKIT,
                      .usable = false,
                      .why_not = "this program was built without the CUDA toolkit"},
                     {}});
#endif
  const std::lock_guard lock(offers().mutex);
  devices.insert(devices.end(), offers().list.begin(), offers().list.end());
  return devices;
}

}  // namespace

void offer_device(DeviceOffer offer) {
  const std::lock_guard lock(offers().mutex);
  offers().list.push_back(std::move(offer));
}

bool read_probe([[maybe_unused]] Backend& backend, [[maybe_unused]] ConstTensorView x,
                [[maybe_unused]] TensorView sums) {
#ifdef TESSERA_WITH_CUDA
  return cuda_read_probe(backend, x, sums);
#else
  return false;
#endif
}

std::vector<std::pair<std::string, std::string>> missing_libraries(
    [[maybe_unused]] Backend& backend) {
#ifdef TESSERA_WITH_CUDA
  return cuda_missing_libraries(backend);
#else
  return {};
#endif
}

bool set_precise(Backend& backend, bool precise) { return set_cpu_precise(backend, precise); }

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> out;
  for (DeviceOffer& device : devices_here()) out.push_back(std::move(device.info));
  return out;
}

std::unique_ptr<Backend> make_backend(const std::string& device, const CpuOptions& options,
                                      const CudaOptions& cuda) {
  if (device == "auto" || device == "cpu") return make_cpu_backend(options);
  const std::vector<DeviceOffer> devices = devices_here();
  std::string known = "auto";
  for (const DeviceOffer& offer : devices) {
    // "cuda" is the first one of its kind.
    const bool named = offer.info.name == device || offer.info.name == device + ":0";
    if (named && offer.info.usable) return offer.make(options, cuda);
    if (named) {
      throw Error({.kind = ErrorKind::kUsage,
                   .code = "E_DEVICE",
                   .where = "device '" + device + "'",
                   .expected = "a device that can be used here",
                   .found = offer.info.why_not});
    }
    if (offer.info.usable) known += ", " + offer.info.name;
  }
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_DEVICE",
               .where = "device",
               .expected = "one of " + known,
               .found = "'" + device + "'"});
}

}  // namespace tessera
