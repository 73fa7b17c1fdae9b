// How the benchmarks measure and report: repeated timings, a read-bandwidth probe taken before and
// after, one JSON object a measurement.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/lab/eval/eval_statistics.h"
#include "engine/backend/backend.h"
#include "engine/core/function_ref.h"
#include "engine/core/read_probe.h"

namespace tessera {

struct BenchOptions {
  int threads = 0;  // 0 = one per core
  CpuOptions::Isa isa = CpuOptions::Isa::kAuto;
  int min_reps = 5;
  double min_seconds = 0.25;      // a measurement runs at least this long
  std::vector<std::string> only;  // names of measurements; empty = all
  std::string git;                // commit that was measured, if the caller knows it

  bool wants(const std::string& name) const;
};

// Seconds of the repetitions of one measurement, warm-up excluded.
struct Timing {
  int warmup = 0;
  std::vector<double> seconds;  // ascending
  double cpu_seconds = 0;       // processor time of one repetition, all threads, mean

  double quantile(double q) const;
  double median() const { return quantile(0.5); }
};

// Processor time of this process so far, all threads, in seconds.
double process_cpu_seconds();

Timing measure(const BenchOptions& options, FunctionRef<void()> body);

// Receives finished objects: one JSON line each, and rows for the table.
class BenchReport {
 public:
  using Sink = std::function<void(const nlohmann::ordered_json&)>;
  BenchReport(const BenchOptions& options, Backend& backend, Sink sink);
  ~BenchReport();

  // A new object with the fields that every measurement has (schema, name, host, device, build).
  nlohmann::ordered_json start(const std::string& name) const;
  static void add_timing(nlohmann::ordered_json& object, const Timing& timing);
  void emit(const nlohmann::ordered_json& object);
  // One row of the table: what was measured, and its figures as text.
  void add_row(std::string name, std::string what, std::string time, std::string rate,
               std::string share);
  std::string markdown() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// "12.3" with that many digits after the point.
std::string fixed_digits(double value, int digits);
// "12.3 (11.9-12.8)": the mean, and its interval.
std::string text_of(const Interval& value, int digits);

}  // namespace tessera
