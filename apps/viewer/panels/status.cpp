// The line at the bottom: device, model, memory, speed, time left, problems.
#include "apps/viewer/panels/panels.h"

namespace tessera {

namespace {

// Of the button at the right end.
float keys_width() {
  return ImGui::CalcTextSize("? keys").x + 2 * ImGui::GetStyle().FramePadding.x;
}

void item(std::string_view name, const std::string& value) {
  if (value.empty()) return;
  const float width = ImGui::CalcTextSize(name.data(), name.data() + name.size()).x +
                      ImGui::CalcTextSize(value.c_str()).x + em() * 1.6f;
  if (width > ImGui::GetContentRegionAvail().x - keys_width() - em()) return;  // no half items
  text_dim(name);
  ImGui::SameLine(0, em() * 0.35f);
  text_line(value);
  ImGui::SameLine(0, em() * 1.2f);
}

void speed(const Ui& ui, const Generation& one) {
  item("Tokens/s", number_text(one.tokens_per_second, 0));
  item("Tokens/pass", number_text(one.facts.tokens_per_pass(), 2));
  if (one.state == GenerateState::kGeneration) {
    item("Left", one.seconds_left > 0 ? duration_text(one.seconds_left) : "...");
  }
  (void)ui;
}

}  // namespace

void status_bar(Ui& ui) {
  const StatusFacts& status = ui.snapshot.status;
  ImGui::Dummy(ImVec2(em() * 0.2f, ImGui::GetFrameHeight()));  // begins the line in any case
  ImGui::SameLine(0, 0);
  ImGui::AlignTextToFramePadding();
  item("Device", status.device);
  if (!status.server.empty()) {
    item("Server", status.server + (status.server_problem.empty() ? "" : ": " + status.server_problem));
  }
  if (!status.model.empty()) {
    item("Model", status.model + " " + status.dtype);
  } else if (status.server.empty()) {
    item("Model", "loaded with the first image");
  }
  item("Memory", status.resident_bytes > 0 ? bytes_text(status.resident_bytes) : "");
  const Generation* running = ui.snapshot.running();
  const StageImage shown = look_up(ui.snapshot, shown_ref(ui.state, ui.snapshot));
  if (running != nullptr) {
    speed(ui, *running);
  } else if (shown.generation != nullptr && shown.generation->facts.passes > 0) {
    speed(ui, *shown.generation);
  }
  const float right = keys_width();
  if (!ui.snapshot.problems.empty()) {
    ImGui::PushStyleColor(ImGuiCol_Text, ui.colours().bad);
    const std::string text = std::to_string(ui.snapshot.problems.size()) +
                             (ui.snapshot.problems.size() == 1 ? " problem" : " problems");
    if (ImGui::SmallButton(text.c_str())) ui.state.problems = true;
    ImGui::PopStyleColor();
    ImGui::SameLine();
  }
  const float room = ImGui::GetContentRegionAvail().x - right - em();
  if (!ui.state.notice.empty() && room > em() * 4) {
    ImGui::PushStyleColor(ImGuiCol_Text, ui.colours().accent);
    text_elided(ui.state.notice, room);
    ImGui::PopStyleColor();
    ImGui::SameLine();
  }
  ImGui::SameLine(ImGui::GetContentRegionMax().x - right);
  if (ImGui::SmallButton("? keys")) ui.act(Action::kHelp);
}

}  // namespace tessera
