// Small pieces that several panels draw. Texts may be strangers': none of these takes a format.
#pragma once

#include <imgui.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/studio/snapshot.h"
#include "apps/viewer/actions.h"
#include "apps/viewer/theme.h"
#include "apps/viewer/ui_state.h"
#include "vision/image/image.h"

namespace tessera {

// Images as textures; what it returns lives until the end of the frame. Null image: null.
class TextureSource {
 public:
  virtual ~TextureSource() = default;
  virtual ImTextureID texture(const std::shared_ptr<const Image>& image) = 0;
  // The same for frames of a video, which come and go: one at a time, none is kept after the next.
  virtual ImTextureID moving(const std::shared_ptr<const Image>& frame) = 0;
};

// The difference of the two images that are compared, kept while they stay.
struct DifferenceCache {
  std::shared_ptr<const Image> a, b, image;  // image null: sizes differ
};

// What every panel gets: reads snapshot and state, changes state, posts commands.
struct Ui {
  UiState& state;
  const Snapshot& snapshot;
  const Poster& post;
  TextureSource& textures;
  DifferenceCache& difference;

  void act(Action action) const { tessera::act(action, state, snapshot, post); }
  const Palette& colours() const { return palette(state.theme); }
};

inline float em() { return ImGui::GetFontSize(); }

void text_line(std::string_view text);  // TextUnformatted
void text_coloured(ImU32 colour, std::string_view text);
void text_dim(std::string_view text);
void text_wrapped(std::string_view text);
// One line cut to the width that is left (or to `width` pixels), with an ellipsis.
void text_elided(std::string_view text, float width = 0);
// The hint of the last item, after a moment, with the key when the action has one.
void hint(std::string_view text);
inline constexpr float kHintSeconds = 0.5f;  // of that moment
void heading(std::string_view text);
// A dim message in the middle of what is left of the window.
void empty_state(std::string_view title, std::string_view what_to_do);

// Whether the last item is held by the mouse; the keyboard makes items active as well, without a
// place to follow.
bool dragged();

// A field of several lines that breaks at its width. `text` is the value, without breaks of the
// field's own; `edit` is what the field shows. Esc leaves it with what was typed. True when the
// user changed the value.
bool prose_field(const char* id, std::string& edit, std::string& text, ImVec2 size);

// A button in the accent colour.
bool accent_button(const char* label, ImVec2 size);
// Drawn pressed while `on`.
bool toggle_button(const char* label, bool on, ImVec2 size = ImVec2(0, 0));
// A square button with a sign on it, `side` pixels.
enum class Sign : std::uint8_t { kFirst, kBack, kPlay, kPause, kOn, kLast, kClose };
bool sign_button(const char* id, Sign sign, float side);
// Two columns, name and value; wraps the value. Begin with table_begin, end with ImGui::EndTable.
bool facts_table(const char* id);
void fact(std::string_view name, std::string_view value);

// A bar between two panels that is dragged; `size` is changed within [low, high], all in em.
enum class Bar : std::uint8_t { kUpright, kLying };
struct BarRange {
  float low = 0, high = 0;
  float direction = 1;  // -1: dragging right or down makes it smaller
};
void splitter(const char* id, Bar bar, float length, float& size, const BarRange& range);

std::string number_text(double value, int decimals);
std::string duration_text(double seconds);    // "12 s", "3 min 5 s"
std::string clock_text(double seconds);       // "0:07.250", "1:02:07.250"
std::string bytes_text(std::uint64_t bytes);  // "1.2 GiB"
// A state in a word, and its colour.
std::string_view state_text(GenerateState state);
ImU32 state_colour(GenerateState state, const Palette& colours);

}  // namespace tessera
