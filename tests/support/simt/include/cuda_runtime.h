// The part of CUDA's runtime and language that this project uses, for a device of fibers on the host.
// Stands in front of the toolkit's header of the same name where the .cu files are compiled as C++.
//
// What it is stricter about than a GPU: memory of the device cannot be touched by the host, allocated
// memory is full of NaNs and has a page after it that nobody may touch, enqueued work runs only when
// something waits for it, threads of a block run in an order that changes from launch to launch, a
// barrier that threads have left over ends the program, and of a kernel that may begin before the
// one in front of it has ended a block does begin before that one has begun.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define CUDART_VERSION 13000

struct uint2 { unsigned x, y; };
struct uint3 { unsigned x, y, z; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) double2 { double x, y; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

// Of the fiber that runs.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace tessera::simt {
void block_barrier();
// Ors, ands and counts of a predicate over the block.
int block_vote(int predicate, int kind);
// Every lane of `mask` brings a number; all of them are there when it returns, by lane.
const std::uint64_t* exchange(unsigned mask, std::uint64_t bits);
int lane();
unsigned char* dynamic_shared();
// Copies of 16 bytes that a thread began and has not waited for: they happen when it waits.
void begin_copy(void* to, const void* from);
void commit_copies();
void wait_copies(int groups);
// Of kernels that may begin before the one in front of them has ended.
void await_previous();
void let_next_begin();

template <typename T>
T shuffle(unsigned mask, T value, int from) {
  static_assert(sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  const std::uint64_t got = exchange(mask, bits)[from];
  T out;
  std::memcpy(&out, &got, sizeof out);
  return out;
}
}  // namespace tessera::simt

inline void __syncthreads() { tessera::simt::block_barrier(); }
inline int __syncthreads_or(int p) { return tessera::simt::block_vote(p, 0); }
inline int __syncthreads_and(int p) { return tessera::simt::block_vote(p, 1); }
inline int __syncthreads_count(int p) { return tessera::simt::block_vote(p, 2); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { tessera::simt::exchange(mask, 0); }
template <typename T>
T __shfl_sync(unsigned mask, T value, int from) {
  return tessera::simt::shuffle(mask, value, from & 31);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int with) {
  return tessera::simt::shuffle(mask, value, tessera::simt::lane() ^ with);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned by) {
  const int from = tessera::simt::lane() + static_cast<int>(by);
  return tessera::simt::shuffle(mask, value, from < 32 ? from : tessera::simt::lane());
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned by) {
  const int from = tessera::simt::lane() - static_cast<int>(by);
  return tessera::simt::shuffle(mask, value, from >= 0 ? from : tessera::simt::lane());
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const std::uint64_t* all = tessera::simt::exchange(mask, predicate != 0 ? 1 : 0);
  unsigned out = 0;
  for (unsigned i = 0; i < 32; ++i) out |= (mask >> i & 1u) != 0 && all[i] != 0 ? 1u << i : 0u;
  return out;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == mask;
}
inline void __threadfence() {}
inline void __threadfence_block() {}

// One fiber runs at a time, so that plain reads and writes are atomic.
template <typename T, typename U>
T atomicAdd(T* at, U value) {
  const T old = *at;
  *at = static_cast<T>(old + static_cast<T>(value));
  return old;
}
template <typename T, typename U>
T atomicMax(T* at, U value) {
  const T old = *at;
  if (static_cast<T>(value) > old) *at = static_cast<T>(value);
  return old;
}
template <typename T, typename U>
T atomicMin(T* at, U value) {
  const T old = *at;
  if (static_cast<T>(value) < old) *at = static_cast<T>(value);
  return old;
}
template <typename T, typename U>
T atomicOr(T* at, U value) {
  const T old = *at;
  *at = static_cast<T>(old | static_cast<T>(value));
  return old;
}
template <typename T, typename U>
T atomicExch(T* at, U value) {
  const T old = *at;
  *at = static_cast<T>(value);
  return old;
}
template <typename T, typename U, typename V>
T atomicCAS(T* at, U expected, V value) {
  const T old = *at;
  if (old == static_cast<T>(expected)) *at = static_cast<T>(value);
  return old;
}

template <typename T>
T __ldg(const T* from) {
  return *from;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) {
  return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __float_as_uint(float x) {
  unsigned out;
  std::memcpy(&out, &x, sizeof out);
  return out;
}
inline float __uint_as_float(unsigned x) {
  float out;
  std::memcpy(&out, &x, sizeof out);
  return out;
}
inline int __float_as_int(float x) { return static_cast<int>(__float_as_uint(x)); }
inline float __int_as_float(int x) { return __uint_as_float(static_cast<unsigned>(x)); }
inline long long __double_as_longlong(double x) {
  long long out;
  std::memcpy(&out, &x, sizeof out);
  return out;
}
inline double __longlong_as_double(long long x) {
  double out;
  std::memcpy(&out, &x, sizeof out);
  return out;
}
inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline long min(long a, long b) { return a < b ? a : b; }
inline long max(long a, long b) { return a > b ? a : b; }
inline long long min(long long a, long long b) { return a < b ? a : b; }
inline long long max(long long a, long long b) { return a > b ? a : b; }
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }

// The runtime's calls.
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorStreamCaptureUnsupported = 900,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;
using cudaStream_t = struct SimtStream*;
using cudaEvent_t = struct SimtEvent*;
using cudaGraph_t = struct SimtGraph*;
using cudaGraphExec_t = struct SimtGraphExec*;
struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem;
  int major, minor, multiProcessorCount;
};
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
union cudaLaunchAttributeValue {
  int programmaticStreamSerializationAllowed;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device);
cudaError_t cudaDeviceGetAttribute(int* out, cudaDeviceAttr attribute, int device);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaMalloc(void** out, std::size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** out, std::size_t bytes);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
struct cudaFuncAttributes {
  std::size_t sharedSizeBytes;
  int maxDynamicSharedSizeBytes;
  int ptxVersion;
};
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* kernel);
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);

namespace tessera::simt {
cudaError_t enqueue_kernel(const cudaLaunchConfig_t& config, const void* kernel,
                           std::function<void()> body);
}

template <typename... Params, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args&&... args) {
  return tessera::simt::enqueue_kernel(
      *config, reinterpret_cast<const void*>(kernel),
      [kernel, given = std::tuple<Params...>(std::forward<Args>(args)...)] {
        std::apply(kernel, given);
      });
}
