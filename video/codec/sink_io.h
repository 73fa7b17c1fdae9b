// FFmpeg's writing through a sink. Internal to video/codec.
#pragma once

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "engine/core/index.h"
#include "video/codec/ffmpeg.h"
#include "video/video.h"

namespace tessera {

// `sink` outlives it. What the sink throws is kept until rethrow().
class SinkIo {
 public:
  explicit SinkIo(VideoSink& sink) : sink_(sink) {
    auto* buffer = static_cast<unsigned char*>(av_malloc(kIoBytes));
    if (buffer == nullptr) throw std::bad_alloc();
    io_.reset(avio_alloc_context(buffer, kIoBytes, 1, this, nullptr, &write, &seek));
    if (!io_) {
      av_free(buffer);
      throw std::bad_alloc();
    }
  }
  SinkIo(const SinkIo&) = delete;
  SinkIo& operator=(const SinkIo&) = delete;
  AVIOContext* context() const { return io_.get(); }
  void rethrow() {
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  }

 private:
  static constexpr int kIoBytes = 64 << 10;

  static int write(void* self, std::uint8_t* data, int count) {
    auto& io = *static_cast<SinkIo*>(self);
    try {
      io.sink_.write(io.at_, data, to_size(count));
      io.at_ += narrow<std::uint64_t>(count);
      io.size_ = std::max(io.size_, io.at_);
      return count;
    } catch (...) {
      io.thrown_ = std::current_exception();
      return AVERROR(EIO);
    }
  }
  static std::int64_t seek(void* self, std::int64_t offset, int whence) {
    auto& io = *static_cast<SinkIo*>(self);
    if (whence == AVSEEK_SIZE) return to_index(io.size_);
    if (whence == SEEK_CUR) offset += to_index(io.at_);
    if (whence == SEEK_END) offset += to_index(io.size_);
    if (offset < 0) return AVERROR(EINVAL);
    io.at_ = narrow<std::uint64_t>(offset);
    return offset;
  }

  VideoSink& sink_;
  std::uint64_t at_ = 0, size_ = 0;
  std::exception_ptr thrown_;
  ffmpeg::Io io_;
};

}  // namespace tessera
