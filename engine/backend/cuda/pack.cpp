// Packing of weights for the device: rows converted by the host's threads, a few at a time, into
// pinned memory that is sent while the next ones are converted.
#include <algorithm>
#include <array>
#include <cstring>

#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/cuda/libraries.h"
#include "engine/backend/cuda/packing.h"
#include "engine/core/function_ref.h"

namespace tessera::cuda {

namespace {

constexpr std::int64_t kChunkBytes = std::int64_t{4} << 20;

float element(const ConstTensorView& view, std::int64_t index) {
  if (view.dtype == DType::kF32) return static_cast<const float*>(view.data)[index];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(view.data)[index];
  return view.dtype == DType::kBF16 ? bf16_to_float(bits) : f16_to_float(bits);
}

// `count` numbers, source element i at first + i * step, to `out` as f32 or bf16.
void convert(const ConstTensorView& source, std::int64_t first, std::int64_t step,
             std::int64_t count, DType storage, std::byte* out) {
  if (source.dtype == storage && step == 1) {
    const std::size_t size = dtype_size(storage);
    std::memcpy(out,
                static_cast<const std::byte*>(source.data) + static_cast<std::size_t>(first) * size,
                static_cast<std::size_t>(count) * size);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = element(source, first + i * step);
    if (storage == DType::kF32) {
      reinterpret_cast<float*>(out)[i] = value;
    } else {
      reinterpret_cast<std::uint16_t*>(out)[i] = float_to_bf16(value);
    }
  }
}

void check_source(const ConstTensorView& source, DType storage) {
  expects(storage == DType::kF32 || storage == DType::kBF16, "weights are stored as f32 or bf16");
  expects(
      source.dtype == DType::kF32 || source.dtype == DType::kBF16 || source.dtype == DType::kF16,
      "weights are packed from f32, bf16 or f16");
  expects(source.device.kind == DeviceKind::kCpu, "weights are packed from host memory");
}

// Fills `rows` rows of `row_bytes` each at `to`; fill(row, out) writes one, whose bytes are zero.
void send_rows(CudaBackend& backend, std::int64_t rows, std::int64_t row_bytes, void* to,
               FunctionRef<void(std::int64_t, std::byte*)> fill) {
  const std::int64_t at_once =
      std::clamp<std::int64_t>(kChunkBytes / std::max<std::int64_t>(row_bytes, 1), 1, rows);
  const auto chunk_bytes = static_cast<std::size_t>(at_once * row_bytes);
  const Buffer pinned = allocate_pinned(2 * chunk_bytes);
  const std::array<Event, 2> sent = {make_event(), make_event()};
  std::size_t turn = 0;
  for (std::int64_t begin = 0; begin < rows; begin += at_once, turn ^= 1) {
    const std::int64_t count = std::min(at_once, rows - begin);
    std::byte* chunk = static_cast<std::byte*>(pinned.get()) + turn * chunk_bytes;
    if (begin >= 2 * at_once) check(cudaEventSynchronize(sent[turn].get()), "sending weights");
    backend.threads().parallel_for(count, 1, [&](std::int64_t row, std::int64_t end, int) {
      for (; row < end; ++row) {
        std::byte* out = chunk + row * row_bytes;
        std::memset(out, 0, static_cast<std::size_t>(row_bytes));
        fill(begin + row, out);
      }
    });
    check(cudaMemcpyAsync(static_cast<std::byte*>(to) + begin * row_bytes, chunk,
                          static_cast<std::size_t>(count * row_bytes), cudaMemcpyHostToDevice,
                          backend.stream()),
          "sending weights");
    check(cudaEventRecord(sent[turn].get(), backend.stream()), "sending weights");
  }
  check(cudaStreamSynchronize(backend.stream()), "sending weights");
}

}  // namespace

LinearWeight CudaBackend::pack_linear(std::span<const ConstTensorView> stacked, DType storage) {
  expects(!stacked.empty(), "at least one matrix to pack");
  LinearWeight weight;
  weight.storage = storage;
  weight.k = stacked[0].shape[1];
  for (const ConstTensorView& part : stacked) {
    check_source(part, storage);
    expects(part.shape.rank() == 2 && part.shape[1] == weight.k, "stacked matrices share inputs");
    weight.n += part.shape[0];
  }
  const std::int64_t rows = padded_rows(weight.n), inputs = padded_inputs(weight.k);
  weight.packed = allocate(storage, {rows, inputs});
  const auto row_bytes = inputs * static_cast<std::int64_t>(dtype_size(storage));
  send_rows(*this, rows, row_bytes, weight.packed.view().data,
            [&](std::int64_t row, std::byte* out) {
              std::size_t part = 0;
              while (part < stacked.size() && row >= stacked[part].shape[0]) {
                row -= stacked[part++].shape[0];
              }
              if (part == stacked.size()) return;
              convert(stacked[part], row * weight.k, 1, weight.k, storage, out);
            });
  // Now, so that no pass makes room while it runs and what was recorded stays valid.
  const bool library = !options_.deterministic && libraries().without_cublaslt().empty();
  reserve_scratch(linear_scratch_bytes(weight.n, weight.k, storage, multiprocessors_, library));
  return weight;
}

ConvWeight CudaBackend::pack_conv(ConstTensorView kernel, DType storage) {
  check_source(kernel, storage);
  expects(kernel.shape.rank() == 4, "a kernel is [c_out, c_in, kh, kw]");
  ConvWeight weight;
  weight.storage = storage;
  weight.c_out = kernel.shape[0];
  weight.c_in = kernel.shape[1];
  weight.kh = kernel.shape[2];
  weight.kw = kernel.shape[3];
  const std::int64_t taps = weight.kh * weight.kw;
  const std::int64_t channels = padded_channels(weight.c_in);
  weight.packed = allocate(storage, {padded_rows(weight.c_out), taps, channels});
  const auto tap_bytes = channels * static_cast<std::int64_t>(dtype_size(storage));
  send_rows(*this, padded_rows(weight.c_out), taps * tap_bytes, weight.packed.view().data,
            [&](std::int64_t row, std::byte* out) {
              if (row >= weight.c_out) return;
              for (std::int64_t tap = 0; tap < taps; ++tap) {
                convert(kernel, row * weight.c_in * taps + tap, taps, weight.c_in, storage,
                        out + tap * tap_bytes);
              }
            });
  return weight;
}

std::size_t CudaBackend::packed_linear_bytes(std::int64_t n, std::int64_t k, DType storage) const {
  return static_cast<std::size_t>(padded_rows(n) * padded_inputs(k)) * dtype_size(storage);
}

std::size_t CudaBackend::packed_conv_bytes(const Shape& kernel, DType storage) const {
  return static_cast<std::size_t>(padded_rows(kernel[0]) * padded_channels(kernel[1]) * kernel[2] *
                                  kernel[3]) *
         dtype_size(storage);
}

}  // namespace tessera::cuda
