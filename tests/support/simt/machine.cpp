// Fibers: each has a stack of its own and is switched to by swapping stacks. A fiber runs until it ends or
// waits at a barrier of its block or its warp, or for the kernel in front of its own; who goes on is random.
// Most of the time of a test is spent between fibers, so what a switch touches is small and in plain arrays.
#include "tests/support/simt/machine.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace tessera::simt {

namespace {

constexpr std::size_t kStack = 64 << 10;
constexpr unsigned kMaxThreads = 1024, kNobody = kMaxThreads;
constexpr std::size_t kMaxShared = 227 << 10;

[[noreturn]] void broken(const char* what) {
  std::fprintf(stderr, "simulated device: %s (block %u %u %u, thread %u)\n", what, blockIdx.x,
               blockIdx.y, blockIdx.z, threadIdx.x);
  std::abort();
}

struct Copy {
  void* to;
  const void* from;
  unsigned char held[16];  // what stood at `from`, where it was read at once
  bool read;
};

struct Fiber {
  bool awaited = false;
  std::vector<Copy> copies;         // not waited for, oldest first
  std::vector<std::size_t> groups;  // where each committed group of them ends
};

struct WarpState {
  std::uint64_t numbers[2][32];
  unsigned expected, arrived, parity;
  unsigned waiting;               // lanes that wait, so many
  std::uint16_t threads[32];      // their threads, in the order of arrival
};

// Leaves this stack for the one that `load` points to, keeps this one's pointer in `save`. Written in place: a
// call and a return that do not match would be predicted wrongly each time. Below the stack pointer lie
// 128 bytes that a function may use.
[[gnu::always_inline]] inline void switch_stack(void** save, void* load) {
  asm volatile(R"(
    leaq 1f(%%rip), %%rax
    subq $128, %%rsp
    pushq %%rbp
    pushq %%rax
    movq %%rsp, (%0)
    movq %1, %%rsp
    popq %%rax
    popq %%rbp
    jmp *%%rax
  1:
    endbr64
    addq $128, %%rsp
  )"
               : "+D"(save), "+S"(load)
               :
               : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1",
                 "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",
                 "xmm14", "xmm15", "cc", "memory");
}

// Threads of a block, in an order. Each is in one such list at most.
struct Waiting {
  std::uint16_t threads[kMaxThreads];
  unsigned count = 0;

  void add(unsigned thread) { threads[count++] = static_cast<std::uint16_t>(thread); }
  void add(const std::uint16_t* more, unsigned number) {
    std::memcpy(threads + count, more, number * sizeof *more);
    count += number;
  }
};

std::uint64_t random_state = 0x9e3779b97f4a7c15ull;

std::uint64_t draw() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

}  // namespace

// A grid with the one block of it that is under way.
struct Grid {
  std::vector<Fiber> fibers;
  void* stack_pointers[kMaxThreads];
  uint3 indices[kMaxThreads];
  WarpState warps[kMaxThreads / 32];
  Waiting runnable, at_barrier, at_wait;
  unsigned char* stacks = nullptr;
  alignas(128) unsigned char shared[kMaxShared];
  unsigned current = 0, live = 0, upcoming = kNobody;
  int votes = 0, vote = 0;
  void* home = nullptr;
  cudaLaunchConfig_t config;
  std::function<void()> body;
  std::uint64_t blocks = 0, done = 0, at = 0, step = 0;  // a walk through all blocks
  uint3 block = {};
  bool overlaps = false;  // it was launched to begin before the kernel in front of it has ended
  bool early = false;     // which has not begun
  bool begun = false;     // the block of the walk

  Grid() {
    // A switch goes to another page each time: with large pages the processor knows them all.
    constexpr std::size_t kLarge = std::size_t{2} << 20;
    void* memory = mmap(nullptr, kStack * kMaxThreads + kLarge, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) broken("no memory for stacks");
    const auto begin = (reinterpret_cast<std::uintptr_t>(memory) + kLarge - 1) / kLarge * kLarge;
    stacks = reinterpret_cast<unsigned char*>(begin);
    madvise(stacks, kStack * kMaxThreads, MADV_HUGEPAGE);
  }

  void start();
  void begin_block();
  void run();
  void leave();  // to the next thread, or to the host where none can go on
  void choose();
  void* next();
};

namespace {

Grid* the_grid = nullptr;  // that runs

Grid& machine() { return *the_grid; }

// Grids that nobody runs: their stacks are used again. They outlive statics.
std::vector<Grid*>& idle_grids() {
  static auto* grids = new std::vector<Grid*>;
  return *grids;
}

void fiber_main() {
  Grid& m = machine();
  m.body();
  if (m.overlaps && !m.fibers[m.current].awaited) {
    broken("a thread that did not wait for the kernel in front of its own");
  }
  --m.live;
  m.leave();
  broken("a thread that ended went on");
}

}  // namespace

// One of those that can go on, a random one; what it begins with is on its way to the cache.
[[gnu::always_inline]] inline void Grid::choose() {
  const unsigned pick = static_cast<unsigned>((draw() >> 32) * runnable.count >> 32);
  upcoming = runnable.threads[pick];
  runnable.threads[pick] = runnable.threads[--runnable.count];
  const char* const stack = static_cast<const char*>(stack_pointers[upcoming]);
  __builtin_prefetch(stack);
  __builtin_prefetch(stack + 128);
  __builtin_prefetch(stack + 192);
}

// The stack of the one that was chosen.
[[gnu::always_inline]] inline void* Grid::next() {
  if (upcoming == kNobody) choose();
  current = upcoming;
  upcoming = kNobody;
  if (runnable.count > 0) choose();
  threadIdx = indices[current];
  return stack_pointers[current];
}

[[gnu::always_inline]] inline void Grid::leave() {
  void** const own = &stack_pointers[current];
  switch_stack(own, upcoming != kNobody || runnable.count > 0 ? next() : home);
}

void Grid::start() {
  upcoming = kNobody;
  const unsigned threads = config.blockDim.x * config.blockDim.y * config.blockDim.z;
  fibers.resize(threads);
  for (Fiber& fiber : fibers) {
    fiber.awaited = false;
    fiber.copies.clear();
    fiber.groups.clear();
  }
  for (unsigned warp = 0; warp < (threads + 31) / 32; ++warp) {
    warps[warp].expected = warps[warp].arrived = warps[warp].parity = warps[warp].waiting = 0;
  }
  runnable.count = at_barrier.count = at_wait.count = 0;
  votes = 0;
  live = threads;
  for (unsigned i = 0; i < threads; ++i) {
    indices[i] = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    // As if a call had pushed a return address: 16-byte alignment less 8 once both words are popped.
    // Stacks begin at different places of a page, or they would all want the same lines of a cache.
    const std::size_t colour = i * 832 % 8192;
    auto* top = reinterpret_cast<std::uint64_t*>(stacks + kStack * (i + 1) - colour) - 2;
    top[0] = 0;  // the frame pointer
    top[-1] = reinterpret_cast<std::uint64_t>(&fiber_main);
    stack_pointers[i] = top - 1;
    runnable.add(i);
  }
}

// The next block of the walk, up to its first thread.
void Grid::begin_block() {
  block = {static_cast<unsigned>(at % config.gridDim.x),
           static_cast<unsigned>(at / config.gridDim.x % config.gridDim.y),
           static_cast<unsigned>(at / config.gridDim.x / config.gridDim.y)};
  std::memset(shared, 0xff, config.dynamicSmemBytes);
  blockDim = config.blockDim;
  start();
  begun = true;
}

// The block, until none of its threads can go on.
void Grid::run() {
  the_grid = this;
  gridDim = config.gridDim;
  blockDim = config.blockDim;
  blockIdx = block;
  if (runnable.count > 0) switch_stack(&home, next());
}

void set_seed(std::uint64_t seed) { random_state = seed * 2 + 1; }

int lane() { return static_cast<int>(machine().current % 32); }

unsigned char* dynamic_shared() { return machine().shared; }

void begin_copy(void* to, const void* from) {
  if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0 ||
      reinterpret_cast<std::uintptr_t>(from) % 16 != 0) {
    broken("a copy of 16 bytes that is not aligned to them");
  }
  Grid& m = machine();
  m.fibers[m.current].copies.push_back({to, from, {}, false});
}

void commit_copies() {
  Grid& m = machine();
  Fiber& fiber = m.fibers[m.current];
  fiber.groups.push_back(fiber.copies.size());
}

void wait_copies(int groups) {
  Grid& m = machine();
  Fiber& fiber = m.fibers[m.current];
  const auto left = static_cast<std::size_t>(groups);
  if (fiber.groups.size() <= left) return;
  const std::size_t done = fiber.groups.size() - left;
  const std::size_t end = fiber.groups[done - 1];
  for (std::size_t i = 0; i < end; ++i) {
    const Copy& copy = fiber.copies[i];
    std::memcpy(copy.to, copy.read ? copy.held : copy.from, 16);
  }
  fiber.copies.erase(fiber.copies.begin(), fiber.copies.begin() + static_cast<std::ptrdiff_t>(end));
  fiber.groups.erase(fiber.groups.begin(),
                     fiber.groups.begin() + static_cast<std::ptrdiff_t>(done));
  for (std::size_t& group : fiber.groups) group -= end;
}

// Copies that were begun before may have been made by now: they have what stands there now.
void await_previous() {
  Grid& m = machine();
  Fiber& fiber = m.fibers[m.current];
  fiber.awaited = true;
  if (!m.early) return;
  for (Copy& copy : fiber.copies) {
    std::memcpy(copy.held, copy.from, 16);
    copy.read = true;
  }
  m.at_wait.add(m.current);
  m.leave();
}

void let_next_begin() {
  const Grid& m = machine();
  if (m.overlaps && !m.fibers[m.current].awaited) {
    broken("the next kernel let begin before the one in front has ended");
  }
}

void block_barrier() {
  Grid& m = machine();
  if (m.at_barrier.count + 1 < m.fibers.size()) {
    m.at_barrier.add(m.current);
    m.leave();
    return;
  }
  m.runnable.add(m.at_barrier.threads, m.at_barrier.count);
  m.at_barrier.count = 0;
}

int block_vote(int predicate, int kind) {
  Grid& m = machine();
  if (m.at_barrier.count == 0) m.votes = 0;
  m.votes += predicate != 0 ? 1 : 0;
  if (m.at_barrier.count + 1 == m.fibers.size()) m.vote = m.votes;
  block_barrier();
  const int votes = m.vote, all = static_cast<int>(m.fibers.size());
  block_barrier();  // before the next vote may change it
  return kind == 0 ? votes > 0 : kind == 1 ? votes == all : votes;
}

const std::uint64_t* exchange(unsigned mask, std::uint64_t bits) {
  Grid& m = machine();
  const unsigned number = m.current / 32, own = m.current % 32;
  WarpState& warp = m.warps[number];
  if ((mask >> own & 1u) == 0) broken("a lane that is not in its own mask");
  if (warp.arrived == 0) warp.expected = mask;
  if (warp.expected != mask) broken("lanes of a warp meet with different masks");
  const unsigned parity = warp.parity;
  warp.numbers[parity][own] = bits;
  warp.arrived |= 1u << own;
  if (warp.arrived != mask) {
    warp.threads[warp.waiting++] = static_cast<std::uint16_t>(m.current);
    m.leave();
  } else {
    warp.arrived = 0;
    warp.parity ^= 1;
    m.runnable.add(warp.threads, warp.waiting);
    warp.waiting = 0;
  }
  return warp.numbers[parity];
}

Grid* make_grid(const cudaLaunchConfig_t& config, bool overlaps,
                const std::function<void()>& body) {
  std::vector<Grid*>& idle = idle_grids();
  if (idle.empty()) idle.push_back(new Grid);
  Grid* const grid = idle.back();
  idle.pop_back();
  grid->config = config;
  grid->body = body;
  grid->overlaps = overlaps;
  grid->early = grid->begun = false;
  const std::uint64_t blocks =
      static_cast<std::uint64_t>(config.gridDim.x) * config.gridDim.y * config.gridDim.z;
  // From any of them, by a step that shares no factor with their number.
  std::uint64_t step = draw() % blocks | 1;
  const auto divides = [&](std::uint64_t a) {
    std::uint64_t b = blocks;
    while (a != 0) b = std::exchange(a, b % a);
    return b == 1;
  };
  while (!divides(step)) step += 2;
  grid->blocks = blocks;
  grid->done = 0;
  grid->step = step;
  grid->at = draw() % blocks;
  return grid;
}

void begin_grid(Grid& grid) {
  grid.early = true;
  grid.begin_block();
  grid.run();
  grid.early = false;
}

void finish_grid(Grid& grid) {
  for (; grid.done < grid.blocks; ++grid.done, grid.at = (grid.at + grid.step) % grid.blocks) {
    if (!grid.begun) grid.begin_block();
    grid.runnable.add(grid.at_wait.threads, grid.at_wait.count);
    grid.at_wait.count = 0;
    grid.run();
    grid.begun = false;
    if (grid.live > 0) {
      broken(grid.at_barrier.count == 0 ? "threads of a warp wait for lanes that never come"
                                     : "a barrier that some threads never reach");
    }
  }
  idle_grids().push_back(&grid);
}

}  // namespace tessera::simt
