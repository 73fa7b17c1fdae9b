// Workers spin for a short budget between two jobs (a decode step issues hundreds of jobs, tens of
// microseconds apart) and sleep on a condition variable after that.
#include "engine/core/thread_pool.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/core/error.h"

namespace tessera {

namespace {
constexpr int kSpins = 4000;  // about 40-100 microseconds of `pause`
}

struct ThreadPool::State {
  using Body = FunctionRef<void(std::int64_t, std::int64_t, int)>;

  std::vector<std::thread> workers;
  std::atomic<std::uint64_t> generation{0};  // counts jobs; a change starts the workers
  std::atomic<int> running{0};               // workers still inside the current job
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> stop{false};
  std::int64_t count = 0;
  std::int64_t grain = 1;
  const Body* body = nullptr;
  std::mutex mutex;
  std::condition_variable wake;
  std::exception_ptr failure;
  std::mutex failure_mutex;

  void work(int worker) {
    while (true) {
      const std::int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      try {
        (*body)(begin, std::min(begin + grain, count), worker);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
      }
    }
  }

  void loop(int worker) {
    std::uint64_t seen = 0;
    while (true) {
      int spins = 0;
      while (generation.load(std::memory_order_acquire) == seen && !stop.load()) {
        if (++spins < kSpins) {
          _mm_pause();
          continue;
        }
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return generation.load() != seen || stop.load(); });
      }
      if (stop.load()) return;
      seen = generation.load(std::memory_order_acquire);
      work(worker);
      running.fetch_sub(1, std::memory_order_release);
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  try {
    for (int i = 1; i < threads; ++i) {
      state_->workers.emplace_back([state = state_.get(), i] { state->loop(i); });
    }
  } catch (const std::system_error&) {
    // No more threads to be had: the pool runs with those that started; results do not change.
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop.store(true);
  }
  state_->wake.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::parallel_for(std::int64_t count, std::int64_t grain,
                              FunctionRef<void(std::int64_t, std::int64_t, int)> body) {
  expects(grain > 0, "grain is positive");
  if (count <= 0) return;
  if (state_->workers.empty() || count <= grain) {
    for (std::int64_t begin = 0; begin < count; begin += grain) {
      body(begin, std::min(begin + grain, count), 0);
    }
    return;
  }
  State& state = *state_;
  state.count = count;
  state.grain = grain;
  state.body = &body;
  state.next.store(0, std::memory_order_relaxed);
  state.running.store(static_cast<int>(state.workers.size()), std::memory_order_relaxed);
  {
    const std::lock_guard lock(state.mutex);
    state.generation.fetch_add(1, std::memory_order_release);
  }
  state.wake.notify_all();
  state.work(0);
  for (int spins = 0; state.running.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      _mm_pause();
    } else {
      std::this_thread::yield();
    }
  }
  if (state.failure) std::rethrow_exception(std::exchange(state.failure, nullptr));
}

}  // namespace tessera
