// The draft model follows each picture: what it has cached is compared with what stands and what is
// drafted by now, cut to the part that agrees, and fed the rest in one pass; then one pass a draft,
// or one a set of tree nodes.
#include "engine/decoding/drafters/model_drafter.h"

#include <algorithm>
#include <optional>

#include "engine/decoding/drafters/draft_judge.h"
#include "engine/decoding/drafters/draft_stream.h"
#include "engine/decoding/model_pass.h"

namespace tessera {

namespace {

// Tokens of one picture that a pass feeds at most.
std::int64_t most_new_rows(const DraftLimits& limits) { return 2 * limits.window; }

ModelPass::Limits pass_limits(const ImageModelConfig& config, const DraftLimits& limits) {
  const std::int64_t branches = limits.guided ? 2 : 1;
  return {.sequences = limits.items * branches,
          .capacity = config.cache_rows(limits.prompt_tokens),
          .logit_rows = branches * limits.items * most_new_rows(limits),
          .token_rows = branches * limits.items * most_new_rows(limits),
          .prompt_rows = branches * limits.prompt_tokens,
          .branch_rows = limits.trees ? limits.window : 0,
          .branch_seen = limits.window,
          .kv = limits.kv};
}

}  // namespace

struct ModelDrafter::State {
  struct Slot {
    DraftItem item;
    std::optional<LawPipeline<float>> law;
    DraftStream stream;          // picture tokens in the cache, tree nodes apart
    std::int64_t first_row = 0;  // of the conditional branch in the pass
    std::int64_t new_rows = 0;   // of each branch
    bool prefilled = false;
    // Of a tree: the row of each node behind the stream, and how many there are.
    std::vector<std::int32_t> node_row;
    std::int32_t node_rows = 0;
    int branches() const { return item.law.guided() ? 2 : 1; }
    std::size_t prompt_rows(int branch) const {
      return branch == 0 ? item.prompt.size() : item.unconditional.size();
    }
  };
  using Job = DraftJob<float, KeyedRandom>;

  State(const ImageModel& draft_model, const DraftLimits& draft_limits);

  void prefill(std::size_t item);
  void run(bool fetch);
  template <typename TokenAt>
  void cut(std::size_t item, std::size_t known, TokenAt token);
  void add_fresh(std::size_t item);
  bool read_law(Slot& slot, std::size_t position, std::int64_t row);
  void draw(Job& job, Slot& slot);
  void draw_on_device();
  void cut(const TreeJob<float>& job) {
    cut(job.item, job.committed.size(), [&](std::size_t i) { return job.committed[i]; });
  }
  void catch_up(const TreeJob<float>& job);
  void add_nodes(const TreeJob<float>& job);
  void keep_laws(const TreeJob<float>& job);
  void keep_laws_on_device(std::span<TreeJob<float>> jobs);
  std::int32_t sequence(std::size_t item, int branch) const {
    return static_cast<std::int32_t>(static_cast<std::int64_t>(item) * branches) + branch;
  }

  const ImageModel& model;
  DraftLimits limits;
  std::int64_t branches;
  ModelPass pass;
  std::unique_ptr<DraftJudge> judge;  // null where the host draws
  std::vector<Slot> slots;
  std::vector<Job*> open;
  std::vector<std::int32_t> ancestors;
  std::int64_t passes = 0;
};

ModelDrafter::State::State(const ImageModel& draft_model, const DraftLimits& draft_limits)
    : model(draft_model),
      limits(draft_limits),
      branches(draft_limits.guided ? 2 : 1),
      pass(draft_model, pass_limits(draft_model.config(), draft_limits)),
      judge(DraftJudge::make(draft_model.backend(), draft_model.config().codes, draft_limits.items,
                             draft_limits.window, draft_limits.trees)) {
  slots.resize(static_cast<std::size_t>(limits.items));
  open.reserve(slots.size());
  ancestors.reserve(static_cast<std::size_t>(limits.window));
  for (Slot& slot : slots) {
    slot.stream.reserve(static_cast<std::size_t>(model.image_token_count()),
                        static_cast<std::size_t>(most_new_rows(limits)));
    slot.node_row.resize(static_cast<std::size_t>(limits.window));
  }
}

// Caches both prompts; no row of it is read, as at least one token stands by now.
void ModelDrafter::State::prefill(std::size_t item) {
  Slot& slot = slots[item];
  expects(slot.law.has_value(), "the image of a slot is set behind StreamLoop::add()");
  pass.begin();
  pass.add_prompt(sequence(item, 0), slot.item.prompt);
  if (slot.branches() == 2) pass.add_prompt(sequence(item, 1), slot.item.unconditional);
  pass.run_layers();
  slot.prefilled = true;
}

// Cuts the cache to what is still true of a picture of `known` tokens and notes what it lacks.
template <typename TokenAt>
void ModelDrafter::State::cut(std::size_t item, std::size_t known, TokenAt token) {
  Slot& slot = slots[item];
  const std::size_t same =
      slot.stream.follow(known, static_cast<std::size_t>(most_new_rows(limits)), token);
  for (int branch = 0; branch < slot.branches(); ++branch) {
    const std::size_t prompt = slot.prompt_rows(branch);
    pass.cache().truncate(sequence(item, branch), static_cast<std::int64_t>(prompt + same));
  }
}

void ModelDrafter::State::add_fresh(std::size_t item) {
  Slot& slot = slots[item];
  slot.first_row = pass.rows();
  slot.new_rows = static_cast<std::int64_t>(slot.stream.fresh().size());
  for (int branch = 0; branch < slot.branches(); ++branch) {
    pass.add_tokens(sequence(item, branch), slot.stream.fresh());
  }
}

void ModelDrafter::State::run(bool fetch) {
  pass.run();
  if (fetch) pass.fetch_logits();
  ++passes;
}

// The law of a position by a row of the pass; false if the row is broken.
bool ModelDrafter::State::read_law(Slot& slot, std::size_t position, std::int64_t row) {
  const std::span<const float> cond = pass.logits(row);
  std::span<const float> uncond;
  if (slot.branches() == 2) uncond = pass.logits(row + slot.new_rows);
  if (first_unsound(cond) || first_unsound(uncond)) return false;
  slot.law->process_at(position, cond, uncond);
  return true;
}

// A broken row of the draft model fails nothing: the window stays short.
void ModelDrafter::State::draw(Job& job, Slot& slot) {
  if (!read_law(slot, job.next_position(), slot.first_row + slot.new_rows - 1)) {
    job.want = job.window->size();
    return;
  }
  append_drawn(job, *slot.law);
}

void ModelDrafter::State::draw_on_device() {
  judge->begin();
  for (Job* const job : open) {
    const Slot& slot = slots[job->item];
    if (!slot.stream.caught_up()) continue;
    const std::int64_t row = slot.first_row + slot.new_rows - 1;
    judge->add(*job, slot.item.law, row, row + slot.new_rows);
  }
  judge->run(pass.device_logits());
}

// Feeds what a picture gained while nobody asked, all but what one pass can take.
void ModelDrafter::State::catch_up(const TreeJob<float>& job) {
  for (cut(job); !slots[job.item].stream.caught_up(); cut(job)) {
    pass.begin();
    add_fresh(job.item);
    pass.run_layers();
    ++passes;
  }
  // What the last cut noted is fed with the others.
  slots[job.item].stream.take_back();
}

// The rows of the wanted nodes of one picture, on both branches.
void ModelDrafter::State::add_nodes(const TreeJob<float>& job) {
  Slot& slot = slots[job.item];
  const DraftTree<float>& tree = *job.tree;
  if (job.wanted[0] == 0) {
    cut(job);
    expects(slot.stream.caught_up(), "caught up before");
    slot.node_rows = 0;
    add_fresh(job.item);
    return;
  }
  slot.first_row = pass.rows();
  slot.new_rows = static_cast<std::int64_t>(job.wanted.size());
  for (int branch = 0; branch < slot.branches(); ++branch) {
    const std::size_t prompt = slot.prompt_rows(branch);
    for (const std::int32_t node : job.wanted) {
      ancestors.clear();
      const std::int32_t token = tree.token(node);
      const std::size_t shared = prompt + slot.stream.fed();
      for (std::int32_t a = tree.parent(node); a != 0; a = tree.parent(a)) {
        ancestors.push_back(static_cast<std::int32_t>(shared) +
                            slot.node_row[static_cast<std::size_t>(a)]);
      }
      std::reverse(ancestors.begin(), ancestors.end());
      pass.add_line(sequence(job.item, branch),
                    {static_cast<std::int64_t>(shared + ancestors.size()),
                     static_cast<std::int64_t>(shared),
                     ancestors,
                     {&token, 1}});
    }
  }
  for (const std::int32_t node : job.wanted) {
    slot.node_row[static_cast<std::size_t>(node)] = slot.node_rows++;
  }
}

void ModelDrafter::State::keep_laws(const TreeJob<float>& job) {
  Slot& slot = slots[job.item];
  const bool root = job.wanted[0] == 0;
  std::int64_t row = slot.first_row + (root ? slot.new_rows - 1 : 0);
  for (const std::int32_t node : job.wanted) {
    const std::size_t position =
        job.committed.size() + static_cast<std::size_t>(job.tree->depth(node));
    if (!read_law(slot, position, row++)) continue;
    job.tree->keep_law(node, slot.law->probabilities());
  }
}

void ModelDrafter::State::keep_laws_on_device(std::span<TreeJob<float>> jobs) {
  const VocabularyGrammar grammar = model.config().grammar();
  judge->begin();
  for (const TreeJob<float>& job : jobs) {
    const Slot& slot = slots[job.item];
    const std::int64_t row = slot.first_row + (job.wanted[0] == 0 ? slot.new_rows - 1 : 0);
    judge->add(job, slot.item.law, grammar, row, row + slot.new_rows);
  }
  judge->keep_laws(jobs, pass.device_logits());
}

ModelDrafter::ModelDrafter(const ImageModel& model, const DraftLimits& limits)
    : state_(std::make_unique<State>(model, limits)) {}
ModelDrafter::~ModelDrafter() = default;

std::int64_t ModelDrafter::passes() const { return state_->passes; }

const RowJudge* ModelDrafter::judge_on(const Backend& backend) const {
  const bool here = state_->judge != nullptr && &backend == &state_->model.backend();
  return here ? &state_->judge->rows() : nullptr;
}

bool ModelDrafter::fits(const DraftLimits& limits) const {
  const DraftLimits& own = state_->limits;
  return own.items >= limits.items && own.prompt_tokens >= limits.prompt_tokens &&
         own.window >= limits.window && (own.guided || !limits.guided) &&
         (own.trees || !limits.trees);
}

void ModelDrafter::set_item(std::size_t number, DraftItem item) {
  State& state = *state_;
  expects(number < state.slots.size(), "a slot of the loop");
  const auto longest =
      static_cast<std::int64_t>(std::max(item.prompt.size(), item.unconditional.size()));
  expects(longest <= state.limits.prompt_tokens && !item.prompt.empty() &&
              (state.limits.guided || !item.law.guided()),
          "prompts fit the drafter's limits");
  State::Slot& slot = state.slots[number];
  slot.law.emplace(item.law, state.model.config().grammar());
  slot.item = std::move(item);
}

void ModelDrafter::start(std::size_t items) {
  expects(items <= state_->slots.size(), "pictures fit the drafter's limits");
  state_->passes = 0;
  for (std::size_t item = 0; item < items; ++item) renew(item);
}

void ModelDrafter::renew(std::size_t item) {
  State& state = *state_;
  State::Slot& slot = state.slots[item];
  slot.stream.clear();
  slot.prefilled = false;
  slot.law.reset();
  for (int branch = 0; branch < state.branches; ++branch) {
    state.pass.cache().truncate(state.sequence(item, branch), 0);
  }
}

void ModelDrafter::extend(std::span<DraftJob<float, KeyedRandom>> jobs) {
  State& state = *state_;
  const VocabularyGrammar grammar = state.model.config().grammar();
  const bool on_device = state.judge != nullptr && DraftJudge::draws(jobs);
  while (true) {
    state.open.clear();
    for (DraftJob<float, KeyedRandom>& job : jobs) {
      while (job.window->size() < job.want && append_forced(job, grammar)) {
      }
      if (job.window->size() >= job.want) continue;
      if (!state.slots[job.item].prefilled) state.prefill(job.item);
      state.open.push_back(&job);
    }
    if (state.open.empty()) return;
    state.pass.begin();
    for (DraftJob<float, KeyedRandom>* job : state.open) {
      state.cut(job->item, job->next_position(), [&](std::size_t i) { return job->token(i); });
      state.add_fresh(job->item);
    }
    state.run(!on_device);
    if (on_device) {
      state.draw_on_device();
      continue;
    }
    for (DraftJob<float, KeyedRandom>* job : state.open) {
      State::Slot& slot = state.slots[job->item];
      if (slot.stream.caught_up()) state.draw(*job, slot);
    }
  }
}

void ModelDrafter::answer(std::span<TreeJob<float>> jobs) {
  State& state = *state_;
  for (const TreeJob<float>& job : jobs) {
    if (!state.slots[job.item].prefilled) state.prefill(job.item);
    if (job.wanted[0] == 0) state.catch_up(job);
  }
  state.pass.begin();
  for (const TreeJob<float>& job : jobs) state.add_nodes(job);
  const bool on_device = state.judge != nullptr && !jobs[0].tree->keeps_laws();
  state.run(!on_device);
  if (on_device) return state.keep_laws_on_device(jobs);
  for (const TreeJob<float>& job : jobs) state.keep_laws(job);
}

}  // namespace tessera
