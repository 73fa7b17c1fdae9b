// Orders of the self-test: what each line of a script does.
#include "apps/lab/viewer/selftest.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/lab/viewer/screen_check.h"
#include "apps/studio/event.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/json.h"
#include "engine/sampling/sampling_settings.h"
#include "vision/image/png.h"

namespace tessera {

namespace {

// Frames until ImGui has settled what an order changed; none where nothing on the screen moves or
// the next order must not come late.
int settling(Order order) {
  switch (order) {
    case Order::kGenerate:
    case Order::kPrompt:
    case Order::kSeed:
    case Order::kMethod:
    case Order::kWaitRows:
      return 0;
    case Order::kKey:
    case Order::kType:
    case Order::kPress:
      return 3;  // down, up, and what it did
    case Order::kWaitDone:
    case Order::kStopAfterRows:
      return 1;
    case Order::kSize:
      return 5;
    default:
      return 2;
  }
}
constexpr double kStill = 0.25;  // longest without a frame while an image is waited for

struct NamedKey {
  std::string_view name;
  ImGuiKey key;
  bool control;
};
constexpr NamedKey kNamedKeys[] = {
    {"ctrl+enter", ImGuiKey_Enter, true}, {"ctrl+a", ImGuiKey_A, true},
    {"enter", ImGuiKey_Enter, false},     {"escape", ImGuiKey_Escape, false},
    {"space", ImGuiKey_Space, false},     {"tab", ImGuiKey_Tab, false},
    {"left", ImGuiKey_LeftArrow, false},  {"right", ImGuiKey_RightArrow, false},
    {"up", ImGuiKey_UpArrow, false},      {"down", ImGuiKey_DownArrow, false}};

void print(const Json& line) {
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Words of scripts for the two sides of the usual comparison.
constexpr std::pair<std::string_view, std::string_view> kWordsForMethods[] = {{"exact", "sjd"},
                                                                              {"grouped", "gsd"}};

std::string method_named(const std::string& word) {
  for (const auto& [known, method] : kWordsForMethods) {
    if (word == known) return std::string(method);
  }
  return word;
}

// One that drafts in another way.
DecodeMethod another_method(const std::string& name) {
  const auto other = std::ranges::find_if(named_methods(), [&](const NamedMethod& method) {
    return method.texts && !method.adaptive && method.window > 4 && method.name != name;
  });
  return decode_method(other->name);
}

// Another value for every field.
GenerateSettings changed(const GenerateSettings& from) {
  GenerateSettings out;
  out.model = from.model + "?";
  out.prompt = from.prompt + "?";
  out.negative_prompt = from.negative_prompt.value_or("") + "?";
  for (const Setting* row : sampling_group().rows) {
    if (!row->doors.has(Door::kViewer)) continue;
    const double share = row->kind == SettingKind::kInteger ? 0.25 : 0.935;
    out.sampling.set(*row, row->low + share * (row->high - row->low));
  }
  out.method = another_method(from.method.name);
  out.draft_model = from.draft_model + "?";
  out.storage = from.storage == DType::kF32 ? DType::kBF16 : DType::kF32;
  out.seed = from.seed + 1234567;
  out.width = from.width + 8;
  out.height = from.height + 8;
  return out;
}

}  // namespace

SelfTest::SelfTest(std::vector<ScriptLine> script, Viewer& viewer, Poster post)
    : script_(std::move(script)), viewer_(viewer), post_(std::move(post)) {}

bool SelfTest::finished() const { return at_ >= script_.size() && settle_ == 0 && !look_due_; }

bool SelfTest::wants_frame(const Snapshot& snapshot) const {
  const Generation* running = snapshot.running();
  if (settle_ > 0 || look_due_ || line_new_ || at_ >= script_.size()) return true;
  if (running == nullptr || running->state != GenerateState::kGeneration) return true;
  if (running->number != watched_ || running->rows_done != growth_.rows()) return true;
  return monotonic_seconds() - frame_drawn_ > kStill;
}

void SelfTest::before_frame(const Snapshot& snapshot, Window& window) {
  if (settle_ > 0) {
    --settle_;
    return;
  }
  while (at_ < script_.size() && !look_due_) {
    const ScriptLine& line = script_[at_];
    if (std::exchange(line_new_, false)) {
      line_started_ = monotonic_seconds();
      stop_posted_ = false;
    }
    if (line.order == Order::kExpect || line.order == Order::kScreenshot) {
      look_due_ = true;
      return;
    }
    if (!run_line(line, snapshot, window)) return;  // waits
    ++at_;
    line_new_ = true;
    if (line.order != Order::kFrames) settle_ = settling(line.order);
    if (settle_ > 0) return;
  }
}

void SelfTest::after_frame(const Snapshot& snapshot, const Window& window) {
  ++frames_;
  frame_drawn_ = monotonic_seconds();
  ImGuiIO& io = ImGui::GetIO();
  for (const int key : std::exchange(held_, {})) io.KeysDown[key] = io.KeyCtrl = false;
  watch_generation(snapshot, window);
  watch_film(snapshot, window);
  if (!std::exchange(look_due_, false)) return;
  const ScriptLine& line = script_[at_++];
  line_new_ = true;
  if (line.order == Order::kScreenshot) {
    save_png(line.words.front(), window.read_pixels());
  } else {
    tell(line, check(line, snapshot, window));
  }
}

void SelfTest::watch_generation(const Snapshot& snapshot, const Window& window) {
  const Generation* running = snapshot.running();
  if (running == nullptr || running->state != GenerateState::kGeneration) return;
  if (running->number != watched_) {
    watched_ = running->number;
    growth_ = {};
  }
  build_.push_back(window.cost().build);
  submit_.push_back(window.cost().submit);
  swap_.push_back(window.cost().swap);
  const std::int64_t drawn = running->image == nullptr ? 0 : running->image_rows;
  std::optional<bool> exact;
  // The frame must show these rows, not only know of them.
  const StageReport& report = viewer_.state().report;
  const bool plain = viewer_.state().overlay == Overlay::kNone && report.image;
  if (drawn > growth_.image_rows() && plain && report.image->zoom >= 1) {
    exact =
        check_pixels(window.read_pixels(), *running->image, *report.image, report.area).good();
  }
  growth_.frame(running->rows_done, drawn, exact);
}

bool SelfTest::run_line(const ScriptLine& line, const Snapshot& snapshot, Window& window) {
  UiState& state = viewer_.state();
  if (set_field(line) || change_view(line, window)) return true;
  if (line.order >= Order::kFilm && line.order <= Order::kWaitFilm) return use_film(line, snapshot);
  switch (line.order) {
    case Order::kGenerate:
      act(Action::kGenerate, state, snapshot, post_);
      return true;
    case Order::kKey:
    case Order::kType:
    case Order::kPress:
      return use_keys(line);
    case Order::kCompare:
      return post_(compare_methods(state.settings, method_named(line.words[0]),
                                   method_named(line.words[1]))) ||
             wait(line, snapshot);
    case Order::kStopAfterRows:
      return stop_after_rows(line, snapshot);
    case Order::kForget:
      wanted_ = state.settings;
      take_settings(state, changed(state.settings));
      return true;
    case Order::kRecall:
      if (!stop_posted_) act(Action::kRecall, state, snapshot, post_);
      stop_posted_ = true;  // once
      return state.recall_asked == 0 || wait(line, snapshot);
    case Order::kOpen:
    case Order::kDrop:
      return use_gallery(line, snapshot);
    case Order::kCaption:
    case Order::kEditCaption:
    case Order::kSaveCaption:
      return captions(line, snapshot);
    case Order::kFrames:
      settle_ = truncate<int>(line.numbers.front());
      return true;
    default:
      return wait(line, snapshot);
  }
}

bool SelfTest::set_field(const ScriptLine& line) {
  UiState& state = viewer_.state();
  GenerateSettings& settings = state.settings;
  switch (line.order) {
    case Order::kModel:
      settings.model = line.words.front();
      break;
    case Order::kPrompt:
      settings.prompt = line.text;
      break;
    case Order::kNegative:
      settings.negative_prompt = line.text;
      state.negative_on = true;
      break;
    case Order::kSeed:
      settings.seed = truncate<std::uint64_t>(line.numbers.front());
      break;
    case Order::kSeedMode:
      state.seed_mode = line.words[0] == "locked"     ? SeedMode::kLocked
                        : line.words[0] == "plus_one" ? SeedMode::kPlusOne
                                                      : SeedMode::kRandom;
      break;
    case Order::kMethod:
      choose_method(settings, method_named(line.words.front()));
      break;
    case Order::kSampling:
      for (const Setting* row : sampling_group().rows) {
        if (row->shown_word() == line.words.front()) settings.sampling.set(*row, line.numbers[0]);
      }
      break;
    case Order::kCount:
      state.count = truncate<std::int64_t>(line.numbers.front());
      break;
    case Order::kPrune:
      state.prune_method = line.words[0] == "none" ? "" : line.words[0];
      state.prune_rate = line.numbers.front();
      break;
    default:
      return false;
  }
  state.edits_stale = true;
  return true;
}

bool SelfTest::change_view(const ScriptLine& line, Window& window) {
  UiState& state = viewer_.state();
  switch (line.order) {
    case Order::kTheme:
      state.theme = line.words[0] == "dark" ? ThemeName::kDark : ThemeName::kLight;
      return true;
    case Order::kSize:
      window.resize(truncate<int>(line.numbers[0]), truncate<int>(line.numbers[1]));
      return true;
    case Order::kSplit:
      state.split = std::min(1.0, line.numbers[0]);
      return true;
    case Order::kDifference:
      state.difference = line.words[0] == "on";
      return true;
    case Order::kOverlay:
      state.overlay = *overlay_of(line.words[0]);
      return true;
    case Order::kStrength:
      state.overlay_strength = to_float(std::min(1.0, line.numbers[0]));
      return true;
    case Order::kView:
      state.mode = line.words[0] == "compare" ? StageMode::kCompare : StageMode::kImage;
      return true;
    case Order::kZoom:
      state.view.zoom = std::clamp(line.numbers[0], 1.0, kMaxZoom);
      return true;
    case Order::kFit:
      state.view = {};
      return true;
    case Order::kLookAt:
      state.view.centre_x = std::min(1.0, line.numbers[0]);
      state.view.centre_y = std::min(1.0, line.numbers[1]);
      return true;
    case Order::kToken:
      state.cursor = CellPosition{truncate<std::int64_t>(line.numbers[0]),
                                  truncate<std::int64_t>(line.numbers[1])};
      return true;
    case Order::kTab:
      state.tab = line.words[0] == "captions" ? SideTab::kCaptions : SideTab::kDetails;
      return true;
    default:
      return false;
  }
}

// As the window would: through ImGui's queue of characters and its map of keys.
bool SelfTest::use_keys(const ScriptLine& line) {
  ImGuiIO& io = ImGui::GetIO();
  if (line.order != Order::kPress) {
    io.AddInputCharactersUTF8(line.text.c_str());
    return true;
  }
  for (const NamedKey& named : kNamedKeys) {
    if (named.name != line.words.front()) continue;
    held_ = {ImGui::GetKeyIndex(named.key)};
    io.KeysDown[held_.front()] = true;
    io.KeyCtrl = named.control;
  }
  return true;
}

void SelfTest::fail(const ScriptLine& line, std::string expected, std::string found) {
  tell(line, {false, std::move(expected), std::move(found)});
}

void SelfTest::tell(const ScriptLine& line, const Verdict& verdict) {
  std::string what;
  for (const OrderRow& row : script_orders()) {
    if (row.order == line.order) what = row.name;
  }
  if (line.order == Order::kExpect) what = line.words.front();
  ++heard_;
  if (!verdict.good) ++failed_;
  print({{"line", line.line},
         {"expect", what},
         {"ok", verdict.good},
         {"expected", verdict.expected},
         {"found", verdict.found}});
}

bool SelfTest::report() const {
  const auto round = [](double value) { return std::round(value * 1000) / 1000; };
  std::vector<double> own;
  for (std::size_t i = 0; i < build_.size(); ++i) own.push_back(build_[i] + submit_[i]);
  print({{"selftest", failed_ == 0 ? "passed" : "failed"},
         {"expectations", heard_},
         {"failed", failed_},
         {"frames", frames_},
         {"frames_while_painting", build_.size()},
         {"frame_ms", round(percentile(own, 0.5))},
         {"frame_ms_p95", round(percentile(own, 0.95))},
         {"build_ms", round(percentile(build_, 0.5))},
         {"build_ms_p95", round(percentile(build_, 0.95))},
         {"submit_ms", round(percentile(submit_, 0.5))},
         {"submit_ms_p95", round(percentile(submit_, 0.95))},
         {"swap_ms", round(percentile(swap_, 0.5))},
         {"swap_ms_p95", round(percentile(swap_, 0.95))}});
  return failed_ == 0;
}

}  // namespace tessera
