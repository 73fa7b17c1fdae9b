// The draft model follows each stream: what it has cached is compared with what is committed and
// drafted by now, cut to the part that agrees, and fed the rest in one pass; then one pass a draft,
// or one a set of tree nodes, all streams in one batch. Prompts enter next to the tokens of these
// passes.
#include "engine/decoding/drafters/model_drafter.h"

#include <algorithm>
#include <optional>

#include "engine/core/index.h"
#include "engine/decoding/drafters/device_drafts.h"
#include "engine/decoding/drafters/draft_prompts.h"
#include "engine/decoding/drafters/draft_stream.h"
#include "engine/decoding/model_pass.h"
#include "engine/sampling/processors.h"

namespace tessera {

namespace {

// Tokens of one stream that a pass feeds at most.
std::int64_t max_new_rows(const DraftLimits& limits) { return 2 * limits.window; }

std::int64_t branches_of(const DraftLimits& limits) { return limits.guided ? 2 : 1; }

ModelPass::Limits pass_limits(const DraftLimits& limits) {
  const std::int64_t sequences = limits.items * branches_of(limits);
  return {.sequences = sequences,
          .capacity = limits.prompt_rows + limits.tokens,
          .logit_rows = sequences * (limits.trees ? limits.window : 1),
          .token_rows = sequences * max_new_rows(limits),
          .prompt_rows = std::min(limits.chunk, sequences * limits.prompt_rows),
          .mixed = true,
          .guest_rows = limits.prompt_rows,
          .branch_rows = limits.trees ? limits.window : 0,
          .branch_seen = limits.window,
          .kv = limits.kv};
}

}  // namespace

struct ModelDrafter::State {
  struct Slot {
    std::optional<DistributionPipeline<float>> dist;
    std::optional<LogitProcessors> processors;
    DraftStream stream;  // tokens in the cache, tree nodes apart
    // Logits of the pass: those of the second branch follow those of the first.
    std::int64_t first_logit = 0, logit_rows = 0;
    // Of a tree: the row of each node after the stream, and how many there are; the nodes of this
    // pass.
    std::vector<std::int32_t> node_row;
    std::int32_t node_rows = 0;
    std::vector<std::int32_t> asked;

    std::int64_t uncond_logit() const { return first_logit + logit_rows; }
  };
  // Rows of the pass whose logits are wanted, and the first of these.
  struct Head {
    std::int64_t row = 0, rows = 0, to = 0;
  };
  using Job = DraftJob<float, KeyedRandom>;

  State(const TokenModel& draft_model, const DraftLimits& draft_limits);

  void forget(std::size_t number);
  void begin();
  void run(bool fetch);
  std::int64_t want_logits(std::int64_t row, std::int64_t rows);
  template <typename TokenAt>
  void follow(std::size_t number, std::size_t known, TokenAt token);
  void follow(const TreeJob<float>& job) {
    follow(job.item, job.committed.size(), [&](std::size_t i) { return job.committed[i]; });
  }
  void add_fresh(std::size_t number, bool with_logits);
  bool wants(Job& job);
  RowEdits edits_of(const Job& job);
  RowEdits edits_of(const TreeJob<float>& job, std::int32_t node);
  bool read_dist(std::size_t number, std::size_t position, std::int64_t row, const RowEdits& edits);
  void draw(Job& job);
  void draw_on_device();
  bool stops_after(std::size_t number, std::int32_t token) const;
  void stop_after(Job& job, std::int32_t token) const;
  void catch_up(std::span<const TreeJob<float>> jobs);
  void add_nodes(const TreeJob<float>& job);
  void add_node_row(std::size_t number, std::size_t branch, const DraftTree<float>& tree,
                    std::int32_t node);
  void keep_dists(const TreeJob<float>& job);
  void keep_dists_on_device();

  const TokenModel& model;
  DraftLimits limits;
  ModelPass pass;
  DraftPrompts prompts;
  std::unique_ptr<DeviceDrafts> verifier;  // null where the host draws
  std::vector<Slot> slots;
  std::vector<Job*> open, drawn;  // those with rows in the pass; of them, those that are drawn
  std::vector<TreeJob<float>> answered;
  std::vector<Head> heads;
  std::vector<std::int32_t> ancestors;
  std::int64_t passes = 0;
};

ModelDrafter::State::State(const TokenModel& draft_model, const DraftLimits& draft_limits)
    : model(draft_model),
      limits(draft_limits),
      pass(draft_model, pass_limits(draft_limits)),
      prompts(draft_model, draft_limits, pass),
      verifier(DeviceDrafts::make(draft_model.backend(), draft_model.logit_ids(), draft_limits.items,
                             draft_limits.window, draft_limits.trees)) {
  slots.resize(to_size(limits.items));
  open.reserve(slots.size());
  drawn.reserve(slots.size());
  answered.reserve(slots.size());
  heads.reserve(slots.size() * to_size(branches_of(limits)));
  ancestors.reserve(to_size(limits.window));
  for (Slot& slot : slots) {
    slot.stream.reserve(to_size(limits.tokens), to_size(max_new_rows(limits)));
    if (!limits.trees) continue;
    slot.node_row.resize(to_size(limits.window));
    slot.asked.reserve(to_size(limits.window));
  }
}

void ModelDrafter::State::forget(std::size_t number) {
  prompts.forget(number);
  slots[number].stream.clear();
}

// --- passes ---------------------------------------------------------------------------------------

void ModelDrafter::State::begin() {
  pass.begin();
  heads.clear();
}

// The logit row of the first of these rows of the pass; neighbours share a call.
std::int64_t ModelDrafter::State::want_logits(std::int64_t row, std::int64_t rows) {
  const std::int64_t to = heads.empty() ? 0 : heads.back().to + heads.back().rows;
  if (!heads.empty() && heads.back().row + heads.back().rows == row) {
    heads.back().rows += rows;
  } else {
    heads.push_back({row, rows, to});
  }
  return to;
}

void ModelDrafter::State::run(bool fetch) {
  if (heads.size() == 1 && heads[0].rows == pass.rows()) {
    pass.run();
  } else {
    pass.run_layers();
    for (const Head& head : heads) pass.run_head(head.row, head.rows, head.to);
  }
  if (fetch && !heads.empty()) pass.fetch_logits();
}

// Cuts the cache to what is still true of a stream of `known` tokens and notes what it lacks.
template <typename TokenAt>
void ModelDrafter::State::follow(std::size_t number, std::size_t known, TokenAt token) {
  Slot& slot = slots[number];
  const std::size_t same = slot.stream.follow(known, to_size(max_new_rows(limits)), token);
  for (std::size_t branch = 0; branch < prompts.branches(number); ++branch) {
    pass.cache().truncate(prompts.sequence(number, branch),
                          prompts.rows(number, branch) + to_index(same));
  }
}

// What the last follow() noted, on all branches; with the logits of its last row.
void ModelDrafter::State::add_fresh(std::size_t number, bool with_logits) {
  Slot& slot = slots[number];
  const std::span<const std::int32_t> fresh = slot.stream.fresh();
  const auto same = to_index(slot.stream.fed() - fresh.size());
  for (std::size_t branch = 0; branch < prompts.branches(number); ++branch) {
    pass.add_line(prompts.sequence(number, branch),
                  {.position = prompts.next_place(number, branch) + same,
                   .shared = prompts.rows(number, branch) + same,
                   .seen = {},
                   .tokens = fresh});
    if (!with_logits) continue;
    const std::int64_t logit = want_logits(pass.rows() - 1, 1);
    if (branch == 0) slot.first_logit = logit;
  }
  slot.logit_rows = with_logits ? 1 : 0;
}

// What logits processors make of the row after the drafts so far.
RowEdits ModelDrafter::State::edits_of(const Job& job) {
  LogitProcessors& processors = *slots[job.item].processors;
  if (!processors.on()) return {};
  std::vector<std::int32_t>& prefix = processors.prefix();
  const std::span<const std::int32_t> drafts = job.window->tokens();
  prefix.insert(prefix.end(), job.committed.begin(), job.committed.end());
  prefix.insert(prefix.end(), drafts.begin(), drafts.end());
  return processors.edit(job.next_position(), prompts.item(job.item).stops);
}

// The same after a node of a tree.
RowEdits ModelDrafter::State::edits_of(const TreeJob<float>& job, std::int32_t node) {
  LogitProcessors& processors = *slots[job.item].processors;
  if (!processors.on()) return {};
  std::vector<std::int32_t>& prefix = processors.prefix();
  prefix.insert(prefix.end(), job.committed.begin(), job.committed.end());
  const auto path = std::ssize(prefix);
  for (std::int32_t a = node; a > 0; a = job.tree->parent(a)) prefix.push_back(job.tree->token(a));
  std::reverse(prefix.begin() + path, prefix.end());
  const std::size_t depth = to_size(job.tree->depth(node));
  return processors.edit(job.committed.size() + depth, prompts.item(job.item).stops);
}

// The distribution of a position by a logit row; false if the row is broken.
bool ModelDrafter::State::read_dist(std::size_t number, std::size_t position, std::int64_t row,
                                    const RowEdits& edits) {
  Slot& slot = slots[number];
  const std::span<const float> cond = pass.logits(row);
  std::span<const float> uncond;
  if (prompts.branches(number) == 2) uncond = pass.logits(row + slot.logit_rows);
  if (first_unsound(cond) || first_unsound(uncond)) return false;
  slot.dist->process_at(position, cond, uncond, edits);
  return true;
}

// --- drafts in a line -----------------------------------------------------------------------------

// Fills in what the grammar forces. Whether drafts are wanted still, of a stream it was notified of.
bool ModelDrafter::State::wants(Job& job) {
  if (!prompts.heard(job.item)) return false;
  const VocabularyGrammar& grammar = prompts.item(job.item).grammar;
  while (job.window->size() < job.want && append_forced(job, grammar)) {
  }
  return job.window->size() < job.want;
}

// A broken row of the draft model fails nothing: the window stays short. So it does after a stop.
void ModelDrafter::State::draw(Job& job) {
  Slot& slot = slots[job.item];
  if (!read_dist(job.item, job.next_position(), slot.first_logit, edits_of(job))) {
    job.want = job.window->size();
    return;
  }
  stop_after(job, append_drawn(job, *slot.dist));
}

void ModelDrafter::State::draw_on_device() {
  verifier->begin();
  drawn.clear();
  for (Job* const job : open) {
    const Slot& slot = slots[job->item];
    if (!slot.stream.caught_up()) continue;
    verifier->add(*job, prompts.item(job->item).dist, slot.first_logit, slot.uncond_logit(),
                  edits_of(*job));
    drawn.push_back(job);
  }
  const std::span<const std::int32_t> tokens = verifier->run(pass.device_logits());
  for (std::size_t i = 0; i < drawn.size(); ++i) stop_after(*drawn[i], tokens[i]);
}

bool ModelDrafter::State::stops_after(std::size_t number, std::int32_t token) const {
  const std::vector<std::int32_t>& stops = prompts.item(number).stops;
  return std::find(stops.begin(), stops.end(), token) != stops.end();
}

void ModelDrafter::State::stop_after(Job& job, std::int32_t token) const {
  if (stops_after(job.item, token)) job.want = job.window->size();
}

// --- trees ----------------------------------------------------------------------------------------

// Reads prompts, and feeds what streams gained while nobody asked, all but what one pass can take.
void ModelDrafter::State::catch_up(std::span<const TreeJob<float>> jobs) {
  for (bool first = true;; first = false) {
    begin();
    for (const TreeJob<float>& job : jobs) {
      if (job.wanted[0] != 0 || !prompts.ready(job.item)) continue;
      follow(job);
      if (slots[job.item].stream.caught_up()) {
        slots[job.item].stream.take_back();  // it is fed with the root
      } else {
        add_fresh(job.item, /*with_logits=*/false);
      }
    }
    const bool tokens = pass.rows() > 0;
    prompts.add(first);
    if (pass.rows() == 0) return;
    run(/*fetch=*/false);
    prompts.release();
    passes += tokens ? 1 : 0;
  }
}

// The rows of the wanted nodes of one stream, on all branches.
void ModelDrafter::State::add_nodes(const TreeJob<float>& job) {
  Slot& slot = slots[job.item];
  const DraftTree<float>& tree = *job.tree;
  slot.asked.clear();
  if (job.wanted[0] == 0) {
    follow(job);
    expects(slot.stream.caught_up(), "caught up before");
    slot.node_rows = 0;
    slot.asked.push_back(0);
    return add_fresh(job.item, /*with_logits=*/true);
  }
  for (const std::int32_t node : job.wanted) {
    if (!stops_after(job.item, tree.token(node))) slot.asked.push_back(node);
  }
  if (slot.asked.empty()) return;
  slot.logit_rows = std::ssize(slot.asked);
  for (std::size_t branch = 0; branch < prompts.branches(job.item); ++branch) {
    const std::int64_t logit = want_logits(pass.rows(), slot.logit_rows);
    if (branch == 0) slot.first_logit = logit;
    for (const std::int32_t node : slot.asked) add_node_row(job.item, branch, tree, node);
  }
  for (const std::int32_t node : slot.asked) {
    nth(slot.node_row, node) = slot.node_rows++;
  }
}

void ModelDrafter::State::add_node_row(std::size_t number, std::size_t branch,
                                       const DraftTree<float>& tree, std::int32_t node) {
  const Slot& slot = slots[number];
  const auto fed = to_index(slot.stream.fed());
  const std::int64_t shared = prompts.rows(number, branch) + fed;
  ancestors.clear();
  for (std::int32_t a = tree.parent(node); a != 0; a = tree.parent(a)) {
    ancestors.push_back(narrow<std::int32_t>(shared) + nth(slot.node_row, a));
  }
  std::reverse(ancestors.begin(), ancestors.end());
  const std::int32_t token = tree.token(node);
  const auto above = std::ssize(ancestors);
  pass.add_line(prompts.sequence(number, branch),
                {.position = prompts.next_place(number, branch) + fed + above,
                 .shared = shared,
                 .seen = ancestors,
                 .tokens = {&token, 1}});
}

void ModelDrafter::State::keep_dists(const TreeJob<float>& job) {
  Slot& slot = slots[job.item];
  std::int64_t row = slot.first_logit;
  for (const std::int32_t node : job.wanted) {
    const std::size_t position = job.committed.size() + to_size(job.tree->depth(node));
    if (!read_dist(job.item, position, row++, edits_of(job, node))) continue;
    job.tree->keep_dist(node, slot.dist->probabilities());
  }
}

void ModelDrafter::State::keep_dists_on_device() {
  verifier->begin();
  for (const TreeJob<float>& job : answered) {
    const Slot& slot = slots[job.item];
    const DraftStreamItem& item = prompts.item(job.item);
    verifier->add(job, item.dist, item.grammar, slot.first_logit, slot.uncond_logit(),
                  [&](std::int32_t node) { return edits_of(job, node); });
  }
  verifier->keep_dists(answered, pass.device_logits());
}

// --- the drafter ----------------------------------------------------------------------------------

ModelDrafter::ModelDrafter(const TokenModel& model, const DraftLimits& limits)
    : state_(std::make_unique<State>(model, limits)) {}
ModelDrafter::~ModelDrafter() = default;

const DraftLimits& ModelDrafter::limits() const { return state_->limits; }
std::int64_t ModelDrafter::passes() const { return state_->passes; }

const RowVerifier* ModelDrafter::verify_on(const Backend& backend) const {
  const bool here = state_->verifier != nullptr && &backend == &state_->model.backend();
  return here ? &state_->verifier->rows() : nullptr;
}

bool ModelDrafter::fits(const DraftLimits& limits) const {
  const DraftLimits& own = state_->limits;
  return own.items >= limits.items && own.prompt_rows >= limits.prompt_rows &&
         own.tokens >= limits.tokens && own.window >= limits.window &&
         (own.guided || !limits.guided) && (own.trees || !limits.trees);
}

void ModelDrafter::set_stream(std::size_t number, DraftStreamItem item) {
  State& state = *state_;
  expects(number < state.slots.size(), "a slot of the loop");
  expects(item.branches.size() == (item.dist.guided() ? 2u : 1u) &&
              std::ssize(item.branches) <= branches_of(state.limits),
          "a branch, under guidance two, within the drafter's limits");
  expects(to_index(item.grammar.codes) == state.model.logit_ids() &&
              to_index(item.grammar.length()) <= state.limits.tokens,
          "the stream fits model and limits");
  state.forget(number);
  state.slots[number].dist.emplace(item.dist, item.grammar);
  state.slots[number].processors.emplace(item.dist, item.grammar).begin(item.processed);
  state.prompts.tell(number, std::move(item));
}

void ModelDrafter::start(std::size_t items) {
  State& state = *state_;
  expects(items <= state.slots.size(), "streams fit the drafter's limits");
  state.passes = 0;
  for (std::size_t number = 0; number < state.slots.size(); ++number) {
    if (state.prompts.begun(number)) state.forget(number);
  }
}

void ModelDrafter::renew(std::size_t slot) { state_->forget(slot); }

void ModelDrafter::extend(std::span<DraftJob<float, KeyedRandom>> jobs) {
  State& state = *state_;
  const bool on_device = state.verifier != nullptr && DeviceDrafts::draws(jobs);
  state.prompts.begin();
  for (DraftJob<float, KeyedRandom>& job : jobs) {
    if (state.wants(job)) state.prompts.want(job.item);
  }
  state.prompts.read_cut();
  for (bool first = true;; first = false) {
    state.begin();
    state.open.clear();
    for (DraftJob<float, KeyedRandom>& job : jobs) {
      if (!state.wants(job) || !state.prompts.ready(job.item)) continue;
      state.open.push_back(&job);
      state.follow(job.item, job.next_position(), [&](std::size_t i) { return job.token(i); });
      state.add_fresh(job.item, state.slots[job.item].stream.caught_up());
    }
    state.prompts.add(first);
    if (state.pass.rows() == 0) return;
    state.run(!on_device);
    state.prompts.release();
    if (state.open.empty()) continue;
    ++state.passes;
    if (on_device) {
      state.draw_on_device();
      continue;
    }
    for (DraftJob<float, KeyedRandom>* job : state.open) {
      if (state.slots[job->item].stream.caught_up()) state.draw(*job);
    }
  }
}

void ModelDrafter::answer(std::span<TreeJob<float>> jobs) {
  State& state = *state_;
  state.prompts.begin();
  for (const TreeJob<float>& job : jobs) {
    if (job.wanted[0] == 0) state.prompts.want(job.item);
  }
  state.prompts.read_cut();
  state.catch_up(jobs);
  state.begin();
  state.answered.clear();
  for (const TreeJob<float>& job : jobs) {
    if (!state.prompts.ready(job.item)) continue;
    state.add_nodes(job);
    const std::vector<std::int32_t>& asked = state.slots[job.item].asked;
    if (!asked.empty()) state.answered.push_back({job.item, job.committed, job.tree, asked});
  }
  if (state.answered.empty()) return;
  const bool on_device = state.verifier != nullptr && !jobs[0].tree->keeps_dists();
  state.run(!on_device);
  ++state.passes;
  if (on_device) return state.keep_dists_on_device();
  for (const TreeJob<float>& job : state.answered) state.keep_dists(job);
}

std::int64_t ModelDrafter::max_rows(const DraftLimits& limits) {
  const ModelPass::Limits pass = pass_limits(limits);
  return std::max(ModelPass::max_rows(pass), pass.guest_rows);
}

std::size_t ModelDrafter::bytes(const ModelConfig& config, std::int64_t logit_ids,
                                std::size_t scratch, const Backend& backend,
                                const DraftLimits& limits) {
  const ModelPass::Limits pass = pass_limits(limits);
  const VerifyLimits verified =
      DeviceDrafts::limits(logit_ids, limits.items, limits.window, limits.trees);
  const bool on_device = DeviceDrafts::serves(backend, logit_ids);
  return ModelPass::cache_bytes(config, backend, pass) +
         ModelPass::buffer_bytes(config, logit_ids, scratch, backend, pass) +
         (on_device ? verified.bytes(/*distributions=*/false) : 0) +
         to_size(limits.items) * DistributionPipeline<float>::buffer_bytes(logit_ids);
}

}  // namespace tessera
