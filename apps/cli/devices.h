// What device flags mean, and the list of devices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/runtime/generate_request.h"
#include "engine/core/dtype.h"

namespace CLI {
class App;
}  // namespace CLI

namespace tessera {

struct DeviceFlags;
struct SizeFlags;
struct Session;

// Empty for "auto".
std::optional<DType> storage_choice(const DeviceFlags& flags);
CudaOptions cuda_choice(const DeviceFlags& flags);
// What a sub-command that generates hands on of its flags; method, draft model and text encoder stay
// open.
GenerateOptions generation_options(const std::optional<std::string>& model, const DeviceFlags& device,
                                 const SizeFlags& size, std::int64_t batch_size);
// --text-encoder of such a sub-command.
void text_encoder_flag(CLI::App& app, std::optional<std::string>& target);
// One line (or JSON object) a device. Returns 0.
int print_devices(const Session& session);

}  // namespace tessera
