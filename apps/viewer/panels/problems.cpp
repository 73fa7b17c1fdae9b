// What went wrong outside any image, newest first.
#include "apps/viewer/panels/panels.h"

namespace tessera {

void problems_window(Ui& ui) {
  if (!ui.state.problems) return;
  const ImVec2 room = ImGui::GetIO().DisplaySize;
  ImGui::SetNextWindowPos(ImVec2(room.x / 2, room.y / 2), ImGuiCond_Appearing, ImVec2(0.5f, 0.5f));
  ImGui::SetNextWindowSize(ImVec2(em() * 40, em() * 20), ImGuiCond_Appearing);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowBorderSize, 1);
  if (ImGui::Begin("Problems", &ui.state.problems, ImGuiWindowFlags_NoCollapse)) {
    for (auto one = ui.snapshot.problems.rbegin(); one != ui.snapshot.problems.rend(); ++one) {
      text_wrapped(format_error(*one));
      ImGui::Separator();
    }
  }
  ImGui::End();
  ImGui::PopStyleVar();
}

}  // namespace tessera
