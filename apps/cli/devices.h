// What device flags mean, and the list of devices.
#pragma once

#include <optional>

#include "engine/core/dtype.h"

namespace tessera {

struct DeviceFlags;
struct Session;

// Empty for "auto".
std::optional<DType> storage_choice(const DeviceFlags& flags);
// One line (or JSON object) a device. Returns 0.
int print_devices(const Session& session);

}  // namespace tessera
