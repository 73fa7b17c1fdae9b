// Images in words: what is to be described and how, the texts as they grow, editing and saving.
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>

#include "apps/runtime/caption_settings.h"
#include "apps/studio/event.h"
#include "apps/viewer/panels/panels.h"
#include "engine/core/index.h"
#include "vision/pruning/registry.h"

namespace tessera {

namespace {

std::string_view state_text(CaptionState state) {
  switch (state) {
    case CaptionState::kQueued:
      return "queued";
    case CaptionState::kReading:
      return "reading";
    case CaptionState::kWriting:
      return "writing";
    case CaptionState::kDone:
      return "done";
    case CaptionState::kFailed:
      return "failed";
  }
  return "";
}

void prune_fields(Ui& ui) {
  UiState& state = ui.state;
  ImGui::AlignTextToFramePadding();
  text_dim("Prune");
  ImGui::SameLine(em() * 5);
  const float rate = em() * 6.6f;
  ImGui::SetNextItemWidth(state.prune_method.empty() ? -1 : -rate - em() * 0.5f);
  const char* shown = state.prune_method.empty() ? "keep all" : state.prune_method.c_str();
  if (ImGui::BeginCombo("##prune", shown)) {
    if (ImGui::Selectable("keep all", state.prune_method.empty())) state.prune_method.clear();
    for (const PrunerRow& row : pruner_table()) {
      const std::string name(row.name);
      if (ImGui::Selectable(name.c_str(), name == state.prune_method)) state.prune_method = name;
      hint(row.does);
    }
    ImGui::EndCombo();
  }
  if (state.prune_method.empty()) return;
  ImGui::SameLine();
  ImGui::SetNextItemWidth(-1);
  auto percent = to_float(state.prune_rate * 100);
  const auto bound = [](double share) { return to_float(100 * share); };
  if (ImGui::SliderFloat("##rate", &percent, bound(setting::kPruneRate.low),
                         bound(setting::kPruneRate.high), "%.0f %% fewer")) {
    state.prune_rate = clamped(setting::kPruneRate, percent / 100);
  }
}

void describe_folder(Ui& ui) {
  CaptionFolderCommand command;
  command.how.prompt = ui.state.caption_prompt;
  command.how.prune_method = ui.state.prune_method;
  command.how.prune_rate = ui.state.prune_method.empty() ? 0 : ui.state.prune_rate;
  ui.state.notice = ui.post(std::move(command)) ? "" : "the queue is full";
}

std::int64_t unfinished(const Snapshot& snapshot) {
  return std::count_if(snapshot.captions.begin(), snapshot.captions.end(),
                       [](const CaptionEntry& one) { return !is_final(one.state); });
}

// How many images the whole folder came to, and how far they are.
void caption_folder_line(const Ui& ui) {
  const FolderCaptions& folder = ui.snapshot.folder_captions;
  if (folder.listing) return text_dim("looking through the folder ...");
  if (folder.asked == 0 && folder.described == 0) return;
  const auto left = folder.waiting + unfinished(ui.snapshot);
  std::string text = "Folder: " + std::to_string(folder.asked) + " to describe";
  if (left > 0) text += ", " + std::to_string(left) + " left";
  if (folder.described > 0) text += "; " + std::to_string(folder.described) + " have a text";
  if (folder.left_out > 0) text += "; " + std::to_string(folder.left_out) + " more left out";
  ImGui::PushStyleColor(ImGuiCol_Text, ui.colours().dim);
  text_wrapped(text);
  ImGui::PopStyleColor();
}

void orders(Ui& ui) {
  ImGui::AlignTextToFramePadding();
  text_dim("Ask");
  ImGui::SameLine(em() * 5);
  ImGui::SetNextItemWidth(-1);
  ImGui::InputTextWithHint("##ask", "as the captioner was taught", &ui.state.caption_prompt);
  prune_fields(ui);
  const float half = (ImGui::GetContentRegionAvail().x - ImGui::GetStyle().ItemSpacing.x) / 2;
  if (accent_button("Describe", ImVec2(half, 0))) ui.act(Action::kDescribe);
  hint("the shown image (c)");
  ImGui::SameLine();
  const FolderCaptions& folder = ui.snapshot.folder_captions;
  if (folder.listing || folder.waiting > 0 || unfinished(ui.snapshot) > 0) {
    if (ImGui::Button("Stop", ImVec2(half, 0)) && !ui.post(StopCaptionsCommand{})) {
      ui.state.notice = "the queue is full";
    }
  } else if (ImGui::Button("Whole folder", ImVec2(half, 0))) {
    describe_folder(ui);
  }
  hint("all images of the folder that have no text yet, also those that are not shown");
  caption_folder_line(ui);
}

void choose_caption(Ui& ui, const CaptionEntry& one) {
  ui.state.caption_chosen = one.path;
  for (const Generation& generation : ui.snapshot.generations) {
    if (generation.file != one.path) continue;
    ui.state.shown = {generation.number, {}};
    ui.state.follow = false;
    ui.state.mode = StageMode::kImage;
    return;
  }
  show_file(one.path, ui.state, ui.post);
}

void list_row(Ui& ui, const CaptionEntry& one) {
  ImGui::PushID(one.path.c_str());
  const ImVec2 at = ImGui::GetCursorPos();
  const float width = ImGui::GetContentRegionAvail().x, word = em() * 4;
  if (ImGui::Selectable("##row", one.path.native() == ui.state.caption_chosen.native())) {
    choose_caption(ui, one);
  }
  const ImVec2 next = ImGui::GetCursorPos();
  ImGui::SetCursorPos(ImVec2(at.x + em() * 0.3f, at.y));
  text_elided(name_of(one.path), width - word - em());
  ImGui::SetCursorPos(ImVec2(at.x + width - word, at.y));
  const bool failed = one.state == CaptionState::kFailed;
  text_coloured(failed ? ui.colours().bad : ui.colours().dim,
                one.saved ? "saved" : state_text(one.state));
  ImGui::SetCursorPos(next);
  ImGui::PopID();
}

void list(Ui& ui, float high) {
  ImGui::BeginChild("list", ImVec2(0, high), false, ImGuiWindowFlags_NavFlattened);
  const auto& all = ui.snapshot.captions;
  ImGuiListClipper clipper;
  clipper.Begin(narrow<int>(all.size()));
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      list_row(ui, all[all.size() - 1 - to_size(i)]);
    }
  }
  ImGui::EndChild();
}

// The text of an image: what the captioner wrote in this session, else its sidecar's.
std::string text_of(const Snapshot& snapshot, const std::filesystem::path& path) {
  for (const CaptionEntry& one : snapshot.captions) {
    if (one.path.native() == path.native()) return one.text;
  }
  for (const GalleryEntry& one : snapshot.gallery) {
    if (one.path.native() == path.native()) return one.caption;
  }
  return "";
}

void save_all(Ui& ui) {
  const auto unsaved = std::count_if(
      ui.snapshot.captions.begin(), ui.snapshot.captions.end(), [](const CaptionEntry& one) {
        return one.state == CaptionState::kDone && !one.saved && !one.text.empty();
      });
  ImGui::BeginDisabled(unsaved == 0);
  if (ImGui::Button("Save all")) {
    ui.state.notice = ui.post(SaveAllCaptionsCommand{})
                          ? "saving " + std::to_string(unsaved) + " texts next to their images"
                          : "the queue is full";
  }
  ImGui::EndDisabled();
  hint("writes a .txt file next to every image of this list; those that are there stay");
}

void editor(Ui& ui) {
  UiState& state = ui.state;
  const std::string now = text_of(ui.snapshot, state.caption_chosen);
  if (state.caption_edited != state.caption_chosen) {  // another image's text is not this one's
    state.caption_edited = state.caption_chosen;
    state.caption_text = state.caption_base = now;
  }
  bool edited = state.caption_text != state.caption_base;
  if (now != state.caption_base) {  // grew
    if (!edited || state.caption_text.empty()) state.caption_text = now;
    state.caption_base = now;
    edited = state.caption_text != now;
  }
  ImGui::PushStyleColor(ImGuiCol_Text, ui.colours().dim);
  text_elided("Text of " + name_of(state.caption_chosen));
  ImGui::PopStyleColor();
  prose_field("##text", state.caption_edit, state.caption_text,
              ImVec2(-1, -ImGui::GetFrameHeightWithSpacing() - em() * 0.2f));
  const std::string& text = state.caption_text;
  ImGui::BeginDisabled(text.empty());
  if (ImGui::Button("Save text")) {
    if (ui.post(SaveCaptionCommand{state.caption_chosen, text})) {
      state.notice = "saving the text next to the image";
    } else {
      state.notice = "the queue is full";
    }
  }
  ImGui::EndDisabled();
  hint("writes a .txt file next to the image");
  ImGui::SameLine();
  save_all(ui);
  ImGui::SameLine();
  ImGui::BeginDisabled(!edited);
  if (ImGui::Button("Undo edits")) state.caption_text = state.caption_base;
  ImGui::EndDisabled();
}

void caption_failure(Ui& ui) {
  for (const CaptionEntry& one : ui.snapshot.captions) {
    if (one.state != CaptionState::kFailed) continue;
    if (one.path.native() != ui.state.caption_chosen.native()) continue;
    ImGui::PushStyleColor(ImGuiCol_Text, ui.colours().bad);
    text_wrapped(format_error(one.error));
    ImGui::PopStyleColor();
  }
}

}  // namespace

void captions_panel(Ui& ui) {
  UiState& state = ui.state;
  orders(ui);
  ImGui::Separator();
  if (ui.snapshot.captions.empty() && state.caption_chosen.empty()) {
    empty_state("Nothing described yet",
                "Show an image and press Describe (c), or describe the whole folder.");
    return;
  }
  const float room = ImGui::GetContentRegionAvail().y;
  const auto rows = to_float(std::max<std::size_t>(ui.snapshot.captions.size(), 1));
  list(ui, std::min(room * 0.4f, (rows + 0.5f) * ImGui::GetTextLineHeightWithSpacing()));
  caption_failure(ui);
  if (!state.caption_chosen.empty()) editor(ui);
}

}  // namespace tessera
