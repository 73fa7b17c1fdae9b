// The functions of the driver and of cuBLASLt that the benchmarks call, on host memory: streams
// keep what is captured, graphs run it, products are summed as the library's layouts say. Four ways
// are named for a product: the first one slow, the second one refused, the third one fast, the last
// one with more workspace than was allowed.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "apps/lab/bench/device_abi.h"
#include "engine/core/dtype.h"

namespace {

using tessera::abi::Algorithm;
using tessera::abi::Heuristic;
using tessera::abi::Made;

using Work = std::vector<std::function<void()>>;
struct Stream {
  bool captures = false;
  Work captured, running;
};
struct Desc {
  int compute = -1, scale = -1;
  std::int32_t transposed = 0;
};
struct Layout {
  int type = -1;
  std::uint64_t rows = 0, columns = 0;
  std::int64_t stride = 0;
};
struct Preference {
  std::size_t workspace = 0;
};

template <typename T>
T* as(Made made) {
  return static_cast<T*>(made);
}

float number(const void* values, std::uint64_t at) {
  return tessera::bf16_to_float(static_cast<const std::uint16_t*>(values)[at]);
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* out) { return *out = 13000, 0; }
int cuDeviceGet(int* out, int index) { return *out = index, index == 0 ? 0 : 101; }
int cuDeviceGetName(char* out, int size, int) {
  return std::strncpy(out, "a device of the host", static_cast<std::size_t>(size)), 0;
}
int cuDeviceGetAttribute(int* out, int what, int) { return *out = 1000 * what, 0; }
int cuStreamCreate(Made* out, unsigned flags) {
  return *out = new Stream, flags == tessera::abi::kNonBlocking ? 0 : 1;
}
int cuStreamDestroy_v2(Made stream) { return delete as<Stream>(stream), 0; }
int cuStreamSynchronize(Made stream) {
  if (as<Stream>(stream)->captures) return 900;  // not permitted while a stream captures
  for (const auto& job : as<Stream>(stream)->running) job();
  as<Stream>(stream)->running.clear();
  return 0;
}
int cuStreamBeginCapture_v2(Made stream, int) { return as<Stream>(stream)->captures = true, 0; }
int cuStreamEndCapture(Made stream, Made* graph) {
  if (!as<Stream>(stream)->captures) return 901;
  *graph = new Work(std::move(as<Stream>(stream)->captured));
  as<Stream>(stream)->captured.clear();
  as<Stream>(stream)->captures = false;
  return 0;
}
int cuGraphDestroy(Made graph) { return delete as<Work>(graph), 0; }
int cuGraphInstantiateWithFlags(Made* out, Made graph, unsigned long long) {
  return *out = new Work(*as<Work>(graph)), 0;
}
int cuGraphExecDestroy(Made graph) { return delete as<Work>(graph), 0; }
int cuGraphLaunch(Made graph, Made stream) {
  for (const auto& job : *as<Work>(graph)) as<Stream>(stream)->running.push_back(job);
  return 0;
}

int cublasLtCreate(Made* out) { return *out = new int, 0; }
int cublasLtDestroy(Made handle) { return delete as<int>(handle), 0; }
std::size_t cublasLtGetVersion() { return 130000; }
int cublasLtMatmulDescCreate(Made* out, int compute, int scale) {
  return *out = new Desc{compute, scale, 0}, 0;
}
int cublasLtMatmulDescDestroy(Made desc) { return delete as<Desc>(desc), 0; }
int cublasLtMatmulDescSetAttribute(Made desc, int what, const void* from, std::size_t bytes) {
  if (what != tessera::abi::kTransposeA || bytes != sizeof(std::int32_t)) return 7;
  return std::memcpy(&as<Desc>(desc)->transposed, from, bytes), 0;
}
int cublasLtMatrixLayoutCreate(Made* out, int type, std::uint64_t rows, std::uint64_t columns,
                               std::int64_t stride) {
  return *out = new Layout{type, rows, columns, stride}, 0;
}
int cublasLtMatrixLayoutDestroy(Made layout) { return delete as<Layout>(layout), 0; }
int cublasLtMatmulPreferenceCreate(Made* out) { return *out = new Preference, 0; }
int cublasLtMatmulPreferenceDestroy(Made made) { return delete as<Preference>(made), 0; }
int cublasLtMatmulPreferenceSetAttribute(Made made, int what, const void* from, std::size_t bytes) {
  if (what != tessera::abi::kMaxWorkspace || bytes != sizeof(std::size_t)) return 7;
  return std::memcpy(&as<Preference>(made)->workspace, from, bytes), 0;
}

int cublasLtMatmulAlgoGetHeuristic(Made, Made, Made, Made, Made, Made, Made preference, int wanted,
                                   Heuristic* out, int* found) {
  *found = wanted < 4 ? wanted : 4;
  for (int i = 0; i < *found; ++i) {
    out[i] = {};
    out[i].algorithm.data[0] = static_cast<std::uint64_t>(i);
    out[i].workspace = i == 3 ? as<Preference>(preference)->workspace + 1 : 0;
  }
  return 0;
}

int cublasLtMatmul(Made, Made desc, const void* alpha, const void* a, Made a_made, const void* b,
                   Made b_made, const void* beta, const void*, Made, void* d, Made d_made,
                   const Algorithm* algorithm, void* workspace, std::size_t bytes, Made stream) {
  const Desc& how = *as<Desc>(desc);
  const Layout la = *as<Layout>(a_made), lb = *as<Layout>(b_made), ld = *as<Layout>(d_made);
  const std::uint64_t way = algorithm->data[0];
  const bool known = how.compute == tessera::abi::kComputeF32 && how.scale == tessera::abi::kF32 &&
                     how.transposed == tessera::abi::kTransposed &&
                     la.type == tessera::abi::kBf16 && lb.type == tessera::abi::kBf16 &&
                     ld.type == tessera::abi::kF32 && la.rows == lb.rows && ld.rows == la.columns &&
                     ld.columns == lb.columns;
  if (!known || way == 1 || workspace == nullptr || *static_cast<const float*>(beta) != 0)
    return 15;
  static_cast<char*>(workspace)[bytes - 1] = 1;
  const float scale = *static_cast<const float*>(alpha);
  const auto job = [=] {
    if (way == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (std::uint64_t column = 0; column < ld.columns; ++column) {
      for (std::uint64_t row = 0; row < ld.rows; ++row) {
        double sum = 0;
        for (std::uint64_t i = 0; i < la.rows; ++i) {
          sum += static_cast<double>(number(a, row * static_cast<std::uint64_t>(la.stride) + i)) *
                 static_cast<double>(number(b, column * static_cast<std::uint64_t>(lb.stride) + i));
        }
        static_cast<float*>(d)[column * static_cast<std::uint64_t>(ld.stride) + row] =
            scale * static_cast<float>(sum);
      }
    }
  };
  auto& to =
      as<Stream>(stream)->captures ? as<Stream>(stream)->captured : as<Stream>(stream)->running;
  to.emplace_back(job);
  return 0;
}

}  // extern "C"
