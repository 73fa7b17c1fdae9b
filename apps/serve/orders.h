// The orders that one request became: all of them go when its client does.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "apps/serve/desk.h"

namespace tessera {

class Orders {
 public:
  explicit Orders(Desk& desk) : desk_(desk) {}

  // Once. Errors of Desk::add().
  void add(std::vector<Order> orders) {
    std::vector<std::uint64_t> numbers = desk_.add(std::move(orders));
    {
      const std::lock_guard lock(mutex_);
      numbers_ = std::move(numbers);
      if (!cancelled_) return;
    }
    cancel();
  }
  // From any thread, also before add().
  void cancel() {
    std::vector<std::uint64_t> numbers;
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
      numbers.swap(numbers_);
    }
    for (const std::uint64_t number : numbers) desk_.cancel(number);
  }

 private:
  Desk& desk_;
  std::mutex mutex_;
  std::vector<std::uint64_t> numbers_;
  bool cancelled_ = false;
};

}  // namespace tessera
