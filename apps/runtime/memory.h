// What generating with a model will hold in memory, before weights are loaded, and what the machine
// has.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/core/function_ref.h"
#include "engine/decoding/pass_shape.h"
#include "engine/decoding/stream_limits.h"
#include "engine/families/memory_plan.h"
#include "engine/families/open_model.h"

namespace tessera {

// The element type that the model's layers are stored in: bf16 when they are bf16, else f32.
DType stored_dtype(const OpenedModel& model);
// The same for the VQ decoder.
DType stored_vq_dtype(const OpenedModel& model);

// plan_memory() of the family library with the VQ decoder's part filled in; placed on the backend's
// device where that has memory of its own.
MemoryPlan plan_generation(const ModelSpec& spec, DType vq_storage, const Backend& backend,
                           const MemoryRequest& request, PassShape shape = PassShape::kLine);
MemoryPlan plan_generation(const OpenedModel& model, const Backend& backend,
                           const MemoryRequest& request, PassShape shape = PassShape::kLine);

// What a loop of these limits holds besides the cache.
std::size_t image_activation_bytes(const StreamModelConfig& config, const Backend& backend,
                                   const StreamLimits& limits);

// Bytes this process may still take: the smallest of available memory, control-group limit and
// address-space limit. Empty if the system tells none.
std::optional<std::uint64_t> available_memory();

// A plan for the backend's device, if that has memory of its own: what is free there, and where
// that is not enough, what would be. `plan_of` plans another request in the same way.
void plan_device(MemoryPlan& plan, const Backend& backend, const MemoryRequest& asked,
                 FunctionRef<MemoryPlan(const MemoryRequest&)> plan_of);

// Error kMemory (exit 5) with the plan when it does not fit, on the device or in the host's memory.
void check_memory(const MemoryPlan& plan, const std::string& model_name);

// "13.9 MiB".
std::string format_bytes(std::uint64_t bytes);

}  // namespace tessera
