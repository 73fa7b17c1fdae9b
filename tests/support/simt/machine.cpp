// Fibers: each has a stack of its own and is switched to by swapping the registers that a function
// call must keep. A fiber runs until it ends or waits at a barrier of its block or its warp; who
// goes on is drawn by lot.
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
constexpr unsigned kMostThreads = 1024;
constexpr std::size_t kMostShared = 227 << 10;

[[noreturn]] void broken(const char* what) {
  std::fprintf(stderr, "simulated device: %s (block %u %u %u, thread %u)\n", what, blockIdx.x,
               blockIdx.y, blockIdx.z, threadIdx.x);
  std::abort();
}

struct Copy {
  void* to;
  const void* from;
};

struct Fiber {
  void* stack_pointer = nullptr;
  uint3 index = {};
  bool done = false;
  std::vector<Copy> copies;         // not waited for, oldest first
  std::vector<std::size_t> groups;  // where each committed group of them ends
};

struct WarpState {
  std::uint64_t numbers[2][32];
  unsigned expected = 0, arrived = 0, parity = 0;
};

struct Machine {
  std::vector<Fiber> fibers;
  std::vector<WarpState> warps;
  std::vector<unsigned> runnable, at_barrier;
  std::vector<std::vector<unsigned>> at_warp;
  unsigned char* stacks = nullptr;
  alignas(128) unsigned char shared[kMostShared];
  std::uint64_t lot = 0x9e3779b97f4a7c15ull;
  unsigned current = 0, live = 0;
  int votes = 0, vote = 0;
  void* home = nullptr;
  const std::function<void()>* body = nullptr;

  Machine() {
    void* memory = mmap(nullptr, kStack * kMostThreads, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) broken("no memory for stacks");
    stacks = static_cast<unsigned char*>(memory);
  }

  std::uint64_t draw() {
    lot ^= lot << 13;
    lot ^= lot >> 7;
    lot ^= lot << 17;
    return lot;
  }

  void start(unsigned threads);
  void run_block(unsigned threads);
  void leave();  // to the scheduler
};

Machine* the_machine = nullptr;

Machine& machine() {
  if (the_machine == nullptr) the_machine = new Machine;  // it outlives statics
  return *the_machine;
}

void fiber_main() {
  Machine& m = machine();
  (*m.body)();
  m.fibers[m.current].done = true;
  m.leave();
  broken("a thread that ended went on");
}

void Machine::leave() { simt_switch(&fibers[current].stack_pointer, home); }

void Machine::start(unsigned threads) {
  fibers.resize(threads);
  for (Fiber& fiber : fibers) {
    fiber.done = false;
    fiber.copies.clear();
    fiber.groups.clear();
  }
  warps.assign((threads + 31) / 32, {});
  at_warp.resize(warps.size());
  runnable.clear();
  at_barrier.clear();
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

void Machine::run_block(unsigned threads) {
  start(threads);
  while (!runnable.empty()) {
    const std::size_t pick = (draw() >> 32) * runnable.size() >> 32;
    current = runnable[pick];
    runnable[pick] = runnable.back();
    runnable.pop_back();
    threadIdx = fibers[current].index;
    simt_switch(&home, fibers[current].stack_pointer);
    if (fibers[current].done) --live;
  }
  if (live > 0) {
    broken(at_barrier.empty() ? "threads of a warp wait for lanes that never come"
                              : "a barrier that some threads never reach");
  }
}

}  // namespace

void set_seed(std::uint64_t seed) { machine().lot = seed * 2 + 1; }

int lane() { return static_cast<int>(machine().current % 32); }

unsigned char* dynamic_shared() { return machine().shared; }

void begin_copy(void* to, const void* from) {
  if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0 ||
      reinterpret_cast<std::uintptr_t>(from) % 16 != 0) {
    broken("a copy of 16 bytes that is not aligned to them");
  }
  Machine& m = machine();
  m.fibers[m.current].copies.push_back({to, from});
}

void commit_copies() {
  Machine& m = machine();
  Fiber& fiber = m.fibers[m.current];
  fiber.groups.push_back(fiber.copies.size());
}

void wait_copies(int groups) {
  Machine& m = machine();
  Fiber& fiber = m.fibers[m.current];
  const auto left = static_cast<std::size_t>(groups);
  if (fiber.groups.size() <= left) return;
  const std::size_t done = fiber.groups.size() - left;
  const std::size_t end = fiber.groups[done - 1];
  for (std::size_t i = 0; i < end; ++i) {
    std::memcpy(fiber.copies[i].to, fiber.copies[i].from, 16);
  }
  fiber.copies.erase(fiber.copies.begin(), fiber.copies.begin() + static_cast<std::ptrdiff_t>(end));
  fiber.groups.erase(fiber.groups.begin(),
                     fiber.groups.begin() + static_cast<std::ptrdiff_t>(done));
  for (std::size_t& group : fiber.groups) group -= end;
}

void block_barrier() {
  Machine& m = machine();
  if (m.at_barrier.size() + 1 < m.fibers.size()) {
    m.at_barrier.push_back(m.current);
    m.leave();
    return;
  }
  m.runnable.insert(m.runnable.end(), m.at_barrier.begin(), m.at_barrier.end());
  m.at_barrier.clear();
}

int block_vote(int predicate, int kind) {
  Machine& m = machine();
  if (m.at_barrier.empty()) m.votes = 0;
  m.votes += predicate != 0 ? 1 : 0;
  if (m.at_barrier.size() + 1 == m.fibers.size()) m.vote = m.votes;
  block_barrier();
  const int votes = m.vote, all = static_cast<int>(m.fibers.size());
  block_barrier();  // before the next vote may change it
  return kind == 0 ? votes > 0 : kind == 1 ? votes == all : votes;
}

const std::uint64_t* exchange(unsigned mask, std::uint64_t bits) {
  Machine& m = machine();
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

void run_grid(const cudaLaunchConfig_t& config, const std::function<void()>& body) {
  Machine& m = machine();
  gridDim = config.gridDim;
  blockDim = config.blockDim;
  m.body = &body;
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  const std::uint64_t blocks = static_cast<std::uint64_t>(gridDim.x) * gridDim.y * gridDim.z;
  // A walk through all blocks from any of them, by a step that shares no factor with their number.
  std::uint64_t step = m.draw() % blocks | 1;
  const auto divides = [&](std::uint64_t a) {
    std::uint64_t b = blocks;
    while (a != 0) b = std::exchange(a, b % a);
    return b == 1;
  };
  while (!divides(step)) step += 2;
  std::uint64_t at = m.draw() % blocks;
  for (std::uint64_t i = 0; i < blocks; ++i, at = (at + step) % blocks) {
    blockIdx = {static_cast<unsigned>(at % gridDim.x),
                static_cast<unsigned>(at / gridDim.x % gridDim.y),
                static_cast<unsigned>(at / gridDim.x / gridDim.y)};
    std::memset(m.shared, 0xff, config.dynamicSmemBytes);
    m.run_block(threads);
  }
}

}  // namespace tessera::simt
