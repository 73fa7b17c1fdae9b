// Refuses large blocks of memory in this test program while a scope lasts, as a machine without
// memory would: both kinds that tensors are made of, and operator new, which throws then.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

class ScarceMemory {
 public:
  // Sanitizers bring a malloc of their own: nothing is refused there, and tests skip.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr bool kWorks = false;
#else
  static constexpr bool kWorks = true;
#endif
  enum class Threads { kAll, kOthers };  // kOthers: not the one that makes this
  // Blocks of at least so many bytes are refused, but for the first `spare` ones.
  explicit ScarceMemory(std::size_t bytes, std::int64_t spare = 0, Threads threads = Threads::kAll);
  ~ScarceMemory();
  ScarceMemory(const ScarceMemory&) = delete;
  ScarceMemory& operator=(const ScarceMemory&) = delete;

  std::int64_t refused() const;
};

}  // namespace tessera
