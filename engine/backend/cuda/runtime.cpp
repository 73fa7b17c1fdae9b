#include "engine/backend/cuda/runtime.h"

namespace tessera::cuda {

namespace {

std::string megabytes(std::size_t bytes) {
  return std::to_string((bytes + (std::size_t{1} << 20) - 1) >> 20) + " MiB";
}

}  // namespace

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // told here, and not again by a library that asks for the last error
  const bool memory = status == cudaErrorMemoryAllocation;
  throw Error({.kind = memory ? ErrorKind::kMemory : ErrorKind::kGeneral,
               .code = memory ? "E_DEVICE_MEMORY" : "E_CUDA",
               .where = what,
               .expected = "success",
               .found = std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status)});
}

void select_device(int index) {
  thread_local int selected = -1;
  if (selected == index) return;
  check(cudaSetDevice(index), "choosing a CUDA device");
  selected = index;
}

Buffer allocate_device(std::size_t bytes) {
  void* memory = nullptr;
  cudaError_t status = cudaMalloc(&memory, bytes > 0 ? bytes : 1);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it would be found again by the next launch
    release_unused_memory();
    status = cudaMalloc(&memory, bytes > 0 ? bytes : 1);
  }
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw Error({.kind = ErrorKind::kMemory,
                 .code = "E_DEVICE_MEMORY",
                 .where = "memory of the CUDA device",
                 .expected = megabytes(bytes) + " in one block",
                 .found = megabytes(free) + " free of " + megabytes(total),
                 .hint =
                     "`tessera inspect --memory` shows what a run needs; fewer images at once, "
                     "bf16 weights or a bf16 cache need less"});
  }
  check(status, "allocating device memory");
  return Buffer(
      memory, +[](void* p) { cudaFree(p); });
}

Buffer allocate_pinned(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMallocHost(&memory, bytes > 0 ? bytes : 1);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw Error({.kind = ErrorKind::kMemory,
                 .code = "E_HOST_MEMORY",
                 .where = "host memory that a CUDA device reads",
                 .expected = megabytes(bytes) + " that stay in place",
                 .found = "the driver refuses them"});
  }
  check(status, "allocating pinned host memory");
  return Buffer(
      memory, +[](void* p) { cudaFreeHost(p); });
}

Stream make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  return Stream(stream);
}

Event make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  return Event(event);
}

}  // namespace tessera::cuda
