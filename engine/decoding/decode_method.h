// Decoding methods as data: which drafter, redraft policy, rule and tree, how wide a window, and
// their settings. The tables of parts are in method_parts.h; the methods with names of their own
// are combinations of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/core/dtype.h"
#include "engine/core/setting.h"
#include "engine/decoding/acceptance.h"
#include "engine/decoding/method_part.h"
#include "engine/decoding/pass_shape.h"

namespace tessera {

inline constexpr std::string_view kNoTree = "none";

struct DecodeMethod {
  std::string name = "plain";
  std::string drafter = "none", redraft_policy = "drop", rule = "exact";
  std::string tree = std::string(kNoTree);  // drafts branch: whose rule accepts siblings
  std::int64_t window = 1;                  // rows of a pass, the last committed token included
  bool adaptive = false;   // the window is the widest one; passes take what pays (WindowController)
  SettingValues settings;  // of the parts and of the method, where they are not the rows' own

  bool operator==(const DecodeMethod&) const = default;
  bool branches() const { return tree != kNoTree; }
  PassShape shape() const;
  bool speculative() const;
  // Tokens by which a grid row leads the next one, side by side; 0 = off.
  std::int64_t row_lead() const;
  // Rows of a pass for each of them.
  std::int64_t row_window() const;
  // Most total variation of an image's distribution from the target's; 0 = no bound.
  double tv_budget() const;
  // How keys and values are cached; nothing: as tables next to the model's weights.
  std::optional<DType> cache() const;
  DType cache_next_to(DType weights) const;

  // A member by its row, or a setting.
  void set(const Setting& row, SettingValue value);
  void set(const Setting& row, double value) { set(row, SettingValue{value}); }
  SettingValue value(const Setting& row) const;
  // All settings of a part at once.
  template <typename Struct>
  void put(const Struct& from) {
    for (const BoundSetting<Struct>& bound : Struct::rows()) {
      settings.settle(*bound.row, value_of(from, bound));
    }
  }
  template <typename Struct>
  Struct get() const {
    return settings_from<Struct>(settings);
  }
  // The members above that have a flag.
  static constexpr bool kTextSettings = true;
  static std::span<const BoundSetting<DecodeMethod>> rows();
};

// plain, gumbel, sjd, coupled, ...: one line each in decode_method.cpp.
struct NamedMethod {
  std::string_view name, drafter, redraft_policy, rule;
  std::int64_t window;
  std::string_view does;  // for --help
  bool adaptive = false;
  std::string_view tree = kNoTree;
  std::int64_t row_lead = 0, row_window = 1;
  bool identical = false;  // stands for plain decoding's tokens: parts must not break that
  bool texts = false;      // `caption` offers it
};

// The method with drafters that are there, and the window cut to the image.
DecodeMethod settle_method(DecodeMethod method, const DecodeAids& aids, std::int64_t image_tokens);

std::span<const NamedMethod> named_methods();

// Error kUsage naming the choices for an unknown name.
DecodeMethod decode_method(std::string_view name);
const NamedMethod& named_method(std::string_view name);
std::span<const std::string_view> method_names();
std::span<const std::string_view> text_method_names();  // of `caption`
std::span<const std::string_view> drafter_names();      // that the table makes
std::span<const std::string_view> redraft_names();
std::span<const std::string_view> rule_names();
std::span<const std::string_view> tree_names();
// The first rule of single drafts with this guarantee.
std::string_view rule_with(Guarantee guarantee);
// The rule of single drafts that makes a tree's guarantee.
std::string_view rule_of_tree(std::string_view tree);
// A method by name as texts take it: their tokens are plain decoding's whatever is drafted.
DecodeMethod text_method(std::string_view name);

// For a settled method. Error kUsage: unknown parts, parts that contradict each other, settings out
// of range, a window beyond the image.
void check_method(const DecodeMethod& method, const DecodeAids& aids, std::int64_t image_tokens);

// What the combination guarantees about images.
Guarantee guarantee_of(const DecodeMethod& method);
// Whether windows keep the distributions of drafts.
bool keeps_dists(const DecodeMethod& method);
// What its parts ask for; unknown names ask for nothing.
PartNeeds needs_of(const DecodeMethod& method, const VocabularyGrammar& grammar = {});
// Whether its drafter asks nothing of a grid.
bool drafts_texts(const DecodeMethod& method);
// Neighbours and groups of codes, as needs_of() asks for them. codebook [codes, width].
void add_code_tables(DecodeAids& aids, const DecodeMethod& method, std::span<const float> codebook);
// What its parts hold besides the loop, for the memory plan.
std::size_t aids_bytes(const DecodeMethod& method, const DecodeAids& aids, std::int64_t streams);

// The settings of the parts that the method has: those of its rule, of its tree.
std::vector<const Setting*> settings_of(const DecodeMethod& method);
// Every part with settings of its own, as groups.
std::span<const SettingGroup> part_groups();

}  // namespace tessera
