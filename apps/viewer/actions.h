// Everything a user can do with one key, a button or a line of a self-test, by name: all three go
// through act(), so that they cannot drift apart. The key map under `?` is this table.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "apps/studio/command.h"
#include "apps/studio/snapshot.h"
#include "apps/viewer/ui_state.h"

namespace tessera {

// False: the queue is full and nothing happened.
using Poster = std::function<bool(Command)>;

enum class Action : std::uint8_t {
  kGenerate,
  kStop,
  kCompareMethods,
  kRecall,
  kDescribe,
  kPrompt,
  kSeedMode,
  kSeedNext,
  kSeedRandom,
  kPrevious,
  kNext,
  kFollow,
  kCompareView,
  kSideA,
  kSideB,
  kDifference,
  kSplitLeft,
  kSplitRight,
  kOverlay,
  kNoOverlay,
  kZoomIn,
  kZoomOut,
  kFit,
  kActual,
  kPanLeft,
  kPanDown,
  kPanUp,
  kPanRight,
  kTokenLeft,
  kTokenDown,
  kTokenUp,
  kTokenRight,
  kCaptions,
  kFilmPlay,
  kFilmBack,
  kFilmOn,
  kFilmJumpBack,
  kFilmJumpOn,
  kFilmStart,
  kFilmEnd,
  kFilmLoop,
  kFilmSlower,
  kFilmFaster,
  kFilmView,
  kFilmClose,
  kLeftNarrower,
  kLeftWider,
  kRightNarrower,
  kRightWider,
  kGalleryLower,
  kGalleryHigher,
  kQueueLower,
  kQueueHigher,
  kTheme,
  kHelp,
  kQuit
};

// How an action is reached. A plain key is a character, as the layout of the keyboard makes it, and
// counts while no text is edited.
struct KeyRow {
  Action action;
  std::string_view key;    // "x", "+", "Ctrl+Enter"
  std::string_view group;  // heading in the key map
  std::string_view does;
  bool repeats = false;  // while the key is held
};
std::span<const KeyRow> key_map();
// Null for a character without an action.
const KeyRow* row_of_character(char32_t character);

void act(Action action, UiState& state, const Snapshot& snapshot, const Poster& post);

// Opens an image or a video and looks at it; the settings stay as they are.
void show_file(const std::filesystem::path& path, UiState& state, const Poster& post);
// A file that was dropped on the window, or named: opens it; the settings of an image fill the
// fields. What is a video is known by its name.
void open_file(const std::filesystem::path& path, UiState& state, const Poster& post);

}  // namespace tessera
