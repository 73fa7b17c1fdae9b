// Choice of the instruction set, memory and scratch of the CPU backend.
#include "engine/backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "engine/backend/factories.h"
#include "engine/core/index.h"

namespace tessera {

namespace cpu {

namespace {
// What linear needs of each worker: a block of rows and expanded panel blocks (linear.cpp).
constexpr std::size_t kInitialScratchFloats = std::size_t{80} << 10;

Buffer allocate_scratch(std::size_t floats_per_worker, int workers) {
  return allocate_host(floats_per_worker * sizeof(float) * to_size(workers));
}
}  // namespace

CpuBackend::CpuBackend(const Tables& tables, int threads, CpuOptions::Inputs inputs)
    : tables_(tables),
      inputs_(inputs),
      pool_(threads),
      scratch_(allocate_scratch(kInitialScratchFloats, pool_.threads())),
      scratch_floats_(kInitialScratchFloats) {
  for (const auto add : {add_attention_ops, add_codebook_ops, add_conv2d_ops, add_elementwise_ops,
                         add_linear_ops, add_norm_ops, add_rope_ops, add_row_attention_ops}) {
    add(ops());
  }
}

std::string CpuBackend::name() const {
  const char* const inputs = inputs_ == CpuOptions::Inputs::kBF16 ? "-bf16" : "";
  return std::string("cpu-") + kernels().name + inputs;
}

Tensor CpuBackend::allocate(DType dtype, Shape shape) { return Tensor::host(dtype, shape); }

void CpuBackend::upload(ConstTensorView host, TensorView out) {
  expects(host.dtype == out.dtype && host.shape == out.shape, "upload keeps dtype and shape");
  if (host.bytes() > 0) std::memcpy(out.data, host.data, host.bytes());
}

void CpuBackend::download(ConstTensorView in, TensorView host) { upload(in, host); }

void CpuBackend::ensure_scratch(std::size_t floats_per_worker) {
  const std::size_t wanted = (floats_per_worker + 63) / 64 * 64;
  if (wanted <= scratch_floats_) return;
  scratch_ = Buffer{nullptr, +[](void*) {}};  // the old block goes first: the peak is the new one
  scratch_floats_ = 0;
  scratch_ = allocate_scratch(wanted, pool_.threads());
  scratch_floats_ = wanted;
}

void CpuBackend::reserve_scratch(std::size_t bytes) {
  const auto workers = to_size(pool_.threads());
  ensure_scratch((bytes / sizeof(float) + workers - 1) / workers);
}

float* CpuBackend::scratch(int worker) {
  return static_cast<float*>(scratch_.get()) + to_size(worker) * scratch_floats_;
}

std::byte* CpuBackend::shared_scratch(std::size_t bytes) {
  if (bytes > shared_bytes_) {
    shared_scratch_ = Buffer{nullptr, +[](void*) {}};
    shared_bytes_ = 0;
    shared_scratch_ = tessera::allocate_host(bytes);
    shared_bytes_ = bytes;
  }
  return static_cast<std::byte*>(shared_scratch_.get());
}

namespace {

bool has_avx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
         __builtin_cpu_supports("f16c") != 0;
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0;
}

CpuBackend::Tables choose_tables(CpuOptions::Isa isa) {
  using Isa = CpuOptions::Isa;
  if (isa == Isa::kAuto)
    isa = has_avx512() ? Isa::kAvx512 : has_avx2() ? Isa::kAvx2 : Isa::kReference;
  if (isa == Isa::kAvx512 && has_avx512()) {
    const bool vnni = __builtin_cpu_supports("avx512vnni") != 0;
    const bool bf16 = __builtin_cpu_supports("avx512bf16") != 0;
    return {avx512_kernels(), vnni ? vnni_integer_kernels() : avx2_integer_kernels(),
            bf16 ? bf16_pair_kernels() : avx512_pair_kernels()};
  }
  if (isa == Isa::kAvx2 && has_avx2()) {
    return {avx2_kernels(), avx2_integer_kernels(), avx2_pair_kernels()};
  }
  if (isa == Isa::kReference) {
    return {portable_kernels(), portable_integer_kernels(), portable_pair_kernels()};
  }
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_ISA",
               .where = "instruction set",
               .expected = isa == Isa::kAvx2 ? "AVX2, FMA and F16C" : "AVX-512 F, BW, DQ and VL",
               .found = "a processor without them"});
}

}  // namespace
}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  return std::make_unique<cpu::CpuBackend>(cpu::choose_tables(options.isa), options.threads,
                                           options.inputs);
}

bool set_cpu_precise(Backend& backend, bool precise) {
  auto* const own = dynamic_cast<cpu::CpuBackend*>(&backend);
  if (own != nullptr) own->set_precise(precise);
  return own != nullptr;
}

std::string describe_cpu() {
  const std::string set = cpu::has_avx512() ? "AVX-512"
                          : cpu::has_avx2() ? "AVX2+FMA"
                                            : "portable code (no AVX2)";
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  return set + ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
}

}  // namespace tessera
