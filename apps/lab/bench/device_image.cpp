// Whole images on a device, from the prompt to pixels: plain decoding, and speculative methods
// whose commit lengths are those of published traces (replay.h), each next to plain images of the
// same run, turn by turn.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/lab/bench/device_model.h"
#include "apps/lab/bench/replay.h"
#include "apps/lab/eval/eval_statistics.h"
#include "apps/runtime/visual_model.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/decoding/method_parts.h"
#include "engine/decoding/run_streams.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kPrompt = 32;

// What one image took, in seconds. `distribution` is known of images that were timed apart.
struct Generated {
  double total = 0, prefill = 0, passes = 0, dist = 0, pixels = 0;
  std::int64_t tokens = 0, count = 0;   // count: of passes
  std::vector<std::int64_t> histogram;  // passes that committed so many tokens
};

// A way to generate: a method, how wide its passes are, and whose outcomes it follows.
struct Way {
  std::string name;  // "image.coupled"
  std::int64_t window = 1;
  bool adaptive = false;
  AcceptTrace trace;  // without depths: none
  Stream item;
  DecodeMethod method;

  std::unique_ptr<OwnedParts<float, KeyedRandom>> owned;
  std::unique_ptr<ReplayRule> rule;
  std::unique_ptr<WatchedVerifiers> verifiers;  // null where the host verifies
  std::unique_ptr<WindowController> controller;
  LoopParts parts;
  std::vector<double> seconds;  // whole images
  std::vector<double> gains;    // plain's time by this one's, round by round
  Generated last, apart;

  bool replayed() const { return !trace.survival.empty(); }
};

class Studio {
 public:
  Studio(DeviceBench& bench, const std::string& name, const AcceptTraces& traces)
      : bench_(bench),
        traces_(traces),
        quick_(bench.options().quick),
        made_(load_bench_model(bench, name, widest())),
        item_(bench_item(*made_.model, quick_ ? 4 : kPrompt, 0)) {
    for (const DType storage : {DType::kF32, DType::kBF16}) {
      tokenizers_.push_back(
          make_visual_tokenizer(bench.backend(), made_.opened, storage, TokenizerHalves::kDecoder));
    }
    add_ways();
    borrow();
  }

  void run() {
    // Records passes, teaches the controllers.
    for (Way& way : ways_) {
      if (!quick_) generate(way);
    }
    ProbePair probe;
    probe.before = bench_.read_rate();
    const int rounds = quick_ ? 1 : 3;
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < ways_.size(); ++i) {
        // The first of each round is another one.
        Way& way = ways_[(i + to_size(round)) % ways_.size()];
        way.last = generate(way);
        way.seconds.push_back(way.last.total);
      }
      for (Way& way : ways_) way.gains.push_back(ways_[0].seconds.back() / way.seconds.back());
    }
    probe.after = bench_.read_rate();
    for (Way& way : ways_) {
      if (way.verifiers != nullptr) way.verifiers->time_apart(true);
      way.apart = generate(way);
      emit(way, probe);
    }
    emit_pixels();
  }

 private:
  std::int64_t widest() const { return quick_ ? 4 : 64; }

  void add_ways() {
    add("plain", 1, false);
    // The widths that the papers took; the adaptive one may take less.
    struct Paper {
      const char* method;
      std::vector<std::int64_t> fixed;
      std::int64_t widest;
    };
    for (const Paper& paper :
         {Paper{"sjd", {16}, 32}, {"coupled", {32, 64}, 64}, {"gsd", {16}, 32}}) {
      if (quick_) {
        add(paper.method, 4, false);
        add(paper.method, 4, true);
        continue;
      }
      for (const std::int64_t window : paper.fixed) add(paper.method, window, false);
      add(paper.method, paper.widest, true);
    }
  }

  void add(const std::string& name, std::int64_t window, bool adaptive) {
    Way way;
    way.name = "image." + name;
    way.window = window;
    way.adaptive = adaptive;
    DecodeAids aids{.grammar = made_.config().grammar()};
    way.method = decode_method(name);
    if (way.method.speculative()) {
      way.method.window = window;
      way.method = settle_method(way.method, aids, made_.model->image_token_count());
      if (needs_of(way.method).neighbours) aids.neighbours = neighbours(way.method);
      const auto recorded = traces_.find(name);
      way.trace = recorded == traces_.end() ? AcceptTrace::published(name)
                                            : AcceptTrace::of_hazards("recorded", recorded->second);
      way.controller = adaptive ? std::make_unique<WindowController>(window) : nullptr;
    }
    way.item = item_;
    if (way.replayed()) {
      way.item.seed = steady_seed(way.trace, window, made_.model->image_token_count());
    }
    way.owned = std::make_unique<OwnedParts<float, KeyedRandom>>(way.method, aids);
    way.parts = way.owned->parts();
    ways_.push_back(std::move(way));
  }

  // When all ways have found their place.
  void borrow() {
    for (Way& way : ways_) {
      if (way.replayed()) {
        way.rule = std::make_unique<ReplayRule>(*way.parts.rule, std::span(&way.trace, 1));
        way.parts.rule = way.rule.get();
      }
      if (bench_.backend().row_verifiers() == nullptr) continue;
      way.verifiers =
          std::make_unique<WatchedVerifiers>(bench_.backend(), way.replayed() ? &way.trace : nullptr);
      way.parts.verifiers = way.verifiers.get();
    }
  }

  std::shared_ptr<const CodeNeighbours> neighbours(const DecodeMethod& method) {
    if (neighbours_ != nullptr) return neighbours_;
    const Tensor codebook = tokenizers_.front()->codebook();
    const auto numbers = to_size(codebook.shape().elements());
    neighbours_ = std::make_shared<CodeNeighbours>(std::span(codebook.f32(), numbers),
                                                   made_.config().codes, needs_of(method).nearest);
    return neighbours_;
  }

  // Loops of one width share cache and recorded passes.
  StreamLoop& loop_of(const Way& way) {
    auto& loop = loops_[way.window];
    if (loop == nullptr) {
      loop = std::make_unique<StreamLoop>(*made_.model,
                                          StreamLimits{.prompt_rows = item_.prompt.length(),
                                                       .grammar = made_.config().grammar(),
                                                       .window = way.window,
                                                       .guided = true,
                                                       .kv = DType::kBF16,
                                                       .dists = way.window > 1},
                                          way.parts, way.controller.get());
    } else {
      loop->use(way.parts, way.controller.get());
    }
    return *loop;
  }

  Generated generate(Way& way) {
    if (way.verifiers != nullptr) way.verifiers->forget();
    Generated out;
    StreamLoop& loop = loop_of(way);
    const double began = monotonic_seconds();
    const auto results = run_streams(loop, {&way.item, 1}, [&](const RunPass& event) {
      if (event.pass == 1) out.prefill = monotonic_seconds() - began;
      if (event.pass > 1 && way.verifiers == nullptr) out.dist += event.times.verify;
      return Flow::kContinue;
    });
    const double generated = monotonic_seconds();
    if (results[0].status == StreamStatus::kFailed) throw Error(results[0].error);
    const ModelSpec& spec = made_.opened.spec;
    pixels(*tokenizers_.back(), spec.model.grammar().image_codes(results[0].tokens));
    const double ended = monotonic_seconds();
    out.total = ended - began;
    out.passes = generated - began - out.prefill;
    out.pixels = ended - generated;
    out.tokens = std::ssize(results[0].tokens);
    out.count = results[0].passes;
    out.histogram = results[0].meters.commit_histogram;
    if (way.verifiers != nullptr) out.dist = way.verifiers->seen().dist_seconds;
    return out;
  }

  void pixels(const VisualTokenizer& tokenizer, const std::vector<std::int32_t>& codes) const {
    const ModelSpec& spec = made_.opened.spec;
    tokenizer.decode(codes, narrow<int>(spec.model.grid_rows), narrow<int>(spec.model.grid_cols));
  }

  void emit(const Way& way, const ProbePair& probe) {
    Json object = bench_.start(way.name, bench_.backend().name());
    const StreamModelConfig& config = made_.config();
    const StepShape step = step_shape(config, DType::kBF16, DType::kBF16);
    const Generated& last = way.last;
    const auto prompt = item_.prompt.length();
    object["model"] = made_.json();
    object["shape"] = {{"b", 1},
                       {"c", 2},
                       {"w", way.window},
                       {"S", prompt + last.tokens / 2},
                       {"V", config.codes}};
    Timing timing;
    timing.warmup = quick_ ? 0 : 1;
    timing.seconds = way.seconds;
    std::sort(timing.seconds.begin(), timing.seconds.end());
    // Every pass reads the weights; what is cached of both branches is half the image's in the
    // mean.
    const double count = to_double(last.count);
    const double bytes = count * (step.parameters * step.bytes_a_parameter +
                                  2 * step.kv_bytes_a_row * to_double(prompt + last.tokens / 2));
    bench_.finish(object, timing, bytes, 0, probe);
    object["tokens"] = last.tokens;
    object["passes"] = last.count;
    const double reached = to_double(last.tokens) / count;
    object["tokens_per_pass"] = reached;
    object["accept_hist"] = last.histogram;
    if (way.replayed()) {
      object["accept_trace"] = {{"name", way.trace.name},
                                {"tokens_per_pass", way.trace.tokens(way.window)}};
      object["replayed"] = true;
    }
    object["window"] = {{"mode", way.adaptive ? "auto" : "fixed"}, {"rows", way.window}};
    if (way.adaptive) object["window"]["why"] = way.controller->why();
    // Of one more image, which waits between passes and verification where a device verifies. Two
    // clocks: on a busy machine one may run over the other.
    const Generated& apart = way.apart;
    const double law = std::min(apart.dist, apart.passes);
    object["split_us"] = {{"prefill", apart.prefill * 1e6},
                          {"passes", (apart.passes - law) * 1e6},
                          {"law", law * 1e6},
                          {"vq", apart.pixels * 1e6},
                          {"total", apart.total * 1e6}};
    object["judged_by"] = way.verifiers == nullptr ? "host" : "device";
    object["vq_dtype"] = "bf16";
    const Interval gain = bootstrap_median(way.gains);
    object["gain_over_plain"] = {{"median", gain.mean}, {"low", gain.low}, {"high", gain.high}};
    object["img_s"] = 1 / timing.median();
    object["seed"] = way.item.seed;
    // Weights are noise; replayed outcomes keep no distribution.
    object["quality"] = nullptr;
    object["lossless"] = nullptr;
    std::string text = way.name + ", " + made_.opened.spec.title;
    if (way.window > 1) {
      text += std::string(way.adaptive ? ", window auto" : ", window ") +
              (way.adaptive ? "" : std::to_string(way.window));
    }
    text += ": " + fixed_digits(timing.median(), 3) + " s";
    if (way.replayed()) {
      text += ", " + fixed_digits(gain.mean, 2) + " times plain at replayed " +
              fixed_digits(reached, 2) + " tokens a pass";
    }
    bench_.emit(object, text);
  }

  // Codes to pixels alone.
  void emit_pixels() {
    std::vector<std::int32_t> codes(made_.config().grammar().cells());
    for (std::size_t i = 0; i < codes.size(); ++i) {
      codes[i] = narrow<std::int32_t>(i % to_size(made_.config().codes));
    }
    for (std::size_t i = 0; i < tokenizers_.size(); ++i) {
      const Timing timing = bench_.time_waited([&] { pixels(*tokenizers_[i], codes); });
      Json object = bench_.start("image.vq", bench_.backend().name());
      object["model"] = made_.json();
      object["model"]["dtype"] = i == 0 ? "f32" : "bf16";
      object["shape"] = {{"rows", made_.config().grid_rows}, {"columns", made_.config().grid_cols}};
      BenchReport::add_timing(object, timing);
      bench_.emit(object);
    }
  }

  DeviceBench& bench_;
  const AcceptTraces& traces_;
  bool quick_;
  BenchModel made_;
  Stream item_;
  std::vector<std::unique_ptr<VisualTokenizer>> tokenizers_;  // f32, bf16
  std::shared_ptr<const CodeNeighbours> neighbours_;
  std::map<std::int64_t, std::unique_ptr<StreamLoop>> loops_;
  std::vector<Way> ways_;
};

}  // namespace

void run_device_image(DeviceBench& bench, const std::vector<std::string>& models,
                      const AcceptTraces& traces) {
  for (const std::string& model : models) Studio(bench, model, traces).run();
}

}  // namespace tessera
