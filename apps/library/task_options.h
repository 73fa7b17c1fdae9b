// What the tasks share of options, plans and errors.
#pragma once

#include <tessera/runtime.h>

#include "apps/library/guard.h"
#include "apps/library/installation.h"
#include "apps/runtime/generate_request.h"
#include "apps/runtime/memory.h"

namespace tessera {

// Device, threads, storage, slots, method and draft model. Error kUsage for values out of range.
GenerateOptions generating_options(const Installation& place, const std::string& model,
                                   const api::OpenOptions& options, const SettingValues& settings);
// "auto", "f32", "bf16". Error kUsage (E_SETTING_VALUE).
std::optional<DType> storage_of(const std::string& dtype);
void check_options(const api::OpenOptions& options);
void check_seed(std::uint64_t seed);

api::MemoryPlan public_plan(const MemoryPlan& plan);

// To whom a request belongs, or thrown where nobody listens.
void report_error(const api::OnError& listener, const ErrorInfo& error);

}  // namespace tessera
