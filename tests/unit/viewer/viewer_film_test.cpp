// The video below its frame: what is drawn of it, what keys, clicks and dragging post.
#include "apps/viewer/actions.h"
#include "tests/unit/viewer/viewer_frames.h"

namespace tessera::viewer_film_test {
namespace {

constexpr const char* kPath = "out/%s clip.mkv";

// Five frames of times of their own, 0.8 s.
Film film(FilmState state) {
  Film out;
  out.number = 3;
  out.path = kPath;
  out.state = state;
  if (state == FilmState::kFailed || state == FilmState::kPlaying) {
    out.error = {.code = "E_X", .file = kPath, .expected = "%s", .found = "%n"};
  }
  if (state == FilmState::kOpening) return out;
  out.width = 64;
  out.height = 48;
  out.container = "matroska";
  out.codec = "%n";
  out.notes = {"%s was left out"};
  out.times =
      std::make_shared<const std::vector<double>>(std::vector<double>{0, 0.05, 0.35, 0.4, 0.7});
  out.seconds = 0.8;
  out.frame = out.wanted = 2;
  out.image = std::make_shared<const Image>(64, 48);
  for (std::int64_t i = 0; i < 5; ++i) {
    out.strip.push_back({i, std::make_shared<const Image>(flat(40, 20)), ""});
  }
  out.strip[3] = {3, nullptr, "%s damaged"};
  return out;
}

class FilmFrames : public Frames {
 protected:
  Snapshot watched(FilmState state) {
    Snapshot out;
    out.film = film(state);
    viewer_.state().shown = {0, kPath};
    viewer_.state().follow = false;
    return out;
  }
  template <typename Kind>
  Kind typed(const Snapshot& snapshot, char key) {
    posted_.clear();
    type(snapshot, key);
    EXPECT_EQ(posted_.size(), 1u) << key;
    const Kind* one = posted_.empty() ? nullptr : std::get_if<Kind>(&posted_[0]);
    EXPECT_NE(one, nullptr) << key;
    return one == nullptr ? Kind{} : *one;
  }
};

TEST_F(FilmFrames, AVideoShowsItsFrameItsStripAndItsLine) {
  const Snapshot snapshot = watched(FilmState::kPaused);
  frame(snapshot);
  EXPECT_EQ(textures_.moved.count(snapshot.film->image.get()), 1u);
  EXPECT_EQ(textures_.asked.count(snapshot.film->image.get()), 0u)
      << "frames that come and go are not kept as textures";
  for (const std::size_t cell : {std::size_t{0}, std::size_t{4}}) {
    EXPECT_EQ(textures_.asked.count(snapshot.film->strip[cell].image.get()), 1u) << cell;
  }
  const StageReport& report = viewer_.state().report;
  ASSERT_TRUE(report.image && report.film_line && report.film_strip);
  EXPECT_EQ(report.image->width, 64);
  EXPECT_LT(report.area.bottom, report.film_strip->top) << "below the image";
  EXPECT_EQ(report.film_strip->bottom, report.film_line->top);
  EXPECT_TRUE(posted_.empty());
}

TEST_F(FilmFrames, OpeningAndFailingSayWhat) {
  Snapshot snapshot = watched(FilmState::kOpening);
  EXPECT_GT(frame(snapshot), 500);
  EXPECT_FALSE(viewer_.state().report.image || viewer_.state().report.film_line);
  snapshot.film->state = FilmState::kFailed;
  EXPECT_GT(frame(snapshot), 500);
  EXPECT_FALSE(viewer_.state().report.film_line) << "nothing was read of it";
  snapshot.film = film(FilmState::kFailed);
  EXPECT_GT(frame(snapshot), 500);
  EXPECT_TRUE(viewer_.state().report.image) << "the last good frame stays";
  for (const char key : std::string("P,.JKbELSF")) type(snapshot, key);
  EXPECT_TRUE(posted_.empty()) << "it hears nothing";
  EXPECT_FALSE(viewer_.state().notice.empty());
}

TEST_F(FilmFrames, EveryKeyOfAVideoIsHeard) {
  const Snapshot snapshot = watched(FilmState::kPaused);
  frame(snapshot);
  EXPECT_FALSE(typed<FilmPlayCommand>(snapshot, 'P').on.has_value());
  EXPECT_FALSE(typed<FilmLoopCommand>(snapshot, 'L').on.has_value());
  EXPECT_EQ(typed<FilmStepCommand>(snapshot, ',').by, -1);
  EXPECT_EQ(typed<FilmStepCommand>(snapshot, '.').by, 1);
  EXPECT_EQ(typed<FilmSeekCommand>(snapshot, 'b').frame, 0);
  EXPECT_EQ(typed<FilmSeekCommand>(snapshot, 'E').frame, 4);
  EXPECT_EQ(typed<FilmSeekCommand>(snapshot, 'J').frame, 1) << "to another frame in any case";
  EXPECT_EQ(typed<FilmSeekCommand>(snapshot, 'K').frame, 3);
  EXPECT_EQ(typed<FilmSpeedCommand>(snapshot, 'S').speed, 0.5);
  EXPECT_EQ(typed<FilmSpeedCommand>(snapshot, 'F').speed, 2);
  typed<CloseFilmCommand>(snapshot, 'X');
  EXPECT_TRUE(viewer_.state().shown.empty());
  EXPECT_TRUE(viewer_.state().follow);
}

TEST_F(FilmFrames, JumpsGoByTheTimeOfLongVideos) {
  Snapshot snapshot = watched(FilmState::kPaused);
  std::vector<double> times;
  for (int i = 0; i < 240; ++i) times.push_back(i * 0.1);
  snapshot.film->times = std::make_shared<const std::vector<double>>(times);
  snapshot.film->seconds = 24;
  snapshot.film->frame = snapshot.film->wanted = 100;
  frame(snapshot);
  EXPECT_EQ(typed<FilmSeekCommand>(snapshot, 'K').frame, 110);
  EXPECT_NEAR(static_cast<double>(typed<FilmSeekCommand>(snapshot, 'J').frame), 90, 1);
}

TEST_F(FilmFrames, WithoutAVideoTheKeysSayWhatToDo) {
  const Snapshot empty;
  frame(empty);
  for (const char key : std::string("P,.JKbELSFVX")) {
    viewer_.state().notice.clear();
    type(empty, key);
    EXPECT_NE(viewer_.state().notice.find("no video"), std::string::npos) << key;
  }
  EXPECT_TRUE(posted_.empty());
}

TEST_F(FilmFrames, HeldKeysStepOnButPlayOnce) {
  const Snapshot snapshot = watched(FilmState::kPaused);
  frame(snapshot);
  constexpr int kKey = 300;
  const auto hold = [&](char key) {
    posted_.clear();
    for (int i = 0; i < 8; ++i) {
      ImGui::GetIO().KeysDown[kKey] = true;  // a frame of the fixture lets all keys go
      type(snapshot, key);
    }
    frame(snapshot, 1);
    return posted_.size();
  };
  EXPECT_EQ(hold('.'), 8u);
  EXPECT_EQ(hold(','), 8u);
  EXPECT_EQ(hold('P'), 1u);
}

// Frames take as much of the line as of the time.
TEST_F(FilmFrames, ClicksAndDragsSeekByTime) {
  Snapshot snapshot = watched(FilmState::kPaused);
  frame(snapshot);
  const Rect line = *viewer_.state().report.film_line;
  const Rect strip = *viewer_.state().report.film_strip;
  const auto x_at = [&](double seconds) {
    return static_cast<float>(line.left + line.width() * seconds / 0.8);
  };
  const auto sought = [&](double seconds, double y) {
    posted_.clear();
    click(snapshot, x_at(seconds), static_cast<float>(y));
    EXPECT_FALSE(posted_.empty());
    return posted_.empty() ? -1 : std::get<FilmSeekCommand>(posted_[0]).frame;
  };
  EXPECT_EQ(sought(0.2, line.top + 4), 1);
  EXPECT_EQ(sought(0.02, line.top + 4), 0);
  EXPECT_EQ(sought(0.6, strip.top + 6), 3) << "the small images are dragged as well";
  EXPECT_EQ(sought(0.79, strip.top + 6), 4);
  // Dragged beyond its ends: the first and the last frame; what is wanted already is not asked for.
  ImGuiIO& io = ImGui::GetIO();
  io.MousePos = ImVec2(x_at(0.36), static_cast<float>(line.top) + 4);
  frame(snapshot, 2);
  posted_.clear();
  io.MouseDown[0] = true;
  frame(snapshot, 3);
  EXPECT_TRUE(posted_.empty()) << "it is there";
  io.MousePos.x = static_cast<float>(line.right) + 500;
  frame(snapshot, 1);
  ASSERT_EQ(posted_.size(), 1u);
  EXPECT_EQ(std::get<FilmSeekCommand>(posted_[0]).frame, 4);
  snapshot.film->wanted = 4;
  frame(snapshot, 3);
  EXPECT_EQ(posted_.size(), 1u) << "once";
  io.MousePos.x = -500;
  frame(snapshot, 1);
  ASSERT_EQ(posted_.size(), 2u);
  EXPECT_EQ(std::get<FilmSeekCommand>(posted_[1]).frame, 0);
  io.MouseDown[0] = false;
  frame(snapshot, 1);
}

TEST_F(FilmFrames, AVideoThatIsTurnedAwayFromPausesOnce) {
  Snapshot snapshot = watched(FilmState::kPlaying);
  frame(snapshot, 5);
  EXPECT_TRUE(posted_.empty());
  viewer_.state().shown = {0, "a.png"};
  frame(snapshot, 5);
  ASSERT_EQ(posted_.size(), 1u);
  EXPECT_EQ(std::get<FilmPlayCommand>(posted_[0]).on, false);
  // As a side of a comparison it is in sight, and plays.
  posted_.clear();
  viewer_.state().side_b = {0, kPath};
  viewer_.state().mode = StageMode::kCompare;
  frame(snapshot, 5);
  ASSERT_EQ(posted_.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<KeepCommand>(posted_[0]));
  EXPECT_TRUE(viewer_.state().report.right);
  // Their difference comes and goes with the frames.
  snapshot.opened.push_back({"a.png", std::make_shared<const Image>(64, 48), ""});
  viewer_.state().side_a = {0, "a.png"};
  viewer_.state().difference = true;
  frame(snapshot);
  ASSERT_TRUE(viewer_.state().report.image);
  EXPECT_EQ(textures_.moved.size(), 1u);
  EXPECT_TRUE(textures_.asked.empty());
  // V looks at it again; a side whose video is closed is empty.
  type(snapshot, 'V');
  frame(snapshot);
  viewer_.state().mode = StageMode::kImage;
  type(snapshot, 'V');
  EXPECT_EQ(viewer_.state().shown.file, kPath);
  frame({});
  EXPECT_TRUE(viewer_.state().side_b.empty());
}

TEST_F(FilmFrames, VideosOpenByTheirNameAndRecallNothing) {
  viewer_.drop({"a.png", "b.MP4"});
  ASSERT_EQ(posted_.size(), 2u);
  EXPECT_EQ(std::get<OpenCommand>(posted_[0]).path, "a.png");
  EXPECT_EQ(std::get<OpenFilmCommand>(posted_[1]).path, "b.MP4");
  EXPECT_EQ(viewer_.state().shown.file, "b.MP4");
  EXPECT_EQ(viewer_.state().recall_asked, 0u);
  const Snapshot snapshot = watched(FilmState::kPaused);
  frame(snapshot);
  posted_.clear();
  type(snapshot, 'r');
  type(snapshot, 'c');
  EXPECT_TRUE(posted_.empty()) << "a video is nothing for the captioner";
  EXPECT_NE(viewer_.state().notice.find("captioner"), std::string::npos);
}

TEST_F(FilmFrames, AVideoOfTheGalleryOpensByAClick) {
  Snapshot snapshot;
  GalleryEntry entry;
  entry.path = kPath;
  entry.video = true;
  entry.thumbnail = std::make_shared<const Image>(flat(160, 90));
  snapshot.gallery = {entry};
  frame(snapshot);
  for (float y = 600; y < 780 && posted_.empty(); y += 10) click(snapshot, 370, y);
  ASSERT_FALSE(posted_.empty());
  EXPECT_EQ(std::get<OpenFilmCommand>(posted_[0]).path, kPath);
}

TEST_F(FilmFrames, EveryStateDrawsInBothThemesAtEveryScaleAndSize) {
  for (const float scale : {1.0f, 2.0f}) {
    use_scale(scale);
    for (const ThemeName theme : {ThemeName::kDark, ThemeName::kLight}) {
      viewer_.state().theme = theme;
      apply_theme(theme, scale);
      for (const FilmState state :
           {FilmState::kOpening, FilmState::kPaused, FilmState::kPlaying, FilmState::kFailed}) {
        Snapshot snapshot = watched(state);
        viewer_.state().help = state == FilmState::kPaused;
        for (const ImVec2 size : {ImVec2(1280, 800), ImVec2(320, 200), ImVec2(1, 1)}) {
          ImGui::GetIO().DisplaySize = size;
          ImGui::GetIO().MousePos = ImVec2(size.x / 2, size.y * 0.7f);
          frame(snapshot, 2);
        }
        viewer_.state().view.zoom = 64;  // with values
        ImGui::GetIO().DisplaySize = ImVec2(1280, 800);
        EXPECT_GT(frame(snapshot, 2), 500);
        viewer_.state().view = {};
      }
    }
  }
  EXPECT_TRUE(posted_.empty());
}

TEST(FilmTexts, TimesReadAsClocksDo) {
  EXPECT_EQ(clock_text(0), "0:00.000");
  EXPECT_EQ(clock_text(61.25), "1:01.250");
  EXPECT_EQ(clock_text(59.9996), "1:00.000");
  EXPECT_EQ(clock_text(3727.004), "1:02:07.004");
  EXPECT_EQ(clock_text(-3), "0:00.000");
}

}  // namespace
}  // namespace tessera::viewer_film_test
