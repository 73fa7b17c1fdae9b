#include "apps/cli/draft_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "apps/cli/flags.h"
#include "apps/cli/setting_flags.h"
#include "apps/runtime/caption_method.h"
#include "engine/decoding/loop_settings.h"

namespace tessera {

namespace {

// The method that keeps most of what images say at every ratio, in any family.
constexpr std::string_view kDefaultPruner = "divprune";
constexpr double kDefaultKeep = 0.33;

[[noreturn]] void refuse_draft_flag(const char* code, std::string where, std::string expected,
                                    std::string found, std::string hint = "") {
  throw Error({.kind = ErrorKind::kUsage,
               .code = code,
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

// "40" tokens, "20%" of them.
Budget budget_of(const std::string& text) {
  const bool share = text.ends_with('%');
  const char* end = text.data() + text.size() - (share ? 1 : 0);
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const double most = share ? 100 : 1 << 20;
  const bool right = error == std::errc() && stop == end && value >= 0 && value <= most &&
                     (share || value == static_cast<double>(static_cast<std::int64_t>(value)));
  if (!right) {
    refuse_draft_flag("E_FLAG_VALUE", "--draft-keep",
                      "a number of tokens, or a share from 0% to 100%", text);
  }
  Budget out;
  if (share) {
    out.ratio = value / 100;
  } else {
    out.tokens = static_cast<std::int64_t>(value);
  }
  return out;
}

}  // namespace

void text_draft_flag(CLI::App& app, std::optional<std::string>& target) {
  const Setting& row = setting::kTextModelDraft;
  text_flag(app, "--" + std::string(row.name), target, std::string(row.help))->group("Decoding");
}

void add_text_draft_flags(CLI::App& app, TextDraftFlags& flags) {
  const std::string group = "Decoding";
  text_draft_flag(app, flags.model);
  text_flag(app, "--draft-prune", flags.prune,
            "drops visual tokens of the draft model alone, a method of --prune; default " +
                std::string(kDefaultPruner))
      ->group(group);
  text_flag(app, "--draft-keep", flags.keep,
            "visual tokens that the draft model keeps of an image, a number or 20%; 0 = it reads "
            "the question without images; with --draft-prune 33%")
      ->group(group);
}

void add_text_decode_flags(CLI::App& app, SettingValues& values) {
  for (const Setting* row : text_decode_group().rows) {
    setting_flag(app, *row, values, {.group = "Decoding"})
        ->default_str(std::string(row->text_fallback));
  }
}

void add_loop_flags(CLI::App& app, SettingValues& values) {
  for (const Setting* row : loop_settings()) {
    setting_flag(app, *row, values, {.group = "Decoding"});
  }
}

DraftChoice draft_choice(const TextDraftFlags& flags) {
  DraftChoice out;
  if (!flags.model) {
    if (flags.prune || flags.keep) {
      refuse_draft_flag("E_FLAG_CONFLICT", flags.prune ? "--draft-prune" : "--draft-keep",
                        "a draft model by --model-draft", "none");
    }
    return out;
  }
  out.model = *flags.model;
  if (!flags.prune && !flags.keep) return out;
  out.prune.method = pruner_row(flags.prune.value_or(std::string(kDefaultPruner))).name;
  out.prune.budget.ratio = kDefaultKeep;
  if (flags.keep) out.prune.budget = budget_of(*flags.keep);
  const Budget& budget = out.prune.budget;
  out.blind = budget.tokens ? *budget.tokens == 0 : budget.ratio == 0;
  return out;
}

}  // namespace tessera
