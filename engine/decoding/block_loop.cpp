#include "engine/decoding/block_loop.h"

#include <algorithm>
#include <optional>
#include <string>

#include "engine/core/io.h"
#include "engine/decoding/broken_logits.h"
#include "engine/decoding/device_batch.h"

namespace tessera {

namespace {

// Rows that run at once, unless a prompt alone is longer.
constexpr std::int64_t kPassRows = 256;

std::int64_t most_rows(const BlockModelConfig& config, const BlockLimits& limits) {
  return std::max({kPassRows, limits.prompt_tokens, config.block});
}

JudgeLimits judge_limits(const BlockModelConfig& config) {
  return {.codes = config.codes, .rows = config.block, .items = 1};
}

}  // namespace

struct BlockLoop::State {
  State(const BlockModel& from, const VocabularyGrammar& stream, const BlockLimits& given_limits)
      : model(from),
        config(from.config()),
        grammar(stream),
        limits(given_limits),
        cache(from.backend(),
              from.cache_shape(config.cache_rows(limits.prompt_tokens,
                                                 static_cast<std::int64_t>(stream.length())),
                               limits.kv)),
        arena(make_arena(from.backend(),
                         BlockModel::scratch_bytes(config, most_rows(config, limits)))) {
    expects(grammar.controls() == 0 && config.block >= 1 &&
                grammar.cells() % static_cast<std::size_t>(config.block) == 0,
            "blocks divide a grid");
    Backend& backend = model.backend();
    const std::int64_t rows = most_rows(config, limits);
    hidden = backend.allocate(DType::kF32, Shape{rows, config.width});
    logits = backend.allocate(DType::kF32, Shape{config.block, config.codes});
    if (backend.row_judges() != nullptr && config.codes <= kMostJudgedCodes) {
      judge = backend.row_judges()->make(JudgeMethod{}, judge_limits(config));
    } else {
      host_logits = backend.allocate_host(DType::kF32, logits.shape());
    }
    ids.reserve(static_cast<std::size_t>(cache.shape().capacity));
    spans.reserve(ids.capacity());
    judged.reserve(static_cast<std::size_t>(config.block));
  }

  void start(const Stream& stream, StreamResult& result);
  void queue_prompt(const Stream& stream);
  void queue_tokens(const std::vector<std::int32_t>& tokens);
  void run_queue();
  void run_head(std::int64_t rows);
  void fetch_logits();
  void judge_on_device(std::int64_t rows, const StreamResult& result);
  bool sound(std::int64_t rows, StreamResult& result) const;
  void draw(std::int64_t row, StreamResult& result);
  void stand(std::int32_t token, const RowFigures& of_row, StreamResult& result);
  static void fail(std::int64_t row, std::int64_t id, float logit, StreamResult& result);

  // Tokens that the next pass gives: a block, and in a first block that nobody gave one.
  std::int64_t pass_width(std::size_t standing) const {
    const bool alone =
        config.start == BlockStart::kHybrid && standing < static_cast<std::size_t>(config.block);
    return alone ? 1 : config.block;
  }
  std::span<const float> row_of(std::int64_t row) const {
    return {host_logits.f32() + row * config.codes, static_cast<std::size_t>(config.codes)};
  }

  const BlockModel& model;
  BlockModelConfig config;
  VocabularyGrammar grammar;
  BlockLimits limits;
  KvCache cache;
  Arena arena;
  Tensor hidden, logits;            // [rows, D], [block, codes]
  std::unique_ptr<RowJudge> judge;  // null where the host draws
  Tensor host_logits;               // [block, codes]; empty where a device draws
  std::vector<JudgedRow> judged;
  // Tokens that wait to be run, in spans whose tokens see one another.
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> spans;
  std::size_t queued = 0;      // tokens of the stream that ran or wait
  std::int64_t last_rows = 0;  // rows of the last part of a pass that ran
  std::optional<LawPipeline<float>> law;
  std::optional<KeyedRandom> random;
};

BlockLoop::BlockLoop(const BlockModel& model, const VocabularyGrammar& grammar,
                     const BlockLimits& limits)
    : state_(std::make_unique<State>(model, grammar, limits)) {}
BlockLoop::~BlockLoop() = default;

std::size_t BlockLoop::cache_bytes(const BlockModelConfig& config, const VocabularyGrammar& grammar,
                                   const BlockLimits& limits) {
  return KvCacheShape{.layers = config.layers,
                      .kv_heads = config.heads,
                      .head_dim = config.head_dim(),
                      .capacity = config.cache_rows(limits.prompt_tokens,
                                                    static_cast<std::int64_t>(grammar.length())),
                      .sequences = 1,
                      .dtype = limits.kv}
      .bytes();
}

std::size_t BlockLoop::activation_bytes(const BlockModelConfig& config, const Backend& backend,
                                        const BlockLimits& limits) {
  const std::int64_t rows = most_rows(config, limits);
  const bool on_device = backend.device().kind != DeviceKind::kCpu;
  return BlockModel::scratch_bytes(config, rows) +
         static_cast<std::size_t>(rows * config.width + config.block * config.codes) *
             sizeof(float) +
         // The logits on the host, or what a device judges by.
         (on_device ? judge_limits(config).bytes(/*laws=*/false)
                    : static_cast<std::size_t>(config.block * config.codes) * sizeof(float)) +
         backend.attention_scratch_bytes(rows, config.heads, config.head_dim()) +
         LawPipeline<float>::buffer_bytes(config.codes);
}

void BlockLoop::State::start(const Stream& stream, StreamResult& result) {
  const auto block = static_cast<std::size_t>(config.block);
  expects(!stream.law.guided(), "blocks are not guided");
  expects(static_cast<std::int64_t>(stream.prompt.ids.size()) <= limits.prompt_tokens,
          "the prompt fits the limits");
  expects(stream.given.size() % block == 0 && stream.given.size() < grammar.length() &&
              (config.start == BlockStart::kHybrid || !stream.given.empty()),
          "whole blocks are given, and some are left");
  law.emplace(stream.law, grammar);
  random.emplace(stream.seed, stream.item);
  result.tokens.reserve(grammar.length());
  result.tokens = stream.given;
  result.meters.start(grammar.length(), block);
  if (stream.traced) result.trace.start(grammar.length());
  cache.truncate(0, 0);
  ids.clear();
  spans.clear();
  queued = 0;
  queue_prompt(stream);
  queue_tokens(result.tokens);
}

void BlockLoop::State::queue_prompt(const Stream& stream) {
  for (const std::int32_t id : stream.prompt.ids) {
    expects(id >= 0 && id < config.conditions, "the prompt is of the model's ids");
    ids.push_back(static_cast<std::int32_t>(config.first_condition) + id);
  }
  if (!ids.empty()) spans.push_back(static_cast<std::int64_t>(ids.size()));
  if (config.start == BlockStart::kGiven) return;
  ids.push_back(0);
  spans.push_back(1);
}

void BlockLoop::State::queue_tokens(const std::vector<std::int32_t>& tokens) {
  const auto block = static_cast<std::size_t>(config.block);
  const auto code = [&](std::size_t at) {
    return static_cast<std::int32_t>(config.first_code) + tokens[at];
  };
  while (queued < tokens.size()) {
    const bool first = config.start == BlockStart::kHybrid && queued < block;
    std::size_t count = first ? 1 : block;
    for (std::size_t i = 0; i < count; ++i) ids.push_back(code(queued + i));
    queued += count;
    // The last token of the first block stands for all of it.
    for (; first && queued == block && count < block; ++count) {
      ids.push_back(static_cast<std::int32_t>(count));
    }
    spans.push_back(static_cast<std::int64_t>(count));
  }
}

// Spans run together as long as they fit.
void BlockLoop::State::run_queue() {
  const std::int64_t most = most_rows(config, limits);
  std::size_t begin = 0;
  for (std::size_t span = 0; span < spans.size();) {
    std::size_t end = span;
    std::int64_t rows = 0;
    while (end < spans.size() && rows + spans[end] <= most) rows += spans[end++];
    const TensorView out = hidden.view();
    arena.reset();
    model.forward(std::span(ids).subspan(begin, static_cast<std::size_t>(rows)),
                  std::span(spans).subspan(span, end - span), cache, arena,
                  {out.dtype, Shape{rows, config.width}, out.data, out.device});
    begin += static_cast<std::size_t>(rows);
    last_rows = rows;
    span = end;
  }
  ids.clear();
  spans.clear();
}

// Of the last rows that ran.
void BlockLoop::State::run_head(std::int64_t rows) {
  const TensorView all = hidden.view(), out = logits.view();
  model.logits({all.dtype, Shape{rows, config.width}, all.f32() + (last_rows - rows) * config.width,
                all.device},
               {out.dtype, Shape{rows, config.codes}, out.data, out.device});
}

void BlockLoop::State::fetch_logits() {
  model.backend().download(logits.view(), host_logits.view());
  model.backend().synchronize();
}

// Draws the rows of the pass where they are; the records come to the host.
void BlockLoop::State::judge_on_device(std::int64_t rows, const StreamResult& result) {
  JudgedItem item = judged_item(law->settings(), *random, 0, static_cast<std::int32_t>(rows));
  item.position = static_cast<std::uint32_t>(result.tokens.size());
  item.apart = 1;
  judged.clear();
  for (std::int32_t row = 0; row < item.rows; ++row) judged.push_back({.cond = row, .place = row});
  judge->judge({logits.view(), {&item, 1}, judged});
  judge->rows();
}

void BlockLoop::State::fail(std::int64_t row, std::int64_t id, float logit, StreamResult& result) {
  const auto place = static_cast<std::int64_t>(result.tokens.size()) + row;
  result.status = StreamStatus::kFailed;
  result.error =
      unsound_logit("image token " + std::to_string(place) + ", code " + std::to_string(id), logit);
}

bool BlockLoop::State::sound(std::int64_t rows, StreamResult& result) const {
  if (judge != nullptr) {
    const std::int64_t row = judge->items()[0].sound;
    if (row == rows) return true;
    const RowRecord& record = judge->rows()[static_cast<std::size_t>(row)];
    fail(row, record.unsound, record.unsound_logit, result);
    return false;
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto id = first_unsound(row_of(row));
    if (!id) continue;
    fail(row, *id, row_of(row)[static_cast<std::size_t>(*id)], result);
    return false;
  }
  return true;
}

void BlockLoop::State::draw(std::int64_t row, StreamResult& result) {
  if (judge != nullptr) {
    const RowRecord& record = judge->rows()[static_cast<std::size_t>(row)];
    return stand(record.token, {record.probability, record.above, record.mean, record.spread},
                 result);
  }
  const auto position = static_cast<std::uint32_t>(result.tokens.size());
  law->process_at(position, row_of(row), {});
  const TargetRow<float> target{{law->support(), law->support_logits()}, law->probabilities()};
  const std::int32_t token = random->race(position, target.logits);
  stand(token, figures_of(target, token), result);
}

void BlockLoop::State::stand(std::int32_t token, const RowFigures& of_row, StreamResult& result) {
  const auto position = static_cast<std::uint32_t>(result.tokens.size());
  const TokenFigures figures =
      result.meters.count_token(of_row, random->uniform({Purpose::kMeter, position}));
  result.tokens.push_back(token);
  if (result.trace.marks.empty()) return;
  result.trace.marks[position] = {token, static_cast<std::int32_t>(result.passes) + 1,
                                  static_cast<float>(figures.probability),
                                  static_cast<float>(figures.entropy)};
}

StreamResult BlockLoop::run(const Stream& stream, FunctionRef<Flow(const BlockPass&)> on_pass) {
  State& state = *state_;
  StreamResult result;
  state.start(stream, result);
  for (const std::int64_t standing = static_cast<std::int64_t>(state.ids.size());
       result.status == StreamStatus::kRunning;) {
    const double began = monotonic_seconds();
    if (result.passes == 0) result.prefilled = standing;
    const std::int64_t width = state.pass_width(result.tokens.size());
    state.run_queue();
    state.run_head(width);
    state.random->begin_pass(static_cast<std::uint32_t>(result.passes) + 1);
    state.judge != nullptr ? state.judge_on_device(width, result) : state.fetch_logits();
    const double scored = monotonic_seconds();
    if (state.sound(width, result)) {
      for (std::int64_t row = 0; row < width; ++row) state.draw(row, result);
      if (!result.trace.marks.empty()) {
        result.trace.committed.push_back(static_cast<std::int32_t>(width));
      }
      result.meters.count_pass(static_cast<std::size_t>(width));
      if (result.tokens.size() == state.grammar.length()) result.status = StreamStatus::kDone;
      state.queue_tokens(result.tokens);
    }
    ++result.passes;
    const double judged = monotonic_seconds();
    if (on_pass({result.passes, result, {0, scored - began, judged - scored}}) == Flow::kStop) {
      break;
    }
  }
  if (result.status == StreamStatus::kRunning) result.status = StreamStatus::kStopped;
  return result;
}

}  // namespace tessera
