// The images and videos of the output folder, newest first.
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <cmath>

#include "apps/viewer/panels/panels.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

void folder_line(Ui& ui) {
  UiState& state = ui.state;
  ImGui::AlignTextToFramePadding();
  text_dim("Folder");
  ImGui::SameLine();
  if (!ImGui::IsAnyItemActive() || state.folder_edit.empty()) {
    state.folder_edit = ui.snapshot.folder.string();
  }
  const auto& all = ui.snapshot.gallery;
  const auto videos =
      std::count_if(all.begin(), all.end(), [](const auto& one) { return one.video; });
  const auto shown = std::ssize(all) - videos;
  std::string count = std::to_string(shown) + (shown == 1 ? " image" : " images");
  if (videos > 0) count += ", " + std::to_string(videos) + (videos == 1 ? " video" : " videos");
  if (ui.snapshot.gallery_left_out > 0) {
    count += ", " + std::to_string(ui.snapshot.gallery_left_out) + " older ones left out";
  }
  const float count_width = ImGui::CalcTextSize(count.c_str()).x;
  ImGui::SetNextItemWidth(
      std::max(em() * 6, ImGui::GetContentRegionAvail().x - count_width - em() * 1.2f));
  const bool entered =
      ImGui::InputText("##folder", &state.folder_edit, ImGuiInputTextFlags_EnterReturnsTrue);
  if (entered && !state.folder_edit.empty() && !ui.post(FolderCommand{state.folder_edit})) {
    state.notice = "the queue is full";
  }
  hint(
      "another folder: its images and videos show here, what is generated from now on is saved "
      "there");
  ImGui::SameLine();
  text_dim(count);
}

void choose(Ui& ui, const GalleryEntry& entry) {
  if (!entry.problem.empty()) {
    ui.state.notice = name_of(entry.path) + ": " + entry.problem;
    return;
  }
  ui.state.caption_chosen = entry.path;
  show_file(entry.path, ui.state, ui.post);
}

std::string tip_of(const GalleryEntry& entry) {
  std::string text = name_of(entry.path);
  if (!entry.problem.empty()) return text + "\n" + entry.problem;
  if (entry.width > 0) {
    text += "\n" + std::string(entry.video ? "clip, " : "") + std::to_string(entry.width) + " x " +
            std::to_string(entry.height);
  }
  if (entry.facts) {
    text += "\n" + entry.facts->prompt + "\nseed " + std::to_string(entry.facts->seed) + ", " +
            entry.facts->method.name;
  }
  if (!entry.caption.empty()) text += "\n\n" + entry.caption;
  return text;
}

void draw_thumbnail(Ui& ui, const GalleryEntry& entry, ImVec2 low, float side) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const ImVec2 high(low.x + side, low.y + side);
  const auto centred = [&](std::string_view text, ImU32 colour) {
    const ImVec2 size = ImGui::CalcTextSize(text.data(), text.data() + text.size());
    list.AddText(ImVec2(low.x + (side - size.x) / 2, low.y + (side - size.y) / 2), colour,
                 text.data(), text.data() + text.size());
  };
  if (!entry.problem.empty()) {
    list.AddRectFilled(low, high, ImGui::GetColorU32(ImGuiCol_FrameBg), em() * 0.3f);
    list.AddRect(low, high, ui.colours().bad, em() * 0.3f);
    centred("bad file", ui.colours().bad);
    return;
  }
  const ImTextureID texture = ui.textures.texture(entry.thumbnail);
  if (texture == nullptr) {
    list.AddRectFilled(low, high, ImGui::GetColorU32(ImGuiCol_FrameBg), em() * 0.3f);
    centred("...", ui.colours().dim);
    return;
  }
  const auto wide = to_float(entry.thumbnail->width);
  const auto tall = to_float(entry.thumbnail->height);
  const float zoom = side / std::max(wide, tall);
  const ImVec2 from(low.x + std::round((side - wide * zoom) / 2),
                    low.y + std::round((side - tall * zoom) / 2));
  const ImVec2 to(from.x + wide * zoom, from.y + tall * zoom);
  list.AddImageRounded(texture, from, to, ImVec2(0, 0), ImVec2(1, 1), IM_COL32_WHITE, em() * 0.25f);
  if (entry.video) {  // a triangle, as it stands for playing
    const ImVec2 middle((from.x + to.x) / 2, (from.y + to.y) / 2);
    const float size = std::min(em() * 0.55f, (to.y - from.y) / 4);
    list.AddCircleFilled(middle, size * 1.7f, IM_COL32(0, 0, 0, 150), 32);
    list.AddTriangleFilled(ImVec2(middle.x - size * 0.6f, middle.y - size * 0.8f),
                           ImVec2(middle.x - size * 0.6f, middle.y + size * 0.8f),
                           ImVec2(middle.x + size * 0.9f, middle.y), IM_COL32(255, 255, 255, 235));
  }
  if (!entry.caption.empty()) {  // a described image
    list.AddCircleFilled(ImVec2(to.x - em() * 0.45f, from.y + em() * 0.45f), em() * 0.28f,
                         ui.colours().accent);
  }
}

void cell(Ui& ui, const GalleryEntry& entry, float side) {
  const ImVec2 at = ImGui::GetCursorScreenPos();
  ImGui::PushID(entry.path.c_str());
  const bool chosen = ui.state.shown.file == entry.path && !ui.state.follow;
  if (ImGui::InvisibleButton("##open", ImVec2(side, side), ImGuiButtonFlags_MouseButtonLeft)) {
    choose(ui, entry);
  }
  const bool hot = ImGui::IsItemHovered() || ImGui::IsItemFocused();
  draw_thumbnail(ui, entry, at, side);
  if (chosen || hot) {
    ImGui::GetWindowDrawList()->AddRect(
        ImVec2(at.x - 2, at.y - 2), ImVec2(at.x + side + 2, at.y + side + 2),
        chosen ? ui.colours().accent : ImGui::GetColorU32(ImGuiCol_HeaderActive), em() * 0.35f, 0,
        2);
  }
  if (ImGui::IsItemHovered()) hint(tip_of(entry));
  ImGui::PopID();
}

}  // namespace

void gallery_panel(Ui& ui) {
  folder_line(ui);
  const auto& entries = ui.snapshot.gallery;
  if (entries.empty()) {
    empty_state("No images in this folder yet", "What you generate is saved here by itself.");
    return;
  }
  ImGui::BeginChild("cells", ImVec2(0, 0), false, ImGuiWindowFlags_NavFlattened);
  const float gap = em() * 0.45f, room = ImGui::GetContentRegionAvail().x - em() * 0.3f;
  const float side = std::clamp(ImGui::GetContentRegionAvail().y - em() * 0.5f, em() * 4,
                                to_float(kThumbnailSide) * em() / 16);
  const int columns = std::max(1, static_cast<int>((room + gap) / (side + gap)));
  const int rows = (narrow<int>(entries.size()) + columns - 1) / columns;
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(gap, gap));
  ImGuiListClipper clipper;
  clipper.Begin(rows, side + gap);
  while (clipper.Step()) {
    for (int row = clipper.DisplayStart; row < clipper.DisplayEnd; ++row) {
      ImGui::SetCursorPosX(ImGui::GetCursorPosX() + 3);
      for (int column = 0; column < columns; ++column) {
        const auto index = to_size(row * columns + column);
        if (index >= entries.size()) break;
        if (column > 0) ImGui::SameLine(0, gap);
        cell(ui, entries[index], side);
      }
    }
  }
  ImGui::PopStyleVar();
  ImGui::EndChild();
}

}  // namespace tessera
