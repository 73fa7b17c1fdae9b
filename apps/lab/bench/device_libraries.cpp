#include "apps/lab/bench/device_libraries.h"

#include <dlfcn.h>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

template <typename Function>
bool find(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(dlsym(library, name));
  return out != nullptr;
}

void succeed(int status, const char* what) {
  if (status == 0) return;
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_CUDA",
               .where = what,
               .expected = "success",
               .found = "status " + std::to_string(status)});
}

bool find_driver(void* library, abi::Driver& out) {
  return find(library, "cuInit", out.init) && find(library, "cuDriverGetVersion", out.version) &&
         find(library, "cuDeviceGet", out.device) && find(library, "cuDeviceGetName", out.name) &&
         find(library, "cuDeviceGetAttribute", out.attribute) &&
         find(library, "cuStreamCreate", out.stream_create) &&
         find(library, "cuStreamDestroy_v2", out.stream_destroy) &&
         find(library, "cuStreamSynchronize", out.stream_wait) &&
         find(library, "cuStreamBeginCapture_v2", out.capture_begin) &&
         find(library, "cuStreamEndCapture", out.capture_end) &&
         find(library, "cuGraphDestroy", out.graph_destroy) &&
         find(library, "cuGraphInstantiateWithFlags", out.instantiate) &&
         find(library, "cuGraphExecDestroy", out.exec_destroy) &&
         find(library, "cuGraphLaunch", out.launch);
}

bool find_products(void* library, abi::Products& out) {
  return find(library, "cublasLtCreate", out.create) &&
         find(library, "cublasLtDestroy", out.destroy) &&
         find(library, "cublasLtGetVersion", out.version) &&
         find(library, "cublasLtMatmulDescCreate", out.desc_create) &&
         find(library, "cublasLtMatmulDescDestroy", out.desc_destroy) &&
         find(library, "cublasLtMatmulDescSetAttribute", out.desc_set) &&
         find(library, "cublasLtMatrixLayoutCreate", out.layout_create) &&
         find(library, "cublasLtMatrixLayoutDestroy", out.layout_destroy) &&
         find(library, "cublasLtMatmulPreferenceCreate", out.preference_create) &&
         find(library, "cublasLtMatmulPreferenceDestroy", out.preference_destroy) &&
         find(library, "cublasLtMatmulPreferenceSetAttribute", out.preference_set) &&
         find(library, "cublasLtMatmulAlgoGetHeuristic", out.heuristic) &&
         find(library, "cublasLtMatmul", out.multiply);
}

// Destroyed when it goes out of sight.
struct Owner {
  explicit Owner(int (*destroy_with)(abi::Made)) : destroy(destroy_with) {}
  ~Owner() { reset(); }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  void reset() {
    if (made != nullptr) destroy(made);
    made = nullptr;
  }
  int (*destroy)(abi::Made);
  abi::Made made = nullptr;
};

}  // namespace

std::unique_ptr<DeviceLibraries> DeviceLibraries::open(int index, const LibraryFiles& files) {
  void* driver = dlopen(files.driver.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return nullptr;
  std::unique_ptr<DeviceLibraries> out(new DeviceLibraries);
  const abi::Driver& calls = out->driver_;
  int device = 0;
  if (!find_driver(driver, out->driver_) || calls.init(0) != 0 ||
      calls.device(&device, index) != 0) {
    return nullptr;
  }
  DeviceFacts& facts = out->facts_;
  char name[256] = {};
  if (calls.name(name, sizeof name - 1, device) == 0) facts.name = name;
  calls.version(&facts.cuda);
  const auto ask = [&](int what, int& value) {
    if (calls.attribute(&value, what, device) != 0) value = 0;
  };
  ask(abi::kMajor, facts.major);
  ask(abi::kMinor, facts.minor);
  ask(abi::kMultiprocessors, facts.multiprocessors);
  ask(abi::kClockKilohertz, facts.clock_mhz);
  ask(abi::kMemoryClockKilohertz, facts.memory_clock_mhz);
  facts.clock_mhz /= 1000;
  facts.memory_clock_mhz /= 1000;
  out->open_products(files);
  return out;
}

void DeviceLibraries::open_products(const LibraryFiles& files) {
  if (driver_.stream_create(&stream_, abi::kNonBlocking) != 0) {
    stream_ = nullptr;
    return;
  }
  for (const std::string& file : files.products) {
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    if (!find_products(library, products_) || products_.create(&handle_) != 0) {
      handle_ = nullptr;
      continue;
    }
    version_ = "cublaslt " + std::to_string(products_.version());
    return;
  }
}

DeviceLibraries::~DeviceLibraries() {
  if (handle_ != nullptr) products_.destroy(handle_);
  if (stream_ != nullptr) driver_.stream_destroy(stream_);
}

// cuBLASLt counts by columns: out^T [n, m] = (w [k, n])^T x [k, m].
class DeviceLibraries::Product final : public LibraryProduct {
 public:
  Product(const DeviceLibraries& libraries, const LibraryCase& what, int ways)
      : libraries_(libraries),
        calls_(libraries.products_),
        what_(what),
        desc_(calls_.desc_destroy),
        w_(calls_.layout_destroy),
        x_(calls_.layout_destroy),
        out_(calls_.layout_destroy),
        graph_(libraries.driver_.exec_destroy) {
    const auto m = narrow<std::uint64_t>(what.m), n = narrow<std::uint64_t>(what.n);
    const auto k = narrow<std::uint64_t>(what.k);
    succeed(calls_.desc_create(&desc_.made, abi::kComputeF32, abi::kF32), "a product");
    succeed(
        calls_.desc_set(desc_.made, abi::kTransposeA, &abi::kTransposed, sizeof abi::kTransposed),
        "a product");
    succeed(calls_.layout_create(&w_.made, abi::kBf16, k, n, what.k), "a product's weights");
    succeed(calls_.layout_create(&x_.made, abi::kBf16, k, m, what.k), "a product's rows");
    succeed(calls_.layout_create(&out_.made, abi::kF32, n, m, what.n), "a product's result");
    Owner preference(calls_.preference_destroy);
    succeed(calls_.preference_create(&preference.made), "a product's ways");
    succeed(
        calls_.preference_set(preference.made, abi::kMaxWorkspace, &kWorkspace, sizeof kWorkspace),
        "a product's ways");
    std::vector<abi::Heuristic> named(to_size(ways));
    int count = 0;
    if (calls_.heuristic(libraries.handle_, desc_.made, w_.made, x_.made, out_.made, out_.made,
                         preference.made, ways, named.data(), &count) != 0) {
      return;
    }
    named.resize(to_size(count));
    for (const abi::Heuristic& one : named) {
      if (one.state == 0 && one.workspace <= kWorkspace) ways_.push_back(one.algorithm);
    }
  }

  int ways() const override { return narrow<int>(ways_.size()); }

  bool record(int way, int calls) override {
    const abi::Driver& driver = libraries_.driver_;
    graph_.reset();
    // Once as it is: code that is loaded at its first call cannot be captured.
    if (!enqueue(way, 0)) return false;
    succeed(driver.stream_wait(libraries_.stream_), "a product by cuBLASLt");
    succeed(driver.capture_begin(libraries_.stream_, abi::kCaptureRelaxed), "capturing products");
    bool all = true;
    for (int call = 0; call < calls; ++call) all = all && enqueue(way, call);
    Owner graph(driver.graph_destroy);
    succeed(driver.capture_end(libraries_.stream_, &graph.made), "capturing products");
    if (!all) return false;
    succeed(driver.instantiate(&graph_.made, graph.made, 0), "a graph of products");
    return true;
  }

  void run() override {
    const abi::Driver& driver = libraries_.driver_;
    succeed(driver.launch(graph_.made, libraries_.stream_), "a graph of products");
    succeed(driver.stream_wait(libraries_.stream_), "waiting for products");
  }

 private:
  bool enqueue(int way, int call) const {
    const float one = 1, zero = 0;
    const auto* w =
        static_cast<const std::uint16_t*>(what_.w) + call % what_.copies * what_.n * what_.k;
    return calls_.multiply(libraries_.handle_, desc_.made, &one, w, w_.made, what_.x, x_.made,
                           &zero, what_.out, out_.made, what_.out, out_.made, &nth(ways_, way),
                           what_.workspace, kWorkspace, libraries_.stream_) == 0;
  }

  const DeviceLibraries& libraries_;
  const abi::Products& calls_;
  LibraryCase what_;
  Owner desc_, w_, x_, out_, graph_;
  std::vector<abi::Algorithm> ways_;
};

std::unique_ptr<LibraryProduct> DeviceLibraries::product(const LibraryCase& what, int ways) const {
  return std::make_unique<Product>(*this, what, ways);
}

}  // namespace tessera
