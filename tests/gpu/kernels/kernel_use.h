// What ptxas says that each kernel takes, and the limits that a table of ours sets to it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// One kernel as compiled for one architecture.
struct KernelUse {
  std::string name;     // "attend<float,64,8>": without namespaces, parameters and blanks
  std::string machine;  // "sm_90a"
  std::int64_t registers = 0, stack = 0, spilled = 0, shared = 0;  // of a thread; of a block
};

// The output of `ptxas -v`. Throws std::runtime_error for a kernel without figures.
std::vector<KernelUse> parse_ptxas(const std::string& text);

// Limits of a kernel, or of the instances of a template that the pattern (fnmatch(3)) stands for.
struct KernelLimit {
  std::string pattern;
  std::int64_t threads = 0;         // of a block, at most
  std::int64_t registers = 0;       // of a thread, at most
  std::int64_t blocks = 0;          // on a multiprocessor at once, at least
  std::int64_t dynamic_shared = 0;  // bytes that a launch asks for, at most
  std::int64_t stack = 0;           // bytes of a thread, at most
  bool tensor_cores = false;        // its products are the tensor cores'
};

// Lines "pattern threads registers blocks dynamic_shared stack tensor_cores"; # begins a comment.
// Throws std::runtime_error for a line that is none.
std::vector<KernelLimit> parse_limits(const std::string& text);

// The first that matches; null if none does.
const KernelLimit* limit_of(const std::string& name, const std::vector<KernelLimit>& limits);

// The architecture that limits are planned for.
inline constexpr const char* kPlanned = "sm_90a";

// Everything that is wrong, a sentence each: spills, kernels without a limit, blocks that cannot be
// launched; for kPlanned also more than the limits, and too few blocks on a multiprocessor.
std::vector<std::string> findings_of(const std::vector<KernelUse>& kernels,
                                     const std::vector<KernelLimit>& limits);

// The patterns that hold for no kernel.
std::vector<std::string> unused_limits(const std::vector<KernelUse>& kernels,
                                       const std::vector<KernelLimit>& limits);

// Of a mangled name, as in KernelUse::name.
std::string kernel_name(const std::string& mangled);

}  // namespace tessera
