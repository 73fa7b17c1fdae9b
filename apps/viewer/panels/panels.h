// The panels of the window, one file each. A panel draws itself into the current ImGui window from
// a Snapshot and the window's state, and posts commands; it knows no worker and no file.
#pragma once

#include <vector>

#include "apps/viewer/widgets.h"

namespace tessera {

void settings_panel(Ui& ui);
void queue_panel(Ui& ui);
// Bar above the image (what is shown, overlay, zoom), then the image or the two compared ones.
void stage_panel(Ui& ui);
// Below the image while a video is shown: small images over its length, its time, its controls.
void film_panel(Ui& ui, const Film& film);
// How high film_panel() is where `room` is left for it and the image together, in pixels.
float film_panel_height(float room);
void film_facts(const Film& film);  // rows of the table of details
void details_panel(Ui& ui);
void captions_panel(Ui& ui);
void gallery_panel(Ui& ui);
void status_bar(Ui& ui);
void key_map_window(Ui& ui);
void problems_window(Ui& ui);

// One image with its overlays, clipped to `area`; the placement is where it was committed.
Placement draw_image(Ui& ui, const StageImage& image, const Rect& area, const Rect& video);
// What lies under the mouse, or under the keyboard's cursor: lines of text, none if nothing does.
std::vector<std::string> described_spot(const UiState& state, const StageImage& image,
                                        const Placement& shown);
// Zoom by wheel and keys, pan by dragging, over `area`.
void handle_stage_mouse(Ui& ui, const Placement& shown);
// Next to the mouse; nothing without lines.
void spot_tooltip(const std::vector<std::string>& lines);
void compare_view(Ui& ui, const Rect& area);

}  // namespace tessera
