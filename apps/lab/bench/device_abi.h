// The C interface of NVIDIA's driver and of cuBLASLt, as far as the benchmarks call it: both are
// found at run time, and nothing of the CUDA toolkit is needed to compile this. Where there is a
// toolkit, a test holds the numbers to its headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::abi {

// cuda.h
inline constexpr int kClockKilohertz = 13, kMultiprocessors = 16, kMemoryClockKilohertz = 36;
inline constexpr int kMajor = 75, kMinor = 76;
inline constexpr unsigned kNonBlocking = 1;
inline constexpr int kCaptureRelaxed = 2;

// library_types.h, cublas_api.h, cublasLt.h
inline constexpr int kF32 = 0, kBf16 = 14, kComputeF32 = 68;
inline constexpr std::int32_t kTransposed = 1;
inline constexpr int kTransposeA = 3;     // of a product's attributes
inline constexpr int kMaxWorkspace = 1;  // of a preference's

struct Algorithm {
  std::uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  std::size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

using Made = void*;  // any handle, descriptor or layout

// Every function returns 0 for success.
struct Driver {
  int (*init)(unsigned) = nullptr;
  int (*version)(int*) = nullptr;
  int (*device)(int*, int) = nullptr;
  int (*name)(char*, int, int) = nullptr;
  int (*attribute)(int*, int, int) = nullptr;
  int (*stream_create)(Made*, unsigned) = nullptr;
  int (*stream_destroy)(Made) = nullptr;
  int (*stream_wait)(Made) = nullptr;
  int (*capture_begin)(Made, int) = nullptr;
  int (*capture_end)(Made, Made*) = nullptr;
  int (*graph_destroy)(Made) = nullptr;
  int (*instantiate)(Made*, Made, unsigned long long) = nullptr;
  int (*exec_destroy)(Made) = nullptr;
  int (*launch)(Made, Made) = nullptr;
};

struct Products {
  int (*create)(Made*) = nullptr;
  int (*destroy)(Made) = nullptr;
  std::size_t (*version)() = nullptr;
  int (*desc_create)(Made*, int compute, int scale) = nullptr;
  int (*desc_destroy)(Made) = nullptr;
  int (*desc_set)(Made, int attribute, const void*, std::size_t) = nullptr;
  int (*layout_create)(Made*, int type, std::uint64_t rows, std::uint64_t columns,
                       std::int64_t stride) = nullptr;
  int (*layout_destroy)(Made) = nullptr;
  int (*preference_create)(Made*) = nullptr;
  int (*preference_destroy)(Made) = nullptr;
  int (*preference_set)(Made, int attribute, const void*, std::size_t) = nullptr;
  int (*heuristic)(Made, Made desc, Made a, Made b, Made c, Made d, Made preference, int wanted,
                   Heuristic*, int* found) = nullptr;
  int (*multiply)(Made, Made desc, const void* alpha, const void* a, Made a_layout, const void* b,
                  Made b_layout, const void* beta, const void* c, Made c_layout, void* d,
                  Made d_layout, const Algorithm*, void* workspace, std::size_t bytes,
                  Made stream) = nullptr;
};

}  // namespace tessera::abi
