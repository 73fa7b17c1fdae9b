// cuBLASLt and cuDNN through dlopen. Their headers give the types of the functions, the machine
// gives the functions, or does not. An algorithm is asked for once a shape.
#include "engine/backend/cuda/libraries.h"

#include <cublasLt.h>
#include <cudnn.h>
#include <dlfcn.h>

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>

#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/cuda/packing.h"
#include "engine/core/index.h"

namespace tessera::cuda {

namespace {

constexpr std::size_t kMaxPlans = 256;   // of each library; then all are asked for anew
constexpr std::uint32_t kAlignment = 16;  // of all that is given to cuBLASLt

// A shared library that stays open, for what it gave may be in use until the process ends.
class Opened {
 public:
  explicit Opened(const std::string& file) : library_(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (library_ != nullptr) return;
    const char* text = dlerror();
    why_ = text != nullptr ? text : file + " cannot be opened";
  }
  template <typename Function>
  void take(Function& function, const char* name) {
    if (library_ == nullptr) return;
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr && why_.empty()) why_ = std::string("it has no ") + name;
  }
  const std::string& why_not() const { return why_; }

 private:
  void* library_ = nullptr;
  std::string why_;
};

// Destroys what a library made, if it made it.
template <typename Handle, typename Status>
class Made {
 public:
  explicit Made(Status (*destroy)(Handle)) : destroy_(destroy) {}
  ~Made() {
    if (handle != nullptr) destroy_(handle);
  }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
  Handle handle = nullptr;

 private:
  Status (*destroy_)(Handle);
};

// ---- cuBLASLt ----

struct CublasLtFunctions {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
};

class CublasLt {
 public:
  CublasLt() {
    Opened library("libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR));
    library.take(f_.create, "cublasLtCreate");
    library.take(f_.destroy, "cublasLtDestroy");
    library.take(f_.matmul, "cublasLtMatmul");
    library.take(f_.desc_create, "cublasLtMatmulDescCreate");
    library.take(f_.desc_destroy, "cublasLtMatmulDescDestroy");
    library.take(f_.desc_set, "cublasLtMatmulDescSetAttribute");
    library.take(f_.layout_create, "cublasLtMatrixLayoutCreate");
    library.take(f_.layout_destroy, "cublasLtMatrixLayoutDestroy");
    library.take(f_.preference_create, "cublasLtMatmulPreferenceCreate");
    library.take(f_.preference_destroy, "cublasLtMatmulPreferenceDestroy");
    library.take(f_.preference_set, "cublasLtMatmulPreferenceSetAttribute");
    library.take(f_.heuristic, "cublasLtMatmulAlgoGetHeuristic");
    why_not_ = library.why_not();
    if (why_not_.empty() && f_.create(&handle_) != CUBLAS_STATUS_SUCCESS) {
      handle_ = nullptr;
      why_not_ = "cuBLASLt does not start on this device";
    }
  }
  ~CublasLt() {
    if (handle_ != nullptr) f_.destroy(handle_);
  }
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;
  const std::string& why_not() const { return why_not_; }

  bool multiply(const MatrixProduct& p);

 private:
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, DType, bool, bool, bool>;

  CublasLtFunctions f_;
  cublasLtHandle_t handle_ = nullptr;
  std::string why_not_;
  std::map<Key, std::optional<cublasLtMatmulAlgo_t>> algorithms_;
};

bool aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kAlignment == 0;
}

// The library thinks in columns: out^T [n, rows] = w [k, n]^T x^T [k, rows].
bool CublasLt::multiply(const MatrixProduct& p) {
  if (!aligned(p.x) || !aligned(p.w) || !aligned(p.out) || !aligned(p.bias)) return false;
  const cudaDataType_t type = p.factors == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F;
  const cublasComputeType_t compute =
      p.factors == DType::kF32 && p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  Made desc(f_.desc_destroy);
  Made w(f_.layout_destroy), x(f_.layout_destroy), out(f_.layout_destroy);
  const auto n = narrow<std::uint64_t>(p.n), k = narrow<std::uint64_t>(p.k);
  const auto rows = narrow<std::uint64_t>(p.rows);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  bool made = f_.desc_create(&desc.handle, compute, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
              f_.desc_set(desc.handle, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                          sizeof transposed) == CUBLAS_STATUS_SUCCESS &&
              f_.layout_create(&w.handle, type, k, n, p.w_stride) == CUBLAS_STATUS_SUCCESS &&
              f_.layout_create(&x.handle, type, k, rows, p.x_stride) == CUBLAS_STATUS_SUCCESS &&
              f_.layout_create(&out.handle, CUDA_R_32F, n, rows, p.n) == CUBLAS_STATUS_SUCCESS;
  if (made && p.bias != nullptr) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    made = f_.desc_set(desc.handle, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) ==
               CUBLAS_STATUS_SUCCESS &&
           f_.desc_set(desc.handle, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias, sizeof p.bias) ==
               CUBLAS_STATUS_SUCCESS;
  }
  if (!made) return false;

  if (algorithms_.size() >= kMaxPlans) algorithms_.clear();
  const auto [found, is_new] = algorithms_.try_emplace(
      Key{p.rows, p.n, p.k, p.factors, p.tf32, p.accumulate, p.bias != nullptr});
  if (is_new) {
    Made preference(f_.preference_destroy);
    if (f_.preference_create(&preference.handle) != CUBLAS_STATUS_SUCCESS) return false;
    bool set =
        f_.preference_set(preference.handle, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                          &kLibraryWorkspace, sizeof kLibraryWorkspace) == CUBLAS_STATUS_SUCCESS;
    for (const auto of :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      set = set && f_.preference_set(preference.handle, of, &kAlignment, sizeof kAlignment) ==
                       CUBLAS_STATUS_SUCCESS;
    }
    cublasLtMatmulHeuristicResult_t result = {};
    int count = 0;
    if (set &&
        f_.heuristic(handle_, desc.handle, w.handle, x.handle, out.handle, out.handle,
                     preference.handle, 1, &result, &count) == CUBLAS_STATUS_SUCCESS &&
        count == 1) {
      found->second = result.algo;
    }
  }
  if (!found->second.has_value()) return false;
  const float one = 1.0f, kept = p.accumulate ? 1.0f : 0.0f;
  return f_.matmul(handle_, desc.handle, &one, p.w, w.handle, p.x, x.handle, &kept, p.out,
                   out.handle, p.out, out.handle, &*found->second, p.workspace, kLibraryWorkspace,
                   p.stream) == CUBLAS_STATUS_SUCCESS;
}

// ---- cuDNN ----

struct CudnnFunctions {
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnCreateTensorDescriptor) tensor_create = nullptr;
  decltype(&cudnnDestroyTensorDescriptor) tensor_destroy = nullptr;
  decltype(&cudnnSetTensor4dDescriptor) tensor_set = nullptr;
  decltype(&cudnnCreateFilterDescriptor) filter_create = nullptr;
  decltype(&cudnnDestroyFilterDescriptor) filter_destroy = nullptr;
  decltype(&cudnnSetFilter4dDescriptor) filter_set = nullptr;
  decltype(&cudnnCreateConvolutionDescriptor) convolution_create = nullptr;
  decltype(&cudnnDestroyConvolutionDescriptor) convolution_destroy = nullptr;
  decltype(&cudnnSetConvolution2dDescriptor) convolution_set = nullptr;
  decltype(&cudnnSetConvolutionMathType) math_set = nullptr;
  decltype(&cudnnGetConvolutionForwardAlgorithm_v7) algorithms = nullptr;
  decltype(&cudnnConvolutionForward) forward = nullptr;
};

class Cudnn {
 public:
  Cudnn() {
    Opened library("libcudnn.so." + std::to_string(CUDNN_MAJOR));
    library.take(f_.create, "cudnnCreate");
    library.take(f_.destroy, "cudnnDestroy");
    library.take(f_.set_stream, "cudnnSetStream");
    library.take(f_.tensor_create, "cudnnCreateTensorDescriptor");
    library.take(f_.tensor_destroy, "cudnnDestroyTensorDescriptor");
    library.take(f_.tensor_set, "cudnnSetTensor4dDescriptor");
    library.take(f_.filter_create, "cudnnCreateFilterDescriptor");
    library.take(f_.filter_destroy, "cudnnDestroyFilterDescriptor");
    library.take(f_.filter_set, "cudnnSetFilter4dDescriptor");
    library.take(f_.convolution_create, "cudnnCreateConvolutionDescriptor");
    library.take(f_.convolution_destroy, "cudnnDestroyConvolutionDescriptor");
    library.take(f_.convolution_set, "cudnnSetConvolution2dDescriptor");
    library.take(f_.math_set, "cudnnSetConvolutionMathType");
    library.take(f_.algorithms, "cudnnGetConvolutionForwardAlgorithm_v7");
    library.take(f_.forward, "cudnnConvolutionForward");
    why_not_ = library.why_not();
    if (why_not_.empty() && f_.create(&handle_) != CUDNN_STATUS_SUCCESS) {
      handle_ = nullptr;
      why_not_ = "cuDNN does not start on this device";
    }
  }
  ~Cudnn() {
    if (handle_ != nullptr) f_.destroy(handle_);
  }
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;
  const std::string& why_not() const { return why_not_; }

  bool convolve(const PlainConvolution& c);

 private:
  using Key = std::tuple<int, int, int, int, int, int, int, DType, bool>;
  // An algorithm and the arithmetic that it was ranked with: both together are a kernel.
  struct Way {
    cudnnConvolutionFwdAlgo_t algorithm;
    cudnnMathType_t math;
  };
  std::optional<Way> choose(cudnnTensorDescriptor_t in, cudnnFilterDescriptor_t filter,
                            cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t out,
                            cudnnMathType_t math) const;

  CudnnFunctions f_;
  cudnnHandle_t handle_ = nullptr;
  std::string why_not_;
  std::map<Key, std::optional<Way>> chosen_;
};

// The first of the library's own ranking that sums products as they are: those through other
// domains (Winograd, Fourier) are further from the kernels here than rounding is. Factors of bf16
// are for tensor cores alone, which only one of the algorithms asks for them: the kernels here beat
// any other.
std::optional<Cudnn::Way> Cudnn::choose(cudnnTensorDescriptor_t in, cudnnFilterDescriptor_t filter,
                                        cudnnConvolutionDescriptor_t convolution,
                                        cudnnTensorDescriptor_t out, cudnnMathType_t math) const {
  std::array<cudnnConvolutionFwdAlgoPerf_t, CUDNN_CONVOLUTION_FWD_ALGO_COUNT> ranking = {};
  int count = 0;
  if (f_.algorithms(handle_, in, filter, convolution, out, narrow<int>(ranking.size()), &count,
                    ranking.data()) != CUDNN_STATUS_SUCCESS) {
    return std::nullopt;
  }
  for (const cudnnConvolutionFwdAlgoPerf_t& entry : std::span(ranking).first(to_size(count))) {
    const bool staged = entry.algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
    const bool plain = staged || entry.algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM ||
                       entry.algo == CUDNN_CONVOLUTION_FWD_ALGO_GEMM;
    const bool fits = math == CUDNN_TENSOR_OP_MATH
                          ? staged && entry.mathType == CUDNN_TENSOR_OP_MATH
                          : math == CUDNN_DEFAULT_MATH || entry.mathType == CUDNN_FMA_MATH;
    if (entry.status == CUDNN_STATUS_SUCCESS && plain && fits &&
        entry.memory <= kLibraryWorkspace) {
      return Way{entry.algo, entry.mathType};
    }
  }
  return std::nullopt;
}

bool Cudnn::convolve(const PlainConvolution& c) {
  Made in(f_.tensor_destroy), out(f_.tensor_destroy);
  Made filter(f_.filter_destroy);
  Made convolution(f_.convolution_destroy);
  const int out_rows = (c.rows - c.kh) / c.stride + 1;
  const int out_columns = (c.columns - c.kw) / c.stride + 1;
  const bool half = c.factors == DType::kBF16;
  const cudnnMathType_t math = half     ? CUDNN_TENSOR_OP_MATH
                               : c.tf32 ? CUDNN_DEFAULT_MATH
                                        : CUDNN_FMA_MATH;
  const cudnnDataType_t type = half ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
  const auto fine = [](cudnnStatus_t status) { return status == CUDNN_STATUS_SUCCESS; };
  const bool made =
      fine(f_.set_stream(handle_, c.stream)) && fine(f_.tensor_create(&in.handle)) &&
      fine(f_.tensor_create(&out.handle)) && fine(f_.filter_create(&filter.handle)) &&
      fine(f_.convolution_create(&convolution.handle)) &&
      fine(f_.tensor_set(in.handle, CUDNN_TENSOR_NHWC, type, 1, c.c_in, c.rows, c.columns)) &&
      fine(f_.tensor_set(out.handle, CUDNN_TENSOR_NHWC, type, 1, c.c_out, out_rows, out_columns)) &&
      fine(f_.filter_set(filter.handle, type, CUDNN_TENSOR_NHWC, c.c_out, c.c_in, c.kh, c.kw)) &&
      fine(f_.convolution_set(convolution.handle, 0, 0, c.stride, c.stride, 1, 1,
                              CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT)) &&
      fine(f_.math_set(convolution.handle, math));
  if (!made) return false;
  if (chosen_.size() >= kMaxPlans) chosen_.clear();
  const auto [found, is_new] = chosen_.try_emplace(
      Key{c.rows, c.columns, c.c_in, c.c_out, c.kh, c.kw, c.stride, c.factors, c.tf32});
  std::optional<Way>& way = found->second;
  if (is_new) way = choose(in.handle, filter.handle, convolution.handle, out.handle, math);
  if (!way || !fine(f_.math_set(convolution.handle, way->math))) return false;
  const float one = 1.0f, kept = c.accumulate ? 1.0f : 0.0f;
  const bool done =
      fine(f_.forward(handle_, &one, in.handle, c.in, filter.handle, c.w, convolution.handle,
                      way->algorithm, c.workspace, kLibraryWorkspace, &kept, out.handle, c.out));
  if (!done) way.reset();  // and is not asked again
  return done;
}

class FoundLibraries final : public Libraries {
 public:
  const std::string& without_cublaslt() override { return cublaslt().why_not(); }
  const std::string& without_cudnn() override { return cudnn().why_not(); }
  bool multiply(const MatrixProduct& product) override {
    return cublaslt().why_not().empty() && cublaslt().multiply(product);
  }
  bool convolve(const PlainConvolution& convolution) override {
    return cudnn().why_not().empty() && cudnn().convolve(convolution);
  }

 private:
  CublasLt& cublaslt() {
    if (!cublaslt_.has_value()) cublaslt_.emplace();
    return *cublaslt_;
  }
  Cudnn& cudnn() {
    if (!cudnn_.has_value()) cudnn_.emplace();
    return *cudnn_;
  }

  std::optional<CublasLt> cublaslt_;
  std::optional<Cudnn> cudnn_;
};

}  // namespace

std::shared_ptr<Libraries> make_libraries() { return std::make_shared<FoundLibraries>(); }

}  // namespace tessera::cuda
