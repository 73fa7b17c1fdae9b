// What device_abi.h says of the driver and of cuBLASLt, against their headers.
#include <cublasLt.h>
#include <cuda.h>
#include <gtest/gtest.h>

#include "apps/lab/bench/device_abi.h"

namespace tessera::abi {
namespace {

static_assert(kClockKilohertz == CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
static_assert(kMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(kMemoryClockKilohertz == CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
static_assert(kMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kCaptureRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(kF32 == CUDA_R_32F && kBf16 == CUDA_R_16BF && kComputeF32 == CUBLAS_COMPUTE_32F);
static_assert(kTransposed == CUBLAS_OP_T && kTransposeA == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(kMaxWorkspace == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);

using Result = cublasLtMatmulHeuristicResult_t;
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(Heuristic) == sizeof(Result));
static_assert(offsetof(Heuristic, workspace) == offsetof(Result, workspaceSize));
static_assert(offsetof(Heuristic, state) == offsetof(Result, state));
static_assert(sizeof(CUdevice) == sizeof(int) && sizeof(CUresult) == sizeof(int));

// Numbers of arguments, whatever handles and enumerations are called.
template <typename... A, typename R>
constexpr std::size_t arguments(R (*)(A...)) {
  return sizeof...(A);
}
template <auto Theirs, typename Ours>
constexpr bool alike(Ours ours) {
  return arguments(Theirs) == arguments(ours);
}

TEST(DeviceAbi, FunctionsTakeAsManyArgumentsAsTheirs) {
  constexpr Driver d;
  constexpr Products p;
  EXPECT_TRUE((alike<&cuStreamCreate>(d.stream_create)));
  EXPECT_TRUE((alike<&cuStreamBeginCapture>(d.capture_begin)));
  EXPECT_TRUE((alike<&cuStreamEndCapture>(d.capture_end)));
  EXPECT_TRUE((alike<&cuGraphInstantiate>(d.instantiate)));
  EXPECT_TRUE((alike<&cuGraphLaunch>(d.launch)));
  EXPECT_TRUE((alike<&cublasLtMatmulDescCreate>(p.desc_create)));
  EXPECT_TRUE((alike<&cublasLtMatmulDescSetAttribute>(p.desc_set)));
  EXPECT_TRUE((alike<&cublasLtMatrixLayoutCreate>(p.layout_create)));
  EXPECT_TRUE((alike<&cublasLtMatmulPreferenceSetAttribute>(p.preference_set)));
  EXPECT_TRUE((alike<&cublasLtMatmulAlgoGetHeuristic>(p.heuristic)));
  EXPECT_TRUE((alike<&cublasLtMatmul>(p.multiply)));
}

}  // namespace
}  // namespace tessera::abi
