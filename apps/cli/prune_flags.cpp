#include "apps/cli/prune_flags.h"

#include <CLI/CLI.hpp>
#include <charconv>

#include "apps/cli/flags.h"
#include "apps/cli/setting_flags.h"
#include "apps/runtime/caption_settings.h"

namespace tessera {

namespace {

[[noreturn]] void refuse_pruner(std::string where, std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_FLAG_CONFLICT",
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found)});
}

PruneOption option_of(const std::string& text) {
  const std::size_t sign = text.find('=');
  PruneOption out;
  out.name = text.substr(0, sign);
  const char* begin = text.data() + (sign == std::string::npos ? text.size() : sign + 1);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, out.value);
  if (out.name.empty() || error != std::errc() || stop != end) {
    refuse_pruner("--prune-option", "NAME=NUMBER", text);
  }
  return out;
}

template <typename Which>
std::string names_of(Which which) {
  std::string names;
  for (const PrunerRow& row : pruner_table()) {
    if (which(row)) names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  return names;
}

std::int64_t token_count(const std::string& text) {
  if (text == "auto") return kOwnNumber;
  constexpr std::int64_t kMax = 1 << 20;
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && value >= 1 && value <= kMax) return value;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_FLAG_VALUE",
               .where = "--keep-tokens",
               .expected = "an integer from 1 to " + std::to_string(kMax) + ", or auto",
               .found = "'" + text + "'"});
}

}  // namespace

void add_prune_flags(CLI::App& app, PruneFlags& flags) {
  const std::string group = "Pruning";
  const std::string names = names_of([](const PrunerRow&) { return true; });
  app.add_option_function<std::string>(
         flag_names(setting::kPrune),
         [&flags](const std::string& text) {
           flags.method.reset();
           if (text != setting::kNoPruner) flags.method = text;
         },
         std::string(setting::kPrune.help) + ": " + names)
      ->type_name("TEXT")
      ->group(group);
  setting_flag(app, setting::kPruneRate, flags.rate, {.group = group});
  app.add_option_function<std::string>(
         "--keep-tokens", [&flags](const std::string& text) { flags.keep = token_count(text); },
         "tokens of each image that stay instead, row ends aside; auto = the method's own number "
         "(" +
             names_of([](const PrunerRow& row) { return row.adaptive; }) + ")")
      ->type_name("INTEGER|auto")
      ->group(group);
  choice_flag(app, "--prune-scope", flags.scope, {"all", "tile", "frame"},
              "tokens that compete with one another: all of an image or video, those of a tile, "
              "those of a frame; default the method's own")
      ->group(group);
  app.add_option("--prune-option", flags.options, "NAME=NUMBER, a setting of the method")
      ->allow_extra_args(false)  // what follows is an image
      ->group(group);
  app.add_flag("--parity", flags.parity,
               "as the published code of " +
                   names_of([](const PrunerRow& row) { return !row.code.differs.empty(); }))
      ->group(group);
}

PruneChoice prune_choice(const PruneFlags& flags) {
  PruneChoice out;
  if (!flags.method) {
    if (flags.rate || flags.keep || !flags.options.empty() || flags.parity ||
        !flags.scope.empty()) {
      refuse_pruner(
          "--prune",
          "a method for --prune-rate, --keep-tokens, --prune-scope, --prune-option or --parity",
          "none");
    }
    return out;
  }
  if (flags.rate && flags.keep) {
    refuse_pruner("--keep-tokens", "either a number or --prune-rate", "both");
  }
  out.method = pruner_row(*flags.method).name;
  for (const std::string& option : flags.options) out.options.push_back(option_of(option));
  if (flags.parity) out.options.push_back({"parity", 1});
  if (flags.keep == kOwnNumber) {
    out.budget.adaptive = true;
  } else if (flags.keep) {
    out.budget.tokens = *flags.keep;
    out.budget.shared = true;
  } else {
    out.budget.ratio = 1 - flags.rate.value_or(*setting::kPruneRate.fallback);
  }
  if (flags.scope == "all") out.budget.scope = Scope::kGlobal;
  if (flags.scope == "tile") out.budget.scope = Scope::kPerTile;
  if (flags.scope == "frame") out.budget.scope = Scope::kPerFrame;
  make_pruner(out.method, out.options);
  return out;
}

}  // namespace tessera
