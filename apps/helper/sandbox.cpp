// Linux: setrlimit, no_new_privs and a seccomp filter written as classic BPF (seccomp(2)).
#include "apps/helper/sandbox.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "engine/core/index.h"
#include "vision/image/image_wire.h"

namespace tessera {

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kInstrumented = true;
#else
constexpr bool kInstrumented = false;
#endif

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t kArchitecture = 0;  // no filter
#endif

// `margin`: how far the hard limit lies after the soft one. Limits that are tighter already stay.
bool set_limit(int resource, std::uint64_t value, std::uint64_t margin = 0) {
  rlimit limit = {};
  if (getrlimit(resource, &limit) != 0) return false;
  limit.rlim_max = std::min<rlim_t>(limit.rlim_max, value + margin);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, value);
  return setrlimit(resource, &limit) == 0;
}

// The filter: a list of blocks, one a system call; what matches none kills the process.
class Filter {
 public:
  Filter() {
    load(offsetof(seccomp_data, arch));
    jump(BPF_JEQ, kArchitecture, 1, 0);
    kill();
    load(offsetof(seccomp_data, nr));
  }
  void allow(std::uint32_t call) {
    jump(BPF_JEQ, call, 0, 1);
    grant();
  }
  // Only on the socket, which is file descriptor 0.
  void allow_on_socket(std::uint32_t call) {
    jump(BPF_JEQ, call, 0, 4);
    load(argument(0));
    jump(BPF_JEQ, 0, 0, 1);
    grant();
    kill();
  }
  // Only memory of no file, and never executable.
  void allow_plain_mapping(std::uint32_t call) {
    jump(BPF_JEQ, call, 0, 6);
    load(argument(2));
    jump(BPF_JSET, PROT_EXEC, 3, 0);
    load(argument(4));
    jump(BPF_JEQ, 0xffffffff, 0, 1);
    grant();
    kill();
  }
  void allow_unless_executable(std::uint32_t call) {
    jump(BPF_JEQ, call, 0, 4);
    load(argument(2));
    jump(BPF_JSET, PROT_EXEC, 1, 0);
    grant();
    kill();
  }
  bool install() {
    kill();
    const sock_fprog program = {narrow<unsigned short>(code_.size()), code_.data()};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
  }

 private:
  // The low half of an argument; both architectures are little-endian.
  static std::uint32_t argument(unsigned n) {
    return narrow<std::uint32_t>(offsetof(seccomp_data, args)) + 8 * n;
  }
  void load(std::size_t offset) {
    code_.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset)));
  }
  void jump(unsigned test, std::uint32_t value, unsigned char yes, unsigned char no) {
    code_.push_back(BPF_JUMP(static_cast<unsigned short>(BPF_JMP | test | BPF_K), value, yes, no));
  }
  void grant() { code_.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)); }
  void kill() { code_.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)); }

  std::vector<sock_filter> code_;
};

bool install_filter() {
  if (kArchitecture == 0) return false;
  Filter filter;
  filter.allow_on_socket(__NR_read);
  filter.allow_on_socket(__NR_write);
  filter.allow_plain_mapping(__NR_mmap);
  filter.allow_unless_executable(__NR_mprotect);
  for (const long call : {__NR_munmap, __NR_mremap, __NR_madvise, __NR_brk, __NR_futex,
                          __NR_clock_gettime, __NR_rt_sigreturn, __NR_exit, __NR_exit_group}) {
    filter.allow(narrow<std::uint32_t>(call));
  }
  return filter.install();
}

}  // namespace

std::uint32_t enter_sandbox(const SandboxLimits& limits) {
  if (kInstrumented) return 0;
  std::uint32_t granted = 0;
  if (set_limit(RLIMIT_AS, limits.address_space) && set_limit(RLIMIT_CPU, limits.cpu_seconds, 1) &&
      set_limit(RLIMIT_NOFILE, 0) && set_limit(RLIMIT_NPROC, 0) && set_limit(RLIMIT_FSIZE, 0) &&
      set_limit(RLIMIT_CORE, 0)) {
    granted |= wire::kResourceLimits;
  }
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && install_filter()) {
    granted |= wire::kSystemCallFilter;
  }
  return granted;
}

}  // namespace tessera
