// Reducers of the window's own state.
#include "apps/viewer/ui_state.h"

#include <algorithm>

#include "apps/studio/gallery.h"
#include "engine/core/index.h"
#include "engine/decoding/loop_settings.h"
#include "engine/sampling/sampling_settings.h"

namespace tessera {

namespace {

constexpr std::string_view kFirstPrompt =
    "a large red shiny sphere, a small blue matte cube and a small green matte cone on a checkered "
    "floor";

bool drawable(const Generation& one) {
  return one.image != nullptr || one.state == GenerateState::kGeneration ||
         one.state == GenerateState::kLoading;
}

}  // namespace

std::string name_of(const std::filesystem::path& file) {
  return escape_for_terminal(file.filename().string());
}

UiState first_state(const std::string& model, std::optional<DType> storage) {
  UiState state;
  state.settings.model = model;
  state.settings.storage = storage;
  state.settings.prompt = kFirstPrompt;
  state.settings.method = decode_method("gumbel");
  state.settings.seed = 1;
  return state;
}

void take_settings(UiState& state, const GenerateSettings& settings) {
  state.settings = settings;
  state.negative_on = settings.negative_prompt.has_value();
  state.seed_mode = SeedMode::kLocked;
  state.edits_stale = true;
  state.recall_asked = 0;
  state.recall_warnings.clear();
}

namespace {

// Only the answer to what was asked last counts.
void take_recalled(UiState& state, const Recalled& answer) {
  if (state.recall_asked == 0 || answer.request != state.recall_asked) return;
  state.recall_asked = 0;
  if (!answer.settings) {
    state.notice = name_of(answer.path) + " records no settings";
    return;
  }
  take_settings(state, *answer.settings);
  state.recall_warnings = answer.warnings;
  state.notice = "settings recalled from " + name_of(answer.path);
}

}  // namespace

void follow_snapshot(UiState& state, const Snapshot& snapshot) {
  if (snapshot.recalled) take_recalled(state, *snapshot.recalled);
  const bool pair = snapshot.compare_left != 0 && snapshot.compare_right != 0;
  if (pair &&
      (snapshot.compare_left != state.pair_left || snapshot.compare_right != state.pair_right)) {
    state.pair_left = snapshot.compare_left;
    state.pair_right = snapshot.compare_right;
    state.side_a = {snapshot.compare_left, {}};
    state.side_b = {snapshot.compare_right, {}};
    state.mode = StageMode::kCompare;
  }
  const auto gone = [&snapshot](const ImageRef& ref) {
    return ref.generation != 0 && snapshot.generation(ref.generation) == nullptr;
  };
  // Of videos the open one alone has frames to compare.
  const auto closed = [&snapshot](const ImageRef& ref) {
    return is_video_name(ref.file) && (!snapshot.film || snapshot.film->path != ref.file);
  };
  if (closed(state.side_a)) state.side_a = {};
  if (closed(state.side_b)) state.side_b = {};
  if (gone(state.shown)) state.shown = {};
  if (gone(state.side_a)) state.side_a = {};
  if (gone(state.side_b)) state.side_b = {};
}

std::vector<std::string> differing_fields(const GenerateSettings& a, const GenerateSettings& b) {
  std::vector<std::string> out;
  const auto check = [&out](bool same, std::string_view name) {
    if (!same) out.emplace_back(name);
  };
  check(a.model == b.model, "model");
  check(a.prompt == b.prompt, "prompt");
  check(a.negative_prompt == b.negative_prompt, "negative prompt");
  for (const Setting* row : sampling_group().rows) {
    const SettingValue *left = a.sampling.find(*row), *right = b.sampling.find(*row);
    const bool same = left == nullptr || right == nullptr ? left == right : *left == *right;
    check(same, row->shown_word());
  }
  check(a.method == b.method, "method");
  check(a.draft_model == b.draft_model, "draft model");
  check(a.storage == b.storage, "storage");
  check(a.seed == b.seed, "seed");
  check(a.width == b.width, "width");
  check(a.height == b.height, "height");
  return out;
}

ImageRef shown_ref(const UiState& state, const Snapshot& snapshot) {
  if (!state.follow && !state.shown.empty()) return state.shown;
  if (const Generation* running = snapshot.running()) return {running->number, {}};
  if (!state.shown.empty() && !state.follow) return state.shown;
  for (auto one = snapshot.generations.rbegin(); one != snapshot.generations.rend(); ++one) {
    const bool failed = one->state == GenerateState::kFailed;
    if (one->image != nullptr || failed) return {one->number, {}};
  }
  return state.shown;
}

StageImage look_up(const Snapshot& snapshot, const ImageRef& ref) {
  StageImage out;
  if (ref.generation != 0) {
    out.generation = snapshot.generation(ref.generation);
    if (out.generation != nullptr) {
      out.image = out.generation->image;
      out.file = out.generation->file;
    }
  } else if (!ref.file.empty()) {
    out.file = ref.file;
    if (snapshot.film && snapshot.film->path.native() == ref.file.native()) {
      out.film = &*snapshot.film;
      out.image = out.film->image;
      return out;
    }
    for (const OpenedImage& one : snapshot.opened) {
      if (one.path == ref.file) out.opened = &one;
    }
    if (out.opened != nullptr) out.image = out.opened->image;
  }
  if (out.file.empty()) return out;
  for (const CaptionEntry& one : snapshot.captions) {
    if (one.path.native() == out.file.native()) out.caption = &one;
  }
  return out;
}

bool film_in_sight(const UiState& state, const Snapshot& snapshot) {
  const auto shows = [&](const ImageRef& ref) { return look_up(snapshot, ref).film != nullptr; };
  if (state.mode == StageMode::kImage) return shows(shown_ref(state, snapshot));
  return shows(state.side_a) || shows(state.side_b);
}

bool plays(const Snapshot& snapshot) {
  return snapshot.film && snapshot.film->state == FilmState::kPlaying;
}

bool at_work(const Snapshot& snapshot) {
  const bool film = snapshot.film && (snapshot.film->state == FilmState::kOpening ||
                                      snapshot.film->state == FilmState::kPlaying ||
                                      snapshot.film->frame != snapshot.film->wanted);
  if (film) return true;
  return std::any_of(snapshot.generations.begin(), snapshot.generations.end(),
                     [](const Generation& one) {
                       return one.state == GenerateState::kLoading ||
                              one.state == GenerateState::kGeneration;
                     }) ||
         std::any_of(
             snapshot.captions.begin(), snapshot.captions.end(), [](const CaptionEntry& one) {
               return one.state == CaptionState::kReading || one.state == CaptionState::kWriting;
             });
}

KeepCommand compared(const UiState& state) {
  KeepCommand out;
  for (const ImageRef* side : {&state.side_a, &state.side_b}) {
    if (side->generation != 0) out.generations.push_back(side->generation);
    if (!side->file.empty()) out.files.push_back(side->file);
  }
  return out;
}

void step_shown(UiState& state, const Snapshot& snapshot, int step) {
  std::vector<std::uint64_t> numbers;
  for (const Generation& one : snapshot.generations) {
    if (drawable(one)) numbers.push_back(one.number);
  }
  if (numbers.empty()) return;
  const ImageRef now = shown_ref(state, snapshot);
  const auto found = std::find(numbers.begin(), numbers.end(), now.generation);
  auto at = found == numbers.end() ? std::ssize(numbers) - 1 : (found - numbers.begin()) + step;
  at = std::clamp<std::ptrdiff_t>(at, 0, std::ssize(numbers) - 1);
  state.shown = {nth(numbers, at), {}};
  state.follow = false;
  state.mode = StageMode::kImage;
}

CompareCommand exact_against_grouped(const GenerateSettings& settings) {
  return compare_methods(settings, "sjd", "gsd");
}

CompareCommand compare_methods(const GenerateSettings& settings, std::string_view left,
                               std::string_view right) {
  CompareCommand out{settings, settings};
  choose_method(out.left, left);
  choose_method(out.right, right);
  return out;
}

void choose_method(GenerateSettings& settings, std::string_view name) {
  const SettingValues kept = settings.method.settings;
  settings.method = decode_method(name);
  set_loop(settings.method, kept);
}

std::string wrapped(const std::string& text, double width, const Measure& measure) {
  if (text.find('\n') != std::string::npos) return text;
  std::string out = text;
  const double space = measure(" ");
  double line = 0;
  for (std::size_t start = 0; start < out.size();) {
    const std::size_t end = std::min(out.find(' ', start), out.size());
    const double word = measure(std::string_view(text).substr(start, end - start));
    if (start > 0 && line + space + word > width) {
      out[start - 1] = '\n';
      line = word;
    } else {
      line += (start > 0 ? space : 0) + word;
    }
    start = end + 1;
  }
  return out;
}

std::string joined(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace tessera
