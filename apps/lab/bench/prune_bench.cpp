#include "apps/lab/bench/prune_bench.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/lab/eval/eval_captions.h"
#include "apps/lab/eval/eval_statistics.h"
#include "apps/runtime/caption_model.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "vision/image/png.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

// Highest resident size since the last call, in bytes; 0 where the kernel does not tell.
double peak_since_reset() {
  double peak = 0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) peak = std::strtod(line.c_str() + 6, nullptr) * 1024;
  }
  return peak;
}
void reset_peak() { std::ofstream("/proc/self/clear_refs") << 5; }

std::string percent(const Interval& value) {
  return fixed_digits(100 * value.mean, 1) + " (" + fixed_digits(100 * value.low, 1) + "-" +
         fixed_digits(100 * value.high, 1) + ")";
}

std::string milliseconds(const Interval& value) {
  return fixed_digits(1e3 * value.mean, 2) + " ms";
}

struct PruneRun {
  EvalCaptions eval;
  double peak = 0;
};

PruneRun run_one(const PruneBenchOptions& options, const PruneChoice& prune) {
  EvalCaptionsRequest request;
  request.options = options.pipeline;
  request.options.prune = prune;
  request.options.batch_size = 1;
  request.images = options.images;
  request.scene_seed = options.scene_seed;
  request.size = options.size;
  reset_peak();
  PruneRun out{eval_captions(request)};
  out.peak = peak_since_reset();
  return out;
}

void report_run(const std::string& name, double keep, const PruneBenchOptions& options,
                const PruneRun& run, BenchReport& report) {
  const EvalCaptions& eval = run.eval;
  const EvalRow row = summarise(name, eval.marks);
  const Interval first = bootstrap_median(eval.first), select = bootstrap_median(eval.select),
                 encode = bootstrap_median(eval.encode), prefill = bootstrap_median(eval.prefill);
  const Interval kept = bootstrap_all(eval.kept), total = bootstrap_all(eval.total);
  Json object = report.start("prune." + name);
  object["model"] = eval.model;
  object["keep"] = keep;
  object["pictures"] = options.images;
  object["size"] = options.size;
  object["kept_tokens"] = interval_json(kept);
  object["visual_tokens"] = interval_json(total);
  object["encode_seconds"] = interval_json(encode);
  object["select_seconds"] = interval_json(select);
  object["prefill_seconds"] = interval_json(prefill);
  object["first_token_seconds"] = interval_json(first);
  object["peak_bytes"] = run.peak;
  object["quality"] = row_json(row);
  object["unreadable"] = eval.unreadable;
  report.emit(object);
  report.add_row(name + ", " + fixed_digits(kept.mean, 1) + " of " + fixed_digits(total.mean, 0),
                 "scene " + percent(row[Mark::kScene]) + " %, kind " + percent(row[Mark::kKind]),
                 milliseconds(first) + " to the first token",
                 "prefill " + milliseconds(prefill) + ", selection " + milliseconds(select),
                 fixed_digits(run.peak / 1048576, 0) + " MiB at most");
}

// The first image with what was dropped in the dark.
void save_overlay(const std::filesystem::path& folder, const std::string& name, double keep,
                  const EvalCaptions& eval) {
  if (eval.first_kept.empty()) return;
  char file[128];
  std::snprintf(file, sizeof file, "%s-%02d.png", name.c_str(), truncate<int>(100 * keep));
  ensure_output_folder(folder);
  save_png(folder / file, kept_patches(eval.first_image, eval.first_kept));
}

}  // namespace

void run_prune_bench(const PruneBenchOptions& options, BenchReport& report) {
  const PruneRun whole = run_one(options, {});
  report_run("none", 1.0, options, whole, report);
  std::vector<std::string> methods = options.methods;
  if (methods.empty()) {
    for (const PrunerRow& row : pruner_table()) methods.emplace_back(row.name);
  }
  for (const std::string& method : methods) {
    for (const double keep : options.keep) {
      PruneChoice prune;
      prune.method = method;
      prune.budget.ratio = keep;
      const PruneRun run = run_one(options, prune);
      report_run(method, keep, options, run, report);
      if (options.overlay) save_overlay(*options.overlay, method, keep, run.eval);
    }
  }
}

}  // namespace tessera
