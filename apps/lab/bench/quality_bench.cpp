#include "apps/lab/bench/quality_bench.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "apps/lab/scene/caption.h"
#include "apps/lab/scene/scene.h"
#include "apps/runtime/completion_model.h"
#include "apps/runtime/generate_task.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/model_catalog.h"
#include "apps/runtime/shared_model.h"
#include "apps/runtime/token_walk.h"
#include "engine/backend/precise_products.h"
#include "engine/core/cached_type.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/storage.h"
#include "engine/families/open_model.h"

namespace tessera {

namespace {

constexpr std::int64_t kPieceTokens = 128;
constexpr std::size_t kMaxText = std::size_t{16} << 20;

// A prompt and the tokens that were written after it.
struct Written {
  std::vector<std::int32_t> prompt, tokens;
};

class TokensOf final : public GenerateListener {
 public:
  explicit TokensOf(std::vector<Written>& out) : out_(out) {}
  void on_image(GeneratedImage&& image) override {
    if (image.status == ImageStatus::kFailed) throw Error(image.error);
    out_[image.index].tokens = std::move(image.codes);
  }

 private:
  std::vector<Written>& out_;
};

std::vector<Written> write_images(const QualityBenchOptions& options) {
  GenerateOptions own = options.pipeline;
  own.storage = DType::kF32;
  Runtime runtime;
  GenerateTask task(runtime, own);
  std::vector<PreparedRequest> requests;
  std::vector<Written> out;
  for (std::int64_t i = 0; i < options.prompts; ++i) {
    const auto number = narrow<std::uint64_t>(i);
    GenerateRequest request;
    request.prompt = scene_caption(sample_scene(options.scene_seed, SceneSplit::kVal, number));
    request.seed = options.seed + number;
    requests.push_back(task.prepare(request));
    out.push_back({requests.back().item.prompt.ids, {}});
  }
  TokensOf listener(out);
  task.run(requests, listener);
  return out;
}

// Logits of every token, [tokens, ids], each after the ones before it.
std::vector<float> logits_of(const TokenModel& model, const Written& written, DType cache) {
  const std::int64_t count = std::ssize(written.tokens), ids = model.logit_ids();
  TokenWalk walk(model, std::ssize(written.prompt) + count, cache);
  std::vector<float> out(to_size(count * ids));
  walk.last_logits(walk.pass(walk.prompt(written.prompt)), out.data());
  if (count > 1) {
    const auto given = std::span(written.tokens).first(to_size(count - 1));
    walk.logits(walk.pass(walk.tokens(given)), out.data() + ids);
  }
  return out;
}

// Logarithms of the probabilities of a row.
std::vector<double> log_softmax(std::span<const float> logits) {
  const double most = to_double(*std::ranges::max_element(logits));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(to_double(logit) - most);
  std::vector<double> out;
  for (const float logit : logits) out.push_back(to_double(logit) - most - std::log(sum));
  return out;
}

struct Differences {
  std::vector<double> divergence;    // of each token, nats
  std::int64_t same = 0;             // tokens with the same likeliest one
  double surprise = 0, entropy = 0;  // sums, nats

  void add(std::span<const float> truth, std::span<const float> other, std::int32_t token) {
    const std::vector<double> p = log_softmax(truth), q = log_softmax(other);
    double sum = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      sum += std::exp(p[i]) * (p[i] - q[i]);
      entropy -= std::exp(p[i]) * p[i];
    }
    divergence.push_back(std::max(0.0, sum));
    same += std::ranges::max_element(p) - p.begin() == std::ranges::max_element(q) - q.begin();
    surprise -= q[to_size(token)];
  }
};

[[noreturn]] void refuse_copy(const std::string& name, const std::vector<float>& truth,
                              const std::vector<float>& logits) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_BENCH_COPY",
               .where = "--copy " + name,
               .expected = "a copy of the model, with as many ids",
               .found = std::to_string(logits.size()) + " logits in place of " +
                        std::to_string(truth.size())});
}

// A model that is compared with f32.
struct Compared {
  std::string name;
  KeptModel kept;
  std::function<StreamModel()> load;
};

void report_kept(const std::string& family, const Compared& compared, const StreamModel& model,
                 Differences found, BenchReport& report) {
  const KeptModel& kept = compared.kept;
  const ModelConfig& sizes = model.sizes();
  const double bytes = to_double(model.step_weight_bytes());
  const std::size_t row = KvCacheShape{.layers = sizes.layers,
                                       .kv_heads = sizes.kv_heads,
                                       .head_dim = sizes.head_dim,
                                       .capacity = 1,
                                       .sequences = 1,
                                       .dtype = kept.cache}
                              .bytes();
  std::ranges::sort(found.divergence);
  const std::size_t count = found.divergence.size();
  const double tokens = to_double(count);
  double sum = 0;
  for (const double divergence : found.divergence) sum += divergence;
  const std::string& name = compared.name;
  nlohmann::ordered_json object = report.start("quality." + name);
  object["model"] = {{"family", family},
                     {"dtype", dtype_name(kept.weights)},
                     {"kv_dtype", dtype_name(kept.cache)},
                     {"precise", kept.precise}};
  object["weight_bytes"] = bytes;
  object["cached_row_bytes"] = row;
  object["tokens"] = count;
  object["kl"] = {{"mean", sum / tokens},
                  {"p99", found.divergence[count - 1 - count / 100]},
                  {"max", found.divergence.back()}};
  object["same_top1"] = to_double(found.same) / tokens;
  object["perplexity"] = std::exp(found.surprise / tokens);
  object["entropy"] = found.entropy / tokens;
  report.emit(object);
  report.add_row("quality." + name, fixed_digits(bytes / 1e6, 1) + " MB",
                 "KL " + fixed_digits(sum / tokens, 5) + " nats",
                 "same top-1 " + fixed_digits(100 * to_double(found.same) / tokens, 1) + " %",
                 "perplexity " + fixed_digits(std::exp(found.surprise / tokens), 3));
}

// Each along the same tokens; the first one is the truth.
void compare_kept(const std::vector<Written>& written, const std::vector<Compared>& all,
                  const std::string& family, BenchReport& report) {
  std::vector<std::vector<float>> truth;
  for (const Compared& one : all) {
    const StreamModel kept = one.load();
    set_precise(kept.backend(), one.kept.precise);
    const std::size_t ids = to_size(kept.logit_ids());
    Differences found;
    for (std::size_t i = 0; i < written.size(); ++i) {
      const std::vector<float> logits = logits_of(kept, written[i], one.kept.cache);
      if (truth.size() == i) truth.push_back(logits);
      if (logits.size() != truth[i].size()) refuse_copy(one.name, truth[i], logits);
      for (std::size_t token = 0; token < written[i].tokens.size(); ++token) {
        found.add(std::span(truth[i]).subspan(token * ids, ids),
                  std::span(logits).subspan(token * ids, ids), written[i].tokens[token]);
      }
    }
    report_kept(family, one, kept, std::move(found), report);
    set_precise(kept.backend(), false);
  }
}

// f32, then the others as they are kept.
std::vector<Compared> compared_types(const std::vector<KeptModel>& others,
                                     const std::function<StreamModel(DType)>& load) {
  std::vector<Compared> out = {{KeptModel{}.name(), {}, [load] { return load(DType::kF32); }}};
  for (const KeptModel& kept : others) {
    out.push_back({kept.name(), kept, [load, type = kept.weights] { return load(type); }});
  }
  return out;
}

// "copy.small" of a folder or file small, small.gguf.
std::string copy_name(const std::string& path) {
  return "copy." + std::filesystem::path(path).stem().string();
}

// Pieces of a text, evenly over it.
std::vector<Written> pieces_of(std::span<const std::int32_t> ids, std::int64_t pieces) {
  const std::int64_t length = std::min(kPieceTokens, std::ssize(ids));
  const std::int64_t count = std::min(pieces, std::ssize(ids) / length);
  std::vector<Written> out;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t first = count == 1 ? 0 : (std::ssize(ids) - length) * i / (count - 1);
    const auto piece = ids.subspan(to_size(first), to_size(length));
    out.push_back({{piece.front()}, {piece.begin() + 1, piece.end()}});
  }
  return out;
}

// Weights of the type; blocks with both kinds of products.
void add_kept(DType weights, Backend& backend, std::vector<KeptModel>& out) {
  out.push_back({weights, beside(weights)});
  const bool blocks = weights == DType::kFile || storage_of(weights).integers;
  if (blocks && set_precise(backend, false)) out.push_back({weights, beside(weights), true});
}

}  // namespace

std::string KeptModel::name() const {
  const std::string type = std::string(dtype_name(weights)) + (precise ? ".precise" : "");
  return cache == beside(weights) ? type : type + ".kv-" + std::string(dtype_name(cache));
}

std::vector<KeptModel> kept_models(Backend& backend) {
  std::vector<KeptModel> out;
  for (const std::string_view name : kKeptNames) {
    const DType type = *storage_named(name);
    if (type == DType::kF32 || !backend.keeps(type)) continue;
    add_kept(type, backend, out);
  }
  for (const CachedType& row : cached_types()) {
    if (row.type != DType::kF32 && backend.caches(row.type)) out.push_back({DType::kF32, row.type});
  }
  return out;
}

void run_quality_bench(const QualityBenchOptions& options, Backend& backend, BenchReport& report) {
  const std::vector<Written> images = write_images(options);
  const std::string& model = options.pipeline.model;
  OpenedModel opened =
      open_model(resolve_model(model.empty() ? std::string(kDefaultModel) : model).open_name);
  std::vector<Compared> all = compared_types(
      options.kept, [&](DType storage) { return load_stream_model(opened, backend, storage); });
  for (const std::string& path : options.copies) {
    const auto copy = std::make_shared<OpenedModel>(open_model(resolve_model(path).open_name));
    const DType stored = stored_dtype(*copy);
    all.push_back({copy_name(path), {stored, beside(stored)}, [copy, stored, &backend] {
                     return load_stream_model(*copy, backend, stored);
                   }});
  }
  compare_kept(images, all, opened.spec.family, report);
}

void run_text_quality(const TextQualityOptions& options, Backend& backend, BenchReport& report) {
  const auto model = CompletionModel::open(resolve_model(options.model).open_name);
  const std::vector<std::int32_t> ids =
      model->prompt_ids(read_file(options.text, kMaxText, ErrorKind::kUsage), false);
  if (ids.size() < 2) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_BENCH_TEXT",
                 .file = options.text,
                 .where = "--text",
                 .expected = "a text of two tokens or more",
                 .found = std::to_string(ids.size())});
  }
  const auto own = [](const CompletionModel& any) {
    const DType stored = any.stored();
    return KeptModel{stored, beside(stored)};
  };
  std::vector<KeptModel> kept = options.kept;
  if (model->stored() == DType::kFile && backend.keeps(DType::kFile)) {
    add_kept(DType::kFile, backend, kept);
  }
  std::vector<Compared> all =
      compared_types(kept, [&](DType storage) { return model->load(backend, storage); });
  for (const std::string& path : options.copies) {
    const std::shared_ptr<CompletionModel> copy =
        CompletionModel::open(resolve_model(path).open_name);
    const KeptModel as = own(*copy);
    all.push_back(
        {copy_name(path), as, [copy, as, &backend] { return copy->load(backend, as.weights); }});
  }
  compare_kept(pieces_of(ids, options.pieces), all, model->spec().family, report);
}

}  // namespace tessera
