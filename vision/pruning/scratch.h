// Working memory of a selection, owned by the caller. It grows the first time and is reused
// afterwards, so that a second selection of the same size allocates nothing but its result.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

class PruneScratch {
 public:
  // `count` elements, each equal to `fill`; valid until the enclosing ScratchScope ends.
  template <typename T>
  std::span<T> take(std::int64_t count, T fill = T{}) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kAlignment);
    expects(count >= 0, "a count of elements");
    const std::size_t bytes = to_size(count) * sizeof(T);
    T* data = reinterpret_cast<T*>(bytes_of((bytes + kAlignment - 1) / kAlignment * kAlignment));
    std::uninitialized_fill_n(data, count, fill);
    return {data, to_size(count)};
  }

  // Bytes held; what a selection needs at most, after it ran.
  std::size_t capacity() const {
    std::size_t sum = 0;
    for (const Block& block : blocks_) sum += block.size;
    return sum;
  }

 private:
  friend class ScratchScope;
  static constexpr std::size_t kAlignment = 16;
  static constexpr std::size_t kMin = std::size_t{1} << 16;

  struct Block {
    std::unique_ptr<std::byte[]> data;
    std::size_t size = 0;
  };

  std::byte* bytes_of(std::size_t bytes) {
    while (at_ < blocks_.size() && used_ + bytes > blocks_[at_].size) {
      ++at_;
      used_ = 0;
    }
    if (at_ == blocks_.size()) {
      const std::size_t size = std::max(bytes, kMin);
      blocks_.push_back({std::make_unique_for_overwrite<std::byte[]>(size), size});
      used_ = 0;
    }
    std::byte* out = blocks_[at_].data.get() + used_;
    used_ += bytes;
    return out;
  }

  std::vector<Block> blocks_;
  std::size_t at_ = 0, used_ = 0;
};

// Gives back at its end what was taken since its beginning.
class ScratchScope {
 public:
  explicit ScratchScope(PruneScratch& scratch)
      : scratch_(scratch), at_(scratch.at_), used_(scratch.used_) {}
  ~ScratchScope() {
    scratch_.at_ = at_;
    scratch_.used_ = used_;
  }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

 private:
  PruneScratch& scratch_;
  std::size_t at_, used_;
};

}  // namespace tessera
