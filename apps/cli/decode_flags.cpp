#include "apps/cli/decode_flags.h"

#include <CLI/CLI.hpp>

#include "apps/cli/flags.h"

namespace tessera {

namespace {

constexpr std::int64_t kMost = 1 << 20;

std::string joined(std::span<const std::string_view> names) {
  std::string out;
  for (const std::string_view name : names) {
    out += out.empty() ? "" : ", ";
    out += name;
  }
  return out;
}

// A flag that would change nothing is a mistake.
void check_use(bool given, const char* flag, bool used, const char* by) {
  if (!given || used) return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_DECODE_CONFLICT",
               .where = flag,
               .expected = by,
               .found = "a method that does not read it"});
}

}  // namespace

void add_decode_flags(CLI::App& app, DecodeFlags& flags) {
  const std::string group = "Decoding";
  std::string methods = "how tokens are found:";
  for (const NamedMethod& method : named_methods()) {
    methods += (&method == named_methods().data() ? " " : "; ") + std::string(method.name) + ", " +
               std::string(method.does);
  }
  text_flag(app, "--decode", flags.decode, methods)->group(group);
  integer_flag(app, "--window", flags.window, 1, kMost,
               "rows of a pass: the last code that stands, and the guesses")
      ->group(group);
  add_decode_part_flags(app, flags);
}

void add_decode_part_flags(CLI::App& app, DecodeFlags& flags) {
  const std::string group = "Decoding";
  text_flag(app, "--drafter", flags.drafter, "who guesses: " + joined(drafter_names()) + ", model")
      ->group(group);
  text_flag(app, "--model-draft", flags.draft_model,
            "draft model, of one picture tokenizer with the model; drafter \"model\"")
      ->group(group);
  text_flag(app, "--tail", flags.tail, "guesses behind a refused one: " + joined(tail_names()))
      ->group(group);
  text_flag(app, "--accept", flags.accept, "who judges: " + joined(rule_names()))->group(group);
  text_flag(app, "--tree", flags.tree,
            "guesses branch, several a code: none, " + joined(tree_names()))
      ->group(group);
  integer_flag(app, "--tree-width", flags.tree_width, 1, kMost, "guesses for one code at most")
      ->group(group);
  integer_flag(app, "--tree-depth", flags.tree_depth, 0, kMost,
               "codes behind which guesses branch, where the tree is of a fixed shape")
      ->group(group);
  integer_flag(app, "--row-lead", flags.row_lead, 0, kMost,
               "rows side by side: codes by which a row leads the next one; 0 = off")
      ->group(group);
  integer_flag(app, "--group-size", flags.group_size, 1, kMost, "grouped: codes that count as one")
      ->group(group);
  app.add_flag("--static-groups", flags.static_groups,
               "grouped: a fixed partition of the codes by likeness")
      ->group(group);
  integer_flag(app, "--neighbours", flags.neighbours, 0, kMost,
               "relaxed: similar codes that lend their mass")
      ->group(group);
  number_flag(app, "--delta", flags.delta, 0, 1, "relaxed: most mass that is lent")->group(group);
  number_flag(app, "--lambda", flags.lambda, 0, 1e6,
              "relaxed: most factor of the guess's own mass; 0 = no bound")
      ->group(group);
  number_flag(app, "--lenience", flags.lenience, 1e-6, 1e6,
              "lenient: guesses count this fraction of their probability")
      ->group(group);
  number_flag(app, "--tv-budget", flags.tv_budget, 0, 1e6,
              "most a picture's law may differ from the target's, in total variation; 0 = no bound")
      ->group(group);
  number_flag(app, "--cool-peak", flags.cool_peak, 0, 1e6, "cool: factor of the first guess")
      ->group(group);
  number_flag(app, "--cool-decay", flags.cool_decay, 0, 1e3, "cool: decay of it by depth")
      ->group(group);
}

DecodeMethod method_of(const DecodeFlags& flags, const DecodeMethod& fallback) {
  DecodeMethod method = flags.decode ? decode_method(*flags.decode) : fallback;
  const auto take = [](auto& value, const auto& flag) {
    if (flag) value = *flag;
  };
  take(method.drafter, flags.drafter);
  take(method.tail, flags.tail);
  if (flags.tree) {
    method.tree = *flags.tree;
    if (method.tree != "none") method.rule = rule_of_tree(method.tree);
  }
  take(method.row_lead, flags.row_lead);
  take(method.tree_width, flags.tree_width);
  take(method.tree_depth, flags.tree_depth);
  take(method.rule, flags.accept);
  take(method.window, flags.window);
  take(method.grouped.size, flags.group_size);
  if (flags.static_groups) method.grouped.fixed_groups = true;
  take(method.relaxed.neighbours, flags.neighbours);
  take(method.relaxed.delta, flags.delta);
  take(method.relaxed.lambda, flags.lambda);
  take(method.lenience, flags.lenience);
  take(method.tv_budget, flags.tv_budget);
  take(method.cool.peak, flags.cool_peak);
  take(method.cool.decay, flags.cool_decay);
  check_use(flags.tree_width.has_value(), "--tree-width", method.tree != "none", "--tree");
  check_use(flags.tree_depth.has_value(), "--tree-depth", method.tree != "none", "--tree");
  check_use(flags.static_groups, "--static-groups", method.rule == "grouped", "--accept grouped");
  return method;
}

DecodeMethod text_method(const std::string& name) {
  DecodeMethod method = decode_method(name);
  if (method.speculative()) method.rule = "gumbel";
  return method;
}

}  // namespace tessera
