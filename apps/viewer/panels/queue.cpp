// What was generated, is being generated and waits, newest first.
#include "apps/viewer/panels/panels.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

std::string second_line(const Generation& one) {
  std::string text = "seed " + std::to_string(one.settings.seed) + ", " + one.settings.method.name;
  if (one.state == GenerateState::kDone || one.state == GenerateState::kStopped) {
    text += ", " + duration_text(one.seconds);
  }
  return text;
}

void progress(const Generation& one, float width) {
  const double whole = to_double(one.grid_rows * one.grid_columns);
  double done = whole > 0 ? to_double(one.facts.tokens) / whole : 0;
  if (one.share_done > 0) done = one.share_done;
  if (one.frames > 0) done = to_double(one.frames_done) / to_double(one.frames);
  ImGui::ProgressBar(to_float(done), ImVec2(width, em() * 0.3f), "");
}

void row(Ui& ui, const Generation& one, std::uint64_t& dropped) {
  // All eight bytes.
  const auto* id = reinterpret_cast<const char*>(&one.number);
  ImGui::PushID(id, id + sizeof one.number);
  const bool shown = shown_ref(ui.state, ui.snapshot).generation == one.number;
  const bool busy = one.state == GenerateState::kLoading || one.state == GenerateState::kGeneration;
  const float high = ImGui::GetTextLineHeightWithSpacing() * 2 + em() * 0.1f;
  const ImVec2 at = ImGui::GetCursorPos();
  const float width = ImGui::GetContentRegionAvail().x;
  if (ImGui::Selectable("##row", shown, ImGuiSelectableFlags_AllowItemOverlap,
                        ImVec2(width, high))) {
    ui.state.shown = {one.number, {}};
    ui.state.follow = busy;
    ui.state.mode = StageMode::kImage;
  }
  const ImVec2 next = ImGui::GetCursorPos();
  const float state_width = em() * 4.4f, button = em() * 1.7f;
  ImGui::SetCursorPos(ImVec2(at.x + em() * 0.4f, at.y + em() * 0.1f));
  text_elided(one.settings.prompt, width - state_width - em() * 0.8f);
  ImGui::SetCursorPos(ImVec2(at.x + width - state_width, at.y + em() * 0.1f));
  text_coloured(state_colour(one.state, ui.colours()), state_text(one.state));
  const float second = at.y + ImGui::GetTextLineHeightWithSpacing() - em() * 0.05f;
  ImGui::SetCursorPos(ImVec2(at.x + em() * 0.4f, second));
  if (busy) {
    ImGui::SetCursorPosY(second + em() * 0.45f);
    progress(one, width - em() * 0.8f);
  } else {
    ImGui::PushStyleColor(ImGuiCol_Text, ui.colours().dim);
    text_elided(second_line(one), width - button - em() * 0.8f);
    ImGui::PopStyleColor();
    ImGui::SetCursorPos(ImVec2(at.x + width - button, second - em() * 0.1f));
    if (ImGui::SmallButton("x")) dropped = one.number;
    hint(one.state == GenerateState::kQueued ? "take out of the queue"
                                          : "take off this list; the file stays");
  }
  ImGui::SetCursorPos(next);
  ImGui::PopID();
}

}  // namespace

void queue_panel(Ui& ui) {
  const auto& all = ui.snapshot.generations;
  std::size_t waiting = 0;
  for (const Generation& one : all) waiting += one.state == GenerateState::kQueued ? 1 : 0;
  text_dim(waiting == 0 ? "Queue" : "Queue, " + std::to_string(waiting) + " waiting");
  if (all.empty()) {
    empty_state("Nothing generated yet", "Press Generate, or Ctrl+Enter.");
    return;
  }
  ImGui::BeginChild("rows", ImVec2(0, 0), false, ImGuiWindowFlags_NavFlattened);
  ImGuiListClipper clipper;
  clipper.Begin(narrow<int>(all.size()));
  std::uint64_t dropped = 0;
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      row(ui, all[all.size() - 1 - to_size(i)], dropped);
    }
  }
  // Which may shorten the list at once.
  if (dropped != 0 && !ui.post(DropGenerationCommand{dropped})) ui.state.notice = "the queue is full";
  ImGui::EndChild();
}

}  // namespace tessera
