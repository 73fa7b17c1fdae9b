// Finds a CBLAS library at run time (the values of its enumerations are part of the interface).
#include "apps/lab/bench/gemm_library.h"

#include <dlfcn.h>

#include <utility>

#include "engine/core/index.h"

namespace tessera {

namespace {
constexpr int kRowMajor = 101, kNoTranspose = 111, kTranspose = 112;

struct Known {
  const char* file;
  const char* name;
  const char* set_threads;
  const char* version;
};
constexpr Known kKnown[] = {
    {"libopenblas.so.0", "openblas", "openblas_set_num_threads", "openblas_get_config"},
    {"libmkl_rt.so.2", "mkl", "MKL_Set_Num_Threads", nullptr},
    {"libblis.so.4", "blis", "bli_thread_set_num_threads", nullptr},
};
}  // namespace

std::unique_ptr<GemmLibrary> GemmLibrary::open(int threads) {
  for (const Known& known : kKnown) {
    void* handle = dlopen(known.file, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) continue;
    const auto sgemm = reinterpret_cast<Sgemm>(dlsym(handle, "cblas_sgemm"));
    const auto set = reinterpret_cast<void (*)(int)>(dlsym(handle, known.set_threads));
    if (sgemm == nullptr || set == nullptr) {
      dlclose(handle);
      continue;
    }
    set(threads);
    std::unique_ptr<GemmLibrary> library(new GemmLibrary(handle, sgemm, known.name));
    if (known.version != nullptr) {
      const auto version = reinterpret_cast<const char* (*)()>(dlsym(handle, known.version));
      if (version != nullptr) library->version_ = version();
    }
    return library;
  }
  return nullptr;
}

GemmLibrary::~GemmLibrary() { dlclose(handle_); }

void GemmLibrary::product(std::int64_t m, std::int64_t n, std::int64_t k, const float* x,
                          const float* w, float* out) const {
  const auto as_int = [](std::int64_t value) { return narrow<int>(value); };
  sgemm_(kRowMajor, kNoTranspose, kTranspose, as_int(m), as_int(n), as_int(k), 1.0f, x, as_int(k),
         w, as_int(k), 0.0f, out, as_int(n));
}

}  // namespace tessera
