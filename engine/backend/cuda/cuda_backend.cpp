// Memory, copies and recorded passes of a CUDA device; the list of devices.
#include "engine/backend/cuda/cuda_backend.h"

#include <algorithm>
#include <exception>

#include "engine/backend/cuda/packing.h"
#include "engine/backend/factories.h"
#include "engine/core/index.h"

namespace tessera::cuda {

namespace {

int ask_device(int index, cudaDeviceAttr what) {
  select_device(index);
  int value = 0;
  check(cudaDeviceGetAttribute(&value, what, index), "asking a CUDA device for its size");
  return value;
}

// Of attention, sums are shared out where there are fewer than two places of them for every
// multiprocessor; of products where one split leaves half of them idle, for 64 rows at a time.
std::int64_t max_tickets(int multiprocessors) {
  return std::max<std::int64_t>(2 * multiprocessors, multiprocessors / 2 * divide_up(kOwnRows, 64));
}

}  // namespace

void allow_shared(const void* kernel, std::size_t bytes, const char* name) {
  cudaFuncAttributes has = {};
  check(cudaFuncGetAttributes(&has, kernel), name);
  if (to_size(has.maxDynamicSharedSizeBytes) >= bytes) return;
  int device = 0, most = 0;
  check(cudaGetDevice(&device), name);
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), name);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             most - narrow<int>(has.sharedSizeBytes)),
        name);
}

CudaBackend::CudaBackend(int index, const CpuOptions& cpu, const CudaOptions& options)
    : device_{DeviceKind::kCuda, index},
      options_(options),
      multiprocessors_(ask_device(index, cudaDevAttrMultiProcessorCount)),
      overlaps_kernels_(options.overlap &&
                        ask_device(index, cudaDevAttrComputeCapabilityMajor) >= 9 &&
                        code_version() >= 90),  // older code does not wait
      pool_(cpu.threads),
      stream_(make_stream()),
      libraries_(make_libraries()),
      verifiers_(make_row_verifiers(*this)) {
  for (const auto add : {add_attention_ops, add_codebook_ops, add_conv2d_ops, add_elementwise_ops,
                         add_linear_ops, add_norm_ops, add_rope_ops, add_row_attention_ops}) {
    add(ops());
  }
  recorder_.use(stream_.get());
  const std::size_t bytes = to_size(max_tickets(multiprocessors_)) * sizeof(unsigned);
  tickets_ = allocate_device(bytes);
  check(cudaMemsetAsync(tickets_.get(), 0, bytes, stream_.get()), "clearing a device's counters");
}

unsigned* CudaBackend::tickets(std::int64_t count) {
  expects(count <= max_tickets(multiprocessors_), "a counter for every place of shared sums");
  return static_cast<unsigned*>(tickets_.get());
}

const void* CudaBackend::library() {
  static const char here = 0;
  return &here;
}

CudaBackend::~CudaBackend() { cudaStreamSynchronize(stream_.get()); }

RowVerifierMaker* CudaBackend::row_verifiers() { return verifiers_.get(); }

Tensor CudaBackend::allocate(DType dtype, Shape shape) {
  const std::size_t bytes = dtype_bytes(dtype, shape.elements());
  select_device(device_.index);
  return Tensor(dtype, shape, pool_of_memory_->take(bytes), device_);
}

Tensor CudaBackend::allocate_host(DType dtype, Shape shape) {
  const std::size_t bytes = dtype_bytes(dtype, shape.elements());
  select_device(device_.index);
  return Tensor(dtype, shape, pinned_pool_->take(bytes));
}

void CudaBackend::upload(ConstTensorView host, TensorView out) {
  expects(host.dtype == out.dtype && host.shape == out.shape, "upload keeps dtype and shape");
  expects(host.device.kind == DeviceKind::kCpu && out.device == device_, "from the host up");
  if (host.bytes() == 0) return;
  check(cudaMemcpyAsync(out.data, host.data, host.bytes(), cudaMemcpyHostToDevice, stream()),
        "copying to the device");
}

void CudaBackend::download(ConstTensorView in, TensorView host) {
  expects(host.dtype == in.dtype && host.shape == in.shape, "download keeps dtype and shape");
  expects(host.device.kind == DeviceKind::kCpu && in.device == device_, "from the device down");
  if (in.bytes() == 0) return;
  check(cudaMemcpyAsync(host.data, in.data, in.bytes(), cudaMemcpyDeviceToHost, stream()),
        "copying from the device");
}

void CudaBackend::copy(ConstTensorView from, TensorView to) {
  expects(from.dtype == to.dtype && from.shape == to.shape, "copy keeps dtype and shape");
  expects(from.device == device_ && to.device == device_, "on the device");
  if (from.bytes() == 0 || !enqueues()) return;
  check(cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDeviceToDevice, stream()),
        "copying on the device");
}

void CudaBackend::synchronize() {
  if (broken_pass_ != nullptr) std::rethrow_exception(std::exchange(broken_pass_, nullptr));
  check(cudaStreamSynchronize(stream()), "waiting for the device");
  recorder_.waited();
}

std::optional<DeviceMemory> CudaBackend::memory() const {
  DeviceMemory out;
  select_device(device_.index);
  check(cudaMemGetInfo(&out.free, &out.total), "asking for the device's memory");
  out.free += pool_of_memory_->unused_bytes();
  return out;
}

std::int64_t CudaBackend::rows_at_once() const {
  constexpr std::int64_t kOfOne = 24, kMultiple = 256;
  return std::min(round_up(kOfOne * multiprocessors_, kMultiple), kWideRows);
}

void CudaBackend::begin_recorded(std::uint64_t key) { recorder_.begin(key, stream()); }

void CudaBackend::end_recorded() {
  if (std::uncaught_exceptions() > 0) return recorder_.abandon();
  // The end of a scope: what fails here is known by the wait for its results.
  try {
    recorder_.end();
  } catch (const Error&) {
    broken_pass_ = std::current_exception();
  }
}

void CudaBackend::reserve_scratch(std::size_t bytes) {
  if (bytes <= scratch_bytes_) return;
  check(cudaStreamSynchronize(stream()), "waiting for the device");
  scratch_ = Buffer(
      nullptr, +[](void*) {});
  scratch_bytes_ = 0;
  scratch_ = allocate_device(bytes);
  scratch_bytes_ = bytes;
  recorder_.forget();
}

void* CudaBackend::scratch(std::size_t bytes) {
  expects(bytes <= scratch_bytes_ || !recorder_.frozen(),
          "a pass needs no more scratch than the first time");
  reserve_scratch(bytes);
  return scratch_.get();
}

}  // namespace tessera::cuda

namespace tessera {

std::vector<DeviceInfo> list_cuda_devices() {
  const auto none = [](std::string why) {
    return std::vector<DeviceInfo>{{.name = "cuda",
                                    .description = "built with CUDA " +
                                                   std::to_string(CUDART_VERSION / 1000) + "." +
                                                   std::to_string(CUDART_VERSION % 1000 / 10),
                                    .usable = false,
                                    .why_not = std::move(why)}};
  };
  int driver = 0, count = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return none("no NVIDIA driver is installed");
  }
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();
    return none(std::string(cudaGetErrorString(status)));
  }
  if (count == 0) return none("the driver shows no device");
  std::vector<DeviceInfo> out;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties = {};
    if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) continue;
    const bool old = properties.major < 8;
    out.push_back({.name = "cuda:" + std::to_string(index),
                   .description = std::string(properties.name) + ", " +
                                  std::to_string(properties.totalGlobalMem >> 20) +
                                  " MiB, compute " + std::to_string(properties.major) + "." +
                                  std::to_string(properties.minor),
                   .usable = !old,
                   .why_not = old ? "compute capability 8.0 or newer is needed" : ""});
  }
  return out;
}

std::unique_ptr<Backend> make_cuda_backend(const std::string& name, const CpuOptions& cpu,
                                           const CudaOptions& options) {
  const std::size_t colon = name.find(':');
  const int index = colon == std::string::npos ? 0 : std::stoi(name.substr(colon + 1));
  return std::make_unique<cuda::CudaBackend>(index, cpu, options);
}

}  // namespace tessera
