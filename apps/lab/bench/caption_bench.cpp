#include "apps/lab/bench/caption_bench.h"

#include <nlohmann/json.hpp>

#include "apps/lab/eval/eval_captions.h"
#include "apps/lab/eval/eval_statistics.h"
#include "engine/core/index.h"

namespace tessera {

void run_caption_bench(const CaptionBenchOptions& options, BenchReport& report) {
  double first_rate = 0;
  for (const std::int64_t batch : options.batch_sizes) {
    EvalCaptionsRequest request;
    request.options = options.pipeline;
    request.options.batch_size = batch;
    request.images = options.images;
    request.size = options.size;
    request.scene_seed = options.scene_seed;
    const EvalCaptions eval = eval_captions(request);
    const EvalRow row = summarise("batch " + std::to_string(batch), eval.marks);
    const StreamTimes& times = eval.times;
    const double rate = to_double(times.tokens_written) / times.tokens;
    if (first_rate == 0) first_rate = rate;
    const double images = to_double(options.images);
    auto object = report.start("caption.b" + std::to_string(batch));
    object["model"] = eval.model;
    object["batch"] = batch;
    object["pictures"] = options.images;
    // Of passes without prompt rows in them.
    object["decode_tokens_per_second"] = rate;
    object["decode_ratio"] = rate / first_rate;
    object["decode_seconds"] = times.tokens;
    object["decode_passes"] = times.token_passes;
    object["prompt_seconds"] = times.prompts;  // with the tokens written next to them
    object["prompt_passes"] = times.prompt_passes;
    object["encode_seconds"] = interval_json(bootstrap_median(eval.encode));
    object["seconds"] = eval.seconds;
    object["captions_per_second"] = images / eval.seconds;
    object["quality"] = row_json(row);
    report.emit(object);
    report.add_row("batch " + std::to_string(batch),
                   "scene " + fixed_digits(100 * row[Mark::kScene].mean, 1) + " %",
                   fixed_digits(rate, 0) + " tokens a second in passes that only write",
                   fixed_digits(rate / first_rate, 2) + " times the first",
                   fixed_digits(images / eval.seconds, 2) + " captions a second in all");
  }
}

}  // namespace tessera
