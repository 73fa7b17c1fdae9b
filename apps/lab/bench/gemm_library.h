// A matrix library of this machine as a yardstick, loaded when a benchmark asks for it and never
// else: OpenBLAS, BLIS or MKL through the standard CBLAS interface.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tessera {

class GemmLibrary {
 public:
  // The first library that is installed, set to use `threads` threads; null if there is none.
  static std::unique_ptr<GemmLibrary> open(int threads);
  ~GemmLibrary();

  const std::string& name() const { return name_; }        // "openblas"
  const std::string& version() const { return version_; }  // as it describes itself; may be empty
  // out[m, n] = x[m, k] w[n, k]^T, all row-major: the product of a linear layer.
  void product(std::int64_t m, std::int64_t n, std::int64_t k, const float* x, const float* w,
               float* out) const;

 private:
  using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                         float, float*, int);
  GemmLibrary(void* handle, Sgemm sgemm, std::string name)
      : handle_(handle), sgemm_(sgemm), name_(std::move(name)) {}

  void* handle_;
  Sgemm sgemm_;
  std::string name_, version_;
};

}  // namespace tessera
