// What it costs to refuse a bad file: a second of processor time and 64 MiB at most.
#pragma once

#include <ctime>
#include <fstream>
#include <string>

namespace tessera {

class RefusalCost {
 public:
  // Begins to count.
  RefusalCost() {
    std::ofstream("/proc/self/clear_refs") << "5";
    memory_ = memory_kib("VmRSS");
    start_ = std::clock();
  }
  // What was too much of what was spent so far; empty if nothing. Processor time, so that a busy
  // machine does not fail a fast refusal.
  std::string complaint() const {
    const double seconds = static_cast<double>(std::clock() - start_) / CLOCKS_PER_SEC;
    const long growth = memory_kib("VmHWM") - memory_;
    std::string out;
    if (seconds > kMaxSeconds) out += " took " + std::to_string(seconds) + " s";
    if (growth > kMaxGrowthKib) out += " took " + std::to_string(growth) + " KiB";
    return out;
  }

 private:
  static constexpr double kMaxSeconds = 1.0;
  static constexpr long kMaxGrowthKib = 64 * 1024;

  // VmHWM (peak) or VmRSS of this process.
  static long memory_kib(const std::string& field) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with(field)) return std::stol(line.substr(field.size() + 1));
    }
    return 0;
  }

  long memory_ = 0;
  std::clock_t start_ = 0;
};

}  // namespace tessera
