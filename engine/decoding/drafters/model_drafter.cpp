// The draft model follows each picture: what it has cached is compared with what stands and what is
// drafted by now, cut to the part that agrees, and fed the rest in one pass; then one pass a draft.
#include "engine/decoding/drafters/model_drafter.h"

#include <algorithm>
#include <optional>

namespace tessera {

namespace {

TensorView rows_of(const TensorView& matrix, std::int64_t begin, std::int64_t rows) {
  const std::int64_t width = matrix.shape[1];
  return {matrix.dtype, Shape{rows, width}, matrix.f32() + begin * width, matrix.device};
}

// Tokens of one picture that a pass feeds at most.
std::int64_t most_new_rows(const DraftLimits& limits) { return 2 * limits.window; }

}  // namespace

struct ModelDrafter::State {
  struct Slot {
    DraftItem item;
    std::optional<LawPipeline<float>> law;
    std::vector<std::int32_t> fed;  // picture tokens in the cache
    std::int64_t last_row = 0;      // of the conditional branch in the pass
    std::int64_t new_rows = 0;
    bool prefilled = false;
    bool caught_up = false;  // the last row speaks of the next draft
  };
  using Job = DraftJob<float, KeyedRandom>;

  State(const ImageModel& draft_model, const DraftLimits& draft_limits);

  void prefill(std::size_t item);
  void feed(std::span<Job*> jobs);
  void catch_up(const Job& job, Slot& slot);
  void draw(Job& job, Slot& slot);
  void add_rows(std::size_t item, int branch, std::int64_t begin, std::int64_t count);
  std::int32_t sequence(std::size_t item, int branch) const {
    return static_cast<std::int32_t>(static_cast<std::int64_t>(item) * branches) + branch;
  }

  const ImageModel& model;
  DraftLimits limits;
  std::int64_t branches, max_rows;
  KvCache cache;
  Arena arena;
  Tensor rows, hidden, logits;
  Tensor host_logits;
  std::vector<Slot> slots;
  std::vector<std::int32_t> sequences, tokens;
  std::vector<std::int64_t> positions;
  std::vector<Job*> open;
  std::int64_t passes = 0;
};

ModelDrafter::State::State(const ImageModel& draft_model, const DraftLimits& draft_limits)
    : model(draft_model),
      limits(draft_limits),
      branches(draft_limits.guided ? 2 : 1),
      max_rows(branches * std::max(draft_limits.items * most_new_rows(draft_limits),
                                   draft_limits.prompt_tokens)),
      cache(draft_model.backend(),
            KvCacheShape{.layers = draft_model.config().transformer.layers,
                         .kv_heads = draft_model.config().transformer.kv_heads,
                         .head_dim = draft_model.config().transformer.head_dim,
                         .capacity = draft_model.config().cache_rows(draft_limits.prompt_tokens),
                         .sequences = draft_limits.items * branches,
                         .dtype = draft_limits.kv}) {
  Backend& backend = model.backend();
  arena = Arena(model.scratch_bytes(max_rows));
  rows = backend.allocate(DType::kF32, Shape{max_rows, model.width()});
  hidden = backend.allocate(DType::kF32, Shape{max_rows, model.width()});
  logits = backend.allocate(DType::kF32, Shape{max_rows, model.config().codes});
  if (backend.device().kind != DeviceKind::kCpu) {
    host_logits = Tensor::host(DType::kF32, logits.shape());
  }
  sequences.resize(static_cast<std::size_t>(max_rows));
  positions.resize(static_cast<std::size_t>(max_rows));
  tokens.resize(static_cast<std::size_t>(max_rows));
  slots.resize(static_cast<std::size_t>(limits.items));
  open.reserve(slots.size());
  for (Slot& slot : slots) slot.fed.reserve(static_cast<std::size_t>(model.image_token_count()));
}

void ModelDrafter::State::add_rows(std::size_t item, int branch, std::int64_t begin,
                                   std::int64_t count) {
  const std::int32_t id = sequence(item, branch);
  const std::int64_t cached = cache.length(id);
  for (std::int64_t j = 0; j < count; ++j) {
    sequences[static_cast<std::size_t>(begin + j)] = id;
    positions[static_cast<std::size_t>(begin + j)] = cached + j;
  }
}

// Caches both prompts; no row of it is read, as at least one token stands by now.
void ModelDrafter::State::prefill(std::size_t item) {
  const DraftItem& asked = slots[item].item;
  std::int64_t count = 0;
  arena.reset();
  for (int branch = 0; branch < (asked.law.guided() ? 2 : 1); ++branch) {
    const std::vector<std::int32_t>& prompt = branch == 0 ? asked.prompt : asked.unconditional;
    const auto length = static_cast<std::int64_t>(prompt.size());
    model.embed_prompt(prompt, rows_of(rows.view(), count, length));
    add_rows(item, branch, count, length);
    count += length;
  }
  const auto total = static_cast<std::size_t>(count);
  model.transformer().forward({rows_of(rows.view(), 0, count), std::span(sequences).first(total),
                               std::span(positions).first(total)},
                              cache, arena, rows_of(hidden.view(), 0, count));
  slots[item].prefilled = true;
}

// Cuts the cache to what is still true of the picture; the newest token is always fed again, since
// its row is wanted.
void ModelDrafter::State::catch_up(const Job& job, Slot& slot) {
  const std::size_t known = job.next_position();
  std::size_t same = 0;
  while (same < slot.fed.size() && same + 1 < known && slot.fed[same] == job.token(same)) ++same;
  slot.fed.resize(same);
  const bool guided = slot.item.law.guided();
  for (int branch = 0; branch < (guided ? 2 : 1); ++branch) {
    const auto prompt = branch == 0 ? slot.item.prompt.size() : slot.item.unconditional.size();
    cache.truncate(sequence(job.item, branch), static_cast<std::int64_t>(prompt + same));
  }
}

// One pass over every open job's tokens that the cache lacks.
void ModelDrafter::State::feed(std::span<Job*> jobs) {
  std::int64_t count = 0;
  for (Job* job : jobs) {
    Slot& slot = slots[job->item];
    const std::size_t missing = job->next_position() - slot.fed.size();
    slot.new_rows = std::min(static_cast<std::int64_t>(missing), most_new_rows(limits));
    slot.caught_up = slot.new_rows == static_cast<std::int64_t>(missing);
    for (int branch = 0; branch < (slot.item.law.guided() ? 2 : 1); ++branch) {
      add_rows(job->item, branch, count, slot.new_rows);
      for (std::int64_t j = 0; j < slot.new_rows; ++j) {
        tokens[static_cast<std::size_t>(count + j)] =
            job->token(slot.fed.size() + static_cast<std::size_t>(j));
      }
      count += slot.new_rows;
      if (branch == 0) slot.last_row = count - 1;
    }
    for (std::int64_t j = 0; j < slot.new_rows; ++j) {
      slot.fed.push_back(job->token(slot.fed.size()));
    }
  }
  expects(count <= max_rows, "rows of a draft pass fit");
  const auto total = static_cast<std::size_t>(count);
  arena.reset();
  const TensorView in = rows_of(rows.view(), 0, count), out = rows_of(hidden.view(), 0, count);
  model.embed_image_tokens(std::span(tokens).first(total), arena, in);
  model.transformer().forward(
      {in, std::span(sequences).first(total), std::span(positions).first(total)}, cache, arena,
      out);
  model.image_logits(out, arena, rows_of(logits.view(), 0, count));
  model.backend().synchronize();
  if (!host_logits.empty()) model.backend().download(logits.view(), host_logits.view());
  ++passes;
}

// A broken row of the draft model fails nothing: the window stays short.
void ModelDrafter::State::draw(Job& job, Slot& slot) {
  const auto codes = static_cast<std::size_t>(model.config().codes);
  const float* at = host_logits.empty() ? logits.f32() : host_logits.f32();
  const std::span<const float> cond(at + static_cast<std::size_t>(slot.last_row) * codes, codes);
  std::span<const float> uncond;
  if (slot.item.law.guided()) {
    uncond = {cond.data() + static_cast<std::size_t>(slot.new_rows) * codes, codes};
  }
  if (first_non_finite(cond) || first_non_finite(uncond)) {
    job.want = job.window->size();
    return;
  }
  slot.law->process(cond, uncond);
  const std::int32_t token =
      job.random->race(static_cast<std::uint32_t>(job.next_position()),
                       LogitRow<float>{slot.law->support(), slot.law->support_logits()});
  if (job.window->keeps_laws()) {
    job.window->append_dense(token, slot.law->probabilities());
  } else {
    job.window->append_point(token);
  }
}

ModelDrafter::ModelDrafter(const ImageModel& model, const DraftLimits& limits)
    : state_(std::make_unique<State>(model, limits)) {}
ModelDrafter::~ModelDrafter() = default;

std::int64_t ModelDrafter::passes() const { return state_->passes; }

bool ModelDrafter::fits(const DraftLimits& limits) const {
  const DraftLimits& own = state_->limits;
  return own.items >= limits.items && own.prompt_tokens >= limits.prompt_tokens &&
         own.window >= limits.window && (own.guided || !limits.guided);
}

void ModelDrafter::set_items(std::span<const DraftItem> items) {
  State& state = *state_;
  expects(items.size() <= state.slots.size(), "pictures fit the drafter's limits");
  for (std::size_t i = 0; i < items.size(); ++i) {
    State::Slot& slot = state.slots[i];
    const auto longest =
        static_cast<std::int64_t>(std::max(items[i].prompt.size(), items[i].unconditional.size()));
    expects(longest <= state.limits.prompt_tokens && !items[i].prompt.empty() &&
                (state.limits.guided || !items[i].law.guided()),
            "prompts fit the drafter's limits");
    slot.item = items[i];
    slot.law.emplace(items[i].law, state.model.config().codes);
  }
}

void ModelDrafter::start(std::size_t items) {
  State& state = *state_;
  expects(items <= state.slots.size(), "pictures fit the drafter's limits");
  state.passes = 0;
  for (std::size_t i = 0; i < items; ++i) {
    state.slots[i].fed.clear();
    state.slots[i].prefilled = false;
    for (int branch = 0; branch < state.branches; ++branch) {
      state.cache.truncate(state.sequence(i, branch), 0);
    }
  }
}

void ModelDrafter::extend(std::span<DraftJob<float, KeyedRandom>> jobs) {
  State& state = *state_;
  while (true) {
    state.open.clear();
    for (DraftJob<float, KeyedRandom>& job : jobs) {
      if (job.window->size() >= job.want) continue;
      State::Slot& slot = state.slots[job.item];
      if (!slot.prefilled) state.prefill(job.item);
      state.catch_up(job, slot);
      state.open.push_back(&job);
    }
    if (state.open.empty()) return;
    state.feed(state.open);
    for (DraftJob<float, KeyedRandom>* job : state.open) {
      State::Slot& slot = state.slots[job->item];
      if (slot.caught_up) state.draw(*job, slot);
    }
  }
}

}  // namespace tessera
