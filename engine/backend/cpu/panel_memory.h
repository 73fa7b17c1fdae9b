// Memory of packed weights. Matrices of one or two megabytes cover few large pages, or none, each
// by itself; side by side they lie on large pages from end to end and stream up to twice as fast.
#pragma once

#include <cstddef>

#include "engine/core/tensor.h"

namespace tessera::cpu {

class PanelMemory {
 public:
  PanelMemory() = default;
  ~PanelMemory();
  PanelMemory(const PanelMemory&) = delete;
  PanelMemory& operator=(const PanelMemory&) = delete;

  // 64-byte aligned, and may outlive this object; Error kMemory if it cannot be had. Up to 2 MiB
  // more than was taken is resident while matrices are still being added.
  Buffer take(std::size_t bytes);

 private:
  void close();

  void* slab_ = nullptr;  // that takes the next matrix; this object holds one of its counts
  std::size_t used_ = 0;
};

}  // namespace tessera::cpu
