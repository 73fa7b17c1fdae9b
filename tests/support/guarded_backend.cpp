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

template <typename T>
std::vector<T> kept(std::span<const T> span) {
  return {span.begin(), span.end()};
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
    : options_(options), cpu_(make_backend("cpu", cpu)) {}

GuardedBackend::~GuardedBackend() {
  GuardedMemory::instance().add_pending(-static_cast<std::ptrdiff_t>(queue_.size()));
}

// --- memory -------------------------------------------------------------------------------------

Tensor GuardedBackend::allocate(DType dtype, Shape shape) {
  outside_passes("nothing is allocated in a recorded pass");
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * dtype_size(dtype);
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

LinearWeight GuardedBackend::open(const LinearWeight& weight) {
  return {borrowed(open(weight.packed.view())), weight.n, weight.k, weight.storage};
}

ConvWeight GuardedBackend::open(const ConvWeight& weight) {
  return {borrowed(open(weight.packed.view())),
          weight.c_out,
          weight.c_in,
          weight.kh,
          weight.kw,
          weight.storage};
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
  return {moved(packed.packed), packed.n, packed.k, packed.storage};
}

ConvWeight GuardedBackend::pack_conv(ConstTensorView kernel, DType storage) {
  ConvWeight packed = cpu_->pack_conv(kernel, storage);
  return {moved(packed.packed), packed.c_out, packed.c_in, packed.kh, packed.kw, packed.storage};
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

void GuardedBackend::linear(ConstTensorView x, const LinearWeight& w, ConstTensorView bias,
                            TensorView out) {
  const auto weight = std::make_shared<const LinearWeight>(open(w));
  enqueue([x = open(x), weight, bias = open(bias), out = open(out)](Backend& cpu) {
    cpu.linear(x, *weight, bias, out);
  });
}

void GuardedBackend::embedding(ConstTensorView table, std::span<const std::int32_t> ids,
                               TensorView out) {
  enqueue([table = open(table), ids = kept(ids), out = open(out)](Backend& cpu) {
    cpu.embedding(table, ids, out);
  });
}

void GuardedBackend::rms_norm(ConstTensorView x, ConstTensorView weight, float eps,
                              TensorView out) {
  enqueue([x = open(x), weight = open(weight), eps, out = open(out)](Backend& cpu) {
    cpu.rms_norm(x, weight, eps, out);
  });
}

void GuardedBackend::add(ConstTensorView a, ConstTensorView b, TensorView out) {
  enqueue([a = open(a), b = open(b), out = open(out)](Backend& cpu) { cpu.add(a, b, out); });
}

void GuardedBackend::silu_mul(ConstTensorView gate_up, TensorView out) {
  enqueue([gate_up = open(gate_up), out = open(out)](Backend& cpu) { cpu.silu_mul(gate_up, out); });
}

void GuardedBackend::gelu(ConstTensorView x, TensorView out) {
  enqueue([x = open(x), out = open(out)](Backend& cpu) { cpu.gelu(x, out); });
}

void GuardedBackend::gelu_tanh(ConstTensorView x, TensorView out) {
  enqueue([x = open(x), out = open(out)](Backend& cpu) { cpu.gelu_tanh(x, out); });
}

void GuardedBackend::quick_gelu(ConstTensorView x, TensorView out) {
  enqueue([x = open(x), out = open(out)](Backend& cpu) { cpu.quick_gelu(x, out); });
}

void GuardedBackend::layer_norm(ConstTensorView x, ConstTensorView weight, ConstTensorView bias,
                                float eps, TensorView out) {
  enqueue([x = open(x), weight = open(weight), bias = open(bias), eps,
           out = open(out)](Backend& cpu) { cpu.layer_norm(x, weight, bias, eps, out); });
}

void GuardedBackend::softmax_rows(ConstTensorView x, TensorView out) {
  enqueue([x = open(x), out = open(out)](Backend& cpu) { cpu.softmax_rows(x, out); });
}

void GuardedBackend::combine_rows(ConstTensorView x, std::span<const std::int32_t> to,
                                  std::span<const float> weight, TensorView out) {
  enqueue([x = open(x), to = kept(to), weight = kept(weight), out = open(out)](Backend& cpu) {
    cpu.combine_rows(x, to, weight, out);
  });
}

void GuardedBackend::rope(TensorView x, ConstTensorView cos, ConstTensorView sin,
                          RopePairing pairing) {
  enqueue([x = open(x), cos = open(cos), sin = open(sin), pairing](Backend& cpu) {
    cpu.rope(x, cos, sin, pairing);
  });
}

void GuardedBackend::store_rows(const float* rows, std::int64_t row_stride,
                                std::span<const std::int64_t> slots, TensorView cache) {
  note(reinterpret_cast<std::uintptr_t>(rows));
  note(static_cast<std::uint64_t>(row_stride));
  note(slots.size());
  const TensorView to = open(cache);
  if (slots.empty()) return;
  const auto floats =
      static_cast<std::int64_t>(slots.size() - 1) * row_stride + cache.shape[1] * cache.shape[2];
  const auto* from = reinterpret_cast<const float*>(GuardedMemory::instance().open(
      rows, static_cast<std::size_t>(floats) * sizeof(float), "store_rows: rows of the device"));
  enqueue([from, row_stride, slots = kept(slots), to](Backend& cpu) {
    cpu.store_rows(from, row_stride, slots, to);
  });
}

void GuardedBackend::attention(const AttentionArgs& args) {
  struct Kept {
    AttentionArgs args;
    std::vector<AttentionSegment> segments;
    std::vector<std::vector<std::int32_t>> listed;
  };
  auto own = std::make_shared<Kept>();
  own->args = args;
  own->args.q = open(args.q);
  own->args.out = open(args.out);
  own->args.log_sum = open(args.log_sum);
  for (const AttentionSegment& segment : args.segments) {
    AttentionSegment& copy = own->segments.emplace_back(segment);
    copy.keys = open(segment.keys);
    copy.values = open(segment.values);
    copy.key_bias = open(segment.key_bias);
    own->listed.push_back(kept(segment.listed));
    for (const std::int64_t word :
         {segment.row_begin, segment.rows, static_cast<std::int64_t>(segment.causal),
          static_cast<std::int64_t>(segment.listed.size())}) {
      note(static_cast<std::uint64_t>(word));
    }
  }
  for (std::size_t i = 0; i < own->segments.size(); ++i) own->segments[i].listed = own->listed[i];
  own->args.segments = own->segments;
  enqueue([own](Backend& cpu) { cpu.attention(own->args); });
}

void GuardedBackend::row_attention(const RowAttentionArgs& args) {
  RowAttentionArgs own = args;
  own.q = open(args.q);
  own.keys = open(args.keys);
  own.key_bias = open(args.key_bias);
  own.log_sum = open(args.log_sum);
  own.out = open(args.out);
  enqueue([own](Backend& cpu) { cpu.row_attention(own); });
}

void GuardedBackend::conv2d(const Conv2dArgs& args) {
  const auto weight = std::make_shared<const ConvWeight>(open(*args.weight));
  Conv2dArgs own = args;
  own.in = open(args.in);
  own.weight = weight.get();
  own.bias = open(args.bias);
  own.scale = open(args.scale);
  own.shift = open(args.shift);
  own.out = open(args.out);
  enqueue([own, weight](Backend& cpu) { cpu.conv2d(own); });
}

void GuardedBackend::group_norm_coefficients(ConstTensorView x, int groups, float eps,
                                             ConstTensorView gamma, ConstTensorView beta,
                                             TensorView scale, TensorView shift) {
  enqueue([x = open(x), groups, eps, gamma = open(gamma), beta = open(beta), scale = open(scale),
           shift = open(shift)](Backend& cpu) {
    cpu.group_norm_coefficients(x, groups, eps, gamma, beta, scale, shift);
  });
}

void GuardedBackend::affine_channels(ConstTensorView x, ConstTensorView scale,
                                     ConstTensorView shift, TensorView out) {
  enqueue([x = open(x), scale = open(scale), shift = open(shift), out = open(out)](Backend& cpu) {
    cpu.affine_channels(x, scale, shift, out);
  });
}

void GuardedBackend::modulate(const ModulateArgs& args) {
  ModulateArgs own = args;
  own.in = open(args.in);
  own.scale = open(args.scale);
  own.shift = open(args.shift);
  own.gain = open(args.gain);
  own.bias = open(args.bias);
  own.out = open(args.out);
  enqueue([own](Backend& cpu) { cpu.modulate(own); });
}

void GuardedBackend::nearest_code(ConstTensorView z, ConstTensorView codebook,
                                  std::span<std::int32_t> ids) {
  outside_passes("no ids come back in a recorded pass");
  std::fill(ids.begin(), ids.end(), -1);
  enqueue([z = open(z), codebook = open(codebook), ids](Backend& cpu) {
    cpu.nearest_code(z, codebook, ids);
  });
}

void GuardedBackend::l2_normalize(ConstTensorView x, float eps, TensorView out) {
  enqueue([x = open(x), eps, out = open(out)](Backend& cpu) { cpu.l2_normalize(x, eps, out); });
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
