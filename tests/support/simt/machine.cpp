// Fibers: each has a stack of its own and is switched to by swapping the registers that a function
// call must keep. A fiber runs until it ends or waits at a barrier of its block or its warp, or for
// the kernel in front of its own; who goes on is random.
#include "tests/support/simt/machine.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

// void simt_switch(void** save, void* load)
asm(R"(
.text
.p2align 4
.globl simt_switch
.hidden simt_switch
.type simt_switch,@function
simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simt_switch,.-simt_switch
)");
extern "C" void simt_switch(void** save, void* load);

namespace tessera::simt {

namespace {

constexpr std::size_t kStack = 64 << 10;
constexpr unsigned kMaxThreads = 1024;
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
  void* stack_pointer = nullptr;
  uint3 index = {};
  bool done = false, awaited = false;
  std::vector<Copy> copies;         // not waited for, oldest first
  std::vector<std::size_t> groups;  // where each committed group of them ends
};

struct WarpState {
  std::uint64_t numbers[2][32];
  unsigned expected = 0, arrived = 0, parity = 0;
};

std::uint64_t the_lot = 0x9e3779b97f4a7c15ull;

std::uint64_t draw() {
  the_lot ^= the_lot << 13;
  the_lot ^= the_lot >> 7;
  the_lot ^= the_lot << 17;
  return the_lot;
}

}  // namespace

// A grid with the one block of it that is under way.
struct Grid {
  std::vector<Fiber> fibers;
  std::vector<WarpState> warps;
  std::vector<unsigned> runnable, at_barrier, at_wait;
  std::vector<std::vector<unsigned>> at_warp;
  unsigned char* stacks = nullptr;
  alignas(128) unsigned char shared[kMaxShared];
  unsigned current = 0, live = 0;
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
    void* memory = mmap(nullptr, kStack * kMaxThreads, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) broken("no memory for stacks");
    stacks = static_cast<unsigned char*>(memory);
  }

  void start();
  void begin_block();
  void run();
  void leave();  // to the scheduler
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
  m.fibers[m.current].done = true;
  m.leave();
  broken("a thread that ended went on");
}

}  // namespace

void Grid::leave() { simt_switch(&fibers[current].stack_pointer, home); }

void Grid::start() {
  const unsigned threads = config.blockDim.x * config.blockDim.y * config.blockDim.z;
  fibers.resize(threads);
  for (Fiber& fiber : fibers) {
    fiber.done = fiber.awaited = false;
    fiber.copies.clear();
    fiber.groups.clear();
  }
  warps.assign((threads + 31) / 32, {});
  at_warp.resize(warps.size());
  runnable.clear();
  at_barrier.clear();
  at_wait.clear();
  votes = 0;
  live = threads;
  for (unsigned i = 0; i < threads; ++i) {
    fibers[i].index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    // The return address of the first switch, as if a call had pushed it: 16-byte alignment less 8.
    // Stacks begin at different places of a page, or they would all want the same lines of a cache.
    const std::size_t colour = i * 832 % 8192;
    auto* top = reinterpret_cast<std::uint64_t*>(stacks + kStack * (i + 1) - colour) - 2;
    *top = reinterpret_cast<std::uint64_t>(&fiber_main);
    fibers[i].stack_pointer = top - 6;
    runnable.push_back(i);
  }
  for (auto& waiting : at_warp) waiting.clear();
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
  while (!runnable.empty()) {
    const std::size_t pick = (draw() >> 32) * runnable.size() >> 32;
    current = runnable[pick];
    runnable[pick] = runnable.back();
    runnable.pop_back();
    threadIdx = fibers[current].index;
    simt_switch(&home, fibers[current].stack_pointer);
    if (fibers[current].done) --live;
  }
}

void set_seed(std::uint64_t seed) { the_lot = seed * 2 + 1; }

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
  m.at_wait.push_back(m.current);
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
  if (m.at_barrier.size() + 1 < m.fibers.size()) {
    m.at_barrier.push_back(m.current);
    m.leave();
    return;
  }
  m.runnable.insert(m.runnable.end(), m.at_barrier.begin(), m.at_barrier.end());
  m.at_barrier.clear();
}

int block_vote(int predicate, int kind) {
  Grid& m = machine();
  if (m.at_barrier.empty()) m.votes = 0;
  m.votes += predicate != 0 ? 1 : 0;
  if (m.at_barrier.size() + 1 == m.fibers.size()) m.vote = m.votes;
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
    m.at_warp[number].push_back(m.current);
    m.leave();
  } else {
    warp.arrived = 0;
    warp.parity ^= 1;
    m.runnable.insert(m.runnable.end(), m.at_warp[number].begin(), m.at_warp[number].end());
    m.at_warp[number].clear();
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
    grid.runnable.insert(grid.runnable.end(), grid.at_wait.begin(), grid.at_wait.end());
    grid.at_wait.clear();
    grid.run();
    grid.begun = false;
    if (grid.live > 0) {
      broken(grid.at_barrier.empty() ? "threads of a warp wait for lanes that never come"
                                     : "a barrier that some threads never reach");
    }
  }
  idle_grids().push_back(&grid);
}

}  // namespace tessera::simt
