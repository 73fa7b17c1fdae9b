// Bytes in memory as a source to read from.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "engine/core/file_stream.h"

namespace tessera {

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::string bytes) : bytes_(std::move(bytes)) {}
  std::size_t read(char* data, std::size_t size) override {
    const std::size_t got = bytes_.copy(data, size, at_);
    at_ += got;
    return got;
  }
  std::uint64_t size() const override { return bytes_.size(); }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

}  // namespace tessera
