#include "engine/decoding/decode_method.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "engine/core/error.h"
#include "engine/decoding/method_parts.h"

namespace tessera {

namespace {

using Parts = MethodParts<float, KeyedRandom>;

constexpr std::int64_t kCodeWidth = 16;  // of code vectors, generously
constexpr NamedMethod kMethods[] = {
    {"plain", "none", "drop", "exact", 1, "one token a pass"},
    {"auto", kBestDrafter, "gumbel", "gumbel", 128,
     "as gumbel, with the window that is fastest here and now", true},
    {"gumbel", kBestDrafter, "gumbel", "gumbel", 64, "the same picture as plain in fewer passes"},
    {"sjd", "uniform", "resample", "exact", 16, "speculative Jacobi decoding, same law"},
    {"coupled", "uniform", "maximal", "exact", 64, "Jacobi with coupled redrafts, same law"},
    {"coupled-gumbel", "uniform", "gumbel", "exact", 64, "the same, coupled by shared noise"},
    {"gsd", "uniform", "resample", "grouped", 16, "grouped acceptance, another law"},
    {"lantern", "uniform", "maximal", "relaxed", 64,
     "relaxed acceptance of similar codes, another law"},
    {"cool", "uniform", "maximal", "cool", 64, "acceptance that cools with depth, another law"},
    {"draft", kModelDrafter, "drop", "exact", 4,
     "speculative sampling with a draft model, same law"},
    {"tree", kBestDrafter, "maximal", "exact", 64, "candidates that branch, same law", false,
     "pac"},
    {"gumbel-tree", kBestDrafter, "gumbel", "gumbel", 64,
     "the same picture as plain, several guesses a code", false, "gumbel"},
    {"draft-tree", kModelDrafter, "drop", "exact", 16, "a draft model's tree of guesses, same law",
     false, "rsd"},
    {"rows", "none", "drop", "exact", 1, "rows of codes side by side (ZipAR), another law", false,
     "none", 4},
    {"frames", "previous-frame", "gumbel", "gumbel", 64,
     "the same clip as plain, guessed from the grid before"},
    {"frames-coupled", "previous-frame", "maximal", "exact", 64,
     "the same guesses, coupled redrafts, same law"},
    {"lookup", "lookup", "drop", "exact", 8,
     "copies what followed the same tokens before, same law"},
    {"recycle", "recycling", "drop", "exact", 8, "guesses from past successors, same law"},
};

template <typename Rows>
auto names_of(const Rows& rows) {
  std::array<std::string_view, std::tuple_size_v<Rows>> out;
  std::transform(rows.begin(), rows.end(), out.begin(), [](const auto& row) { return row.name; });
  return out;
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

std::string joined(std::span<const std::string_view> names) {
  std::string out;
  for (const std::string_view name : names) {
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out;
}

void check_part(const char* flag, std::string_view name, std::span<const std::string_view> known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  refuse("E_DECODE_PART", flag, "one of " + joined(known), std::string(name));
}

std::string plain_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", value);
  return text;
}

void check_range(const char* where, double value, double low, double high) {
  if (value >= low && value <= high) return;
  refuse("E_DECODE_RANGE", where, plain_number(low) + " to " + plain_number(high),
         plain_number(value));
}

// A name stands for a promise that parts must not break.
void check_name(const DecodeMethod& method) {
  const bool same = method.name == "gumbel" || method.name == "auto" ||
                    method.name == "gumbel-tree" || method.name == "frames";
  if (same && method.rule != "gumbel") {
    const bool by_tree = method.tree != "none" && rule_of_tree(method.tree) == method.rule;
    refuse("E_DECODE_CONFLICT", by_tree ? "--tree " + method.tree : "--accept",
           "equality, which --decode " + method.name + " stands for", method.rule,
           by_tree ? "choose --decode tree --tree " + method.tree
                   : "choose --decode coupled-gumbel or sjd for another rule");
  }
  if ((method.row_lead > 0) != (method.name == "rows")) {
    refuse("E_DECODE_CONFLICT", "--row-lead",
           method.name == "rows" ? "at least 1" : "0 with --decode " + method.name,
           std::to_string(method.row_lead), "choose --decode rows, or another method alone");
  }
  if (method.name == "plain" && (method.speculative() || method.tree != "none")) {
    refuse("E_DECODE_CONFLICT", "--decode plain", "no drafter, no tail and no tree",
           method.drafter + ", " + method.tail + ", " + method.tree,
           method.tree == "none" ? "choose a method that guesses, for instance --decode gumbel"
                                 : "choose --decode tree --tree " + method.tree);
  }
}

void check_tree(const DecodeMethod& method) {
  check_part("--tree", method.tree, tree_names());
  const std::string_view rule = rule_of_tree(method.tree);
  if (method.rule != rule) {
    refuse("E_DECODE_CONFLICT", "--accept",
           std::string(rule) + ", by which --tree " + method.tree + " judges", method.rule,
           "choose another --tree, or --tree none");
  }
  const bool from_model = method.drafter == kModelDrafter;
  const auto* row = Parts::find_tree(method.tree);
  if (from_model && row->laws == TreeLaws::kWindow) {
    refuse("E_DECODE_CONFLICT", "--tree " + method.tree, "a drafter that is no model",
           method.drafter, "choose --tree rsd");
  }
  if (!from_model && row->laws == TreeLaws::kModel) {
    refuse("E_DECODE_CONFLICT", "--tree " + method.tree, "a draft model's laws",
           "drafter " + method.drafter, "choose --decode draft-tree, or --tree rsd");
  }
  if (from_model != (method.tail == "drop")) {
    refuse("E_DECODE_CONFLICT", "--tail",
           from_model ? "drop, as a draft model gives a tree its laws"
                      : "a tail that keeps drafts, which a tree branches from",
           method.tail,
           from_model ? "choose --decode draft-tree --tree " + method.tree
                      : "choose --decode tree --tree " + method.tree);
  }
  if (method.tv_budget > 0) {
    refuse("E_DECODE_CONFLICT", "--tv-budget", "0, as --tree " + method.tree + " keeps the law",
           plain_number(method.tv_budget));
  }
  check_range("--tree-width", static_cast<double>(method.tree_width), 1, 64);
  check_range("--tree-depth", static_cast<double>(method.tree_depth), 0, 64);
}

void check_rows(const DecodeMethod& method, const DecodeAids& aids) {
  if (method.speculative() || method.tree != "none" || method.rule != "exact") {
    refuse("E_DECODE_CONFLICT", "--decode rows", "no drafter, tail, tree nor rule",
           method.drafter + ", " + method.tail + ", " + method.tree + ", " + method.rule,
           "rows side by side guess nothing");
  }
  if (method.tv_budget > 0) {
    refuse("E_DECODE_CONFLICT", "--tv-budget", "0, as nothing bounds what --decode rows changes",
           plain_number(method.tv_budget));
  }
  if (aids.grammar.grids > 1) {
    refuse("E_DECODE_CONFLICT", "--decode rows", "a picture, which is one grid of codes",
           "a clip of " + std::to_string(aids.grammar.grids) + " grids");
  }
  check_range("--row-lead", static_cast<double>(method.row_lead), 1,
              static_cast<double>(aids.grammar.stride()));
}

}  // namespace

std::span<const NamedMethod> named_methods() { return kMethods; }

std::span<const std::string_view> drafter_names() {
  static const auto names = names_of(Parts::kDrafters);
  return names;
}
std::span<const std::string_view> tail_names() {
  static const auto names = names_of(Parts::kTails);
  return names;
}
std::span<const std::string_view> rule_names() {
  static const auto names = names_of(Parts::kRules);
  return names;
}

std::span<const std::string_view> tree_names() {
  static const auto names = names_of(Parts::kTrees);
  return names;
}

std::string_view rule_of_tree(std::string_view tree) {
  const auto* row = Parts::find_tree(tree);
  const bool equality = row != nullptr && row->make()->promise() == Promise::kSameTokens;
  return equality ? "gumbel" : "exact";
}

DecodeMethod decode_method(std::string_view name) {
  std::vector<std::string_view> known;
  for (const NamedMethod& row : kMethods) {
    known.push_back(row.name);
    if (row.name != name) continue;
    DecodeMethod out;
    out.name = row.name;
    out.drafter = row.drafter;
    out.tail = row.tail;
    out.rule = row.rule;
    out.window = row.window;
    out.adaptive = row.adaptive;
    out.tree = row.tree;
    out.row_lead = row.row_lead;
    return out;
  }
  refuse("E_DECODE", "--decode", "one of " + joined(known), std::string(name));
}

DecodeMethod settle_method(DecodeMethod method, const DecodeAids& aids, std::int64_t image_tokens) {
  if (method.drafter == kBestDrafter && aids.grammar.grids > 1) {
    method.drafter = "previous-frame";
  } else if (method.drafter == kBestDrafter) {
    method.drafter = aids.guesses != nullptr ? "context" : "uniform";
  }
  // A guess cannot change a picture under equality: another drafter serves as well.
  if (method.rule == "gumbel" && method.drafter == "context" && aids.guesses == nullptr) {
    method.drafter = "uniform";
  }
  if (!method.speculative()) method.window = 1;
  if (method.row_lead > 0) {
    const auto lines = RowSequence<float, KeyedRandom>::most_rows(aids.grammar);
    method.window = static_cast<std::int64_t>(lines);
  }
  // The window that comes with a name fits itself to the picture; one that was asked for does not.
  for (const NamedMethod& row : kMethods) {
    if (row.name == method.name && row.window == method.window) {
      method.window = std::min(method.window, image_tokens);
    }
  }
  return method;
}

void check_method(const DecodeMethod& method, const DecodeAids& aids, std::int64_t image_tokens) {
  if (method.drafter == kModelDrafter && !aids.draft_model) {
    refuse("E_DECODE_DRAFT", "--drafter model", "a draft model by --model-draft", "none");
  }
  if (method.drafter != kModelDrafter) {
    std::vector<std::string_view> known(drafter_names().begin(), drafter_names().end());
    known.push_back(kModelDrafter);
    check_part("--drafter", method.drafter, known);
  }
  check_part("--tail", method.tail, tail_names());
  check_part("--accept", method.rule, rule_names());
  if (method.window < 1 || method.window > image_tokens) {
    refuse("E_DECODE_WINDOW", "--window",
           "1 to " + std::to_string(image_tokens) + ", the tokens of a picture",
           std::to_string(method.window));
  }
  check_name(method);
  if (method.row_lead > 0) check_rows(method, aids);
  if (method.tree != "none") check_tree(method);
  if (method.drafter == "none" && method.tail != "drop") {
    refuse("E_DECODE_CONFLICT", "--drafter none",
           "a drafter, as --tail " + method.tail + " keeps drafts", "none",
           "choose a drafter, or --tail drop");
  }
  if (method.drafter == "context" && aids.guesses == nullptr) {
    refuse("E_DECODE_GUESSES", "--drafter context", "a model with guesses.safetensors", "none",
           "choose another drafter");
  }
  check_range("--group-size", static_cast<double>(method.grouped.size), 1,
              static_cast<double>(aids.grammar.codes));
  check_range("--neighbours", static_cast<double>(method.relaxed.neighbours), 0, 1 << 20);
  check_range("--delta", method.relaxed.delta, 0, 1);
  check_range("--lenience", method.lenience, 1e-6, 1e6);
  check_range("--tv-budget", method.tv_budget, 0, 1e6);
  if (method.relaxed.lambda != 0) check_range("--lambda", method.relaxed.lambda, 1, 1e6);
  check_range("--cool-peak", method.cool.peak, 0, 1e6);
  check_range("--cool-decay", method.cool.decay, 0, 1e3);
}

Promise promise_of(const DecodeMethod& method) {
  if (method.row_lead > 0) return Promise::kNone;
  if (method.drafter == "none") return Promise::kSameTokens;
  if (const auto* tree = Parts::find_tree(method.tree)) return tree->make()->promise();
  return Parts::find(Parts::kRules, method.rule)->make(method, {})->promise();
}

bool keeps_laws(const DecodeMethod& method) {
  return method.window > 1 && OwnedParts<float, KeyedRandom>(method, {}).parts().needs_laws();
}

bool rule_reads_neighbours(const DecodeMethod& method) {
  return method.rule == "grouped" || method.rule == "relaxed";
}

std::size_t aids_bytes(const DecodeMethod& method, const DecodeAids& aids, std::int64_t items) {
  const auto codes = static_cast<std::int64_t>(aids.grammar.codes);
  const auto vocabulary = static_cast<std::int64_t>(aids.grammar.vocabulary());
  const auto columns = static_cast<std::int64_t>(aids.grammar.columns);
  std::int64_t bytes = 0;
  const bool table = method.drafter == "previous-frame" && aids.guesses != nullptr;
  if (method.drafter == "context" || table) bytes += 2 * codes * (codes + 2);
  if (method.drafter == "neighbour-law") bytes += 4 * vocabulary * items * (columns + 2);
  if (method.drafter == "recycling") bytes += 4 * codes * items;
  if (rule_reads_neighbours(method)) bytes += 4 * codes * (kCodeWidth + neighbours_read(method));
  return static_cast<std::size_t>(bytes);
}

std::int64_t neighbours_read(const DecodeMethod& method) {
  return method.rule == "relaxed" ? method.relaxed.neighbours : 0;
}

}  // namespace tessera
