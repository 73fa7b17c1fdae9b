// Models of published dimensions for the phases of tessera-lab gpu-check: weights are noise, so
// tokens mean nothing and times do.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "apps/lab/bench/device_bench.h"
#include "engine/decoding/stream_loop.h"
#include "engine/families/open_model.h"

namespace tessera {

// The same noise for every tensor, as long as the longest of them: a model of any size is loaded
// without drawing each of its numbers. Norms are ones.
class NoiseSource final : public TensorSource {
 public:
  explicit NoiseSource(const std::vector<TensorSpec>& tensors);
  ConstTensorView get(const std::string& name) override;
  void done(const std::string&) override {}
  std::string file_of(const std::string&) const override { return "noise"; }

 private:
  std::map<std::string, Shape> shapes_;
  Tensor noise_, ones_;
};

// Loaded as bf16.
struct BenchModel {
  OpenedModel opened;
  std::unique_ptr<StreamModel> model;

  const StreamModelConfig& config() const { return model->config(); }
  // The object's field.
  nlohmann::ordered_json json() const;
};

// `name` as open_model() takes it; refused before weights are made if passes of `window` rows do
// not fit the device. Error kModel, kMemory.
BenchModel load_bench_model(DeviceBench& bench, const std::string& name, std::int64_t window);

// A guided image after a prompt of so many tokens, with `given` tokens of the stream.
Stream bench_item(const StreamModel& model, std::int64_t prompt, std::int64_t given);

// Passes of the stream loop, each with its verification; the first ones of a run are not timed.
struct LoopPasses {
  Timing timing;
  double host_seconds = 0;            // drafts, acceptance and commit of a pass on the host, median
  std::int64_t reads = 0, bytes = 0;  // of the host, for all passes that were run
  std::int64_t passes = 0;            // those
};
// Of this window, plain decoding where it is 1, so many of them.
LoopPasses time_loop(DeviceBench& bench, const StreamModel& model, const Stream& item,
                     std::int64_t window, std::int64_t passes);

}  // namespace tessera
