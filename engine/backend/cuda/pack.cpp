// Packing of weights for the device: rows converted by the host's threads, a few at a time, into
// pinned memory that is sent while the next ones are converted.
#include <algorithm>
#include <array>
#include <cstring>

#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/cuda/libraries.h"
#include "engine/backend/cuda/packing.h"
#include "engine/backend/linear_parts.h"
#include "engine/core/function_ref.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"

namespace tessera::cuda {

namespace {

constexpr std::int64_t kChunkBytes = std::int64_t{4} << 20;
constexpr std::int64_t kNumbers = 512;  // converted at once: whole blocks of any storage type

// `count` numbers, source element i at first + i * step, to `out` as the storage type keeps them.
void convert(const ConstTensorView& source, std::int64_t first, std::int64_t step,
             std::int64_t count, const StorageType& storage, std::byte* out) {
  if (source.dtype == storage.dtype && step == 1) {
    std::memcpy(out, source.raw() + storage.bytes(first), storage.bytes(count));
    return;
  }
  std::array<float, kNumbers> numbers;
  for (std::int64_t i = 0; i < count; i += kNumbers) {
    const std::int64_t some = std::min(kNumbers, count - i);
    read_numbers(source, first + i * step, step, some, numbers.data());
    storage.write(numbers.data(), some, out + storage.bytes(i));
  }
}

void check_source(const ConstTensorView& source) {
  storage_of(source.dtype);
  expects(source.device.kind == DeviceKind::kCpu, "weights are packed from host memory");
}

// Fills `rows` rows of `row_bytes` each at `to`; fill(row, out) writes one, whose bytes are zero.
void send_rows(CudaBackend& backend, std::int64_t rows, std::int64_t row_bytes, void* to,
               FunctionRef<void(std::int64_t, std::byte*)> fill) {
  const std::int64_t at_once =
      std::clamp<std::int64_t>(kChunkBytes / std::max<std::int64_t>(row_bytes, 1), 1, rows);
  const auto chunk_bytes = to_size(at_once * row_bytes);
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
        std::memset(out, 0, to_size(row_bytes));
        fill(begin + row, out);
      }
    });
    check(cudaMemcpyAsync(static_cast<std::byte*>(to) + begin * row_bytes, chunk,
                          to_size(count * row_bytes), cudaMemcpyHostToDevice, backend.stream()),
          "sending weights");
    check(cudaEventRecord(sent[turn].get(), backend.stream()), "sending weights");
  }
  check(cudaStreamSynchronize(backend.stream()), "sending weights");
}

}  // namespace

LinearWeight CudaBackend::pack_linear(std::span<const ConstTensorView> stacked, DType storage) {
  expects(keeps(storage), "the device keeps such weights");
  for (const ConstTensorView& source : stacked) check_source(source);
  LinearWeight weight;
  const std::vector<StackedPart> parts = split_stacked(stacked, storage, weight);
  std::size_t bytes = 0;
  for (const auto& [part, sources] : parts) {
    bytes += packed_linear_bytes(part.n, weight.k, part.storage);
  }
  weight.packed = allocate(DType::kU8, {to_index(bytes)});
  auto* memory = weight.packed.view().raw();
  for (const auto& [part, sources] : parts) {
    send_part(sources, part, weight.k, memory);
    memory += packed_linear_bytes(part.n, weight.k, part.storage);
  }
  return weight;
}

// Rows of matrices one after the other, rounded up and filled with zeros.
void CudaBackend::send_part(std::span<const ConstTensorView> stacked, const LinearPart& part,
                            std::int64_t k, std::byte* memory) {
  const StorageType& type = kept_storage(part.storage);
  send_rows(*this, padded_rows(part.n), to_index(type.bytes(padded_inputs(k))), memory,
            [&](std::int64_t row, std::byte* out) {
              std::size_t source = 0;
              while (source < stacked.size() && row >= stacked[source].shape[0]) {
                row -= stacked[source++].shape[0];
              }
              if (source == stacked.size()) return;
              convert(stacked[source], row * k, 1, k, type, out);
            });
  // Now, so that no pass makes room while it runs and what was recorded stays valid.
  const bool library = !options_.deterministic && library_multiplies(part.storage) &&
                       libraries().without_cublaslt().empty();
  reserve_scratch(linear_scratch_bytes(part.n, k, part.storage, multiprocessors_, library));
}

ConvWeight CudaBackend::pack_conv(ConstTensorView kernel, DType storage) {
  check_source(kernel);
  const StorageType& type = kept_storage(storage);
  expects(kernel.shape.rank() == 4, "a kernel is [c_out, c_in, kh, kw]");
  ConvWeight weight;
  weight.storage = storage;
  weight.c_out = kernel.shape[0];
  weight.c_in = kernel.shape[1];
  weight.kh = kernel.shape[2];
  weight.kw = kernel.shape[3];
  const std::int64_t taps = weight.kh * weight.kw;
  const std::int64_t channels = padded_channels(weight.c_in);
  const auto tap_bytes = to_index(type.bytes(channels));
  weight.packed = allocate(DType::kU8, {padded_rows(weight.c_out), taps, tap_bytes});
  send_rows(*this, padded_rows(weight.c_out), taps * tap_bytes, weight.packed.view().data,
            [&](std::int64_t row, std::byte* out) {
              if (row >= weight.c_out) return;
              for (std::int64_t tap = 0; tap < taps; ++tap) {
                convert(kernel, row * weight.c_in * taps + tap, taps, weight.c_in, type,
                        out + tap * tap_bytes);
              }
            });
  return weight;
}

bool CudaBackend::keeps(DType storage) const {
  return storage == DType::kFile || multiplies(storage);
}

std::size_t CudaBackend::packed_linear_bytes(std::int64_t n, std::int64_t k, DType storage) const {
  return kept_storage(storage).bytes(padded_rows(n), padded_inputs(k));
}

std::size_t CudaBackend::packed_conv_bytes(const Shape& kernel, DType storage) const {
  return kept_storage(storage).bytes(padded_rows(kernel[0]) * kernel[2] * kernel[3],
                                     padded_channels(kernel[1]));
}

}  // namespace tessera::cuda
