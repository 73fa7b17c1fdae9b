#include "video/codec/bytes_io.h"

#include <new>
#include <utility>

#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr int kIoBytes = 64 << 10;

}  // namespace

BytesIo::BytesIo(FileBytes& bytes) : bytes_(bytes) {
  auto* buffer = static_cast<unsigned char*>(av_malloc(kIoBytes));
  if (buffer == nullptr) throw std::bad_alloc();
  io_.reset(avio_alloc_context(buffer, kIoBytes, 0, this, &read, nullptr, &seek));
  if (!io_) {
    av_free(buffer);
    throw std::bad_alloc();
  }
}

void BytesIo::rethrow() {
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

int BytesIo::read(void* self, std::uint8_t* data, int count) {
  auto& io = *static_cast<BytesIo*>(self);
  try {
    const std::size_t got = io.bytes_.read(io.at_, data, to_size(count));
    io.at_ += got;
    return got == 0 ? AVERROR_EOF : narrow<int>(got);
  } catch (...) {
    io.thrown_ = std::current_exception();
    return AVERROR(EIO);
  }
}

std::int64_t BytesIo::seek(void* self, std::int64_t offset, int whence) {
  auto& io = *static_cast<BytesIo*>(self);
  const auto size = std::ssize(io.bytes_);
  if (whence == AVSEEK_SIZE) return size;
  std::int64_t base = 0;
  if (whence == SEEK_CUR) base = to_index(io.at_);
  if (whence == SEEK_END) base = size;
  std::int64_t target = 0;
  if (__builtin_add_overflow(base, offset, &target) || target < 0) return AVERROR(EINVAL);
  io.at_ = narrow<std::uint64_t>(target);
  return target;
}

}  // namespace tessera
