// Orders of the self-test: what each line of a script does.
#include "apps/viewer/selftest.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/viewer/screen_check.h"
#include "engine/core/io.h"
#include "engine/core/json.h"
#include "vision/image/png.h"

namespace tessera {

namespace {

// Frames until ImGui has settled what an order changed; none where nothing on the screen moves or
// the next order must not come late.
int settling(Order order) {
  switch (order) {
    case Order::kPaint:
    case Order::kPrompt:
    case Order::kSeed:
    case Order::kMethod:
    case Order::kWaitRows:
      return 0;
    case Order::kWaitDone:
    case Order::kStopAfterRows:
      return 1;
    case Order::kSize:
      return 5;
    default:
      return 2;
  }
}
constexpr double kPatience = 180;  // seconds a line may wait

void print(const Json& line) {
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

bool painting_now(const Snapshot& snapshot) {
  return std::any_of(snapshot.paintings.begin(), snapshot.paintings.end(), [](const auto& one) {
    return one.state == PaintState::kQueued || one.state == PaintState::kLoading ||
           one.state == PaintState::kPainting;
  });
}

bool describing_now(const Snapshot& snapshot) {
  return std::any_of(snapshot.captions.begin(), snapshot.captions.end(), [](const auto& one) {
    return one.state != CaptionState::kDone && one.state != CaptionState::kFailed;
  });
}

std::string method_named(const std::string& word) {
  if (word == "exact") return "sjd";
  return word == "grouped" ? "gsd" : word;
}

// Another value for every field.
PaintSettings changed(const PaintSettings& from) {
  PaintSettings out;
  out.model = from.model + "?";
  out.prompt = from.prompt + "?";
  out.negative_prompt = from.negative_prompt.value_or("") + "?";
  out.sampling = {91.5, 92.5, 0.935, 0.945, 0.955, 96};
  out.method = decode_method(from.method.name == "recycle" ? "lookup" : "recycle");
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
  watch_painting(snapshot, window);
  if (!std::exchange(look_due_, false)) return;
  const ScriptLine& line = script_[at_++];
  line_new_ = true;
  if (line.order == Order::kScreenshot) {
    save_png(line.words.front(), window.read_pixels());
  } else {
    tell(line, check(line, snapshot, window));
  }
}

void SelfTest::watch_painting(const Snapshot& snapshot, const Window& window) {
  const Painting* running = snapshot.running();
  if (running == nullptr || running->state != PaintState::kPainting) return;
  if (running->number != watched_) {
    watched_ = running->number;
    rows_seen_ = image_rows_seen_ = growths_ = image_growths_ = shrinks_ = stale_frames_ = 0;
  }
  build_.push_back(window.cost().build);
  submit_.push_back(window.cost().submit);
  swap_.push_back(window.cost().swap);
  const std::int64_t rows = running->rows_done;
  const std::int64_t drawn = running->image == nullptr ? 0 : running->image_rows;
  if (rows < rows_seen_ || drawn < image_rows_seen_) ++shrinks_;
  if (rows > rows_seen_) ++growths_;
  if (drawn > image_rows_seen_) {
    ++image_growths_;
    // The frame must show these rows, not only know of them.
    const auto& placed = viewer_.state().report.picture;
    const bool plain = viewer_.state().overlay == Overlay::kNone && placed && placed->zoom >= 1;
    if (plain &&
        !check_pixels(window.read_pixels(), *running->image, *placed, viewer_.state().report.area)
             .good()) {
      ++stale_frames_;
    }
  }
  rows_seen_ = rows;
  image_rows_seen_ = drawn;
}

bool SelfTest::run_line(const ScriptLine& line, const Snapshot& snapshot, Window& window) {
  UiState& state = viewer_.state();
  if (set_field(line) || change_view(line, snapshot, window)) return true;
  switch (line.order) {
    case Order::kPaint:
      act(Action::kPaint, state, snapshot, post_);
      return true;
    case Order::kCompare:
      return post_(compare_methods(state.settings, method_named(line.words[0]),
                                   method_named(line.words[1])));
    case Order::kStopAfterRows:
      return stop_after_rows(line, snapshot);
    case Order::kForget:
      wanted_ = state.settings;
      take_settings(state, changed(state.settings));
      return true;
    case Order::kRecall:
      if (!stop_posted_) act(Action::kRecall, state, snapshot, post_);
      stop_posted_ = true;  // once
      return !state.recall_wanted || wait(line, snapshot);
    case Order::kOpen:
    case Order::kDrop:
      return use_gallery(line, snapshot);
    case Order::kCaption:
    case Order::kEditCaption:
    case Order::kSaveCaption:
      return captions(line, snapshot);
    case Order::kFrames:
      settle_ = static_cast<int>(line.numbers.front());
      return true;
    default:
      return wait(line, snapshot);
  }
}

bool SelfTest::set_field(const ScriptLine& line) {
  UiState& state = viewer_.state();
  PaintSettings& settings = state.settings;
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
      settings.seed = static_cast<std::uint64_t>(line.numbers.front());
      break;
    case Order::kSeedMode:
      state.seed_mode = line.words[0] == "locked"     ? SeedMode::kLocked
                        : line.words[0] == "plus_one" ? SeedMode::kPlusOne
                                                      : SeedMode::kRandom;
      break;
    case Order::kMethod:
      choose_method(settings, method_named(line.words.front()));
      break;
    case Order::kGuidance:
      settings.sampling.guidance = line.numbers.front();
      break;
    case Order::kTemperature:
      settings.sampling.temperature = line.numbers.front();
      break;
    case Order::kCount:
      state.count = static_cast<std::int64_t>(line.numbers.front());
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

bool SelfTest::change_view(const ScriptLine& line, const Snapshot& snapshot, Window& window) {
  UiState& state = viewer_.state();
  switch (line.order) {
    case Order::kTheme:
      state.theme = line.words[0] == "dark" ? ThemeName::kDark : ThemeName::kLight;
      return true;
    case Order::kSize:
      window.resize(static_cast<int>(line.numbers[0]), static_cast<int>(line.numbers[1]));
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
      state.overlay_strength = static_cast<float>(std::min(1.0, line.numbers[0]));
      return true;
    case Order::kView:
      state.mode = line.words[0] == "compare" ? StageMode::kCompare : StageMode::kPicture;
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
      state.cursor = CellPosition{static_cast<std::int64_t>(line.numbers[0]),
                                  static_cast<std::int64_t>(line.numbers[1])};
      return true;
    case Order::kTab:
      state.tab = line.words[0] == "captions" ? SideTab::kCaptions : SideTab::kDetails;
      return true;
    case Order::kKey:
      for (const char key : line.text) {
        const auto* row = row_of_character(static_cast<unsigned char>(key));
        if (row != nullptr) act(row->action, state, snapshot, post_);
      }
      return true;
    default:
      return false;
  }
}

// False while it is not so yet; true also when patience ran out, which is a failure.
bool SelfTest::wait(const ScriptLine& line, const Snapshot& snapshot) {
  bool here = false;
  const double count = line.numbers.empty() ? 0 : line.numbers.front();
  std::string found;
  switch (line.order) {
    case Order::kWaitDone:
      here = !snapshot.paintings.empty() && !painting_now(snapshot);
      found = std::to_string(snapshot.paintings.size()) + " paintings, some not done";
      break;
    case Order::kWaitRows:
      for (const Painting& one : snapshot.paintings) {
        here = here || (one.number >= watched_ && static_cast<double>(one.rows_done) >= count);
      }
      found = "fewer rows";
      break;
    case Order::kWaitModels:
      here = snapshot.models_known;
      found = "not looked for yet";
      break;
    case Order::kWaitGallery: {
      std::size_t read = 0;
      for (const GalleryEntry& one : snapshot.gallery) {
        read += one.thumbnail != nullptr || !one.problem.empty() ? 1 : 0;
      }
      here = static_cast<double>(read) >= count;
      found = std::to_string(read) + " pictures";
      break;
    }
    case Order::kWaitCaption:
      here = !snapshot.captions.empty() && !describing_now(snapshot);
      found = std::to_string(snapshot.captions.size()) + " texts, some not done";
      break;
    case Order::kOpen:
    case Order::kDrop:
      here = look_up(snapshot, viewer_.state().shown).opened != nullptr &&
             (line.order == Order::kOpen || !viewer_.state().recall_wanted);
      found = "the picture is not open, or its settings did not come";
      break;
    case Order::kRecall:
      here = !viewer_.state().recall_wanted;
      found = "nothing recalled";
      break;
    case Order::kStopAfterRows:
      found = "rows or the end did not come";
      break;
    default:
      expects(false, "every order of a script is carried out somewhere");
  }
  if (here) return true;
  const bool counted = line.order == Order::kWaitRows || line.order == Order::kWaitGallery;
  const std::size_t limit_at = counted ? 1 : 0;
  const bool may_limit = line.order != Order::kStopAfterRows && line.order != Order::kOpen &&
                         line.order != Order::kDrop && line.numbers.size() > limit_at;
  const double limit = may_limit ? line.numbers[limit_at] : kPatience;
  if (monotonic_seconds() - line_started_ < limit) return false;
  fail(line, "an end within " + std::to_string(static_cast<int>(limit)) + " s", found);
  return true;
}

bool SelfTest::stop_after_rows(const ScriptLine& line, const Snapshot& snapshot) {
  if (stop_posted_) return !painting_now(snapshot) || wait(line, snapshot);
  const Painting* running = snapshot.running();
  if (!painting_now(snapshot)) {
    fail(line, "a picture that is still painted", "it ended before");
    return true;
  }
  const bool due = running != nullptr && running->state == PaintState::kPainting &&
                   static_cast<double>(running->rows_done) >= line.numbers.front();
  if (!due) return wait(line, snapshot);
  act(Action::kStop, viewer_.state(), snapshot, post_);
  stop_posted_ = true;
  return false;
}

bool SelfTest::use_gallery(const ScriptLine& line, const Snapshot& snapshot) {
  if (stop_posted_) return wait(line, snapshot);
  const auto index = static_cast<std::size_t>(line.numbers.front());
  if (index >= snapshot.gallery.size()) {
    fail(line, "picture " + std::to_string(index) + " of the gallery",
         std::to_string(snapshot.gallery.size()) + " pictures");
    return true;
  }
  const std::filesystem::path path = snapshot.gallery[index].path;
  UiState& state = viewer_.state();
  if (line.order == Order::kDrop) {
    viewer_.drop({path});
  } else {
    state.shown = {0, path};
    state.follow = false;
    state.mode = StageMode::kPicture;
    post_(OpenCommand{path});
  }
  stop_posted_ = true;  // once
  return false;
}

bool SelfTest::captions(const ScriptLine& line, const Snapshot& snapshot) {
  UiState& state = viewer_.state();
  if (line.order == Order::kCaption) {
    act(Action::kDescribe, state, snapshot, post_);
  } else if (line.order == Order::kEditCaption) {
    state.caption_text = line.text;
  } else {
    post_(SaveCaptionCommand{state.caption_chosen, state.caption_text});
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
  ++told_;
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
         {"expectations", told_},
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
