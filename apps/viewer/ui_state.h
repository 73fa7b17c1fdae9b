// What the window remembers between frames, apart from the Snapshot: fields being edited, which
// image is looked at, zoom, overlay, panel sizes. Plain data and pure reducers; no ImGui.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/runtime/caption_settings.h"
#include "apps/studio/command.h"
#include "apps/studio/snapshot.h"
#include "apps/viewer/overlay.h"
#include "apps/viewer/view_geometry.h"

namespace tessera {

enum class ThemeName : std::uint8_t { kDark, kLight };
enum class StageMode : std::uint8_t { kImage, kCompare };
enum class SideTab : std::uint8_t { kDetails, kCaptions };

// An image by what it is, not where it lies: a generated image, or a file that was opened, which may be a
// video.
struct ImageRef {
  std::uint64_t generation = 0;
  std::filesystem::path file;
  bool empty() const { return generation == 0 && file.empty(); }
  bool operator==(const ImageRef&) const = default;
};

// What can be shown of an image; pointers into the Snapshot, null where there is none.
struct StageImage {
  std::shared_ptr<const Image> image;
  const Generation* generation = nullptr;
  const OpenedImage* opened = nullptr;
  const CaptionEntry* caption = nullptr;
  const Film* film = nullptr;  // image is the frame that it shows
  std::filesystem::path file;
};

struct PanelSizes {  // in units of the font size, so that they follow the scale
  float left = 20, right = 21, gallery = 11, queue = 11;
};
inline constexpr float kNarrowest = 14, kWidest = 34, kLowestGallery = 7, kLowestQueue = 5,
                       kHighest = 60;  // of PanelSizes

// Where images were drawn in the last frame; read by the self-test, which looks at the screen.
struct StageReport {
  Rect area;
  std::optional<Placement> image, left, right;
  double split_at = 0;  // screen x; right of it the right image shows
  // Small images along the shown video, and the line of its time.
  std::optional<Rect> film_strip, film_line;
};

struct UiState {
  GenerateSettings settings;
  SeedMode seed_mode = SeedMode::kLocked;
  std::int64_t count = 1;
  bool negative_on = false;
  std::string prompt_edit, negative_edit;  // as the fields show them, with breaks at their width
  bool edits_stale = true;                 // the settings changed beneath the fields

  bool follow = true;  // show what is being generated
  ImageRef shown;
  StageMode mode = StageMode::kImage;
  ImageRef side_a, side_b;
  std::uint64_t pair_left = 0, pair_right = 0;  // of the Snapshot, taken over when they change
  double split = 0.5;
  bool difference = false;
  Overlay overlay = Overlay::kNone;
  float overlay_strength = 0.6f;
  Viewport view;
  std::optional<CellPosition> cursor;  // token chosen by keyboard
  SideTab tab = SideTab::kDetails;

  // Number of the recall that is waited for, 0 = none; numbers are never used twice.
  std::uint64_t recall_asked = 0, last_recall = 0;
  std::vector<std::string> recall_warnings;

  std::string caption_prompt, prune_method;
  double prune_rate = setting::kPruneRate.start;
  std::filesystem::path caption_chosen, caption_edited;  // the latter: whose text is edited
  // What stands in the field, what the field shows of it, and the text it came from.
  std::string caption_text, caption_edit, caption_base;
  std::string folder_edit;

  ThemeName theme = ThemeName::kDark;
  bool help = false, problems = false, quit = false;
  bool focus_prompt = false;
  PanelSizes sizes;
  std::string notice;  // what an action could not do; shown in the status bar
  StageReport report;
};

// Name of a file for people: what is no text in it shows as \xff.
std::string name_of(const std::filesystem::path& file);

// The bundled model, ready to generate: a first prompt is there.
UiState first_state(const std::string& model, std::optional<DType> storage);

// Every field of settings; the seed becomes locked, so that the next image is the same one. An
// answer that is waited for comes too late.
void take_settings(UiState& state, const GenerateSettings& settings);
// What changed in the Snapshot and concerns the window: recalled settings that were asked for, a
// new pair to compare, a shown image that is gone.
void follow_snapshot(UiState& state, const Snapshot& snapshot);
// Names of the fields in which they differ; empty = equal.
std::vector<std::string> differing_fields(const GenerateSettings& a, const GenerateSettings& b);

// The image that is shown: with follow the running one, else the newest finished one.
ImageRef shown_ref(const UiState& state, const Snapshot& snapshot);
StageImage look_up(const Snapshot& snapshot, const ImageRef& ref);
// Whether the open video is looked at: alone, or as a side of the comparison.
bool film_in_sight(const UiState& state, const Snapshot& snapshot);
// Whether something is generated, here or by another program, described or opened: news come soon.
bool at_work(const Snapshot& snapshot);
// Whether a video plays: its frames come faster than other news.
bool plays(const Snapshot& snapshot);
// What is to stay for the comparison.
KeepCommand compared(const UiState& state);
// Steps through the generated images, oldest first; -1 back, +1 on. Stays at the ends.
void step_shown(UiState& state, const Snapshot& snapshot, int step);

// The prime use of a comparison: one seed, speculative decoding that keeps the distribution against grouped
// acceptance that does not; all else equal.
CompareCommand exact_against_grouped(const GenerateSettings& settings);
CompareCommand compare_methods(const GenerateSettings& settings, std::string_view left,
                               std::string_view right);
// Another method with its own window; parts that belong to the old one go.
void choose_method(GenerateSettings& settings, std::string_view name);

// Width of a piece of a line.
using Measure = std::function<double(std::string_view)>;
// Breaks lines at spaces so that each fits `width`: only spaces become line breaks, so that lengths
// and cursors stay. A text with line breaks of its own is left alone: joined() could not give it
// back. A word that is wider stands alone.
std::string wrapped(const std::string& text, double width, const Measure& measure);
std::string joined(std::string text);  // breaks back to spaces

}  // namespace tessera
