// The key map and what its actions do.
#include "apps/viewer/actions.h"

#include <algorithm>
#include <iterator>

#include "apps/studio/gallery.h"
#include "apps/studio/settings.h"
#include "apps/viewer/film_actions.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr KeyRow kKeys[] = {
    {Action::kGenerate, "Ctrl+Enter", "Generating", "generate with these settings"},
    {Action::kStop, "x", "Generating", "stop after this pass, keep what there is"},
    {Action::kCompareMethods, "e", "Generating", "generate exact and grouped at one seed"},
    {Action::kPrompt, "p", "Generating", "write the prompt"},
    {Action::kSeedMode, "m", "Generating", "seed: locked, plus one, random"},
    {Action::kSeedNext, "n", "Generating", "next seed", true},
    {Action::kSeedRandom, "N", "Generating", "a seed at random"},
    {Action::kRecall, "r", "Generating", "recall the settings of the shown image"},
    {Action::kPrevious, "[", "Images", "previous image", true},
    {Action::kNext, "]", "Images", "next image", true},
    {Action::kFollow, "f", "Images", "follow what is being generated"},
    {Action::kZoomIn, "+", "Images", "closer; at 48 and more, pixel values", true},
    {Action::kZoomOut, "-", "Images", "further away", true},
    {Action::kFit, "0", "Images", "whole image"},
    {Action::kActual, "1", "Images", "one screen pixel a pixel"},
    {Action::kPanLeft, "a", "Images", "look left", true},
    {Action::kPanRight, "d", "Images", "look right", true},
    {Action::kPanUp, "w", "Images", "look up", true},
    {Action::kPanDown, "s", "Images", "look down", true},
    {Action::kCompareView, "v", "Comparing", "side by side, or one image"},
    {Action::kSideA, "A", "Comparing", "the shown image becomes side A"},
    {Action::kSideB, "B", "Comparing", "the shown image becomes side B"},
    {Action::kDifference, "D", "Comparing", "show where the two differ"},
    {Action::kSplitLeft, "<", "Comparing", "move the split left", true},
    {Action::kSplitRight, ">", "Comparing", "move the split right", true},
    {Action::kOverlay, "o", "Tokens", "next overlay: pass, accepted, entropy, ..."},
    {Action::kNoOverlay, "O", "Tokens", "no overlay"},
    {Action::kTokenLeft, "h", "Tokens", "token to the left", true},
    {Action::kTokenDown, "j", "Tokens", "token below", true},
    {Action::kTokenUp, "k", "Tokens", "token above", true},
    {Action::kTokenRight, "l", "Tokens", "token to the right", true},
    {Action::kDescribe, "c", "Captions", "describe the shown image"},
    {Action::kCaptions, "C", "Captions", "captions, or details"},
    {Action::kFilmPlay, "P", "Videos", "play, or pause"},
    {Action::kFilmBack, ",", "Videos", "one frame back", true},
    {Action::kFilmOn, ".", "Videos", "one frame on", true},
    {Action::kFilmJumpBack, "J", "Videos", "a 24th of the video back", true},
    {Action::kFilmJumpOn, "K", "Videos", "a 24th of the video on", true},
    {Action::kFilmStart, "b", "Videos", "first frame"},
    {Action::kFilmEnd, "E", "Videos", "last frame"},
    {Action::kFilmLoop, "L", "Videos", "round and round, or once"},
    {Action::kFilmSlower, "S", "Videos", "slower"},
    {Action::kFilmFaster, "F", "Videos", "faster"},
    {Action::kFilmView, "V", "Videos", "look at the open video"},
    {Action::kFilmClose, "X", "Videos", "close the video"},
    {Action::kLeftNarrower, "(", "Panels", "left side narrower", true},
    {Action::kLeftWider, ")", "Panels", "left side wider", true},
    {Action::kRightNarrower, "{", "Panels", "right side narrower", true},
    {Action::kRightWider, "}", "Panels", "right side wider", true},
    {Action::kGalleryLower, "g", "Panels", "gallery lower", true},
    {Action::kGalleryHigher, "G", "Panels", "gallery higher", true},
    {Action::kQueueLower, "q", "Panels", "queue lower", true},
    {Action::kQueueHigher, "Q", "Panels", "queue higher", true},
    {Action::kTheme, "t", "Window", "dark or light"},
    {Action::kHelp, "?", "Window", "this key map"},
    {Action::kQuit, "Ctrl+Q", "Window", "close; a running image is stopped and kept"},
};

void move_cursor(UiState& state, const Snapshot& snapshot, std::int64_t down, std::int64_t right) {
  const StageImage image = look_up(snapshot, shown_ref(state, snapshot));
  if (image.generation == nullptr || image.generation->grid_rows == 0) return;
  if (!state.cursor) {
    state.cursor = CellPosition{0, 0};
    return;
  }
  state.cursor->row =
      std::clamp<std::int64_t>(state.cursor->row + down, 0, image.generation->grid_rows - 1);
  state.cursor->column =
      std::clamp<std::int64_t>(state.cursor->column + right, 0, image.generation->grid_columns - 1);
}

void pan(UiState& state, double dx, double dy) {
  const auto& shown = state.report.image ? state.report.image : state.report.left;
  if (shown) state.view = panned(state.view, *shown, dx, dy);
}

void zoom(UiState& state, int steps) {
  const auto& shown = state.report.image ? state.report.image : state.report.left;
  if (!shown) return;
  const Rect& area = state.report.area;
  state.view = zoomed(state.view, area, *shown, steps, (area.left + area.right) / 2,
                      (area.top + area.bottom) / 2);
}

void next_overlay(UiState& state, const Snapshot& snapshot) {
  const StageImage image = look_up(snapshot, shown_ref(state, snapshot));
  const bool tiles = image.caption != nullptr && !image.caption->tiles.empty();
  constexpr Overlay kOrder[] = {Overlay::kNone,    Overlay::kPass,        Overlay::kAccepted,
                                Overlay::kEntropy, Overlay::kProbability, Overlay::kVisual};
  const auto* here = std::find(std::begin(kOrder), std::end(kOrder), state.overlay);
  const auto* next = here + 1;
  if (next != std::end(kOrder) && *next == Overlay::kVisual && !tiles) ++next;
  state.overlay = next == std::end(kOrder) ? Overlay::kNone : *next;
}

bool has_prompt(UiState& state) {
  if (!state.settings.prompt.empty()) return true;
  state.notice = "write a prompt first";
  state.focus_prompt = true;
  return false;
}

void compare(UiState& state, const Poster& post) {
  if (!has_prompt(state)) return;
  state.notice = post(exact_against_grouped(state.settings)) ? "" : "the queue is full";
}

void generate(UiState& state, const Poster& post) {
  if (!has_prompt(state)) return;
  state.follow = true;
  state.mode = StageMode::kImage;
  if (!post(GenerateCommand{state.settings, state.seed_mode, state.count})) {
    state.notice = "the queue is full";
    return;
  }
  state.notice.clear();
  if (state.seed_mode == SeedMode::kPlusOne) {
    state.settings.seed += narrow<std::uint64_t>(state.count);
  }
}

// Opens the file; false when there is no room for the request.
bool ask_settings(const std::filesystem::path& path, UiState& state, const Poster& post) {
  if (!post(OpenCommand{path, state.last_recall + 1})) {
    state.notice = "the queue is full";
    return false;
  }
  state.recall_asked = ++state.last_recall;
  return true;
}

void look_at(const std::filesystem::path& path, UiState& state) {
  state.shown = {0, path};
  state.follow = false;
  state.mode = StageMode::kImage;
}

void recall(UiState& state, const Snapshot& snapshot, const Poster& post) {
  const ImageRef ref = shown_ref(state, snapshot);
  const StageImage image = look_up(snapshot, ref);
  if (image.film != nullptr) {
    state.notice = "a video records no settings";
  } else if (image.generation != nullptr) {
    take_settings(state, image.generation->settings);
    state.notice = "settings recalled from the image";
  } else if (!image.file.empty()) {
    ask_settings(image.file, state, post);
  } else {
    state.notice = "no image is shown whose settings could be recalled";
  }
}

void describe(UiState& state, const Snapshot& snapshot, const Poster& post) {
  const StageImage image = look_up(snapshot, shown_ref(state, snapshot));
  state.tab = SideTab::kCaptions;
  if (is_video_name(image.file)) {
    state.notice = "the captioner describes images; a text for a video can be written";
    return;
  }
  if (image.file.empty()) {
    state.notice = "an image can be described once it is a file";
    return;
  }
  CaptionCommand command;
  command.images = {image.file};
  command.prompt = state.caption_prompt;
  command.prune_method = state.prune_method;
  command.prune_rate = state.prune_method.empty() ? 0 : state.prune_rate;
  state.caption_chosen = image.file;
  if (!post(std::move(command))) state.notice = "the queue is full";
}

SeedMode after(SeedMode mode) {
  if (mode == SeedMode::kLocked) return SeedMode::kPlusOne;
  return mode == SeedMode::kPlusOne ? SeedMode::kRandom : SeedMode::kLocked;
}

// Wider, narrower, higher, lower. False for other actions.
bool size_panels(Action action, PanelSizes& sizes) {
  const auto by = [](float& size, float step, float low, float high) {
    size = std::clamp(size + step, low, high);
    return true;
  };
  switch (action) {
    case Action::kLeftNarrower:
      return by(sizes.left, -1, kNarrowest, kWidest);
    case Action::kLeftWider:
      return by(sizes.left, 1, kNarrowest, kWidest);
    case Action::kRightNarrower:
      return by(sizes.right, -1, kNarrowest, kWidest);
    case Action::kRightWider:
      return by(sizes.right, 1, kNarrowest, kWidest);
    case Action::kGalleryLower:
      return by(sizes.gallery, -1, kLowestGallery, kHighest);
    case Action::kGalleryHigher:
      return by(sizes.gallery, 1, kLowestGallery, kHighest);
    case Action::kQueueLower:
      return by(sizes.queue, -1, kLowestQueue, kHighest);
    case Action::kQueueHigher:
      return by(sizes.queue, 1, kLowestQueue, kHighest);
    default:
      return false;
  }
}

// How close, which part, which token. False for other actions.
bool look_closer(Action action, UiState& state, const Snapshot& snapshot) {
  constexpr double kPanStep = 64;
  switch (action) {
    case Action::kZoomIn:
      zoom(state, 1);
      return true;
    case Action::kZoomOut:
      zoom(state, -1);
      return true;
    case Action::kFit:
      state.view = {};
      return true;
    case Action::kActual:
      state.view.zoom = 1;
      return true;
    case Action::kPanLeft:
      pan(state, kPanStep, 0);
      return true;
    case Action::kPanRight:
      pan(state, -kPanStep, 0);
      return true;
    case Action::kPanUp:
      pan(state, 0, kPanStep);
      return true;
    case Action::kPanDown:
      pan(state, 0, -kPanStep);
      return true;
    case Action::kTokenLeft:
      move_cursor(state, snapshot, 0, -1);
      return true;
    case Action::kTokenRight:
      move_cursor(state, snapshot, 0, 1);
      return true;
    case Action::kTokenUp:
      move_cursor(state, snapshot, -1, 0);
      return true;
    case Action::kTokenDown:
      move_cursor(state, snapshot, 1, 0);
      return true;
    default:
      return false;
  }
}

// Actions that only change what is looked at. False for the others.
bool look(Action action, UiState& state, const Snapshot& snapshot) {
  constexpr double kSplitStep = 0.05;
  switch (action) {
    case Action::kPrevious:
      step_shown(state, snapshot, -1);
      return true;
    case Action::kNext:
      step_shown(state, snapshot, 1);
      return true;
    case Action::kFollow:
      state.follow = true;
      state.mode = StageMode::kImage;
      return true;
    case Action::kCompareView:
      state.mode = state.mode == StageMode::kImage ? StageMode::kCompare : StageMode::kImage;
      return true;
    case Action::kSideA:
      state.side_a = shown_ref(state, snapshot);
      return true;
    case Action::kSideB:
      state.side_b = shown_ref(state, snapshot);
      return true;
    case Action::kDifference:
      state.difference = !state.difference;
      return true;
    case Action::kSplitLeft:
      state.split = std::max(0.0, state.split - kSplitStep);
      return true;
    case Action::kSplitRight:
      state.split = std::min(1.0, state.split + kSplitStep);
      return true;
    case Action::kOverlay:
      next_overlay(state, snapshot);
      return true;
    case Action::kNoOverlay:
      state.overlay = Overlay::kNone;
      state.cursor.reset();
      return true;
    default:
      return look_closer(action, state, snapshot);
  }
}

}  // namespace

std::span<const KeyRow> key_map() { return kKeys; }

const KeyRow* row_of_character(char32_t character) {
  if (character == U'=') character = U'+';  // the same key without shift, on many layouts
  for (const KeyRow& row : kKeys) {
    if (row.key.size() == 1 && static_cast<char32_t>(row.key.front()) == character) return &row;
  }
  return nullptr;
}

void show_file(const std::filesystem::path& path, UiState& state, const Poster& post) {
  const Command open = is_video_name(path) ? Command(OpenFilmCommand{path}) : OpenCommand{path};
  if (!post(open)) {
    state.notice = "the queue is full";
    return;
  }
  state.recall_asked = 0;  // of an image that was turned away from
  look_at(path, state);
}

void open_file(const std::filesystem::path& path, UiState& state, const Poster& post) {
  if (is_video_name(path)) return show_file(path, state, post);
  if (ask_settings(path, state, post)) look_at(path, state);
}

void act(Action action, UiState& state, const Snapshot& snapshot, const Poster& post) {
  if (look(action, state, snapshot) || size_panels(action, state.sizes)) return;
  if (use_film(action, state, snapshot, post)) return;
  switch (action) {
    case Action::kGenerate:
      generate(state, post);
      break;
    case Action::kStop:
      if (snapshot.running() == nullptr)
        state.notice = "nothing is being generated";
      else if (!post(StopCommand{}))
        state.notice = "the queue is full";
      break;
    case Action::kCompareMethods:
      compare(state, post);
      break;
    case Action::kRecall:
      recall(state, snapshot, post);
      break;
    case Action::kDescribe:
      describe(state, snapshot, post);
      break;
    case Action::kPrompt:
      state.focus_prompt = true;
      break;
    case Action::kSeedMode:
      state.seed_mode = after(state.seed_mode);
      break;
    case Action::kSeedNext:
      ++state.settings.seed;
      break;
    case Action::kSeedRandom:
      state.settings.seed = random_seed();
      break;
    case Action::kCaptions:
      state.tab = state.tab == SideTab::kDetails ? SideTab::kCaptions : SideTab::kDetails;
      break;
    case Action::kTheme:
      state.theme = state.theme == ThemeName::kDark ? ThemeName::kLight : ThemeName::kDark;
      break;
    case Action::kHelp:
      state.help = !state.help;
      break;
    case Action::kQuit:
      state.quit = true;
      break;
    default:
      expects(false, "every action is done somewhere");
  }
}

}  // namespace tessera
