// The language of the self-test: one order a line, words parted by spaces, `#` begins a comment.
// The tables of script.cpp say what each order and expectation means.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class Order : std::uint8_t {
  kTheme,
  kSize,
  kModel,
  kPrompt,
  kNegative,
  kSeed,
  kSeedMode,
  kMethod,
  kSampling,  // a sampling setting, by its word
  kCount,
  kGenerate,
  kStopAfterRows,
  kWaitDone,
  kWaitRows,
  kWaitModels,
  kWaitGallery,
  kWaitCaption,
  kWaitRecall,
  kFrames,
  kCompare,
  kSplit,
  kDifference,
  kOverlay,
  kStrength,
  kView,
  kPrune,
  kCaption,
  kEditCaption,
  kSaveCaption,
  kOpen,
  kDrop,
  kForget,
  kRecall,
  kZoom,
  kFit,
  kLookAt,
  kToken,
  kKey,
  kType,
  kPress,
  kTab,
  kFilm,
  kFilmStep,
  kFilmSeek,
  kFilmPlay,
  kFilmLoop,
  kFilmClose,
  kWaitFilm,
  kScreenshot,
  kExpect
};

struct ScriptLine {
  int line = 0;  // from 1
  Order order = Order::kFrames;
  std::string text;                // all after the order, of orders that take a text
  std::vector<std::string> words;  // the others' arguments
  std::vector<double> numbers;     // those of them that are numbers, in order
};

// How an order is written: arguments as letters, n = whole number, x = number, w = word, t = the
// rest of the line; after `?` they may be left out. `choices`, joined by |, are what w may be.
struct OrderRow {
  Order order;
  std::string_view name, arguments, choices, does;
  double most = 9e15;  // of its numbers
};
std::span<const OrderRow> script_orders();
// What `expect` may be followed by; the order field says nothing.
std::span<const OrderRow> script_expectations();

// Error kUsage, E_SCRIPT, naming line and column, what was expected and what was found.
std::vector<ScriptLine> parse_script(std::string_view text, const std::string& file);

}  // namespace tessera
