// The middle of the window: a bar that says what is shown and how, and the image.
#include <algorithm>

#include "apps/viewer/panels/panels.h"

namespace tessera {

namespace {

constexpr float kOverlayWidth = 8.4f, kZoomWidth = 4;  // in units of the font size

std::string title_of(const Ui& ui, const StageImage& image) {
  if (image.generation != nullptr) {
    const Generation& one = *image.generation;
    std::string text = std::string(state_text(one.state)) + ", seed " +
                       std::to_string(one.settings.seed) + ", " + one.settings.method.name;
    if (one.image_is_rough) text += ", rough until it is whole";
    if (!one.from.empty()) text += ", from " + one.from;
    return text;
  }
  if (image.film != nullptr) {
    const Film& film = *image.film;
    if (film.frame < 0) return name_of(film.path);
    return name_of(film.path) + ", " + std::to_string(film.width) + " x " +
           std::to_string(film.height);
  }
  if (!image.file.empty()) return name_of(image.file);
  return ui.snapshot.generations.empty() ? "" : "nothing to show";
}

void overlay_choice(Ui& ui, float width) {
  constexpr const char* kShown[] = {"No overlay", "Pass",        "Accepted",
                                    "Entropy",    "Probability", "Visual tokens"};
  int chosen = static_cast<int>(ui.state.overlay);
  ImGui::SetNextItemWidth(width);
  if (ImGui::Combo("##overlay", &chosen, kShown, 6))
    ui.state.overlay = static_cast<Overlay>(chosen);
  hint("what the colours over the image tell of each token (o)");
}

void zoom_text(Ui& ui) {
  const auto& shown = ui.state.report.image ? ui.state.report.image : ui.state.report.left;
  const std::string text = shown ? (shown->zoom >= 1 ? number_text(shown->zoom, 0) + " : 1"
                                                     : "1 : " + number_text(1 / shown->zoom, 1))
                                 : "-";
  if (ImGui::Button((text + "##fit").c_str(), ImVec2(em() * kZoomWidth, 0))) ui.act(Action::kFit);
  hint("zoom; press to see the whole image (0)");
}

void compare_controls(Ui& ui) {
  if (toggle_button("Difference", ui.state.difference)) ui.act(Action::kDifference);
  hint("where the two differ, 4 times as strong (D)");
  ImGui::SameLine();
}

void bar(Ui& ui, const StageImage& image) {
  const bool comparing = ui.state.mode == StageMode::kCompare;
  if (toggle_button("Image", !comparing)) ui.state.mode = StageMode::kImage;
  ImGui::SameLine(0, em() * 0.25f);
  if (toggle_button("Compare", comparing)) ui.state.mode = StageMode::kCompare;
  hint("two images in one place, parted by a slider (v)");
  const ImGuiStyle& style = ImGui::GetStyle();
  float right = em() * (kOverlayWidth + kZoomWidth) + style.ItemSpacing.x;
  if (comparing) {
    right += ImGui::CalcTextSize("Difference").x + 2 * style.FramePadding.x + style.ItemSpacing.x;
  }
  ImGui::SameLine();
  const float room = ImGui::GetContentRegionAvail().x - right;
  if (room < 0) {  // too narrow for one line
    ImGui::NewLine();
  } else {
    ImGui::AlignTextToFramePadding();
    ImGui::PushStyleColor(ImGuiCol_Text, ui.colours().dim);
    if (room > em() * 3 && !comparing) text_elided(title_of(ui, image), room - em() * 0.5f);
    ImGui::PopStyleColor();
    ImGui::SameLine(ImGui::GetContentRegionMax().x - right);
  }
  if (comparing) compare_controls(ui);
  // In a narrow window the choice gives way before the zoom does.
  const float rest = em() * kZoomWidth + style.ItemSpacing.x;
  overlay_choice(
      ui, std::clamp(ImGui::GetContentRegionAvail().x - rest, em() * 4, em() * kOverlayWidth));
  ImGui::SameLine();
  zoom_text(ui);
}

void nothing_to_draw(const StageImage& image) {
  if (image.film != nullptr) {
    const bool failed = image.film->state == FilmState::kFailed;
    empty_state(failed ? "This video cannot be shown" : "Opening the video",
                failed ? format_error(image.film->error) : name_of(image.film->path));
  } else if (image.generation != nullptr && image.generation->state == GenerateState::kFailed) {
    empty_state("This image failed", format_error(image.generation->error));
  } else if (image.generation != nullptr && (image.generation->state == GenerateState::kDone ||
                                             image.generation->state == GenerateState::kStopped)) {
    empty_state("No image is kept", "Newer images took its room, or it ended before a row.");
  } else if (image.generation != nullptr) {
    empty_state(image.generation->state == GenerateState::kLoading ? "Loading the model"
                                                                : "Waiting for the first row",
                "The image builds up here, row by row.");
  } else if (image.opened != nullptr) {
    empty_state("This file cannot be shown", image.opened->problem);
  } else if (!image.file.empty()) {
    empty_state("Opening", name_of(image.file));
  } else {
    empty_state(
        "Ready to generate",
        "Write a prompt at the left and press Generate (Ctrl+Enter), or drop an image here to "
        "open it and take over its settings, or a video to watch it. ? shows all keys.");
  }
}

void single_view(Ui& ui, const StageImage& image) {
  if (image.image == nullptr) {
    nothing_to_draw(image);
    return;
  }
  const Rect& area = ui.state.report.area;
  ImGui::InvisibleButton("picture", ImGui::GetContentRegionAvail());
  const Placement placed = draw_image(ui, image, area, area);
  ui.state.report.image = placed;
  handle_stage_mouse(ui, placed);
  if (ImGui::IsItemHovered() && !ImGui::IsItemActive()) {
    spot_tooltip(described_spot(ui.state, image, placed));
  }
}

}  // namespace

void stage_panel(Ui& ui) {
  const StageImage image = look_up(ui.snapshot, shown_ref(ui.state, ui.snapshot));
  bar(ui, image);
  const bool film =
      image.film != nullptr && ui.state.mode == StageMode::kImage && image.film->frame >= 0;
  const float below = film ? film_panel_height(ImGui::GetContentRegionAvail().y) : 0;
  ImGui::PushStyleColor(ImGuiCol_ChildBg, ui.colours().canvas);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(0, 0));
  ImGui::BeginChild("canvas", ImVec2(0, below > 0 ? -below : 0), true,
                    ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoScrollWithMouse);
  const ImVec2 low = ImGui::GetCursorScreenPos();
  const ImVec2 room = ImGui::GetContentRegionAvail();
  StageReport& report = ui.state.report;
  report = {};
  report.area = {low.x, low.y, low.x + std::max(1.0f, room.x), low.y + std::max(1.0f, room.y)};
  if (ui.state.mode == StageMode::kCompare) {
    compare_view(ui, report.area);
  } else {
    single_view(ui, image);
  }
  ImGui::EndChild();
  ImGui::PopStyleVar();
  ImGui::PopStyleColor();
  if (below > 0) film_panel(ui, *image.film);
}

}  // namespace tessera
