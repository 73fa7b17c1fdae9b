// What the phases of tessera-lab gpu-check share: a device, its ceilings probed with every figure,
// timings of recorded passes, and objects with every field of a measurement.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/lab/bench/cost_model.h"
#include "apps/lab/bench/device_libraries.h"
#include "apps/lab/bench/measure.h"

namespace tessera {

// impl of what cuBLASLt did.
inline constexpr const char* kLibrary = "cublaslt";

struct DeviceBenchOptions {
  std::string device = "cuda:0";
  bool quick = false;   // tiny shapes, for trying the program out; its figures mean nothing
  std::string git;      // commit that was built
  std::string command;  // that asked for it
  bool dirty = false;   // with changes that are in no commit
  CudaOptions cuda;
  std::optional<LibraryFiles> libraries;  // in place of the system's, for tests; on any device
};

// Two figures of a probe, GB/s (10^9 bytes).
struct ProbePair {
  double before = 0, after = 0;
  double mean() const { return (before + after) / 2; }
};

class DeviceBench {
 public:
  // Error kUsage where the device is not there. Finished objects go to `sink`.
  DeviceBench(const DeviceBenchOptions& options, BenchReport::Sink sink);

  // The same device with one order of sums.
  DeviceBench deterministic() const;

  Backend& backend() { return *backend_; }
  const DeviceBenchOptions& options() const { return options_; }
  const DeviceLibraries* libraries() const { return libraries_.get(); }  // may be null

  // What memory reaches, by reading where cuBLAS is found, else by copying (both ways counted).
  double read_rate();
  double copy_rate();
  std::string read_probe() const { return reads_ ? "read" : "copy"; }  // after read_rate()
  bool has_peer() const;                                               // cuBLASLt
  // Products of bf16 by cuBLASLt, 10^12 operations a second; empty without it.
  std::optional<double> product_rate();

  // Seconds of one call; `calls` of them make a recorded pass, which is repeated.
  Timing time_calls(int calls, FunctionRef<void(int call)> call);
  // Of a kernel that does next to nothing, after another such one in a recorded pass.
  Timing time_gap();
  static constexpr int kGapKernels = 512;
  // Of a call that waits for its own results.
  Timing time_waited(FunctionRef<void()> call) { return measure(bench_, call); }
  // The same of a product by cuBLASLt, in a graph too: the fastest of the first ways that its
  // heuristic names. Empty where it has none; a library that fails is said so and asked no more.
  // The case's workspace is set here.
  std::optional<Timing> time_library(LibraryCase what, int calls);

  // Nearly normal numbers in the host's memory, f32; and on the device, f32 or bf16.
  static Tensor noise(Shape shape, std::uint64_t seed, float scale);
  Tensor random(Shape shape, std::uint64_t seed, float scale, DType dtype = DType::kF32);

  // An object with the fields of all measurements; model, shape and timing are added by the caller.
  nlohmann::ordered_json start(const std::string& name, const std::string& impl) const;
  // Adds times, bytes and products, and what they are of the probed rate.
  void finish(nlohmann::ordered_json& object, const Timing& timing, double bytes, double flops,
              const ProbePair& probe);
  // `summary`, if not empty, is a line of the last table.
  void emit(nlohmann::ordered_json object, const std::string& summary = "");

 private:
  std::optional<Timing> fastest_way(LibraryProduct& product, int calls) const;

  DeviceBenchOptions options_;
  BenchReport::Sink sink_;
  BenchOptions bench_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<DeviceLibraries> libraries_;
  std::unique_ptr<BenchReport> report_;
  Tensor probe_from_, probe_to_, sums_, workspace_;
  bool reads_ = false, library_failed_ = false;
  std::uint64_t next_key_ = 1;
};

// The phases. Each emits its objects and says nothing else.
void run_device_probe(DeviceBench& bench);
void run_device_micro(DeviceBench& bench);
// `models` as open_model() takes them.
void run_device_macro(DeviceBench& bench, const std::vector<std::string>& models);
void run_device_dist(DeviceBench& bench, const std::vector<std::string>& models);
// `traces`: recorded hazards by method (read_accept_trace), in place of the published traces.
using AcceptTraces = std::map<std::string, std::vector<double>>;
void run_device_image(DeviceBench& bench, const std::vector<std::string>& models,
                      const AcceptTraces& traces = {});
// The prompt of LLaVA-NeXT-7B, and its image encoder.
void run_device_prefill(DeviceBench& bench);

}  // namespace tessera
