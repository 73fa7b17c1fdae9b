// A file that is cut while it is mapped makes the kernel answer reads past its new end with SIGBUS,
// which would end the program. A guarded mapping survives: the pages from the one asked for to the
// end of the mapping become zeros and the guard remembers it, so that whoever used the mapping can
// refuse the file afterwards.
#pragma once

#include <cstddef>
#include <span>

namespace tessera {

// Guards one mapping as long as it lives. A SIGBUS at any other address goes to whoever handled
// the signal before. Past kMaxGuards mappings at a time a new one is left unguarded.
class BusGuard {
 public:
  static constexpr std::size_t kMaxGuards = 1024;

  BusGuard() = default;
  explicit BusGuard(std::span<const std::byte> mapping);
  ~BusGuard();
  BusGuard(BusGuard&& other) noexcept;
  BusGuard& operator=(BusGuard&& other) noexcept;

  // Whether any page of the mapping was replaced by zeros.
  bool hit() const;

 private:
  int slot_ = -1;
};

}  // namespace tessera
