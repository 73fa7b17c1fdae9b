// Whole frames of the viewer, built by ImGui without a window: what is drawn, what keys do.
#include <imgui_internal.h>

#include "apps/studio/event.h"
#include "tests/unit/viewer/viewer_frames.h"

namespace tessera::viewer_panels_test {
namespace {

Generation generation(std::uint64_t number, GenerateState state) {
  Generation out;
  out.number = number;
  out.state = state;
  out.settings.prompt = "100 %s %n %d\n\x1b[31m \xff broken, and a text that is much too long";
  out.settings.method = decode_method("gsd");
  out.facts.prompt = out.settings.prompt;
  out.facts.method = out.settings.method;
  out.facts.width = out.facts.height = 64;
  out.facts.passes = 7;
  out.facts.tokens = 16;
  out.grid_rows = out.grid_columns = 4;
  if (state != GenerateState::kQueued && state != GenerateState::kFailed) {
    out.image = std::make_shared<const Image>(flat(64, static_cast<std::uint8_t>(40 * number)));
    std::vector<TokenMark> marks(16);
    for (std::size_t i = 0; i < 12; ++i) {
      marks[i] = {static_cast<std::int32_t>(i), static_cast<std::int32_t>(i / 2 + 1), 0.5f,
                  static_cast<float>(i)};
    }
    out.marks = std::make_shared<const std::vector<TokenMark>>(marks);
    out.committed = std::make_shared<const std::vector<std::int32_t>>(7, 2);
    out.file = "out/picture_" + std::to_string(number) + ".png";
  } else if (state == GenerateState::kFailed) {
    out.error = {.code = "E_X", .expected = "%s", .found = "%n"};
  }
  return out;
}

Snapshot busy_snapshot() {
  Snapshot out;
  for (std::uint64_t i = 1; i <= 6; ++i) {
    out.generations.push_back(generation(i, static_cast<GenerateState>((i + 2) % 6)));
  }
  out.status = {"cpu", "%s", "f32", 1 << 30, 1 << 29, "127.0.0.1:1"};
  out.problems.push_back({.code = "E_Y", .found = "%s%s%s"});
  CaptionEntry caption;
  caption.path = "out/picture_1.png";
  caption.state = CaptionState::kDone;
  caption.text = "%s a text";
  caption.tiles = {{2, 2, 0, 0, 1, 1, {0.1f, 0.9f, 0.5f, 0.3f}, {1, 0, 1, 0}}};
  caption.visual_tokens = 4;
  caption.kept_tokens = 2;
  out.captions.push_back(caption);
  return out;
}

TEST_F(Frames, AnEmptyWindowSaysWhatToDo) {
  EXPECT_GT(frame({}), 500);
  EXPECT_TRUE(textures_.asked.empty());
  EXPECT_TRUE(posted_.empty());
}

// As the studio does it: the list is shorter while the panel is still drawn.
TEST_F(Frames, AImageIsTakenOffTheListInTheMiddleOfAFrame) {
  Snapshot snapshot;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    snapshot.generations.push_back(generation(i, GenerateState::kDone));
  }
  on_post_ = [&](const Command& command) {
    const auto* drop = std::get_if<DropGenerationCommand>(&command);
    if (drop == nullptr) return;
    std::erase_if(snapshot.generations,
                  [&](const Generation& one) { return one.number == drop->number; });
  };
  for (float y = 600; y < 770 && !snapshot.generations.empty(); y += 5) {
    for (const float x : {285.0f, 295.0f, 305.0f}) click(snapshot, x, y);
  }
  EXPECT_TRUE(snapshot.generations.empty()) << snapshot.generations.size();
}

// The mouse rests where the image that was placed is larger than the one that is shown.
TEST_F(Frames, TheSpotUnderTheMouseIsOfThePlacedImage) {
  Snapshot snapshot;
  snapshot.generations = {generation(1, GenerateState::kDone), generation(2, GenerateState::kDone),
                        generation(3, GenerateState::kDone)};
  snapshot.generations[0].image = std::make_shared<const Image>(flat(300, 10));
  snapshot.generations[1].image = std::make_shared<const Image>(flat(300, 20));
  UiState& state = viewer_.state();
  state.follow = false;
  state.side_a = {1, {}};
  state.side_b = {2, {}};
  state.shown = {3, {}};
  state.mode = StageMode::kCompare;
  state.difference = true;
  state.cursor = CellPosition{9, 9};  // of a larger grid
  ImGui::GetIO().MousePos = ImVec2(860, 540);
  EXPECT_GT(frame(snapshot), 500);
  state.mode = StageMode::kImage;
  EXPECT_GT(frame(snapshot), 500);
}

TEST_F(Frames, EveryStateDrawsInBothThemesAtEveryScale) {
  const Snapshot snapshot = busy_snapshot();
  for (const float scale : {1.0f, 2.0f}) {
    use_scale(scale);
    for (const ThemeName theme : {ThemeName::kDark, ThemeName::kLight}) {
      viewer_.state().theme = theme;
      apply_theme(theme, scale);
      for (int overlay = 0; overlay < 6; ++overlay) {
        for (const StageMode mode : {StageMode::kImage, StageMode::kCompare}) {
          for (const SideTab tab : {SideTab::kDetails, SideTab::kCaptions}) {
            UiState& state = viewer_.state();
            state.overlay = static_cast<Overlay>(overlay);
            state.mode = mode;
            state.tab = tab;
            state.help = state.problems = overlay == 2;
            state.cursor = CellPosition{1, 1};
            state.caption_chosen = "out/picture_1.png";
            for (const std::uint64_t shown :
                 {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3}}) {
              state.shown = {shown, {}};
              state.follow = shown == 0;
              EXPECT_GT(frame(snapshot, 1), 500);
            }
          }
        }
      }
    }
  }
}

TEST_F(Frames, SmallAndLargeWindowsDraw) {
  const Snapshot snapshot = busy_snapshot();
  for (const ImVec2 size : {ImVec2(320, 200), ImVec2(1, 1), ImVec2(3840, 2160)}) {
    ImGui::GetIO().DisplaySize = size;
    viewer_.state().mode = StageMode::kImage;
    frame(snapshot);
    viewer_.state().mode = StageMode::kCompare;
    frame(snapshot);
  }
}

TEST_F(Frames, FiveHundredImagesDrawOnlyThoseInSight) {
  Snapshot snapshot;
  for (int i = 0; i < 500; ++i) {
    GalleryEntry entry;
    entry.path = "out/%s_" + std::to_string(i) + ".png";
    if (i % 50 == 7) {
      entry.problem = "cut after 13 bytes";
    } else {
      entry.thumbnail = std::make_shared<const Image>(flat(160, static_cast<std::uint8_t>(i)));
    }
    snapshot.gallery.push_back(entry);
  }
  snapshot.gallery_left_out = 12;
  EXPECT_GT(frame(snapshot), 500);
  EXPECT_GE(textures_.asked.size(), 3u);
  EXPECT_LT(textures_.asked.size(), 100u) << "rows out of sight cost nothing";
  EXPECT_EQ(textures_.asked.count(snapshot.gallery.front().thumbnail.get()), 1u) << "newest first";
}

TEST_F(Frames, SingleKeysAct) {
  const Snapshot snapshot = busy_snapshot();
  frame(snapshot);
  type(snapshot, '?');
  EXPECT_TRUE(viewer_.state().help);
  type(snapshot, '?');
  EXPECT_FALSE(viewer_.state().help);
  type(snapshot, 'o');
  EXPECT_EQ(viewer_.state().overlay, Overlay::kPass);
  type(snapshot, '+');
  EXPECT_GT(viewer_.state().view.zoom, 0);
  type(snapshot, 't');
  EXPECT_EQ(viewer_.state().theme, ThemeName::kLight);
}

TEST_F(Frames, KeysAreTextWhileAFieldIsEdited) {
  const Snapshot snapshot = busy_snapshot();
  frame(snapshot);
  const std::string before = viewer_.state().settings.prompt;
  type(snapshot, 'p');
  frame(snapshot);
  ASSERT_TRUE(ImGui::GetIO().WantTextInput) << "p goes to the prompt";
  type(snapshot, 'o');
  type(snapshot, '?');
  frame(snapshot);
  EXPECT_EQ(viewer_.state().overlay, Overlay::kNone);
  EXPECT_FALSE(viewer_.state().help);
  EXPECT_NE(viewer_.state().settings.prompt, before);
  EXPECT_NE(viewer_.state().settings.prompt.find("o?"), std::string::npos);
  EXPECT_EQ(viewer_.state().settings.prompt.find('\n'), std::string::npos)
      << "breaks are on the screen alone";
}

TEST_F(Frames, ControlEnterGenerates) {
  frame({});
  ImGuiIO& io = ImGui::GetIO();
  io.KeyCtrl = true;
  io.KeysDown[io.KeyMap[ImGuiKey_Enter]] = true;
  frame({}, 1);
  ASSERT_EQ(posted_.size(), 1u);
  EXPECT_EQ(std::get<GenerateCommand>(posted_[0]).settings.prompt, viewer_.state().settings.prompt);
}

TEST_F(Frames, TheComparisonDrawsBothOnOnePlace) {
  Snapshot snapshot;
  snapshot.generations = {generation(1, GenerateState::kDone), generation(2, GenerateState::kDone)};
  snapshot.compare_left = 1;
  snapshot.compare_right = 2;
  frame(snapshot);
  const StageReport& report = viewer_.state().report;
  ASSERT_TRUE(report.left && report.right);
  EXPECT_EQ(report.left->left, report.right->left);
  EXPECT_EQ(report.left->zoom, report.right->zoom);
  EXPECT_EQ(textures_.asked.size(), 2u);
  viewer_.state().difference = true;
  frame(snapshot);
  ASSERT_TRUE(viewer_.state().report.image);
  EXPECT_EQ(textures_.asked.size(), 1u) << "one image: their difference";
}

TEST_F(Frames, OverlaysAddACellForEachTokenThatStands) {
  Snapshot snapshot;
  snapshot.generations = {generation(1, GenerateState::kDone)};
  viewer_.state().tab = SideTab::kCaptions;  // without the legend
  const int plain = frame(snapshot);
  viewer_.state().overlay = Overlay::kEntropy;
  // The combo's label changes as well: count in fours, but leave its letters room.
  EXPECT_NEAR(frame(snapshot) - plain, 4 * 12, 4 * 8);
}

// ImGui takes Esc for taking back what was typed.
TEST_F(Frames, EscapeLeavesAFieldWithWhatWasTyped) {
  const Snapshot snapshot = busy_snapshot();
  frame(snapshot);
  type(snapshot, 'p');
  frame(snapshot);
  ASSERT_TRUE(ImGui::GetIO().WantTextInput);
  for (const char letter : {'x', 'y', 'z'}) type(snapshot, letter);
  frame(snapshot);
  ASSERT_NE(viewer_.state().settings.prompt.find("xyz"), std::string::npos);
  ImGuiIO& io = ImGui::GetIO();
  io.KeysDown[io.KeyMap[ImGuiKey_Escape]] = true;
  frame(snapshot, 1);
  frame(snapshot);
  EXPECT_FALSE(io.WantTextInput);
  EXPECT_NE(viewer_.state().settings.prompt.find("xyz"), std::string::npos);
  EXPECT_EQ(joined(viewer_.state().prompt_edit), viewer_.state().settings.prompt);
}

// The keyboard sends characters again and again while a key is down.
TEST_F(Frames, AHeldKeyGeneratesOnce) {
  frame({});
  ImGuiIO& io = ImGui::GetIO();
  constexpr int kKey = 300;
  const auto hold = [&](char character, int frames) {
    for (int i = 0; i < frames; ++i) {
      io.KeysDown[kKey] = true;  // a frame of the fixture lets all keys go
      type({}, character);
    }
    frame({}, 1);
  };
  hold('e', 10);
  EXPECT_EQ(posted_.size(), 1u);
  hold('e', 1);
  EXPECT_EQ(posted_.size(), 2u);
  const float before = viewer_.state().sizes.left;
  hold(')', 5);
  EXPECT_EQ(viewer_.state().sizes.left, before + 5) << "what only moves goes on";
}

// Space presses the slider's handle, which has no place of its own then.
TEST_F(Frames, TheKeyboardDoesNotTearTheSplit) {
  Snapshot snapshot;
  snapshot.generations = {generation(1, GenerateState::kDone), generation(2, GenerateState::kDone)};
  snapshot.compare_left = 1;
  snapshot.compare_right = 2;
  frame(snapshot);
  ImGuiIO& io = ImGui::GetIO();
  const Rect area = viewer_.state().report.area;
  const auto middle = static_cast<float>((area.top + area.bottom) / 2);
  click(snapshot, static_cast<float>(viewer_.state().report.split_at), middle);
  ASSERT_NEAR(viewer_.state().split, 0.5, 0.02);
  io.MousePos = ImVec2(static_cast<float>(area.left) + 5, middle);
  frame(snapshot);
  const double before = viewer_.state().split;
  ImGui::GetCurrentContext()->NavDisableHighlight = false;  // the keyboard has it
  bool active = false;
  for (int i = 0; i < 4; ++i) {
    io.KeysDown[io.KeyMap[ImGuiKey_Space]] = true;
    frame(snapshot, 1);
    active = active || ImGui::IsAnyItemActive();
  }
  EXPECT_TRUE(active) << "Space pressed the handle";
  EXPECT_EQ(viewer_.state().split, before);
  // The mouse does move it.
  io.MousePos = ImVec2(static_cast<float>(viewer_.state().report.split_at), middle);
  frame(snapshot, 2);
  io.MouseDown[0] = true;
  frame(snapshot, 2);
  io.MousePos.x = static_cast<float>(area.left + area.width() * 0.25);
  frame(snapshot, 2);
  io.MouseDown[0] = false;
  frame(snapshot, 1);
  EXPECT_NEAR(viewer_.state().split, 0.25, 0.01);
}

// What lies under the mouse is notified of both sides of a comparison.
TEST_F(Frames, AComparisonTellsOfTheSideUnderTheMouse) {
  Snapshot snapshot;
  snapshot.generations = {generation(1, GenerateState::kDone), generation(2, GenerateState::kDone)};
  snapshot.compare_left = 1;
  snapshot.compare_right = 2;
  frame(snapshot);
  ImGuiIO& io = ImGui::GetIO();
  const StageReport report = viewer_.state().report;
  const auto vertices_at = [&](double x) {
    io.MousePos = ImVec2(static_cast<float>(x), static_cast<float>(report.left->top + 200));
    return frame(snapshot, 3);
  };
  const int without = vertices_at(5);
  EXPECT_GT(vertices_at(report.left->left + 40), without + 80) << "letters of a tooltip";
  EXPECT_GT(vertices_at(report.right->rect().right - 40), without + 80);
}

TEST_F(Frames, AHintWakesTheWindowUntilItShows) {
  frame({});
  EXPECT_FALSE(viewer_.unsettled());
  ImGuiIO& io = ImGui::GetIO();
  io.MousePos = ImVec2(120, 520);  // Generate
  int frames = 0;
  for (frame({}, 2); viewer_.unsettled() && frames < 600; ++frames) frame({}, 1);
  EXPECT_GT(frames, 5);
  EXPECT_LT(frames, 60) << "half a second";
  frame({}, 2);
  EXPECT_FALSE(viewer_.unsettled());
}

TEST_F(Frames, SidesOfTheComparisonArePinnedOnce) {
  Snapshot snapshot;
  snapshot.generations = {generation(1, GenerateState::kDone)};
  frame(snapshot);
  type(snapshot, 'A');
  frame(snapshot, 5);
  ASSERT_EQ(posted_.size(), 1u);
  EXPECT_EQ(std::get<KeepCommand>(posted_[0]), (KeepCommand{{1}, {}}));
}

TEST_F(Frames, DroppedFilesArePosted) {
  viewer_.drop({"a.png", "b.png"});
  frame({});
  ASSERT_EQ(posted_.size(), 2u);
  EXPECT_EQ(std::get<OpenCommand>(posted_[1]).path, "b.png");
}

TEST_F(Frames, OfManyDroppedFilesTheLastOnesAreOpened) {
  std::vector<std::filesystem::path> files = {"a.mkv", "b.mkv"};
  for (int i = 0; i < 100; ++i) files.push_back(std::to_string(i) + ".png");
  viewer_.drop(files);
  frame({});
  ASSERT_EQ(posted_.size(), 1 + kKeptOpened);
  EXPECT_EQ(std::get<OpenFilmCommand>(posted_.front()).path, "b.mkv");
  EXPECT_EQ(std::get<OpenCommand>(posted_[1]).path, "92.png");
  EXPECT_EQ(std::get<OpenCommand>(posted_.back()).path, "99.png");
  EXPECT_EQ(viewer_.state().shown.file, "99.png");
}

}  // namespace
}  // namespace tessera::viewer_panels_test
