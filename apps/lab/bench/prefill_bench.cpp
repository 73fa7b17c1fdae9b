// The prompt of an image that LLaVA-NeXT cuts into tiles, over a language model of LlamaGen's
// dimensions with random weights: visual rows are drawn, text rows too.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "apps/lab/bench/prune_bench.h"
#include "apps/lab/bench/random_text_model.h"
#include "apps/lab/eval/eval_statistics.h"
#include "apps/lab/models/random_weights.h"
#include "apps/runtime/caption_prompt.h"
#include "apps/runtime/visual_layout.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"
#include "engine/decoding/method_parts.h"
#include "engine/decoding/stream_loop.h"
#include "engine/families/open_model.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kVocab = 32064;
constexpr std::int64_t kTextBefore = 35, kTextAfter = 25;  // the Vicuna template and a question
constexpr std::int32_t kImageId = 32000;

struct Bench {
  const PrefillBenchOptions& options;
  const StreamModel& model;
  const VisualLayout& layout;

  // Seconds from the encoder's rows to the first token, and the rows that reached the last layer.
  std::pair<double, std::int64_t> run(const Pruner* pruner, double keep) const {
    VisualRows visual;
    visual.block = layout.block;
    visual.total = layout.block.count();
    visual.width = model.width();
    for (const VisualToken& token : layout.block.tokens) visual.positions.push_back(token.position);
    const Tensor drawn =
        random_weight("visual.embed", Shape{visual.total, visual.width}, {.seed = 3});
    visual.rows.assign(drawn.view().f32(), drawn.view().f32() + drawn.shape().elements());
    std::vector<std::int32_t> ids(kTextBefore, 5);
    ids.insert(ids.end(), to_size(visual.total), kImageId);
    for (std::int32_t i = 0; i < kTextAfter; ++i) ids.push_back(100 + i);
    const ModelConfig& config = model.config().transformer;
    PrunedModel facts;
    facts.llm_layers = narrow<int>(config.layers);
    facts.tiles = layout.block.grid.rows * layout.block.grid.columns + 1;
    facts.rope = {config.head_dim, config.rope.theta, {}};
    Budget budget;
    budget.ratio = keep;
    std::unique_ptr<PruneSession> session;
    if (pruner != nullptr) {
      session = std::make_unique<PruneSession>(*pruner, facts, budget, 1, 0);
    }
    const auto start = std::chrono::steady_clock::now();
    std::vector<PromptImage> images;
    images.push_back({std::move(visual), session.get()});
    PromptRows rows = build_prompt(model, ids, kImageId, std::move(images));
    struct Keep final : StreamListener {
      void on_done(std::size_t, StreamResult&&) override {}
    } keep_first;
    const OwnedParts<float, KeyedRandom> parts(DecodeMethod{}, DecodeAids{});
    StreamLoop loop(model,
                    {.prompt_rows = rows.rows.shape()[0],
                     .grammar = VocabularyGrammar::line(kVocab, 1),
                     .kv = beside(options.storage)},
                    parts.parts());
    Stream item{.prompt = {.ids = {},
                           .rows = std::make_shared<const Tensor>(std::move(rows.rows)),
                           .positions = std::move(rows.places),
                           .next_position = rows.next_place,
                           .cuts = rows.cuts.get()},
                .kind = StreamKind::kText};
    item.dist.temperature = 0;
    loop.add(std::move(item));
    while (!loop.idle()) loop.step(keep_first);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const auto blocks = rows.cuts ? rows.cuts->blocks() : rows.kept;
    return {seconds, blocks[0].count()};
  }
};

}  // namespace

void run_prefill_bench(const PrefillBenchOptions& options, Backend& backend, BenchReport& report) {
  const PreprocessPlan plan =
      plan_preprocess(preprocess_policy("llava-next"), options.width, options.height);
  const VisualLayout layout = layout_of(plan, {.class_token = true});
  const std::int64_t total = layout.block.count();
  const StreamModel model = random_text_model({.size = options.size,
                                               .flag = "--random llava-next:" + options.size,
                                               .vocab = kVocab,
                                               .positions = total + kTextBefore + kTextAfter + 8},
                                              backend, options.storage);
  const Bench bench{options, model, layout};
  bench.run(nullptr, 1);  // warm caches
  for (const std::string& method : options.methods) {
    const std::unique_ptr<Pruner> pruner = make_pruner(method);
    for (const double keep : options.keep) {
      std::vector<double> ratios, whole, pruned;
      std::int64_t kept = 0;
      for (std::int64_t pair = 0; pair < options.pairs; ++pair) {
        // The first of each pair alternates.
        if (pair % 2 == 0) whole.push_back(bench.run(nullptr, 1).first);
        const auto [seconds, left] = bench.run(pruner.get(), keep);
        pruned.push_back(seconds);
        kept = left;
        if (pair % 2 == 1) whole.push_back(bench.run(nullptr, 1).first);
        ratios.push_back(pruned.back() / whole.back());
      }
      const Interval ratio = bootstrap_median(ratios);
      const double removed = 1 - to_double(kept) / to_double(total);
      Json object = report.start("prefill." + method);
      object["model"] = "random:llava-next:" + options.size;
      object["dtype"] = std::string(dtype_name(options.storage));
      object["visual_tokens"] = total;
      object["kept_tokens"] = kept;
      object["removed"] = removed;
      object["whole_seconds"] = interval_json(bootstrap_median(whole));
      object["pruned_seconds"] = interval_json(bootstrap_median(pruned));
      object["ratio"] = interval_json(ratio);
      object["quality"] = nullptr;  // random weights mean nothing
      report.emit(object);
      report.add_row(
          method + ", " + std::to_string(kept) + " of " + std::to_string(total),
          fixed_digits(100 * removed, 1) + " % removed",
          fixed_digits(bootstrap_median(pruned).mean, 2) + " s, whole " +
              fixed_digits(bootstrap_median(whole).mean, 2) + " s",
          "falls by " + fixed_digits(100 * (1 - ratio.mean), 1) + " (" +
              fixed_digits(100 * (1 - ratio.high), 1) + "-" +
              fixed_digits(100 * (1 - ratio.low), 1) + ") %",
          fixed_digits((1 - ratio.mean) / std::max(removed, 1e-9), 2) + " of the share removed");
    }
  }
}

}  // namespace tessera
