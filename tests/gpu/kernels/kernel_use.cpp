#include "tests/gpu/kernels/kernel_use.h"

#include <cxxabi.h>
#include <fnmatch.h>

#include <cstdlib>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>

namespace tessera {

namespace {

// Of one multiprocessor and one block (CUDA C++ programming guide, "Technical specifications per
// compute capability"); a block's share of shared memory includes 1 KiB of the system.
struct Machine {
  std::int64_t shared, shared_block;
};
constexpr std::int64_t kRegisters = 65536, kKiB = 1024, kSystemShared = kKiB;

Machine machine_of(const std::string& name) {
  const std::int64_t number = std::stoll(name.substr(3));
  if (number == 80) return {164 * kKiB, 163 * kKiB};
  if (number / 10 == 9 || number / 10 == 10) return {228 * kKiB, 227 * kKiB};
  return {100 * kKiB, 99 * kKiB};  // 86, 89, 120
}

// Registers are given to warps in units of 256.
std::int64_t registers_of_block(std::int64_t registers, std::int64_t threads) {
  const std::int64_t warps = (threads + 31) / 32;
  return (registers + 7) / 8 * 8 * 32 * warps;
}

std::int64_t number_before(const std::string& line, const std::string& unit) {
  const std::regex pattern("([0-9]+) " + unit);
  std::smatch match;
  return std::regex_search(line, match, pattern) ? std::stoll(match[1]) : 0;
}

}  // namespace

std::string kernel_name(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> demangled(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  std::string name = status == 0 ? demangled.get() : mangled;
  // A template's instance begins with its return type.
  if (name.starts_with("void ")) name.erase(0, 5);
  const std::string anonymous = "(anonymous namespace)::";
  for (std::size_t at = name.find(anonymous); at != std::string::npos; at = name.find(anonymous)) {
    name.erase(at, anonymous.size());
  }
  // The parameter list opens the first parenthesis outside template arguments.
  int depth = 0;
  std::size_t begin = 0, end = name.size();
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (depth > 0) continue;
    if (name[i] == '(') {
      end = i;
      break;
    }
    if (name[i] == ':') begin = i + 1;
  }
  name = name.substr(begin, end - begin);
  std::erase(name, ' ');
  return name;
}

std::vector<KernelUse> parse_ptxas(const std::string& text) {
  std::vector<KernelUse> out;
  std::istringstream lines(text);
  bool pending = false;
  const std::regex entry("Compiling entry function '([^']+)' for '([^']+)'");
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_search(line, match, entry)) {
      if (pending) throw std::runtime_error("no figures of " + out.back().name);
      KernelUse use;
      use.name = kernel_name(match[1]);
      use.machine = match[2];
      out.push_back(use);
      pending = true;
    } else if (pending && line.find("bytes stack frame") != std::string::npos) {
      out.back().stack = number_before(line, "bytes stack frame");
      out.back().spilled =
          number_before(line, "bytes spill stores") + number_before(line, "bytes spill loads");
    } else if (pending && line.find("Used ") != std::string::npos) {
      out.back().registers = number_before(line, "registers");
      out.back().shared = number_before(line, "bytes smem");
      pending = false;
    }
  }
  if (pending) throw std::runtime_error("no figures of " + out.back().name);
  return out;
}

std::vector<KernelLimit> parse_limits(const std::string& text) {
  std::vector<KernelLimit> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    KernelLimit limit;
    std::string cores;
    if (!(words >> limit.pattern)) continue;
    words >> limit.threads >> limit.registers >> limit.blocks >> limit.dynamic_shared >>
        limit.stack >> cores;
    if (!words || (cores != "yes" && cores != "no")) {
      throw std::runtime_error("a line of limits that cannot be read: " + line);
    }
    limit.tensor_cores = cores == "yes";
    out.push_back(limit);
  }
  return out;
}

const KernelLimit* limit_of(const std::string& name, const std::vector<KernelLimit>& limits) {
  for (const KernelLimit& limit : limits) {
    if (fnmatch(limit.pattern.c_str(), name.c_str(), 0) == 0) return &limit;
  }
  return nullptr;
}

std::vector<std::string> findings_of(const std::vector<KernelUse>& kernels,
                                     const std::vector<KernelLimit>& limits) {
  std::vector<std::string> out;
  for (const KernelUse& kernel : kernels) {
    const auto say = [&](const std::string& what, std::int64_t found, std::int64_t most) {
      if (found <= most) return;
      out.push_back(kernel.name + " for " + kernel.machine + ": " + std::to_string(found) + " " +
                    what + ", at most " + std::to_string(most));
    };
    const KernelLimit* limit = limit_of(kernel.name, limits);
    if (limit == nullptr) {
      out.push_back(kernel.name + " for " + kernel.machine + ": no limit in the table");
      continue;
    }
    const Machine machine = machine_of(kernel.machine);
    const std::int64_t shared = kernel.shared + limit->dynamic_shared;
    say("bytes spilled", kernel.spilled, 0);
    if (kernel.machine != kPlanned) {
      // A kernel runs there as it can, but it runs.
      say("registers of a block", registers_of_block(kernel.registers, limit->threads), kRegisters);
      say("bytes of shared memory", shared, machine.shared_block);
      continue;
    }
    say("bytes of stack", kernel.stack, limit->stack);
    say("registers", kernel.registers, limit->registers);
    say("registers of all planned blocks",
        limit->blocks * registers_of_block(kernel.registers, limit->threads), kRegisters);
    say("bytes of shared memory", shared, machine.shared_block);
    say("bytes of shared memory of all planned blocks", limit->blocks * (shared + kSystemShared),
        machine.shared);
    say("threads of all planned blocks", limit->blocks * limit->threads, 2048);
  }
  return out;
}

std::vector<std::string> unused_limits(const std::vector<KernelUse>& kernels,
                                       const std::vector<KernelLimit>& limits) {
  std::set<std::string> used;
  for (const KernelUse& kernel : kernels) {
    if (const KernelLimit* limit = limit_of(kernel.name, limits)) used.insert(limit->pattern);
  }
  std::vector<std::string> out;
  for (const KernelLimit& limit : limits) {
    if (!used.contains(limit.pattern)) out.push_back(limit.pattern);
  }
  return out;
}

}  // namespace tessera
