// The vendor's libraries of the simulated device: the sums written out, one thread each, so that
// what leads to them and after them (strides, rounded activations, workspace, strips) can be
// tested.
#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/cuda/libraries.h"
#include "engine/backend/cuda/packing.h"

namespace tessera::cuda {

namespace {

constexpr unsigned kThreads = 64;

float factor(const void* values, std::int64_t at, DType dtype) {
  if (dtype == DType::kF32) return static_cast<const float*>(values)[at];
  return bf16_to_float(static_cast<const std::uint16_t*>(values)[at]);
}

// They may write wherever they were allowed to.
void spoil(void* workspace) {
  if (blockIdx.x == 0) std::memset(static_cast<char*>(workspace) + threadIdx.x, 0xff, 1);
  if (blockIdx.x == 0) {
    std::memset(static_cast<char*>(workspace) + kLibraryWorkspace - 1 - threadIdx.x, 0xff, 1);
  }
}

void multiply_kernel(MatrixProduct p) {
  spoil(p.workspace);
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= p.rows * p.n) return;
  const std::int64_t row = i / p.n, column = i % p.n;
  double sum = 0;
  for (std::int64_t k = 0; k < p.k; ++k) {
    sum += static_cast<double>(factor(p.x, row * p.x_stride + k, p.factors)) *
           static_cast<double>(factor(p.w, column * p.w_stride + k, p.factors));
  }
  if (p.bias != nullptr) sum += static_cast<double>(p.bias[column]);
  if (p.accumulate) sum += static_cast<double>(p.out[i]);
  p.out[i] = static_cast<float>(sum);
}

void convolve_kernel(PlainConvolution c) {
  spoil(c.workspace);
  const int out_rows = (c.rows - c.kh) / c.stride + 1;
  const int out_columns = (c.columns - c.kw) / c.stride + 1;
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= out_rows * out_columns * c.c_out) return;
  const int channel = i % c.c_out, x = i / c.c_out % out_columns, y = i / c.c_out / out_columns;
  double sum = 0;
  for (int tap = 0; tap < c.kh * c.kw; ++tap) {
    const int from = ((y * c.stride + tap / c.kw) * c.columns + x * c.stride + tap % c.kw) * c.c_in;
    for (int k = 0; k < c.c_in; ++k) {
      sum +=
          static_cast<double>(factor(c.in, from + k, c.factors)) *
          static_cast<double>(factor(c.w, (channel * c.kh * c.kw + tap) * c.c_in + k, c.factors));
    }
  }
  if (c.accumulate) sum += static_cast<double>(factor(c.out, i, c.factors));
  if (c.factors == DType::kBF16) {
    static_cast<std::uint16_t*>(c.out)[i] = float_to_bf16(static_cast<float>(sum));
  } else {
    static_cast<float*>(c.out)[i] = static_cast<float>(sum);
  }
}

template <typename Args>
bool enqueue(void (*kernel)(Args), const Args& args, std::int64_t threads) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(divide_up(threads, kThreads)));
  config.blockDim = dim3(kThreads);
  config.stream = args.stream;
  check(cudaLaunchKernelEx(&config, kernel, args), "the simulated vendor's library");
  return true;
}

class SimulatedLibraries final : public Libraries {
 public:
  const std::string& without_cublaslt() override { return nothing_missing_; }
  const std::string& without_cudnn() override { return nothing_missing_; }
  bool multiply(const MatrixProduct& product) override {
    // No way for one output, so that a refusal is met too.
    return product.n != 1 && enqueue(multiply_kernel, product, product.rows * product.n);
  }
  bool convolve(const PlainConvolution& c) override {
    const std::int64_t pixels =
        std::int64_t{(c.rows - c.kh) / c.stride + 1} * ((c.columns - c.kw) / c.stride + 1);
    return c.c_out != 1 && enqueue(convolve_kernel, c, pixels * c.c_out);
  }

 private:
  std::string nothing_missing_;
};

}  // namespace

std::shared_ptr<Libraries> make_libraries() { return std::make_shared<SimulatedLibraries>(); }

}  // namespace tessera::cuda
