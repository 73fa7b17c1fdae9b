// Two images in one place: left of the slider A shows, right of it B. Zoom, pan and overlays are
// the same for both.
#include <algorithm>

#include "apps/viewer/panels/panels.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr int kDifferenceGain = 4;

std::string side_title(const StageImage& side) {
  if (side.generation == nullptr) return name_of(side.file);
  const Generation& one = *side.generation;
  std::string text = one.settings.method.name;
  if (one.facts.passes > 0) {
    text += ", " + std::to_string(one.facts.passes) + " passes";
  }
  if (one.state != GenerateState::kDone) text += ", " + std::string(state_text(one.state));
  return text;
}

void side_label(const Ui& ui, const char* name, const std::string& title, const Rect& visible,
                bool at_right) {
  const std::string text = std::string(name) + "  " + title;
  const ImVec2 size = ImGui::CalcTextSize(text.data(), text.data() + text.size());
  const float pad = em() * 0.4f;
  const auto left = to_float(at_right ? visible.right - size.x - 3 * pad : visible.left + pad);
  const auto top = to_float(visible.top) + pad;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  list.PushClipRect(ImVec2(to_float(visible.left), to_float(visible.top)),
                    ImVec2(to_float(visible.right), to_float(visible.bottom)), true);
  list.AddRectFilled(ImVec2(left, top), ImVec2(left + size.x + 2 * pad, top + size.y + pad),
                     IM_COL32(0, 0, 0, 170), em() * 0.3f);
  list.AddText(ImVec2(left + pad, top + pad / 2), IM_COL32_WHITE, text.data(),
               text.data() + text.size());
  list.PopClipRect();
  (void)ui;
}

// What lies under the mouse, after the name of the side.
std::vector<std::string> side_spot(const Ui& ui, const char* name, const StageImage& side,
                                   const Placement& placed) {
  std::vector<std::string> lines = described_spot(ui.state, side, placed);
  for (std::string& line : lines) line = std::string(name) + "  " + line;
  return lines;
}

void draw_difference(Ui& ui, const StageImage& a, const StageImage& b, const Rect& area) {
  DifferenceCache& cache = ui.difference;
  if (cache.a != a.image || cache.b != b.image) {
    cache = {a.image, b.image, nullptr};
    if (auto image = difference_image(*a.image, *b.image, kDifferenceGain)) {
      cache.image = std::make_shared<const Image>(std::move(*image));
    }
  }
  if (cache.image == nullptr) {
    empty_state("No difference to show", "The two images have different sizes.");
    return;
  }
  StageImage shown;
  shown.image = cache.image;
  shown.film = a.film != nullptr ? a.film : b.film;  // comes and goes as its frames do
  ui.state.report.image = draw_image(ui, shown, area, area);
  side_label(ui, "4 |A - B|", "black where equal", area, false);
  handle_stage_mouse(ui, *ui.state.report.image);
  if (ImGui::IsItemHovered() && !ImGui::IsItemActive()) {
    std::vector<std::string> lines = side_spot(ui, "A", a, *ui.state.report.image);
    for (std::string& line : side_spot(ui, "B", b, *ui.state.report.image)) {
      lines.push_back(std::move(line));
    }
    spot_tooltip(lines);
  }
}

// The handle of the slider is its own item, so that mouse and keyboard reach it.
void slider(Ui& ui, const Rect& area, double at) {
  const float grip = em() * 0.8f;
  ImGui::SetCursorScreenPos(ImVec2(to_float(at) - grip / 2, to_float(area.top)));
  ImGui::InvisibleButton("split", ImVec2(grip, to_float(area.height())));
  const bool hot = ImGui::IsItemHovered() || ImGui::IsItemActive();
  if (hot) ImGui::SetMouseCursor(ImGuiMouseCursor_ResizeEW);
  if (dragged()) {
    ui.state.split = std::clamp((ImGui::GetIO().MousePos.x - area.left) / area.width(), 0.0, 1.0);
  }
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const auto x = to_float(at);
  const auto middle = to_float((area.top + area.bottom) / 2);
  list.AddRectFilled(ImVec2(x - 1, to_float(area.top)), ImVec2(x + 1, to_float(area.bottom)),
                     IM_COL32_WHITE);
  list.AddCircleFilled(ImVec2(x, middle), em() * (hot ? 0.6f : 0.5f), IM_COL32_WHITE);
  list.AddCircle(ImVec2(x, middle), em() * (hot ? 0.6f : 0.5f), IM_COL32(0, 0, 0, 160));
}

}  // namespace

void compare_view(Ui& ui, const Rect& area) {
  const StageImage a = look_up(ui.snapshot, ui.state.side_a);
  const StageImage b = look_up(ui.snapshot, ui.state.side_b);
  if (a.image == nullptr && b.image == nullptr) {
    const auto comes = [](const StageImage& side) {
      return side.generation != nullptr && side.generation->state != GenerateState::kFailed &&
             side.generation->state != GenerateState::kDone &&
             side.generation->state != GenerateState::kStopped;
    };
    const bool coming = comes(a) || comes(b);
    if (!coming && (a.generation != nullptr || b.generation != nullptr)) {
      const Generation& one = a.generation != nullptr ? *a.generation : *b.generation;
      empty_state("There is no image to compare",
                  one.error.code.empty()
                      ? "Its image is not kept any more; generate it again."
                      : "It failed: expected " + one.error.expected + ", found " + one.error.found);
      return;
    }
    empty_state(coming ? "The two are being generated" : "Two images side by side",
                coming ? "They show here as soon as their first rows are there."
                       : "Press e to generate exact and grouped at one seed, or show an image and "
                         "press A, show another and press B.");
    return;
  }
  ImGui::InvisibleButton("picture", ImVec2(to_float(area.width()), to_float(area.height())));
  ImGui::SetItemAllowOverlap();
  if (ui.state.difference && a.image != nullptr && b.image != nullptr) {
    draw_difference(ui, a, b, area);
    return;
  }
  StageReport& report = ui.state.report;
  const SplitAreas parts = split_area(area, ui.state.split);
  report.split_at = parts.left.right;
  if (a.image != nullptr) report.left = draw_image(ui, a, area, parts.left);
  if (b.image != nullptr) report.right = draw_image(ui, b, area, parts.right);
  handle_stage_mouse(ui, report.left ? *report.left : *report.right);
  if (ImGui::IsItemHovered() && !ImGui::IsItemActive()) {
    const bool at_left = ImGui::GetIO().MousePos.x < report.split_at;
    const auto& placed = at_left ? report.left : report.right;
    if (placed) spot_tooltip(side_spot(ui, at_left ? "A" : "B", at_left ? a : b, *placed));
  }
  side_label(ui, "A", side_title(a), parts.left, false);
  side_label(ui, "B", side_title(b), parts.right, true);
  slider(ui, area, report.split_at);
}

}  // namespace tessera
