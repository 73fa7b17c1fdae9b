// Decoding methods as data: which drafter, tail, rule and tree, how wide a window. The tables of
// parts are in method_parts.h; the methods with names of their own are combinations of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "engine/decoding/acceptance.h"
#include "engine/decoding/guess_table.h"
#include "engine/decoding/pass_shape.h"
#include "engine/decoding/rules/cool_rule.h"
#include "engine/decoding/rules/grouped_rule.h"
#include "engine/decoding/rules/relaxed_rule.h"

namespace tessera {

struct DecodeMethod {
  std::string name = "plain";
  std::string drafter = "none", tail = "drop", rule = "exact";
  std::int64_t window = 1;  // rows of a pass, the last committed token included
  bool adaptive = false;  // the window is the widest one; passes take what pays (WindowController)
  GroupedSettings grouped;
  RelaxedSettings relaxed;
  CoolSettings cool;
  double lenience = 0.5;      // lenient: drafts count this fraction of their probability
  std::string tree = "none";  // drafts branch: whose rule judges siblings
  std::int64_t tree_width = 3, tree_depth = 3;  // most siblings; levels that branch
  std::int64_t row_lead = 0;  // rows side by side: codes by which one leads the next; 0 = off
  double tv_budget = 0;  // most total variation of a picture's law from the target's; 0 = no bound

  bool operator==(const DecodeMethod&) const = default;
  PassShape shape() const {
    if (row_lead > 0) return PassShape::kRows;
    return tree == "none" ? PassShape::kLine : PassShape::kTree;
  }
  bool speculative() const { return drafter != "none" || tail != "drop"; }
};

// What parts may need besides settings.
struct DecodeAids {
  VocabularyGrammar grammar;                         // of the picture's stream
  std::shared_ptr<const CodeNeighbours> neighbours;  // grouped, relaxed
  std::shared_ptr<const CodeGroups> groups;          // grouped by a fixed partition
  std::shared_ptr<const GuessTable> guesses;  // context; the first grid of previous-frame
  bool draft_model = false;                          // there is one for "model"
};

// plain, gumbel, sjd, coupled, ...: one line each in decode_method.cpp.
struct NamedMethod {
  std::string_view name, drafter, tail, rule;
  std::int64_t window;
  std::string_view does;  // for --help
  bool adaptive = false;
  std::string_view tree = "none";
  std::int64_t row_lead = 0;
};

// The drafter that stands for the best one there is: "previous-frame" for clips, else "context" with
// a guess table, else "uniform".
inline constexpr std::string_view kBestDrafter = "best";
// A draft model, which the caller makes and hands to the parts.
inline constexpr std::string_view kModelDrafter = "model";
// The method with kBestDrafter replaced and the window cut to the picture.
DecodeMethod settle_method(DecodeMethod method, const DecodeAids& aids, std::int64_t image_tokens);

std::span<const NamedMethod> named_methods();

// Error kUsage naming the choices for an unknown name.
DecodeMethod decode_method(std::string_view name);
std::span<const std::string_view> drafter_names();  // of the table; kModelDrafter beside them
std::span<const std::string_view> tail_names();
std::span<const std::string_view> rule_names();
std::span<const std::string_view> tree_names();
// The rule of single drafts that makes a tree's promise.
std::string_view rule_of_tree(std::string_view tree);

// For a settled method. Error kUsage: unknown parts, parts that contradict each other, settings out
// of range, a window beyond the picture.
void check_method(const DecodeMethod& method, const DecodeAids& aids, std::int64_t image_tokens);

// What the combination promises about pictures.
Promise promise_of(const DecodeMethod& method);
// Whether windows keep the laws of drafts.
bool keeps_laws(const DecodeMethod& method);
// Whether the rule asks for DecodeAids::neighbours, and how many of a code it reads at most.
bool rule_reads_neighbours(const DecodeMethod& method);
std::int64_t neighbours_read(const DecodeMethod& method);
// What drafter and rule hold beside the loop, for the memory plan.
std::size_t aids_bytes(const DecodeMethod& method, const DecodeAids& aids, std::int64_t items);

}  // namespace tessera
