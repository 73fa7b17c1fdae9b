// What each device folder that was linked in offers to the registry.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/backend/backend.h"

namespace tessera {

// Error kUsage if the processor lacks the instruction set that was asked for by name.
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);
// "AVX2+FMA, 2 threads": what make_cpu_backend with default options would run.
std::string describe_cpu();
// set_precise() of such a device; false for another backend.
bool set_cpu_precise(Backend& backend, bool precise);

// Where CUDA was built. Every device that the driver shows, or one entry that says why there is
// none.
std::vector<DeviceInfo> list_cuda_devices();
// `name` is one of them. Error kGeneral where it cannot be opened, kMemory where it is full.
std::unique_ptr<Backend> make_cuda_backend(const std::string& name, const CpuOptions& cpu,
                                           const CudaOptions& options);
// read_probe() on a CUDA device; false for another backend.
bool cuda_read_probe(Backend& backend, ConstTensorView x, TensorView sums);
// missing_libraries() of a CUDA device; nothing for another backend.
std::vector<std::pair<std::string, std::string>> cuda_missing_libraries(Backend& backend);

}  // namespace tessera
