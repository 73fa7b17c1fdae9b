// What a part of a decoding method (a rule, a drafter, a redraft policy, a tree) says of itself
// before it is made: its settings, its memory, what it needs. It stands in the part's own file; the
// tables of method_parts.h list it by name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "engine/core/index.h"
#include "engine/core/setting.h"
#include "engine/decoding/code_groups.h"
#include "engine/decoding/code_neighbours.h"
#include "engine/decoding/draft_table.h"
#include "engine/sampling/grammar.h"

namespace tessera {

// What parts are given besides settings.
struct DecodeAids {
  VocabularyGrammar grammar;                         // of the stream
  std::shared_ptr<const CodeNeighbours> neighbours;  // where PartNeeds asks for them
  std::shared_ptr<const CodeGroups> groups;          // likewise
  std::shared_ptr<const DraftTable> drafts;         // null: the model brings none
  bool draft_model = false;                          // there is one
  bool texts = false;                                // the stream is a text, without a grid
};

namespace setting {

inline constexpr Doors kWhereDecoded = Door::kGenerate | Door::kVideo | Door::kBatch | Door::kEval |
                                       Door::kBench | Door::kViewer | Door::kRecord;

}  // namespace setting

// A draft model, which the caller makes and hands to the parts.
inline constexpr std::string_view kModelDrafter = "model";
// The drafter that stands for the best one there is.
inline constexpr std::string_view kBestDrafter = "best";

enum class DraftUse : std::uint8_t { kNone, kIfThere, kNeeded };

struct PartNeeds {
  bool neighbours = false;
  std::int64_t nearest = 0;     // of each code, in the table of neighbours
  std::int64_t group_size = 0;  // of a fixed partition of the codes; 0 = none
  DraftUse drafts = DraftUse::kNone;
  bool draft_model = false;  // the drafter is made by whoever opens that model
};

struct MethodPart {
  std::string_view name;
  std::span<const Setting* const> (*settings)() = nullptr;
  PartNeeds (*needs)(const SettingValues&, const VocabularyGrammar&) = nullptr;
  // What it holds besides the loop, for so many streams at once.
  std::int64_t (*bytes)(const SettingValues&, const DecodeAids&, std::int64_t streams) = nullptr;

  bool idle = false;       // a drafter without drafts, a redraft policy that keeps none
  bool for_texts = false;  // a drafter that asks nothing of a grid
  bool for_rows = false;   // a drafter that reads the tokens to the left and above alone
  // The drafter in its place where what it needs is not there and drafts cannot change a token.
  std::string_view instead = {};
  // The drafter that it is a name for.
  std::string_view (*stands_for)(const DecodeAids&) = nullptr;

  std::span<const Setting* const> rows() const {
    return settings != nullptr ? settings() : std::span<const Setting* const>();
  }
};

// Of a table of neighbours.
inline std::int64_t neighbour_bytes(const PartNeeds& needs, const DecodeAids& aids) {
  constexpr std::int64_t kCodeWidth = 16;  // of code vectors, generously
  return 4 * to_index(aids.grammar.codes) * (kCodeWidth + needs.nearest);
}

}  // namespace tessera
