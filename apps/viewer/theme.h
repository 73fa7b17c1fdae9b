// The looks of the window: two calm palettes with one accent, spacing, and where a readable font is
// found. Lengths are in units of the font size times the scale.
#pragma once

#include <imgui.h>

#include <filesystem>
#include <vector>

#include "apps/viewer/ui_state.h"

namespace tessera {

// Colours that panels name themselves, apart from those in the style.
struct Palette {
  ImU32 canvas, border, dim, accent, on_accent, good, warning, bad;
};
const Palette& palette(ThemeName theme);

// Sets colours and spacing of the current context. scale: 1 = 16 pixels of text.
void apply_theme(ThemeName theme, float scale);

// Adds the first font of `places` that can be read at 16 * scale pixels, else the built-in one,
// enlarged to the nearest whole multiple. Returns the font's path; empty = the built-in one.
std::filesystem::path load_font(const std::vector<std::filesystem::path>& places, float scale);
// Readable fonts under the folders of XDG_DATA_DIRS, best first.
std::vector<std::filesystem::path> font_places();

}  // namespace tessera
