// All keys, by group; shown by `?`.
#include <algorithm>

#include "apps/viewer/panels/panels.h"

namespace tessera {

namespace {

void rows(const Ui& ui, std::string_view group) {
  for (const KeyRow& row : key_map()) {
    if (row.group != group) continue;
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    text_coloured(ui.colours().accent, row.key);
    ImGui::TableNextColumn();
    text_wrapped(row.does);
  }
}

void groups(const Ui& ui, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    heading(name);
    if (!ImGui::BeginTable(name, 2)) continue;
    ImGui::TableSetupColumn("key", ImGuiTableColumnFlags_WidthFixed, em() * 5.2f);
    ImGui::TableSetupColumn("does", ImGuiTableColumnFlags_WidthStretch);
    rows(ui, name);
    ImGui::EndTable();
  }
}

}  // namespace

void key_map_window(Ui& ui) {
  if (!ui.state.help) return;
  const ImVec2 room = ImGui::GetIO().DisplaySize;
  ImGui::SetNextWindowPos(ImVec2(room.x / 2, room.y / 2), ImGuiCond_Always, ImVec2(0.5f, 0.5f));
  ImGui::SetNextWindowSize(
      ImVec2(std::min(room.x * 0.95f, em() * 74), std::min(room.y * 0.94f, em() * 41)));
  ImGui::PushStyleVar(ImGuiStyleVar_WindowBorderSize, 1);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowRounding, em() * 0.4f);
  const bool open = ImGui::Begin(
      "Keys", &ui.state.help,
      ImGuiWindowFlags_NoCollapse | ImGuiWindowFlags_NoResize | ImGuiWindowFlags_NoMove);
  if (open && ImGui::BeginTable("columns", 3)) {
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    groups(ui, {"Generating", "Captions", "Comparing"});
    ImGui::TableNextColumn();
    groups(ui, {"Images", "Tokens", "Window"});
    ImGui::TableNextColumn();
    groups(ui, {"Videos", "Panels"});
    ImGui::EndTable();
    ImGui::Dummy(ImVec2(0, em() * 0.3f));
    ImGui::PushStyleColor(ImGuiCol_Text, ui.colours().dim);
    text_wrapped(
        "Arrows, Space and Enter walk through fields and buttons and press them; "
        "Esc leaves a field or this map. Single keys "
        "count while no text is edited.");
    ImGui::PopStyleColor();
  }
  ImGui::End();
  ImGui::PopStyleVar(2);
}

}  // namespace tessera
