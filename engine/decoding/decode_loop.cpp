// Rows of a pass: for each running item, the window of its conditional sequence, then that of its
// unconditional one. A window is the last committed token followed by the guesses, so row j of a
// window gives the law of the token behind guess j.
#include "engine/decoding/decode_loop.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "engine/core/io.h"

namespace tessera {

namespace {

ErrorInfo non_finite_logit(std::int64_t position, std::int64_t id, float value) {
  return {.kind = ErrorKind::kGeneral,
          .code = "E_LOGITS",
          .where = "image token " + std::to_string(position) + ", code " + std::to_string(id),
          .expected = "a finite logit",
          .found = value != value ? "NaN" : "infinity"};
}

// Rows [begin, begin + rows) of a matrix.
TensorView rows_of(const TensorView& matrix, std::int64_t begin, std::int64_t rows) {
  const std::int64_t width = matrix.shape[1];
  return {matrix.dtype, Shape{rows, width}, matrix.f32() + begin * width, matrix.device};
}

std::int64_t branches_of(const DecodeLimits& limits) { return limits.guided ? 2 : 1; }

// Rows of the widest decode pass, and of the widest pass of any kind.
std::int64_t decode_rows(const DecodeLimits& limits) {
  return limits.items * branches_of(limits) * limits.window;
}
std::int64_t widest_rows(const DecodeLimits& limits) {
  return std::max(decode_rows(limits), branches_of(limits) * limits.prompt_tokens);
}

}  // namespace

struct DecodeLoop::State {
  using Sequence = ChainSequence<float, KeyedRandom>;
  // One item while it runs.
  struct Slot {
    std::optional<Sequence> sequence;
    std::size_t window_rows = 0;
    std::int64_t first_row = 0;  // of this item in the pass
    bool guided = false;
    bool diagnosed = false;  // a failure whose layer was looked for
  };

  State(const ImageModel& image_model, const DecodeLimits& decode_limits);

  void start(std::span<const DecodeItem> items, const LoopParts& parts,
             std::vector<DecodeResult>& results);
  void prefill(std::span<const DecodeItem> items);
  std::int64_t propose(const std::vector<DecodeResult>& results, LoopDrafter* drafter,
                       WindowController* controller);
  void report(const std::vector<DecodeResult>& results, std::int64_t rows, double seconds,
              WindowController& controller) const;
  void forward(std::int64_t rows);
  void judge_all(std::vector<DecodeResult>& results);
  void judge(Slot& slot, DecodeResult& result);
  void truncate(std::span<const DecodeItem> items, const std::vector<DecodeResult>& results);
  std::int64_t stack_prompts(const DecodeItem& item, std::size_t number);
  void name_layers(std::span<const DecodeItem> items, std::vector<DecodeResult>& results);
  std::string broken_place(const DecodeItem& item, std::size_t number);
  void add_rows(std::size_t item, int branch, std::int64_t begin, std::int64_t count);

  Backend& backend() const { return model.backend(); }
  std::int32_t sequence_of(std::size_t item, int branch) const {
    return static_cast<std::int32_t>(static_cast<std::int64_t>(item) * branches) + branch;
  }
  std::int64_t row_width() const { return model.width(); }

  const ImageModel& model;
  DecodeLimits limits;
  std::int64_t branches = 1;
  std::int64_t max_rows = 0;  // of a decode pass
  KvCache cache;
  Arena arena;
  Tensor rows, hidden, logits;  // [rows, D], [rows, D], [max_rows, codes]
  Tensor host_logits;           // empty where logits already lie in host memory
  std::vector<Slot> slots;
  std::vector<DraftJob<float, KeyedRandom>> jobs;
  std::vector<std::int32_t> sequences;
  std::vector<std::int64_t> positions;
  std::vector<std::int32_t> row_tokens;
  const float* logit_rows = nullptr;  // host
};

DecodeLoop::State::State(const ImageModel& image_model, const DecodeLimits& decode_limits)
    : model(image_model),
      limits(decode_limits),
      branches(branches_of(decode_limits)),
      max_rows(decode_rows(decode_limits)),
      cache(image_model.backend(),
            KvCacheShape{.layers = image_model.config().transformer.layers,
                         .kv_heads = image_model.config().transformer.kv_heads,
                         .head_dim = image_model.config().transformer.head_dim,
                         .capacity = image_model.config().cache_rows(decode_limits.prompt_tokens),
                         .sequences = decode_limits.items * branches_of(decode_limits),
                         .dtype = decode_limits.kv}) {
  expects(limits.items >= 1 && limits.prompt_tokens >= 1 && limits.window >= 1,
          "decode limits are positive");
  const std::int64_t most = widest_rows(limits);
  const auto width = row_width();
  arena = Arena(model.scratch_bytes(most));
  rows = backend().allocate(DType::kF32, Shape{most, width});
  hidden = backend().allocate(DType::kF32, Shape{most, width});
  logits = backend().allocate(DType::kF32, Shape{max_rows, model.config().codes});
  if (backend().device().kind != DeviceKind::kCpu) {
    host_logits = Tensor::host(DType::kF32, logits.shape());
  }
  sequences.resize(static_cast<std::size_t>(most));
  positions.resize(static_cast<std::size_t>(most));
  row_tokens.resize(static_cast<std::size_t>(max_rows));
  slots.resize(static_cast<std::size_t>(limits.items));
  jobs.reserve(slots.size());
}

void DecodeLoop::State::start(std::span<const DecodeItem> items, const LoopParts& parts,
                              std::vector<DecodeResult>& results) {
  expects(static_cast<std::int64_t>(items.size()) <= limits.items, "items fit the limits");
  expects(limits.laws || limits.window == 1 || !parts.needs_laws(), "laws fit the limits");
  if (parts.drafter != nullptr) parts.drafter->start(items.size());
  results.resize(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const DecodeItem& item = items[i];
    const auto longest =
        static_cast<std::int64_t>(std::max(item.prompt.size(), item.unconditional.size()));
    expects(!item.prompt.empty() && longest <= limits.prompt_tokens, "prompts fit the limits");
    expects(!item.law.guided() || (limits.guided && !item.unconditional.empty()),
            "guidance needs an unconditional prompt");
    slots[i].guided = item.law.guided();
    slots[i].diagnosed = false;
    slots[i].sequence.emplace(item.law, static_cast<std::size_t>(model.config().codes),
                              static_cast<std::size_t>(model.image_token_count()),
                              static_cast<std::size_t>(limits.window), parts,
                              KeyedRandom(item.seed, item.item), i);
    results[i].tokens.reserve(static_cast<std::size_t>(model.image_token_count()));
    cache.truncate(sequence_of(i, 0), 0);
    if (branches == 2) cache.truncate(sequence_of(i, 1), 0);
  }
}

// Notes `count` rows of one sequence behind what it has cached.
void DecodeLoop::State::add_rows(std::size_t item, int branch, std::int64_t begin,
                                 std::int64_t count) {
  const std::int32_t sequence = sequence_of(item, branch);
  const std::int64_t cached = cache.length(sequence);
  for (std::int64_t j = 0; j < count; ++j) {
    sequences[static_cast<std::size_t>(begin + j)] = sequence;
    positions[static_cast<std::size_t>(begin + j)] = cached + j;
  }
}

// Rows of both prompts of one item, as many as are returned.
std::int64_t DecodeLoop::State::stack_prompts(const DecodeItem& item, std::size_t number) {
  const auto cond = static_cast<std::int64_t>(item.prompt.size());
  model.embed_prompt(item.prompt, rows_of(rows.view(), 0, cond));
  add_rows(number, 0, 0, cond);
  if (!slots[number].guided) return cond;
  const auto uncond = static_cast<std::int64_t>(item.unconditional.size());
  model.embed_prompt(item.unconditional, rows_of(rows.view(), cond, uncond));
  add_rows(number, 1, cond, uncond);
  return cond + uncond;
}

// Both prompts of one item at a time; the last row of each gives the law of the first token.
void DecodeLoop::State::prefill(std::span<const DecodeItem> items) {
  std::int64_t next_logit_row = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    Slot& slot = slots[i];
    slot.window_rows = 1;
    slot.first_row = next_logit_row;
    const auto cond = static_cast<std::int64_t>(items[i].prompt.size());
    const auto uncond = slot.guided ? static_cast<std::int64_t>(items[i].unconditional.size()) : 0;
    arena.reset();
    const auto total = static_cast<std::size_t>(stack_prompts(items[i], i));
    const TensorView out = rows_of(hidden.view(), 0, cond + uncond);
    model.transformer().forward(
        {rows_of(rows.view(), 0, cond + uncond), std::span(sequences).first(total),
         std::span(positions).first(total)},
        cache, arena, out);
    model.image_logits(rows_of(out, cond - 1, 1), arena,
                       rows_of(logits.view(), next_logit_row++, 1));
    if (slot.guided) {
      model.image_logits(rows_of(out, cond + uncond - 1, 1), arena,
                         rows_of(logits.view(), next_logit_row++, 1));
    }
  }
}

// Fills every running item's window; returns the rows of the pass.
std::int64_t DecodeLoop::State::propose(const std::vector<DecodeResult>& results,
                                        LoopDrafter* drafter, WindowController* controller) {
  std::int64_t most = drafter != nullptr ? limits.window : 1;
  if (controller != nullptr && drafter != nullptr) {
    std::int64_t branches_running = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i].status == DecodeStatus::kRunning) branches_running += slots[i].guided ? 2 : 1;
    }
    most = std::min(most, controller->next(branches_running));
  }
  jobs.clear();
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].status != DecodeStatus::kRunning) continue;
    jobs.push_back(slots[i].sequence->draft_job(static_cast<std::size_t>(most)));
  }
  if (drafter != nullptr) drafter->extend(jobs);
  std::int64_t count = 0;
  for (const auto& job : jobs) {
    Slot& slot = slots[job.item];
    const std::span<const std::int32_t> drafts = slot.sequence->drafts();
    slot.window_rows = slot.sequence->rows();
    slot.first_row = count;
    for (int branch = 0; branch < (slot.guided ? 2 : 1); ++branch) {
      add_rows(job.item, branch, count, static_cast<std::int64_t>(slot.window_rows));
      const auto out = row_tokens.begin() + static_cast<std::ptrdiff_t>(count);
      *out = slot.sequence->tokens().back();
      std::copy(drafts.begin(), drafts.end(), out + 1);
      count += static_cast<std::int64_t>(slot.window_rows);
    }
  }
  return count;
}

void DecodeLoop::State::forward(std::int64_t count) {
  const auto total = static_cast<std::size_t>(count);
  arena.reset();
  const TensorView in = rows_of(rows.view(), 0, count), out = rows_of(hidden.view(), 0, count);
  model.embed_image_tokens(std::span(row_tokens).first(total), arena, in);
  model.transformer().forward(
      {in, std::span(sequences).first(total), std::span(positions).first(total)}, cache, arena,
      out);
  model.image_logits(out, arena, rows_of(logits.view(), 0, count));
}

// A broken row fails the item if it is the first one. Further ones stand behind drafts that may be
// wrong: they and what follows are left out of the judgement.
void DecodeLoop::State::judge(Slot& slot, DecodeResult& result) {
  const auto codes = static_cast<std::size_t>(model.config().codes);
  const float* cond = logit_rows + static_cast<std::size_t>(slot.first_row) * codes;
  const float* uncond = cond + slot.window_rows * codes;
  const auto raw = [&](std::size_t row) {
    return RawRow<float>{
        {cond + row * codes, codes},
        slot.guided ? std::span(uncond + row * codes, codes) : std::span<const float>()};
  };
  std::size_t sound = 0;
  for (; sound < slot.window_rows; ++sound) {
    const RawRow<float> row = raw(sound);
    const bool bad_cond = first_non_finite(row.cond).has_value();
    if (!bad_cond && !first_non_finite(row.uncond)) continue;
    if (sound > 0) break;
    const std::span<const float> branch = bad_cond ? row.cond : row.uncond;
    const std::int64_t id = *first_non_finite(branch);
    ++result.passes;
    result.status = DecodeStatus::kFailed;
    result.error = non_finite_logit(static_cast<std::int64_t>(result.tokens.size()), id,
                                    branch[static_cast<std::size_t>(id)]);
    return;
  }
  slot.sequence->judge(raw, sound);
  const std::vector<std::int32_t>& tokens = slot.sequence->tokens();
  result.tokens.insert(result.tokens.end(),
                       tokens.begin() + static_cast<std::ptrdiff_t>(result.tokens.size()),
                       tokens.end());
  result.passes = slot.sequence->meters().passes;
  if (slot.sequence->done()) result.status = DecodeStatus::kDone;
}

void DecodeLoop::State::judge_all(std::vector<DecodeResult>& results) {
  logit_rows = logits.f32();
  if (!host_logits.empty()) {
    backend().download(logits.view(), host_logits.view());
    logit_rows = host_logits.f32();
  }
  backend().threads().parallel_for(
      static_cast<std::int64_t>(results.size()), 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
          if (results[i].status == DecodeStatus::kRunning) judge(slots[i], results[i]);
        }
      });
}

// Keeps what is cached for committed tokens: all of them but the last, which has no row yet.
void DecodeLoop::State::truncate(std::span<const DecodeItem> items,
                                 const std::vector<DecodeResult>& results) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (results[i].status != DecodeStatus::kRunning) continue;
    const std::size_t committed = results[i].tokens.size() - 1;
    cache.truncate(sequence_of(i, 0),
                   static_cast<std::int64_t>(items[i].prompt.size() + committed));
    if (!slots[i].guided) continue;
    cache.truncate(sequence_of(i, 1),
                   static_cast<std::int64_t>(items[i].unconditional.size() + committed));
  }
}

// Runs the pass of a failed item once more and looks where the first broken number comes from. Only
// failures pay for it, also with memory.
std::string DecodeLoop::State::broken_place(const DecodeItem& item, std::size_t number) {
  const std::size_t committed = slots[number].sequence->tokens().size();
  std::int64_t count = 0;
  arena.reset();
  const std::int64_t kept = committed == 0 ? 0 : static_cast<std::int64_t>(committed) - 1;
  for (int branch = 0; branch < (slots[number].guided ? 2 : 1); ++branch) {
    const auto prompt = branch == 0 ? item.prompt.size() : item.unconditional.size();
    cache.truncate(sequence_of(number, branch),
                   committed == 0 ? 0 : static_cast<std::int64_t>(prompt) + kept);
  }
  if (committed == 0) {
    count = stack_prompts(item, number);
  } else {
    for (int branch = 0; branch < (slots[number].guided ? 2 : 1); ++branch) {
      add_rows(number, branch, count, 1);
      row_tokens[static_cast<std::size_t>(count++)] = slots[number].sequence->tokens().back();
    }
    model.embed_image_tokens(std::span(row_tokens).first(static_cast<std::size_t>(count)), arena,
                             rows_of(rows.view(), 0, count));
  }
  const auto layers = static_cast<std::size_t>(model.config().transformer.layers);
  std::vector<Tensor> entering;
  std::vector<TensorView> taps;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    entering.push_back(backend().allocate(DType::kF32, Shape{count, row_width()}));
    taps.push_back(entering.back().view());
  }
  const TensorView out = rows_of(hidden.view(), 0, count);
  model.transformer().forward(
      {rows_of(rows.view(), 0, count), std::span(sequences).first(static_cast<std::size_t>(count)),
       std::span(positions).first(static_cast<std::size_t>(count))},
      cache, arena, out, {taps});
  taps.push_back(out);
  for (std::size_t layer = 0; layer <= layers; ++layer) {
    Tensor host = Tensor::host(DType::kF32, taps[layer].shape);
    backend().download(taps[layer], host.view());
    backend().synchronize();
    const auto size = static_cast<std::size_t>(host.shape().elements());
    if (!first_non_finite({host.f32(), size})) continue;
    return layer == 0 ? "token embedding" : "layer " + std::to_string(layer - 1);
  }
  return "picture head";
}

// After a pass: says in new failures which layer broke.
void DecodeLoop::State::name_layers(std::span<const DecodeItem> items,
                                    std::vector<DecodeResult>& results) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    Slot& slot = slots[i];
    if (results[i].status != DecodeStatus::kFailed || slot.diagnosed) continue;
    slot.diagnosed = true;
    results[i].error.where = broken_place(items[i], i) + ", " + results[i].error.where;
  }
}

void DecodeLoop::State::report(const std::vector<DecodeResult>& results, std::int64_t count,
                               double seconds, WindowController& controller) const {
  controller.observe_time(count, seconds);
  for (const auto& job : jobs) {
    if (results[job.item].status == DecodeStatus::kFailed) continue;
    const Sequence& sequence = *slots[job.item].sequence;
    controller.observe_tests(sequence.last_tested(), sequence.last_accepted());
  }
}

DecodeLoop::DecodeLoop(const ImageModel& model, const DecodeLimits& limits)
    : state_(std::make_unique<State>(model, limits)) {}
DecodeLoop::~DecodeLoop() = default;
DecodeLoop::DecodeLoop(DecodeLoop&&) noexcept = default;

std::size_t DecodeLoop::activation_bytes(const ImageModelConfig& config, const Backend& backend,
                                         const DecodeLimits& limits) {
  const std::int64_t rows = widest_rows(limits);
  const auto floats = [](std::int64_t count) {
    return static_cast<std::size_t>(count) * sizeof(float);
  };
  const ModelConfig& model = config.transformer;
  return ImageModel::scratch_bytes(config, rows) + floats(2 * rows * model.width) +
         floats(decode_rows(limits) * config.codes) +
         static_cast<std::size_t>(limits.items) *
             State::Sequence::buffer_bytes(static_cast<std::size_t>(config.codes),
                                           static_cast<std::size_t>(limits.window), limits.laws) +
         backend.attention_scratch_bytes(std::min(rows, Transformer::kChunkRows), model.heads,
                                         model.head_dim);
}

const DecodeLimits& DecodeLoop::limits() const { return state_->limits; }

std::vector<DecodeResult> DecodeLoop::run(std::span<const DecodeItem> items, const LoopParts& parts,
                                          FunctionRef<Flow(const PassEvent&)> on_pass,
                                          WindowController* controller) {
  State& state = *state_;
  std::vector<DecodeResult> results;
  state.start(items, parts, results);
  const auto running = [&] {
    return std::any_of(results.begin(), results.end(), [](const DecodeResult& result) {
      return result.status == DecodeStatus::kRunning;
    });
  };
  for (std::int64_t pass = 1; running(); ++pass) {
    const double began = monotonic_seconds();
    const std::int64_t rows = pass > 1 ? state.propose(results, parts.drafter, controller) : 0;
    const double drafted = monotonic_seconds();
    if (pass > 1) {
      state.forward(rows);
    } else {
      state.prefill(items);
    }
    state.backend().synchronize();
    const double scored = monotonic_seconds();
    state.judge_all(results);
    state.name_layers(items, results);
    state.truncate(items, results);
    const double judged = monotonic_seconds();
    if (pass > 1 && controller != nullptr) {
      state.report(results, rows, judged - began, *controller);
    }
    if (on_pass({pass, results, {drafted - began, scored - drafted, judged - scored}}) ==
        Flow::kStop) {
      break;
    }
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    results[i].meters = state.slots[i].sequence->meters();
    if (results[i].status == DecodeStatus::kRunning) results[i].status = DecodeStatus::kStopped;
  }
  return results;
}

}  // namespace tessera
