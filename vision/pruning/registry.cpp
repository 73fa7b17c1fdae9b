#include "vision/pruning/registry.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/core/index.h"
#include "vision/pruning/corematching.h"
#include "vision/pruning/correlation.h"
#include "vision/pruning/divprune.h"
#include "vision/pruning/fastv.h"
#include "vision/pruning/flowcut.h"
#include "vision/pruning/hired.h"
#include "vision/pruning/random_pruner.h"
#include "vision/pruning/sparsevlm.h"
#include "vision/pruning/temporal.h"
#include "vision/pruning/tome.h"
#include "vision/pruning/uniform_pruner.h"
#include "vision/pruning/verifier.h"
#include "vision/pruning/visionzip.h"
#include "vision/pruning/vispruner.h"

namespace tessera {

namespace {

constexpr std::int64_t kManyWhole = 1000000;

template <typename Method>
std::unique_ptr<Pruner> plain(OptionReader&) {
  return std::make_unique<Method>();
}

std::unique_ptr<Pruner> vispruner(OptionReader& options) {
  VisPruner::Settings s;
  s.important_ratio = options.number("important_ratio", s.important_ratio, 0, 1);
  s.per_round = options.whole("per_round", s.per_round, 1, kManyWhole);
  return std::make_unique<VisPruner>(s);
}

std::unique_ptr<Pruner> visionzip(OptionReader& options) {
  VisionZip::Settings s;
  s.context_ratio = options.number("context_ratio", s.context_ratio, 0, 1);
  s.contexts = options.whole("contexts", s.contexts, -1, kManyWhole);
  s.true_mean = options.flag("true_mean", s.true_mean);
  s.dominant_first = options.flag("dominant_first", options.flag("parity", false));
  return std::make_unique<VisionZip>(s);
}

std::unique_ptr<Pruner> temporal(OptionReader& options) {
  Temporal::Settings s;
  s.alike = options.number("alike", s.alike, -1, 1);
  s.merge = options.flag("merge", s.merge);
  return std::make_unique<Temporal>(s);
}

std::unique_ptr<Pruner> verifier(OptionReader& options) {
  VerifierGuided::Settings s;
  s.share = options.number("share", s.share, 0, 1);
  return std::make_unique<VerifierGuided>(s);
}

std::unique_ptr<Pruner> hired(OptionReader& options) {
  Hired::Settings s;
  s.alpha = options.number("alpha", s.alpha, 0, 1);
  s.parity = options.flag("parity", s.parity);
  return std::make_unique<Hired>(s);
}

std::unique_ptr<Pruner> flowcut(OptionReader& options) {
  FlowCut::Settings s;
  s.momentum = options.number("momentum", s.momentum, 0, 1);
  s.llm_stage = options.whole("llm_stage", s.llm_stage, -1, 1);
  s.llm_layer = narrow<int>(options.whole("llm_layer", s.llm_layer, 0, 1000));
  return std::make_unique<FlowCut>(s);
}

std::unique_ptr<Pruner> fastv(OptionReader& options) {
  FastV::Settings s;
  s.layer = narrow<int>(options.whole("layer", s.layer, 1, 1000));
  s.column_mean = options.flag("column_mean", s.column_mean);
  return std::make_unique<FastV>(s);
}

std::unique_ptr<Pruner> sparsevlm(OptionReader& options) {
  SparseVlm::Settings s;
  s.layers[0] = narrow<int>(options.whole("layer1", s.layers[0], 0, 1000));
  s.layers[1] = narrow<int>(options.whole("layer2", s.layers[1], s.layers[0] + 1, 1000));
  s.layers[2] = narrow<int>(options.whole("layer3", s.layers[2], s.layers[1] + 1, 1000));
  s.heads = options.whole("heads", s.heads, 0, 1000);
  s.min_divisor = options.number("least_divisor", s.min_divisor, 1e-6, 1);
  s.rotation = options.flag("rotation", s.rotation);
  return std::make_unique<SparseVlm>(s);
}

std::unique_ptr<Pruner> tome(OptionReader& options) {
  Tome::Settings s;
  s.r = options.whole("r", s.r, 0, kManyWhole);
  return std::make_unique<Tome>(s);
}

std::unique_ptr<Pruner> corematching(OptionReader& options) {
  CoreMatching::Settings s;
  s.layer = narrow<int>(options.whole("layer", s.layer, 0, 1000));
  s.beta = options.number("beta", s.beta, 0, 1);
  s.normalised_axes = options.flag("normalised_axes", s.normalised_axes);
  s.strict = options.flag("strict", s.strict);
  return std::make_unique<CoreMatching>(s);
}

std::unique_ptr<Pruner> correlation(OptionReader& options) {
  Correlation::Settings s;
  s.alike = options.number("alike", s.alike, -1, 1);
  s.crowd = options.number("crowd", s.crowd, 0, 1);
  s.local_layer = narrow<int>(options.whole("local_layer", s.local_layer, 0, 1000));
  return std::make_unique<Correlation>(s);
}

// A method under parity=1, where row ends have another outcome.
class WithRowEnds final : public Pruner {
 public:
  WithRowEnds(std::unique_ptr<Pruner> method, TokenOutcome outcome)
      : method_(std::move(method)), outcome_(outcome) {}
  std::string_view name() const override { return method_->name(); }
  std::vector<Hook> hooks(const PrunedModel& model) const override { return method_->hooks(model); }
  std::vector<SignalNeed> needs(const Hook& hook, const PrunedModel& model,
                                const PruneState& state) const override {
    return method_->needs(hook, model, state);
  }
  PrunePlan select(const PruneInputs& in, PruneState& state, PruneScratch& scratch) const override {
    Budget budget = in.budget;
    nth(budget.outcome, TokenKind::kNewline) = outcome_;
    return method_->select({.block = in.block,
                            .signals = in.signals,
                            .budget = budget,
                            .model = in.model,
                            .hook = in.hook,
                            .seed = in.seed,
                            .item = in.item,
                            .text_positions = in.text_positions},
                           state, scratch);
  }

 private:
  std::unique_ptr<Pruner> method_;
  TokenOutcome outcome_;
};

constexpr PositionPolicy kR = PositionPolicy::kRenumber;
constexpr PositionPolicy kO = PositionPolicy::kOriginal;

constexpr auto kTable = std::to_array<PrunerRow>({
    {"random", "after the projector", ClsNeed::kNone, false, kR, KeptCount::kExact, false,
     "at random: the baseline", plain<RandomPruner>, {}, true},
    {"uniform", "after the projector", ClsNeed::kNone, false, kR, KeptCount::kExact, false,
     "at even distances: the other baseline", plain<UniformPruner>},
    {"divprune",
     "after the projector",
     ClsNeed::kNone,
     false,
     kR,
     KeptCount::kExact,
     false,
     "the most different embeddings",
     plain<DivPrune>,
     {.differs = "row ends compete", .newline = TokenOutcome::kCompete}},
    {"vispruner",
     "after the encoder",
     ClsNeed::kRow,
     false,
     kR,
     KeptCount::kExact,
     false,
     "what CLS looks at, and what is unlike",
     vispruner,
     {.differs = "row ends go", .newline = TokenOutcome::kDrop}},
    {"visionzip",
     "after the encoder",
     ClsNeed::kRow,
     false,
     kR,
     KeptCount::kExact,
     false,
     "what CLS looks at; the rest merged by keys",
     visionzip,
     {.differs = "merged tokens stand after the others, row ends go", .newline = TokenOutcome::kDrop}},
    {"hired",
     "after the encoder",
     ClsNeed::kRow,
     false,
     kR,
     KeptCount::kAtMost,
     false,
     "budget split over tiles by early attention",
     hired,
     {.differs = "counts of strips for sums of tiles, row ends go", .newline = TokenOutcome::kDrop}},
    {"flowcut",
     "in the encoder, in large images after LLM layer 1 too",
     ClsNeed::kRow,
     true,
     kR,
     KeptCount::kExact,
     false,
     "layer by layer, scores accumulated",
     flowcut,
     {.differs = "row ends go", .newline = TokenOutcome::kDrop}},
    {"fastv", "before LLM layer 2", ClsNeed::kNone, true, kO, KeptCount::kExact, false,
     "what the last prompt token looks at", fastv},
    {"sparsevlm", "before LLM layers 3, 7, 16", ClsNeed::kNone, true, kO, KeptCount::kListed, false,
     "what telling words look at, in three steps", sparsevlm},
    {"tome", "in every encoder layer", ClsNeed::kNone, false, kR, KeptCount::kAtLeast, false,
     "merges tokens of similar keys", tome},
    {"corematching", "before LLM layer 3", ClsNeed::kNone, true, kO, KeptCount::kExact, true,
     "tokens that share the sentence's core neurons", corematching},
    {"correlation", "after the encoder", ClsNeed::kRow, false, kR, KeptCount::kExact, true,
     "fewer where keys repeat (our instantiation)", correlation},
    {"temporal", "after the projector", ClsNeed::kNone, false, kR, KeptCount::kExact, true,
     "what changes from frame to frame (our instantiation)", temporal},
    {"verifier", "after the projector", ClsNeed::kNone, true, kR, KeptCount::kExact, false,
     "for drafts: what the verifying model looked at, the rest spread evenly", verifier},
});

[[noreturn]] void refuse(std::string code, std::string where, std::string expected,
                         std::string found, std::string hint = {}) {
  throw Error{{.kind = ErrorKind::kUsage,
               .code = std::move(code),
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)}};
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out.empty() ? "none" : out;
}

template <typename Which>
std::string names_of(Which which) {
  std::vector<std::string> names;
  for (const PrunerRow& row : kTable) {
    if (which(row)) names.emplace_back(row.name);
  }
  return joined(names);
}

std::string short_number(double value) {
  std::string text = std::to_string(value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

std::string_view name_of(KeptCount count) {
  constexpr std::array<std::string_view, 4> kNames = {"exact", "at most", "listed", "at least"};
  return nth(kNames, count);
}

double OptionReader::number(std::string_view name, double fallback, double least, double most) {
  if (std::find(known_.begin(), known_.end(), name) == known_.end()) known_.emplace_back(name);
  double value = fallback;
  for (std::size_t i = 0; i < options_.size(); ++i) {
    if (options_[i].name != name) continue;
    used_[i] = true;
    value = options_[i].value;
    if (!(value >= least && value <= most)) {
      refuse("E_PRUNE_OPTION", std::string(method_) + "." + std::string(name),
             "a number from " + short_number(least) + " to " + short_number(most),
             short_number(value));
    }
  }
  return value;
}

std::int64_t OptionReader::whole(std::string_view name, std::int64_t fallback, std::int64_t least,
                                 std::int64_t most) {
  const double value = number(name, to_double(fallback), to_double(least), to_double(most));
  if (value != std::floor(value)) {
    refuse("E_PRUNE_OPTION", std::string(method_) + "." + std::string(name), "a whole number",
           short_number(value));
  }
  return truncate<std::int64_t>(value);
}

void OptionReader::finish() const {
  for (std::size_t i = 0; i < options_.size(); ++i) {
    if (used_[i]) continue;
    refuse("E_PRUNE_OPTION", "pruner " + std::string(method_), "one of " + joined(known_),
           options_[i].name);
  }
}

std::span<const PrunerRow> pruner_table() { return kTable; }

const PrunerRow& pruner_row(std::string_view name) {
  for (const PrunerRow& row : kTable) {
    if (row.name == name) return row;
  }
  refuse("E_PRUNE_METHOD", "pruner", "one of " + names_of([](const PrunerRow&) { return true; }),
         std::string(name));
}

std::unique_ptr<Pruner> make_pruner(std::string_view name, std::span<const PruneOption> options) {
  const PrunerRow& row = pruner_row(name);
  OptionReader reader(row.name, options);
  auto pruner = row.make(reader);
  if (!row.code.differs.empty()) {
    if (reader.flag("parity", false)) {
      pruner = std::make_unique<WithRowEnds>(std::move(pruner), row.code.newline);
    }
  } else if (std::any_of(options.begin(), options.end(),
                         [](const PruneOption& option) { return option.name == "parity"; })) {
    refuse("E_PRUNE_PARITY", "pruner " + std::string(name),
           "a method whose published code differs: " +
               names_of([](const PrunerRow& other) { return !other.code.differs.empty(); }),
           std::string(name), "the others do as their code, or have none that can be followed");
  }
  reader.finish();
  return pruner;
}

RowSource check_pruner(std::string_view name, const PrunedModel& model, const Budget& budget) {
  const PrunerRow& row = pruner_row(name);
  if (budget.adaptive && !row.adaptive) {
    refuse("E_PRUNE_ADAPTIVE", "pruner " + std::string(name),
           "a method that finds its own number: " +
               names_of([](const PrunerRow& other) { return other.adaptive; }),
           std::string(name), "give a number of tokens or a ratio");
  }
  if (row.cls == ClsNeed::kNone) return RowSource::kNone;
  if (model.cls) return RowSource::kCls;
  if (model.substitute == RowSource::kMeanOfRows || model.substitute == RowSource::kMeanQuery) {
    return model.substitute;
  }
  refuse("E_PRUNE_CLS", "pruner " + std::string(name), "a vision encoder with a CLS token",
         "the encoder of " + std::string(model.family) + ", which has none",
         "divprune needs none, or let the encoder serve the mean over query rows");
}

}  // namespace tessera
