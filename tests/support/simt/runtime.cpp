// The runtime's calls over queues: what is enqueued runs when something waits for its stream. While
// queues run the device's memory is open, else closed to everybody. A kernel that may overlap the
// one in front of it begins, with one block, before that one.
#include <cuda_runtime.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/support/simt/machine.h"
#include "tests/support/simt/simulated_device.h"

struct Work {
  std::function<void()> run;  // a copy or a graph,
  std::function<void()> kernel = {};
  cudaLaunchConfig_t config = {};
  bool overlaps = false;
};

struct SimtStream {
  std::deque<Work> queue;
  SimtGraph* captured = nullptr;
};
struct SimtEvent {
  SimtStream* stream = nullptr;  // that it was recorded on
};
struct SimtGraph {
  std::vector<Work> work;
};
struct SimtGraphExec {
  std::shared_ptr<const std::vector<Work>> work;
};

namespace {

struct Block {
  std::size_t bytes = 0, pages = 0;
  bool device = false;
};

// What a kernel declares as shared is not known here: as if it were always this much.
constexpr int kStaticShared = 4 << 10;
constexpr int kPlainShared = (48 << 10) - kStaticShared, kMaxShared = (227 << 10) - kStaticShared;

struct Runtime {
  std::recursive_mutex mutex;
  std::map<std::uintptr_t, Block> blocks;
  std::vector<SimtStream*> streams;
  std::map<const void*, int> shared_limits;
  tessera::simt::DeviceSettings settings;
  tessera::simt::DeviceCounts counts;
  std::size_t used = 0;
  int open = 0, captures = 0;
};

Runtime& runtime() {
  static Runtime* one = new Runtime;  // streams may outlive statics
  return *one;
}

std::size_t whole_pages(std::size_t bytes) {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

void protect(int rights) {
  for (const auto& [start, block] : runtime().blocks) {
    if (block.device) mprotect(reinterpret_cast<void*>(start), block.pages, rights);
  }
}

// The device's memory is open in the scope.
struct Open {
  Open() {
    if (runtime().open++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  ~Open() {
    if (--runtime().open == 0) protect(PROT_NONE);
  }
};

const Block* block_of(const void* memory, std::size_t bytes) {
  auto& blocks = runtime().blocks;
  const auto at = reinterpret_cast<std::uintptr_t>(memory);
  auto found = blocks.upper_bound(at);
  if (found == blocks.begin()) return nullptr;
  --found;
  // A block ends where its page ends, so that what reaches past it is seen.
  return at + bytes <= found->first + found->second.pages ? &found->second : nullptr;
}

// Works in their order.
class Runner {
 public:
  void run(const Work& work, const Work* next) {
    using namespace tessera::simt;
    Grid* grid = std::exchange(ahead_, nullptr);
    if (!work.kernel) return work.run();
    ++runtime().counts.kernels;
    if (grid == nullptr) grid = make_grid(work.config, work.overlaps, work.kernel);
    if (next != nullptr && next->kernel && next->overlaps) {
      ahead_ = make_grid(next->config, true, next->kernel);
      begin_grid(*ahead_);
    }
    finish_grid(*grid);
  }

 private:
  tessera::simt::Grid* ahead_ = nullptr;
};

void run(SimtStream& stream) {
  if (stream.queue.empty()) return;
  const Open open;
  Runner runner;
  while (!stream.queue.empty()) {
    const Work work = std::move(stream.queue.front());
    stream.queue.pop_front();
    runner.run(work, stream.queue.empty() ? nullptr : &stream.queue.front());
  }
}

cudaError_t enqueue(cudaStream_t stream, Work work) {
  if (stream == nullptr) return cudaErrorInvalidValue;  // the null stream is not used
  if (stream->captured != nullptr) {
    stream->captured->work.push_back(std::move(work));
  } else {
    stream->queue.push_back(std::move(work));
  }
  return cudaSuccess;
}

// The block's bytes end at a page that nobody may touch, as near as 256-byte alignment lets them.
cudaError_t allocate(void** out, std::size_t bytes, bool device) {
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  if (device && r.captures > 0) return cudaErrorStreamCaptureUnsupported;
  ++r.counts.allocations;
  if (device && r.used + bytes > r.settings.memory) return cudaErrorMemoryAllocation;
  constexpr std::size_t kAlignment = 256;
  const std::size_t pages = whole_pages(bytes);
  void* memory = mmap(nullptr, pages + whole_pages(1), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return cudaErrorMemoryAllocation;
  mprotect(memory, pages, PROT_READ | PROT_WRITE);
  std::memset(memory, 0xff, pages);
  if (device && r.open == 0) mprotect(memory, pages, PROT_NONE);
  const auto start = reinterpret_cast<std::uintptr_t>(memory);
  r.blocks[start] = {bytes, pages, device};
  if (device) r.used += bytes;
  const std::size_t room = (pages - bytes) / kAlignment * kAlignment;
  *out = static_cast<unsigned char*>(memory) + room;
  return cudaSuccess;
}

cudaError_t release(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  for (SimtStream* stream : r.streams) run(*stream);
  auto found = r.blocks.upper_bound(reinterpret_cast<std::uintptr_t>(memory));
  if (found == r.blocks.begin()) return cudaErrorInvalidValue;
  --found;
  if (found->second.device) r.used -= found->second.bytes;
  munmap(reinterpret_cast<void*>(found->first), found->second.pages + whole_pages(1));
  r.blocks.erase(found);
  return cudaSuccess;
}

}  // namespace

namespace tessera::simt {

void set_device(const DeviceSettings& settings) {
  const std::lock_guard lock(runtime().mutex);
  runtime().settings = settings;
}

DeviceCounts counts() {
  const std::lock_guard lock(runtime().mutex);
  return runtime().counts;
}

cudaError_t enqueue_kernel(const cudaLaunchConfig_t& config, const void* kernel,
                           std::function<void()> body) {
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  const std::uint64_t threads =
      static_cast<std::uint64_t>(config.blockDim.x) * config.blockDim.y * config.blockDim.z;
  const auto allowed = r.shared_limits.find(kernel);
  const auto most =
      static_cast<std::size_t>(allowed == r.shared_limits.end() ? kPlainShared : allowed->second);
  // Whole warps: masks of all lanes are then right in every one of them.
  if (threads == 0 || threads > 1024 || threads % 32 != 0 || config.dynamicSmemBytes > most ||
      config.gridDim.x == 0 || config.gridDim.y == 0 || config.gridDim.z == 0 ||
      config.gridDim.y > 65535 || config.gridDim.z > 65535) {
    return cudaErrorInvalidConfiguration;
  }
  ++r.counts.launches;
  bool overlaps = false;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    if (config.attrs[i].id != cudaLaunchAttributeProgrammaticStreamSerialization) {
      return cudaErrorInvalidValue;
    }
    overlaps = config.attrs[i].val.programmaticStreamSerializationAllowed != 0;
  }
  Work work{.run = {}, .kernel = std::move(body), .config = config, .overlaps = overlaps};
  work.config.attrs = nullptr;  // the caller's
  return enqueue(config.stream, std::move(work));
}

}  // namespace tessera::simt

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess ? "cudaSuccess" : "a simulated error";
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    default:
      return "invalid argument";
  }
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  *out = {};
  std::strncpy(out->name, "simulated device", sizeof out->name - 1);
  out->totalGlobalMem = runtime().settings.memory;
  out->major = 9;
  out->multiProcessorCount = runtime().settings.multiprocessors;
  return cudaSetDevice(device);
}
cudaError_t cudaDeviceGetAttribute(int* out, cudaDeviceAttr attribute, int device) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *out = runtime().settings.multiprocessors;
      break;
    case cudaDevAttrL2CacheSize:
      *out = 64 << 10;  // small, so that what is cut to fit is cut at the sizes of tests
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *out = 9;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *out = 0;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *out = 227 << 10;
      break;
  }
  return cudaSetDevice(device);
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(runtime().mutex);
  *total = runtime().settings.memory;
  *free = *total - std::min(*total, runtime().used);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** out, std::size_t bytes) { return allocate(out, bytes, true); }
cudaError_t cudaFree(void* memory) { return release(memory); }
cudaError_t cudaMallocHost(void** out, std::size_t bytes) { return allocate(out, bytes, false); }
cudaError_t cudaFreeHost(void* memory) { return release(memory); }

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  const bool down = kind == cudaMemcpyDeviceToHost, up = kind == cudaMemcpyHostToDevice;
  const Block* const source = block_of(from, bytes);
  const Block* const target = block_of(to, bytes);
  const bool from_device = source != nullptr && source->device;
  const bool to_device = target != nullptr && target->device;
  if (from_device == up || to_device == down) return cudaErrorInvalidValue;
  (up ? r.counts.bytes_up : down ? r.counts.bytes_down : r.counts.bytes_within) += bytes;
  if (down) ++r.counts.downloads;
  const bool pinned = up ? source != nullptr : target != nullptr;
  if ((up || down) && !pinned) {
    // Memory that is not pinned: read before the call returns, written before it returns.
    if (stream->captured != nullptr) return cudaErrorStreamCaptureUnsupported;
    if (up) {
      const auto* bytes_of = static_cast<const unsigned char*>(from);
      return enqueue(stream, {[to, held = std::vector<unsigned char>(bytes_of, bytes_of + bytes)] {
                       std::memcpy(to, held.data(), held.size());
                     }});
    }
    ++r.counts.pageable;
    run(*stream);
    const Open open;
    std::memcpy(to, from, bytes);
    return cudaSuccess;
  }
  return enqueue(stream, {[to, from, bytes] { std::memmove(to, from, bytes); }});
}
cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(runtime().mutex);
  return enqueue(stream, {[at, value, bytes] { std::memset(at, value, bytes); }});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) {
  const std::lock_guard lock(runtime().mutex);
  *out = new SimtStream;
  runtime().streams.push_back(*out);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(runtime().mutex);
  run(*stream);
  std::erase(runtime().streams, stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const std::lock_guard lock(runtime().mutex);
  if (stream->captured != nullptr) return cudaErrorStreamCaptureUnsupported;
  ++runtime().counts.waits;
  run(*stream);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  const std::lock_guard lock(runtime().mutex);
  for (SimtStream* stream : runtime().streams) run(*stream);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned) {
  *out = new SimtEvent;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = stream;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::lock_guard lock(runtime().mutex);
  const auto& streams = runtime().streams;
  if (std::find(streams.begin(), streams.end(), event->stream) != streams.end()) {
    run(*event->stream);
  }
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const std::lock_guard lock(runtime().mutex);
  stream->captured = new SimtGraph;
  ++runtime().captures;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  const std::lock_guard lock(runtime().mutex);
  *out = std::exchange(stream->captured, nullptr);
  --runtime().captures;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  *out = new SimtGraphExec{std::make_shared<const std::vector<Work>>(graph->work)};
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  const std::lock_guard lock(runtime().mutex);
  ++runtime().counts.graphs;
  return enqueue(stream, {[work = graph->work] {
                   Runner runner;
                   for (std::size_t i = 0; i < work->size(); ++i) {
                     runner.run((*work)[i], i + 1 < work->size() ? &(*work)[i + 1] : nullptr);
                   }
                 }});
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* kernel) {
  const std::lock_guard lock(runtime().mutex);
  const auto allowed = runtime().shared_limits.find(kernel);
  out->sharedSizeBytes = kStaticShared;
  out->ptxVersion = 90;
  out->maxDynamicSharedSizeBytes =
      allowed == runtime().shared_limits.end() ? kPlainShared : allowed->second;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  const std::lock_guard lock(runtime().mutex);
  if (value > kMaxShared) return cudaErrorInvalidValue;
  runtime().shared_limits[kernel] = value;
  return cudaSuccess;
}
