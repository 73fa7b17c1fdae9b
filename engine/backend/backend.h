// A device: its memory, its queue, weights in its own layout, and a table of ops (op.h). The ops
// themselves are in engine/ops; their arguments arrive checked. Calls enqueue; only synchronize()
// blocks.
//
// Row contract, kept by every backend on the decode path: one output row is one reduction in one
// fixed order over its inputs. It depends neither on how many rows are computed next to it, nor on
// the number of threads, nor on rows cached after the ones it may see.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/backend/op.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"
#include "engine/core/tensor.h"
#include "engine/core/thread_pool.h"

namespace tessera {

// Neighbouring outputs of a matrix that are kept alike.
struct LinearPart {
  std::int64_t n = 0;  // outputs
  DType storage = DType::kF32;
};

// A matrix [n, k] in the device's own layout. `storage` is one of storage_types() (storage.h), or
// kFile where its outputs are of several types: `parts` has them in order.
struct LinearWeight {
  Tensor packed;
  std::int64_t n = 0;  // outputs
  std::int64_t k = 0;  // inputs
  DType storage = DType::kF32;
  std::vector<LinearPart> parts;

  // The same matrix in other memory.
  LinearWeight in(Tensor memory) const { return {std::move(memory), n, k, storage, parts}; }
};

// A convolution kernel [c_out, c_in, kh, kw] in the device's own layout.
struct ConvWeight {
  Tensor packed;
  std::int64_t c_out = 0, c_in = 0, kh = 0, kw = 0;
  DType storage = DType::kF32;

  ConvWeight in(Tensor memory) const { return {std::move(memory), c_out, c_in, kh, kw, storage}; }
};

// Bytes of a device's own memory; the host's is not counted here.
struct DeviceMemory {
  std::size_t free = 0, total = 0;
};

struct Conv2dArgs;    // engine/ops/conv2d.h
class RowVerifierMaker;  // engine/backend/row_verifier.h

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  // "cpu-avx2", "cpu-reference", "cuda:0"
  virtual Device device() const = 0;
  virtual ThreadPool& threads() = 0;

  virtual Tensor allocate(DType dtype, Shape shape) = 0;
  // Host memory that the device copies to and from while the host goes on.
  virtual Tensor allocate_host(DType dtype, Shape shape) { return Tensor::host(dtype, shape); }
  virtual void upload(ConstTensorView host, TensorView out) = 0;  // same dtype and shape
  virtual void download(ConstTensorView in, TensorView host) = 0;
  // Both on the device, not overlapping.
  virtual void copy(ConstTensorView from, TensorView to) = 0;
  virtual void synchronize() = 0;
  // Nothing where the device computes in the host's memory.
  virtual std::optional<DeviceMemory> memory() const { return std::nullopt; }

  // Ops run between these two are the same ones whenever `key` is the same, on the same tensors and
  // of the same shapes; only the contents of host spans and what an op's visit() calls varying may
  // differ. A device may then repeat what it recorded the first time.
  virtual void begin_recorded(std::uint64_t /*key*/) {}
  virtual void end_recorded() {}
  // Rows that a model sends through its layers together: longer batches go in parts of so many.
  virtual std::int64_t rows_at_once() const { return 256; }
  // Sampling and acceptance on the device; null where the host does them.
  virtual RowVerifierMaker* row_verifiers() { return nullptr; }

  // Rows of several matrices [n_i, k] stacked into one packed weight (QKV, gate and up), or a range
  // of rows of one (an image-only head). Sources in host memory, of any type of storage_types(); ones
  // in blocks of the storage type itself are taken as they are. kFile: see kept_as().
  virtual LinearWeight pack_linear(std::span<const ConstTensorView> stacked, DType storage) = 0;
  virtual ConvWeight pack_conv(ConstTensorView kernel, DType storage) = 0;
  // Whether pack_linear takes this storage type: here, those that tables are kept as too.
  virtual bool keeps(DType storage) const { return beside(storage) == storage; }
  // Bytes that pack_linear of [n, k] / pack_conv will hold, for the memory plan.
  virtual std::size_t packed_linear_bytes(std::int64_t n, std::int64_t k, DType storage) const = 0;
  virtual std::size_t packed_conv_bytes(const Shape& kernel, DType storage) const = 0;
  // Scratch that one conv2d / attention call of these sizes needs at most; grown once, kept.
  virtual void reserve_scratch(std::size_t bytes) = 0;
  virtual std::size_t conv_scratch_bytes(const Conv2dArgs& args) const = 0;
  virtual std::size_t attention_scratch_bytes(std::int64_t rows, std::int64_t heads,
                                              std::int64_t head_dim) const = 0;

  // Runs an op of engine/ops: by the device's own function, else in parts, else as run_unknown()
  // has it. Nothing is checked here.
  template <Op Args>
  void run(const Args& op);
  // The ops that this device has functions for. Others may be added.
  OpTable& ops() { return ops_; }

 protected:
  // An op that is neither in the table nor made of others: Error kGeneral, unless the device takes
  // ops of any kind.
  virtual void run_unknown(const OpKind& kind, const void* op);

 private:
  OpTable ops_;
};

template <Op Args>
inline constexpr OpKind kOpKind = {
    .name = Args::kName,
    .fields = kFieldsOf<Args>,
    .make = +[]() -> std::shared_ptr<void> { return std::make_shared<Args>(); },
    .copy = +[](const void* op) -> std::shared_ptr<void> {
      return std::make_shared<Args>(*static_cast<const Args*>(op));
    },
    .visit = +[](void* op, OpVisitor& visitor) { static_cast<Args*>(op)->visit(visitor); },
    .run = +[](Backend& backend, const void* op) { backend.run(*static_cast<const Args*>(op)); },
};

template <Op Args>
void Backend::run(const Args& op) {
  constexpr std::uint64_t kId = op_id(Args::kName);
  if (const OpFunction function = ops_.find(kId)) return function(*this, &op);
  if constexpr (HasParts<Args>) {
    op.in_parts(*this);
  } else {
    run_unknown(kOpKind<Args>, &op);
  }
}

template <auto kRun>
void OpTable::add() {
  []<typename DeviceClass, typename Args>(OpTable& table, void (*)(DeviceClass&, const Args&)) {
    table.put(
        kOpKind<Args>, +[](Backend& backend, const void* op) {
          kRun(static_cast<DeviceClass&>(backend), *static_cast<const Args*>(op));
        });
  }(*this, kRun);
}

struct CpuOptions {
  int threads = 0;  // 0 = one per core
  // All give the same bits; kReference runs everywhere and is slow.
  enum class Isa : std::uint8_t { kAuto, kReference, kAvx2, kAvx512 } isa = Isa::kAuto;
};

struct CudaOptions {
  // One family of kernels with one order of summation for every number of rows: a row's result is
  // the same bits whatever stands next to it. Without, wide products, convolutions and long
  // attention go by faster ways.
  bool deterministic = false;
  bool tf32 = false;    // products, convolutions and attention of f32 may round to tf32 or finer
  bool overlap = true;  // kernels may begin before the one in front ends, where the device can
};

// Devices that this build and this machine offer, the CPU first.
struct DeviceInfo {
  std::string name;         // as --device takes it: "cpu", "cuda:0"
  std::string description;  // "AVX2+FMA, 2 threads"
  bool usable = true;
  std::string why_not;
};
std::vector<DeviceInfo> list_devices();

// A device from outside this library; later calls of list_devices() and make_backend() know it.
struct DeviceOffer {
  DeviceInfo info;
  std::function<std::unique_ptr<Backend>(const CpuOptions&, const CudaOptions&)> make;
};
void offer_device(DeviceOffer offer);

// Error kUsage with the list of devices when `device` is unknown or unusable ("auto" never fails).
std::unique_ptr<Backend> make_backend(const std::string& device, const CpuOptions& options = {},
                                      const CudaOptions& cuda = {});

// Room for the activations of one pass, in the memory of the backend's device.
inline Arena make_arena(Backend& backend, std::size_t bytes) {
  if (backend.device().kind == DeviceKind::kCpu) return Arena(bytes);
  return Arena(backend.allocate(DType::kU8, Shape{to_index(bytes)}));
}

// Between begin_recorded() and end_recorded().
class RecordedPass {
 public:
  RecordedPass(Backend& backend, std::uint64_t key) : backend_(backend) {
    backend_.begin_recorded(key);
  }
  ~RecordedPass() { backend_.end_recorded(); }
  RecordedPass(const RecordedPass&) = delete;
  RecordedPass& operator=(const RecordedPass&) = delete;

 private:
  Backend& backend_;
};

}  // namespace tessera
