#include "engine/core/bus_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "engine/core/index.h"

namespace tessera {

namespace {

// Read by the signal handler: lock-free atomics only. `begin` is written last and cleared first.
struct Slot {
  std::atomic<bool> taken{false}, hit{false};
  std::atomic<std::uintptr_t> begin{0}, end{0};
};

static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);
static_assert(std::atomic<bool>::is_always_lock_free);

std::array<Slot, BusGuard::kMaxGuards> g_slots;
std::uintptr_t g_page = 0;
struct sigaction g_previous {};

Slot* slot_around(std::uintptr_t address) {
  for (Slot& slot : g_slots) {
    const std::uintptr_t begin = slot.begin.load();
    if (begin != 0 && begin <= address && address < slot.end.load()) return &slot;
  }
  return nullptr;
}

void pass_on(int number, siginfo_t* info, void* context) {
  if ((g_previous.sa_flags & SA_SIGINFO) != 0) {
    g_previous.sa_sigaction(number, info, context);
  } else if (g_previous.sa_handler != SIG_DFL && g_previous.sa_handler != SIG_IGN) {
    g_previous.sa_handler(number);
  } else {
    ::signal(number, SIG_DFL);  // the read happens again and ends the program as it should
  }
}

void on_bus_error(int number, siginfo_t* info, void* context) {
  if (info->si_code <= 0) {  // sent by a program, not by a read
    ::signal(number, SIG_DFL);
    ::raise(number);
    return;
  }
  const int saved = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  Slot* slot = slot_around(address);
  if (slot == nullptr) return pass_on(number, info, context);
  slot->hit = true;
  const std::uintptr_t page = address / g_page * g_page;
  // mmap is a plain system call on Linux; it takes no lock of the C library.
  void* zeros = ::mmap(reinterpret_cast<void*>(page), slot->end.load() - page, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  errno = saved;
  if (zeros == MAP_FAILED) pass_on(number, info, context);
}

void install_handler() {
  static const bool installed = [] {
    g_page = narrow<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    return ::sigaction(SIGBUS, &action, &g_previous) == 0;
  }();
  static_cast<void>(installed);
}

}  // namespace

BusGuard::BusGuard(std::span<const std::byte> mapping) {
  install_handler();
  const auto begin = reinterpret_cast<std::uintptr_t>(mapping.data());
  for (std::size_t i = 0; i < g_slots.size(); ++i) {
    Slot& slot = g_slots[i];
    if (slot.taken.exchange(true)) continue;
    slot.hit = false;
    slot.end = begin + (mapping.size() + g_page - 1) / g_page * g_page;
    slot.begin = begin;
    slot_ = narrow<int>(i);
    return;
  }
}

BusGuard::~BusGuard() {
  if (slot_ < 0) return;
  Slot& slot = nth(g_slots, slot_);
  slot.begin = 0;
  slot.taken = false;
}

BusGuard::BusGuard(BusGuard&& other) noexcept : slot_(std::exchange(other.slot_, -1)) {}

BusGuard& BusGuard::operator=(BusGuard&& other) noexcept {
  std::swap(slot_, other.slot_);
  return *this;
}

bool BusGuard::hit() const { return slot_ >= 0 && nth(g_slots, slot_).hit; }

}  // namespace tessera
