// A fixed pool that splits an index range into chunks taken dynamically. Which thread takes which
// chunk never shows in a result: every chunk writes its own outputs, in its own fixed order.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/core/function_ref.h"

namespace tessera {

class ThreadPool {
 public:
  // threads >= 1 counts the caller; 0 = one per core. If the system refuses threads, fewer run.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls body(begin, end, worker) over [0, count) in chunks of at most `grain`; worker is in
  // [0, threads()). Returns when all is done. Not re-entrant, allocates nothing. An exception in a
  // body is rethrown here after all chunks ended.
  void parallel_for(std::int64_t count, std::int64_t grain,
                    FunctionRef<void(std::int64_t, std::int64_t, int)> body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
