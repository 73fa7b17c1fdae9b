// Chunks are claimed from one 64-bit ticket, (job number, next chunk), and a job is over when its
// chunks are done: a worker that the system does not run holds nothing up unless it holds a chunk.
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
#include "engine/core/index.h"

namespace tessera {

namespace {
constexpr int kSpins = 4000;                    // about 40-100 microseconds of `pause`
constexpr std::uint32_t kClosed = 0xffffffffu;  // a chunk number past every job's last

constexpr std::uint64_t make_ticket(std::uint32_t job, std::uint32_t chunk) {
  return std::uint64_t{job} << 32 | chunk;
}
constexpr std::uint32_t chunk_of(std::uint64_t ticket) { return low_bits<std::uint32_t>(ticket); }
}  // namespace

struct ThreadPool::State {
  using Body = FunctionRef<void(std::int64_t, std::int64_t, int)>;

  // The job. Written only while the ticket is closed; a worker that read part of an old job and
  // part of a new one fails to claim, because the ticket changed in between.
  std::atomic<std::uint32_t> chunks{0};
  std::atomic<std::int64_t> count{0};
  std::atomic<std::int64_t> grain{1};
  std::atomic<const Body*> body{nullptr};
  alignas(64) std::atomic<std::uint64_t> ticket{make_ticket(0, kClosed)};
  alignas(64) std::atomic<std::uint32_t> done{0};  // chunks of this job that ended

  std::vector<std::thread> workers;
  std::uint32_t job = 0;
  int spins = kSpins;
  std::atomic<bool> stop{false};
  std::atomic<int> sleepers{0};
  std::mutex mutex;
  std::condition_variable wake;
  std::exception_ptr failure;
  std::mutex failure_mutex;

  bool has_work() const { return chunk_of(ticket.load()) < chunks.load(); }

  void work(int worker) {
    while (true) {
      std::uint64_t mine = ticket.load(std::memory_order_acquire);
      const std::uint32_t chunk = chunk_of(mine);
      if (chunk >= chunks.load(std::memory_order_acquire)) return;
      const std::int64_t all = count.load(std::memory_order_acquire);
      const std::int64_t step = grain.load(std::memory_order_acquire);
      const Body* run = body.load(std::memory_order_acquire);
      if (!ticket.compare_exchange_strong(mine, mine + 1, std::memory_order_acq_rel)) continue;
      const std::int64_t begin = chunk * step;
      try {
        (*run)(begin, std::min(begin + step, all), worker);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
      }
      done.fetch_add(1, std::memory_order_release);
    }
  }

  void loop(int worker) {
    while (!stop.load(std::memory_order_relaxed)) {
      for (int spin = 0; spin < spins && !has_work() && !stop.load(); ++spin) _mm_pause();
      if (!has_work() && !stop.load()) {
        // Counted before looking again: either run() sees a sleeper or the sleeper sees the job.
        std::unique_lock lock(mutex);
        sleepers.fetch_add(1);
        wake.wait(lock, [&] { return has_work() || stop.load(); });
        sleepers.fetch_sub(1);
      }
      work(worker);
    }
  }

  void run(std::int64_t all, std::int64_t step, const Body& run_body) {
    const std::int64_t pieces = (all + step - 1) / step;
    expects(pieces < kClosed, "a job has fewer than 2^32 - 1 chunks");
    ticket.store(make_ticket(++job, kClosed));
    chunks.store(narrow<std::uint32_t>(pieces), std::memory_order_release);
    count.store(all, std::memory_order_release);
    grain.store(step, std::memory_order_release);
    body.store(&run_body, std::memory_order_release);
    done.store(0, std::memory_order_relaxed);
    ticket.store(make_ticket(job, 0));
    if (sleepers.load() > 0) {
      { const std::lock_guard lock(mutex); }
      wake.notify_all();
    }
    work(0);
    for (int spin = 0; done.load(std::memory_order_acquire) != pieces; ++spin) {
      if (spin < spins) {
        _mm_pause();
      } else {
        std::this_thread::yield();
      }
    }
    if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  const int cores = narrow<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (threads <= 0) threads = cores;
  if (threads > cores) state_->spins = 0;  // a spinning thread would hold a working one up
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

int ThreadPool::threads() const { return narrow<int>(state_->workers.size()) + 1; }

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
  state_->run(count, grain, body);
}

}  // namespace tessera
