#include "engine/decoding/decode_method.h"

#include <algorithm>
#include <array>

#include "engine/core/cached_type.h"
#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"
#include "engine/decoding/decode_settings.h"
#include "engine/decoding/method_parts.h"

namespace tessera {

namespace {

using Parts = MethodParts<float, KeyedRandom>;

// Rows of a text's tree in one pass: as of other drafters of texts.
constexpr std::int64_t kTextTreeWindow = 8;

constexpr NamedMethod identical(NamedMethod method) {
  method.identical = true;
  return method;
}
constexpr NamedMethod of_texts(NamedMethod method) {
  method.texts = true;
  return method;
}

constexpr NamedMethod kMethods[] = {
    of_texts({"plain", "none", "drop", "exact", 1, "one token a pass"}),
    of_texts(identical({"auto", kBestDrafter, "gumbel", "gumbel", 128,
                        "as gumbel, with the window that is fastest here and now", true})),
    identical(
        {"gumbel", kBestDrafter, "gumbel", "gumbel", 64, "identical to plain in fewer passes"}),
    {"sjd", "uniform", "resample", "exact", 16, "speculative Jacobi decoding, lossless"},
    {"coupled", "uniform", "maximal", "exact", 64, "Jacobi with coupled redrafts, lossless"},
    {"coupled-gumbel", "uniform", "gumbel", "exact", 64, "the same, coupled by shared noise"},
    {"gsd", "uniform", "resample", "grouped", 16, "grouped acceptance, lossy"},
    {"lantern", "uniform", "maximal", "relaxed", 64, "relaxed acceptance of similar codes, lossy"},
    {"cool", "uniform", "maximal", "cool", 64, "acceptance that cools with depth, lossy"},
    of_texts({"draft", kModelDrafter, "drop", "exact", 4,
              "speculative sampling with a draft model, lossless"}),
    {"tree", kBestDrafter, "maximal", "exact", 64, "drafts that branch, lossless", false, "pac"},
    of_texts(identical({"gumbel-tree", kBestDrafter, "gumbel", "gumbel", 64,
                        "identical to plain, several drafts a position", false, "gumbel"})),
    {"draft-tree", kModelDrafter, "drop", "exact", 16, "a draft model's tree of drafts, lossless",
     false, "rsd"},
    {"rows", "none", "drop", "exact", 1, "grid rows side by side (ZipAR), lossy", false, kNoTree,
     4},
    {"pjd", "uniform", "resample", "exact", 1, "drafts in rows side by side (PJD), lossy", false, kNoTree, 8,
     8},
    identical({"frames", "previous-frame", "gumbel", "gumbel", 64,
               "identical to plain, drafted from the frame before"}),
    {"frames-coupled", "previous-frame", "maximal", "exact", 64,
     "the same drafts, coupled redrafts, lossless"},
    of_texts({"lookup", "lookup", "drop", "exact", 8,
              "copies what followed the same tokens before, lossless"}),
    of_texts({"recycle", "recycling", "drop", "exact", 8, "drafts from past successors, lossless"}),
};

template <typename Rows>
auto find_row(const Rows& rows, std::string_view name) {
  const auto at = std::ranges::find(rows, name, [](const auto& row) { return row.name; });
  return at == std::end(rows) ? nullptr : &*at;
}

template <typename Rows>
const MethodPart* find_part(const Rows& rows, std::string_view name) {
  const auto* row = find_row(rows, name);
  return row != nullptr ? row->part : nullptr;
}

// Names of the rows that `which` takes.
template <typename Rows, typename Which>
std::vector<std::string_view> names_of(const Rows& rows, Which which) {
  std::vector<std::string_view> out;
  for (const auto& row : rows) {
    if (which(row)) out.push_back(row.name);
  }
  return out;
}
constexpr auto kEveryRow = [](const auto&) { return true; };

// Those of them that there are; a name that no table knows is nobody.
std::array<const MethodPart*, 4> parts_of(const DecodeMethod& method) {
  return {find_part(Parts::kRules, method.rule), find_part(Parts::kDrafters, method.drafter),
          find_part(Parts::kRedrafts, method.redraft_policy), find_part(Parts::kTrees, method.tree)};
}

template <typename Rows>
bool is_idle(const Rows& rows, std::string_view name) {
  const MethodPart* part = find_part(rows, name);
  return part != nullptr && part->idle;
}

bool equality_of_rule(const DecodeMethod& method) {
  const auto* row = find_row(Parts::kRules, method.rule);
  return row != nullptr && row->make(method.settings, {})->guarantee() == Guarantee::kSameTokens;
}

[[noreturn]] void refuse(std::string code, std::string where, std::string expected,
                         std::string found, std::string hint = "") {
  throw Error({.kind = ErrorKind::kUsage,
               .code = std::move(code),
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

std::string flag(const Setting& row, std::string_view value = "") {
  return "--" + std::string(row.name) + (value.empty() ? "" : " ") + std::string(value);
}

std::string joined(std::span<const std::string_view> names) {
  std::string out;
  for (const std::string_view name : names) {
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out;
}

void check_part(const Setting& row, std::string_view name,
                std::span<const std::string_view> known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  refuse("E_DECODE_PART", flag(row), "one of " + joined(known), std::string(name));
}

// A name stands for a guarantee that parts must not break.
void check_name(const DecodeMethod& method) {
  const auto* named = find_row(kMethods, method.name);
  if (named != nullptr && named->identical && !equality_of_rule(method)) {
    const bool by_tree = method.branches() && rule_of_tree(method.tree) == method.rule;
    refuse("E_DECODE_CONFLICT",
           by_tree ? flag(setting::kTree, method.tree) : flag(setting::kAccept),
           "equality, which --decode " + method.name + " stands for", method.rule,
           by_tree ? "choose --decode tree --tree " + method.tree
                   : "choose --decode coupled-gumbel or sjd for another rule");
  }
  const bool rows = named != nullptr && named->row_lead > 0;
  if ((method.row_lead() > 0) != rows) {
    refuse("E_DECODE_CONFLICT", flag(setting::kRowLead),
           rows ? "at least 1" : "0 with --decode " + method.name,
           std::to_string(method.row_lead()), "choose --decode rows, or another method alone");
  }
  if (method.row_window() > 1 && !rows) {
    refuse("E_DECODE_CONFLICT", flag(setting::kRowWindow), "1 with --decode " + method.name,
           std::to_string(method.row_window()), "choose --decode pjd");
  }
  const bool alone = named != nullptr && !rows && !decode_method(named->name).speculative();
  if (alone && (method.speculative() || method.branches())) {
    refuse("E_DECODE_CONFLICT", flag(setting::kDecode, method.name),
           "no drafter, no redraft policy and no tree",
           method.drafter + ", " + method.redraft_policy + ", " + method.tree,
           method.branches() ? "choose --decode tree --tree " + method.tree
                             : "choose a method that drafts, for instance --decode gumbel");
  }
}

void check_tree(const DecodeMethod& method) {
  check_part(setting::kTree, method.tree, tree_names());
  const std::string_view rule = rule_of_tree(method.tree);
  if (method.rule != rule) {
    refuse("E_DECODE_CONFLICT", flag(setting::kAccept),
           std::string(rule) + ", by which --tree " + method.tree + " verifies", method.rule,
           "choose another --tree, or --tree none");
  }
  const bool from_model = needs_of(method).draft_model;
  const TreeDistributions dists = find_row(Parts::kTrees, method.tree)->dists;
  if (from_model && dists == TreeDistributions::kWindow) {
    refuse("E_DECODE_CONFLICT", flag(setting::kTree, method.tree), "a drafter that is no model",
           method.drafter, "choose --tree rsd");
  }
  if (!from_model && dists == TreeDistributions::kModel) {
    refuse("E_DECODE_CONFLICT", flag(setting::kTree, method.tree), "a draft model's distributions",
           "drafter " + method.drafter, "choose --decode draft-tree, or --tree rsd");
  }
  if (from_model != is_idle(Parts::kRedrafts, method.redraft_policy)) {
    refuse("E_DECODE_CONFLICT", flag(setting::kRedraft),
           from_model ? "drop, as a draft model gives a tree its distributions"
                      : "a policy that keeps drafts, which a tree branches from",
           method.redraft_policy,
           from_model ? "choose --decode draft-tree --tree " + method.tree
                      : "choose --decode tree --tree " + method.tree);
  }
  if (method.tv_budget() > 0) {
    refuse("E_DECODE_CONFLICT", flag(setting::kTvBudget),
           "0, as --tree " + method.tree + " is lossless", plain_number(method.tv_budget()));
  }
}

void check_rows(const DecodeMethod& method, const DecodeAids& aids) {
  const std::string where = flag(setting::kDecode, method.name);
  const MethodPart* drafter = find_part(Parts::kDrafters, method.drafter);
  const bool drafts = method.row_window() > 1;
  if (drafts && !drafter->for_rows) {
    refuse("E_DECODE_CONFLICT", flag(setting::kDrafter), "a drafter that reads what is left and above",
           method.drafter, "choose --drafter uniform");
  }
  const bool exact = !method.speculative() && rule_with(Guarantee::kLossless) == method.rule;
  if (method.branches() || (!drafts && !exact)) {
    refuse("E_DECODE_CONFLICT", where, "no drafter, redraft policy, tree nor rule",
           method.drafter + ", " + method.redraft_policy + ", " + method.tree + ", " + method.rule,
           drafts ? "rows side by side have no trees" : "choose a --row-window for drafts");
  }
  if (method.tv_budget() > 0) {
    refuse("E_DECODE_CONFLICT", flag(setting::kTvBudget),
           "0, as nothing bounds what " + where + " changes", plain_number(method.tv_budget()));
  }
  if (aids.grammar.grids > 1) {
    refuse("E_DECODE_CONFLICT", where, "an image, which is one grid of codes",
           "a video of " + std::to_string(aids.grammar.grids) + " grids");
  }
}

void check_range(const DecodeMethod& method, const Setting& row, const VocabularyGrammar& grammar) {
  std::optional<double> high;
  if (row.limit == ModelLimit::kCodes) high = to_double(grammar.codes);
  if (row.limit == ModelLimit::kRowTokens) high = to_double(grammar.stride());
  const SettingValue value = method.settings.get(row);
  if (row.kind == SettingKind::kChoice && !parse_setting(row, value.text)) {
    refuse("E_DECODE_RANGE", flag(row), expected_of(row), value.text);
  }
  if (row.is_text() || in_range(row, value.number, high)) return;
  refuse("E_DECODE_RANGE", flag(row), range_text(row, high), plain_number(value.number));
}

}  // namespace

std::span<const BoundSetting<DecodeMethod>> DecodeMethod::rows() {
  static constexpr BoundSetting<DecodeMethod> kRows[] = {
      {&setting::kDecode, &DecodeMethod::name},  {&setting::kDrafter, &DecodeMethod::drafter},
      {&setting::kRedraft, &DecodeMethod::redraft_policy}, {&setting::kAccept, &DecodeMethod::rule},
      {&setting::kTree, &DecodeMethod::tree},    {&setting::kWindow, &DecodeMethod::window}};
  return kRows;
}

void DecodeMethod::set(const Setting& row, SettingValue value) {
  for (const BoundSetting<DecodeMethod>& bound : rows()) {
    if (bound.row == &row) return assign(*this, bound, value);
  }
  settings.settle(row, std::move(value));
}

SettingValue DecodeMethod::value(const Setting& row) const {
  for (const BoundSetting<DecodeMethod>& bound : rows()) {
    if (bound.row == &row) return value_of(*this, bound);
  }
  return settings.get(row);
}

PassShape DecodeMethod::shape() const {
  if (row_lead() > 0) return PassShape::kRows;
  return branches() ? PassShape::kTree : PassShape::kLine;
}

bool DecodeMethod::speculative() const {
  return !is_idle(Parts::kDrafters, drafter) || !is_idle(Parts::kRedrafts, redraft_policy);
}

std::int64_t DecodeMethod::row_lead() const { return settings.integer(setting::kRowLead); }
std::int64_t DecodeMethod::row_window() const { return settings.integer(setting::kRowWindow); }

double DecodeMethod::tv_budget() const { return settings.number(setting::kTvBudget); }

std::optional<DType> DecodeMethod::cache() const {
  return cached_named(settings.text(setting::kCache));
}

DType DecodeMethod::cache_next_to(DType weights) const { return cache().value_or(beside(weights)); }

std::span<const NamedMethod> named_methods() { return kMethods; }

std::span<const std::string_view> method_names() {
  static const auto names = names_of(kMethods, kEveryRow);
  return names;
}
std::span<const std::string_view> text_method_names() {
  static const auto names = names_of(kMethods, [](const NamedMethod& row) { return row.texts; });
  return names;
}
std::span<const std::string_view> drafter_names() {
  static const auto names =
      names_of(Parts::kDrafters, [](const auto& row) { return row.make != nullptr; });
  return names;
}
std::span<const std::string_view> drafter_choices() {
  static const auto names =
      names_of(Parts::kDrafters, [](const auto& row) { return row.part->stands_for == nullptr; });
  return names;
}
std::span<const std::string_view> redraft_names() {
  static const auto names = names_of(Parts::kRedrafts, kEveryRow);
  return names;
}
std::span<const std::string_view> rule_names() {
  static const auto names = names_of(Parts::kRules, kEveryRow);
  return names;
}
std::span<const std::string_view> tree_names() {
  static const auto names = names_of(Parts::kTrees, kEveryRow);
  return names;
}
std::span<const std::string_view> tree_choices() {
  static const auto names = [] {
    auto out = names_of(Parts::kTrees, kEveryRow);
    out.insert(out.begin(), kNoTree);
    return out;
  }();
  return names;
}

std::span<const std::string_view> cache_choices() {
  static const auto names = [] {
    std::vector<std::string_view> out{setting::kCache.text_fallback};
    for (const CachedType& row : cached_types()) out.push_back(dtype_name(row.type));
    return out;
  }();
  return names;
}

std::string_view rule_with(Guarantee guarantee) {
  for (const auto& row : Parts::kRules) {
    if (row.make({}, {})->guarantee() == guarantee) return row.name;
  }
  expects(false, "a rule with each guarantee");
  return "";
}

std::string_view rule_of_tree(std::string_view tree) {
  const auto* row = find_row(Parts::kTrees, tree);
  return rule_with(row != nullptr ? row->make()->guarantee() : Guarantee::kLossless);
}

const NamedMethod& named_method(std::string_view name) {
  if (const NamedMethod* row = find_row(kMethods, name)) return *row;
  refuse("E_DECODE", flag(setting::kDecode), "one of " + joined(method_names()), std::string(name));
}

DecodeMethod decode_method(std::string_view name) {
  const NamedMethod& row = named_method(name);
  DecodeMethod out;
  out.name = row.name;
  out.drafter = row.drafter;
  out.redraft_policy = row.redraft_policy;
  out.rule = row.rule;
  out.window = row.window;
  out.adaptive = row.adaptive;
  out.tree = row.tree;
  out.set(setting::kRowLead, to_double(row.row_lead));
  out.set(setting::kRowWindow, to_double(row.row_window));
  return out;
}

DecodeMethod text_method(std::string_view name) {
  DecodeMethod method = decode_method(name);
  if (method.speculative()) method.rule = rule_with(Guarantee::kSameTokens);
  if (method.branches()) method.window = kTextTreeWindow;
  return method;
}

DecodeMethod settle_method(DecodeMethod method, const DecodeAids& aids, std::int64_t image_tokens) {
  const MethodPart* drafter = find_part(Parts::kDrafters, method.drafter);
  if (drafter != nullptr && drafter->stands_for != nullptr) {
    method.drafter = drafter->stands_for(aids);
    drafter = find_part(Parts::kDrafters, method.drafter);
  }
  const bool lacks =
      aids.drafts == nullptr && needs_of(method, aids.grammar).drafts == DraftUse::kNeeded;
  // A draft cannot change a token under equality: another drafter serves as well.
  if (lacks && !drafter->instead.empty() && equality_of_rule(method)) {
    method.drafter = drafter->instead;
  }
  if (!method.speculative()) method.window = 1;
  const auto* named = find_row(kMethods, method.name);
  if (method.row_lead() > 0) {
    // What comes with a name fits itself to the image; what was asked for does not.
    const auto stride = to_index(aids.grammar.stride());
    if (named != nullptr && named->row_lead == method.row_lead()) {
      method.set(setting::kRowLead, to_double(std::min(named->row_lead, stride)));
    }
    if (named != nullptr && named->row_window == method.row_window()) {
      method.set(setting::kRowWindow, to_double(std::min(named->row_window, stride)));
    }
    const auto rows = RowSequence<float, KeyedRandom>::max_rows(aids.grammar,
                                                                to_size(method.row_window()));
    method.window = std::min(to_index(rows), image_tokens);
  }
  // So does the window.
  if (named != nullptr && named->window == method.window) {
    method.window = std::min(method.window, image_tokens);
  }
  return method;
}

void check_method(const DecodeMethod& method, const DecodeAids& aids, std::int64_t image_tokens) {
  const PartNeeds needs = needs_of(method, aids.grammar);
  if (needs.draft_model && !aids.draft_model) {
    refuse("E_DECODE_DRAFT", flag(setting::kDrafter, method.drafter),
           "a draft model by " + flag(setting::kModelDraft), "none");
  }
  check_part(setting::kDrafter, method.drafter, drafter_choices());
  check_part(setting::kRedraft, method.redraft_policy, redraft_names());
  check_part(setting::kAccept, method.rule, rule_names());
  if (method.window < 1 || method.window > image_tokens) {
    refuse("E_DECODE_WINDOW", flag(setting::kWindow),
           "1 to " + std::to_string(image_tokens) + ", the tokens of an image",
           std::to_string(method.window));
  }
  check_name(method);
  if (method.row_lead() > 0) check_rows(method, aids);
  if (method.branches()) check_tree(method);
  if (is_idle(Parts::kDrafters, method.drafter) && !is_idle(Parts::kRedrafts, method.redraft_policy)) {
    refuse("E_DECODE_CONFLICT", flag(setting::kDrafter, method.drafter),
           "a drafter, as " + flag(setting::kRedraft, method.redraft_policy) + " keeps drafts",
           method.drafter, "choose a drafter, or " + flag(setting::kRedraft, "drop"));
  }
  if (needs.drafts == DraftUse::kNeeded && aids.drafts == nullptr) {
    refuse("E_DECODE_GUESSES", flag(setting::kDrafter, method.drafter),
           "a model with guesses.safetensors", "none", "choose another drafter");
  }
  for (const Setting* row : settings_of(method)) check_range(method, *row, aids.grammar);
  for (const auto& [row, value] : method.settings.entries()) {
    check_range(method, *row, aids.grammar);
  }
}

Guarantee guarantee_of(const DecodeMethod& method) {
  if (method.row_lead() > 0) return Guarantee::kNone;
  if (is_idle(Parts::kDrafters, method.drafter)) return Guarantee::kSameTokens;
  if (const auto* tree = find_row(Parts::kTrees, method.tree)) return tree->make()->guarantee();
  return find_row(Parts::kRules, method.rule)->make(method.settings, {})->guarantee();
}

bool keeps_dists(const DecodeMethod& method) {
  return method.window > 1 && OwnedParts<float, KeyedRandom>(method, {}).parts().needs_dists();
}

PartNeeds needs_of(const DecodeMethod& method, const VocabularyGrammar& grammar) {
  PartNeeds out;
  for (const MethodPart* part : parts_of(method)) {
    if (part == nullptr || part->needs == nullptr) continue;
    const PartNeeds own = part->needs(method.settings, grammar);
    out.neighbours = out.neighbours || own.neighbours;
    out.nearest = std::max(out.nearest, own.nearest);
    out.group_size = std::max(out.group_size, own.group_size);
    out.drafts = std::max(out.drafts, own.drafts);
    out.draft_model = out.draft_model || own.draft_model;
  }
  return out;
}

bool drafts_texts(const DecodeMethod& method) {
  const MethodPart* part = find_part(Parts::kDrafters, method.drafter);
  return part != nullptr && part->for_texts;
}

void add_code_tables(DecodeAids& aids, const DecodeMethod& method,
                     std::span<const float> codebook) {
  const PartNeeds needs = needs_of(method, aids.grammar);
  if (!needs.neighbours) return;
  aids.neighbours =
      std::make_shared<CodeNeighbours>(codebook, to_index(aids.grammar.codes), needs.nearest);
  if (needs.group_size > 0) {
    aids.groups = std::make_shared<CodeGroups>(*aids.neighbours, needs.group_size);
  }
}

std::size_t aids_bytes(const DecodeMethod& method, const DecodeAids& aids, std::int64_t streams) {
  std::int64_t bytes = 0;
  for (const MethodPart* part : parts_of(method)) {
    if (part != nullptr && part->bytes != nullptr) {
      bytes += part->bytes(method.settings, aids, streams);
    }
  }
  return to_size(bytes);
}

std::vector<const Setting*> settings_of(const DecodeMethod& method) {
  std::vector<const Setting*> out;
  for (const MethodPart* part : parts_of(method)) {
    if (part == nullptr) continue;
    out.insert(out.end(), part->rows().begin(), part->rows().end());
  }
  return out;
}

std::span<const SettingGroup> part_groups() {
  static const auto groups = [] {
    std::vector<SettingGroup> out;
    const auto add = [&](std::string_view title, const Setting& chosen_by, const auto& rows) {
      std::vector<std::span<const Setting* const> (*)()> seen;
      for (const auto& row : rows) {
        const auto own = row.part->settings;
        if (own == nullptr || std::ranges::find(seen, own) != seen.end()) continue;
        seen.push_back(own);
        const auto sharing =
            std::ranges::count_if(rows, [&](const auto& r) { return r.part->settings == own; });
        out.push_back({.title = title,
                       .of = sharing > 1 ? std::string_view() : row.name,
                       .chosen_by = &chosen_by,
                       .rows = own()});
      }
    };
    add("Trees", setting::kTree, Parts::kTrees);
    add("Rules", setting::kAccept, Parts::kRules);
    add("Drafters", setting::kDrafter, Parts::kDrafters);
    add("Redraft policies", setting::kRedraft, Parts::kRedrafts);
    return out;
  }();
  return groups;
}

}  // namespace tessera
