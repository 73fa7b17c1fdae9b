// FFmpeg's input over bytes that somebody else reads. Internal to video/codec.
#pragma once

#include <cstdint>
#include <exception>

#include "video/codec/ffmpeg.h"

namespace tessera {

// What the bytes throw is kept and thrown again outside of FFmpeg.
class BytesIo {
 public:
  // `bytes` outlives it. Throws bad_alloc.
  explicit BytesIo(FileBytes& bytes);
  BytesIo(const BytesIo&) = delete;
  BytesIo& operator=(const BytesIo&) = delete;

  AVIOContext* context() const { return io_.get(); }
  void rethrow();

 private:
  static int read(void* self, std::uint8_t* data, int count);
  static std::int64_t seek(void* self, std::int64_t offset, int whence);

  FileBytes& bytes_;
  std::uint64_t at_ = 0;
  std::exception_ptr thrown_;
  ffmpeg::Io io_;
};

}  // namespace tessera
