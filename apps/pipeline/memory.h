// What painting with a model will hold in memory, before weights are loaded, and what the machine
// has.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/decoding/pass_shape.h"
#include "engine/families/memory_plan.h"
#include "engine/families/open_model.h"

namespace tessera {

// The element type that the model's layers are stored in: bf16 when they are bf16, else f32.
DType stored_dtype(const OpenedModel& model);
// The same for the VQ decoder.
DType stored_vq_dtype(const OpenedModel& model);

// plan_memory() of the family library with the VQ decoder's part filled in.
MemoryPlan plan_generation(const FamilySpec& spec, DType vq_storage, const Backend& backend,
                           const MemoryRequest& request, PassShape shape = PassShape::kLine);
MemoryPlan plan_generation(const OpenedModel& model, const Backend& backend,
                           const MemoryRequest& request, PassShape shape = PassShape::kLine);

// Bytes this process may still take: the smallest of available memory, control-group limit and
// address-space limit. Empty if the system tells none.
std::optional<std::uint64_t> available_memory();

// Error kMemory (exit 5) with the plan when it does not fit.
void check_memory(const MemoryPlan& plan, const std::string& model_name);

// "13.9 MiB".
std::string format_bytes(std::uint64_t bytes);

}  // namespace tessera
