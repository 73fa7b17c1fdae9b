#include "tests/support/guarded_backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "tests/support/guarded_memory.h"

namespace tessera {

namespace {

struct Counters {
  std::atomic<std::int64_t> ops = 0, recorded = 0, repeated = 0;
};
Counters& counters() {
  static Counters all;
  return all;
}

// Borrows memory that somebody else drops.
Tensor borrowed(const ConstTensorView& view) {
  return Tensor(view.dtype, view.shape,
                Buffer(
                    const_cast<void*>(view.data), +[](void*) {}));
}

}  // namespace

GuardedCounts guarded_counts() {
  return {counters().ops, counters().recorded, counters().repeated};
}

GuardedBackend::GuardedBackend(const CpuOptions& cpu, const GuardedOptions& options)
    : GuardedBackend(make_backend("cpu", cpu), options) {}

GuardedBackend::GuardedBackend(std::unique_ptr<Backend> arithmetic, const GuardedOptions& options)
    : options_(options), cpu_(std::move(arithmetic)) {}

GuardedBackend::~GuardedBackend() {
  GuardedMemory::instance().add_pending(-static_cast<std::ptrdiff_t>(queue_.size()));
}

// --- memory -------------------------------------------------------------------------------------

Tensor GuardedBackend::allocate(DType dtype, Shape shape) {
  outside_passes("nothing is allocated in a recorded pass");
  const std::size_t bytes = dtype_bytes(dtype, shape.elements());
  std::string what = std::string(dtype_name(dtype)) + " " + shape.to_string();
  return Tensor(dtype, shape, GuardedMemory::instance().allocate(bytes, std::move(what)), device());
}

Tensor GuardedBackend::moved(const Tensor& host) {
  Tensor out = allocate(host.dtype(), host.shape());
  upload(host.view(), out.view());
  return out;
}

// What the host reads of an upload it reads during the call.
void GuardedBackend::upload(ConstTensorView host, TensorView out) {
  outside_passes("nothing is uploaded in a recorded pass");
  expects(host.dtype == out.dtype && host.shape == out.shape, "upload keeps dtype and shape");
  expects(host.device.kind == DeviceKind::kCpu && !GuardedMemory::instance().holds(host.data),
          "upload reads host memory");
  if (host.bytes() == 0) return;
  const auto* from = static_cast<const std::byte*>(host.data);
  std::vector<std::byte> bytes(from, from + host.bytes());
  const TensorView to = open(out);
  enqueue([bytes = std::move(bytes), to](Backend&) {
    std::memcpy(to.data, bytes.data(), bytes.size());
  });
}

// What the host finds before it waited is nothing that it may use.
void GuardedBackend::download(ConstTensorView in, TensorView host) {
  outside_passes("nothing is downloaded in a recorded pass");
  expects(host.dtype == in.dtype && host.shape == in.shape, "download keeps dtype and shape");
  expects(host.device.kind == DeviceKind::kCpu && !GuardedMemory::instance().holds(host.data),
          "download writes host memory");
  if (in.bytes() == 0) return;
  std::memset(host.data, 0xff, host.bytes());
  const ConstTensorView from = open(in);
  enqueue([from, host](Backend&) { std::memcpy(host.data, from.data, from.bytes()); });
}

void GuardedBackend::copy(ConstTensorView from, TensorView to) {
  expects(from.dtype == to.dtype && from.shape == to.shape, "copy keeps dtype and shape");
  enqueue([from = open(from), to = open(to)](Backend& cpu) { cpu.copy(from, to); });
}

std::optional<DeviceMemory> GuardedBackend::memory() const {
  if (!options_.own_memory) return std::nullopt;
  return DeviceMemory{std::size_t{8} << 30, std::size_t{8} << 30};
}

// --- views --------------------------------------------------------------------------------------

ConstTensorView GuardedBackend::open(ConstTensorView view) {
  note(reinterpret_cast<std::uintptr_t>(view.data));
  for (const std::int64_t extent : view.shape.extents()) note(static_cast<std::uint64_t>(extent));
  if (view.data == nullptr) return view;
  expects(view.device == device(), "an op works on tensors of its device");
  return {view.dtype, view.shape,
          GuardedMemory::instance().open(view.data, view.bytes(),
                                         "an op works inside a tensor of its device"),
          Device{}};
}

TensorView GuardedBackend::open(TensorView view) {
  const ConstTensorView opened = open(ConstTensorView(view));
  return {opened.dtype, opened.shape, const_cast<void*>(opened.data), opened.device};
}

// --- the queue ----------------------------------------------------------------------------------

void GuardedBackend::enqueue(Job job) {
  ++counters().ops;
  note(0x6f70);  // between two ops
  if (!options_.late) return job(*cpu_);
  queue_.push_back(std::move(job));
  GuardedMemory::instance().add_pending(1);
}

void GuardedBackend::synchronize() {
  outside_passes("nobody waits in a recorded pass");
  const std::vector<Job> jobs = std::exchange(queue_, {});
  for (const Job& job : jobs) job(*cpu_);
  GuardedMemory::instance().add_pending(-static_cast<std::ptrdiff_t>(jobs.size()));
}

void GuardedBackend::outside_passes(const char* what) const { expects(!in_pass_, what); }

void GuardedBackend::note(std::uint64_t word) {
  if (in_pass_) noted_.push_back(word);
}

void GuardedBackend::begin_recorded(std::uint64_t key) {
  expects(!in_pass_, "recorded passes do not nest");
  in_pass_ = true;
  key_ = key;
  noted_.clear();
}

void GuardedBackend::end_recorded() {
  expects(in_pass_, "a recorded pass was begun");
  in_pass_ = false;
  const auto [known, fresh] = passes_.try_emplace(key_, noted_);
  ++(fresh ? counters().recorded : counters().repeated);
  expects(known->second == noted_, "the same key means the same ops on the same tensors");
}

// --- weights ------------------------------------------------------------------------------------

LinearWeight GuardedBackend::pack_linear(std::span<const ConstTensorView> stacked, DType storage) {
  LinearWeight packed = cpu_->pack_linear(stacked, storage);
  return packed.in(moved(packed.packed));
}

ConvWeight GuardedBackend::pack_conv(ConstTensorView kernel, DType storage) {
  ConvWeight packed = cpu_->pack_conv(kernel, storage);
  return packed.in(moved(packed.packed));
}

std::size_t GuardedBackend::packed_linear_bytes(std::int64_t n, std::int64_t k,
                                                DType storage) const {
  return cpu_->packed_linear_bytes(n, k, storage);
}

std::size_t GuardedBackend::packed_conv_bytes(const Shape& kernel, DType storage) const {
  return cpu_->packed_conv_bytes(kernel, storage);
}

void GuardedBackend::reserve_scratch(std::size_t bytes) { cpu_->reserve_scratch(bytes); }

std::size_t GuardedBackend::conv_scratch_bytes(const Conv2dArgs& args) const {
  return cpu_->conv_scratch_bytes(args);
}

std::size_t GuardedBackend::attention_scratch_bytes(std::int64_t rows, std::int64_t heads,
                                                    std::int64_t head_dim) const {
  return cpu_->attention_scratch_bytes(rows, heads, head_dim);
}

// --- ops ----------------------------------------------------------------------------------------

// The arguments of an op until it runs: views opened, host arrays and weights copied.
class GuardedBackend::LateOp final : public OpVisitor {
 public:
  LateOp(GuardedBackend& device, const OpKind& kind, const void* op)
      : device_(device), kind_(kind), op_(kind.copy(op)) {
    device.note(op_id(kind.name));
    kind.visit(op_.get(), *this);
  }
  void run(Backend& cpu) const { kind_.run(cpu, op_.get()); }

 private:
  void tensor(ConstTensorView& view) override { view = device_.open(view); }
  void tensor(TensorView& view) override { view = device_.open(view); }
  void weight(const LinearWeight*& weight) override { open_weight(weight); }
  void weight(const ConvWeight*& weight) override { open_weight(weight); }
  void* host(const void* data, std::size_t bytes) override {
    const auto own = std::make_shared<std::vector<std::byte>>(bytes);
    if (bytes > 0) std::memcpy(own->data(), data, bytes);
    kept_.push_back(own);
    return own->data();
  }
  // What the host finds before it waited is nothing that it may use.
  void result(void* data, std::size_t bytes) override {
    device_.outside_passes("nothing comes back to the host in a recorded pass");
    if (bytes > 0) std::memset(data, 0xff, bytes);
  }
  void number(std::uint64_t bits) override { device_.note(bits); }

  template <typename Weight>
  void open_weight(const Weight*& weight) {
    const auto own =
        std::make_shared<const Weight>(weight->in(borrowed(device_.open(weight->packed.view()))));
    kept_.push_back(own);
    weight = own.get();
  }

  GuardedBackend& device_;
  const OpKind& kind_;
  std::shared_ptr<void> op_;
  std::vector<std::shared_ptr<const void>> kept_;
};

void GuardedBackend::run_unknown(const OpKind& kind, const void* op) {
  const auto late = std::make_shared<const LateOp>(*this, kind, op);
  enqueue([late](Backend& cpu) { late->run(cpu); });
}

void offer_guarded_devices() {
  static const bool once = [] {
    for (const bool late : {true, false}) {
      offer_device(
          {.info = {.name = late ? "guarded:0" : "guarded:1",
                    .description = late ? "a test double whose ops run late" : "a test double"},
           .make = [late](const CpuOptions& cpu, const CudaOptions&) {
             return std::make_unique<GuardedBackend>(cpu, GuardedOptions{.late = late});
           }});
    }
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace tessera
