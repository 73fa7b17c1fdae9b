// Layout of the panels, and keys.
#include "apps/viewer/viewer.h"

#include <imgui_internal.h>

#include <algorithm>
#include <utility>

#include "apps/studio/event.h"
#include "apps/studio/gallery.h"
#include "apps/viewer/panels/panels.h"

namespace tessera {

namespace {

constexpr ImGuiWindowFlags kFrame =
    ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings |
    ImGuiWindowFlags_NoBringToFrontOnFocus | ImGuiWindowFlags_NoNavFocus;

template <typename Panel>
void framed(const char* id, ImVec2 size, Ui& ui, const Panel& panel) {
  ImGui::BeginChild(id, size, true);
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(em() * 0.5f, em() * 0.44f));
  panel(ui);
  ImGui::PopStyleVar();
  ImGui::EndChild();
}

void left_column(Ui& ui, ImVec2 size) {
  ImGui::BeginGroup();
  const float bar = std::round(em() * 0.45f);
  float& queue = ui.state.sizes.queue;
  const float high = std::min(queue * em(), size.y * 0.5f);
  framed("settings", ImVec2(size.x, size.y - high - bar), ui, settings_panel);
  splitter("queue bar", Bar::kLying, size.x, queue, {kLowestQueue, size.y / em() * 0.5f, -1});
  framed("queue", ImVec2(size.x, high), ui, queue_panel);
  ImGui::EndGroup();
}

void middle_column(Ui& ui, ImVec2 size) {
  ImGui::BeginGroup();
  const float bar = std::round(em() * 0.45f);
  float& gallery = ui.state.sizes.gallery;
  const float high = std::min(gallery * em(), size.y * 0.6f);
  framed("stage", ImVec2(size.x, size.y - high - bar), ui, stage_panel);
  splitter("gallery bar", Bar::kLying, size.x, gallery, {kLowestGallery, size.y / em() * 0.6f, -1});
  framed("gallery", ImVec2(size.x, high), ui, gallery_panel);
  ImGui::EndGroup();
}

void right_column(Ui& ui, ImVec2 size) {
  framed("side", size, ui, [](Ui& inner) {
    const float half = (ImGui::GetContentRegionAvail().x - ImGui::GetStyle().ItemSpacing.x) / 2;
    SideTab& tab = inner.state.tab;
    if (toggle_button("Details", tab == SideTab::kDetails, ImVec2(half, 0)))
      tab = SideTab::kDetails;
    ImGui::SameLine();
    if (toggle_button("Captions", tab == SideTab::kCaptions, ImVec2(half, 0))) {
      tab = SideTab::kCaptions;
    }
    ImGui::BeginChild("side body", ImVec2(0, 0), false, ImGuiWindowFlags_NavFlattened);
    if (tab == SideTab::kDetails)
      details_panel(inner);
    else
      captions_panel(inner);
    ImGui::EndChild();
  });
}

void columns(Ui& ui, float high) {
  PanelSizes& sizes = ui.state.sizes;
  const float bar = std::round(em() * 0.45f), room = ImGui::GetContentRegionAvail().x;
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(0, 0));
  const auto inner = [&](auto draw, ImVec2 size) {
    ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(0, 0));
    draw(ui, size);
    ImGui::PopStyleVar();
  };
  // In a narrow window the sides give way before the image does.
  const float spare = std::max(room - 2 * bar - em() * 16, em() * 20);
  const float stop_request = (sizes.left + sizes.right) * em();
  const float fit = std::min(1.0f, spare / stop_request);
  const float left = sizes.left * em() * fit, right = sizes.right * em() * fit;
  const float middle = std::max(em() * 8, room - left - right - 2 * bar);
  inner(left_column, ImVec2(left, high));
  ImGui::SameLine(0, 0);
  splitter("left bar", Bar::kUpright, high, sizes.left, {kNarrowest, kWidest, 1});
  ImGui::SameLine(0, 0);
  inner(middle_column, ImVec2(middle, high));
  ImGui::SameLine(0, 0);
  splitter("right bar", Bar::kUpright, high, sizes.right, {kNarrowest, kWidest, -1});
  ImGui::SameLine(0, 0);
  inner(right_column, ImVec2(right, high));
  ImGui::PopStyleVar();
}

// Whether characters stem from a key that is held down: none has just gone down.
bool only_held_keys(const ImGuiIO& io) {
  bool held = false;
  for (const float seconds : io.KeysDownDuration) {
    if (seconds == 0) return false;
    held = held || seconds > 0;
  }
  return held;
}

void apply_keys(Ui& ui) {
  const ImGuiIO& io = ImGui::GetIO();
  const auto pressed = [](ImGuiKey key) {
    return ImGui::IsKeyPressed(ImGui::GetKeyIndex(key), false);
  };
  if (io.KeyCtrl && (pressed(ImGuiKey_Enter) || pressed(ImGuiKey_KeyPadEnter))) {
    ui.act(Action::kGenerate);
  }
  if (pressed(ImGuiKey_Escape)) ui.state.help = ui.state.problems = false;
  if (io.WantTextInput || io.KeyCtrl) return;
  const bool held = only_held_keys(io);
  for (const ImWchar character : io.InputQueueCharacters) {
    const KeyRow* row = row_of_character(character);
    if (row != nullptr && (row->repeats || !held)) ui.act(row->action);
  }
}

}  // namespace

Viewer::Viewer(UiState state, TextureSource& textures, Poster post)
    : state_(std::move(state)), textures_(textures), post_(std::move(post)) {}

void Viewer::drop(const std::vector<std::filesystem::path>& files) {
  // Those that the later ones would push out at once are not opened.
  std::size_t images = 0, videos = 0;
  std::vector<std::filesystem::path> kept;
  for (auto file = files.rbegin(); file != files.rend(); ++file) {
    const bool video = is_video_name(*file);
    if (video ? videos++ < 1 : images++ < kKeptOpened) kept.push_back(*file);
  }
  for (auto file = kept.rbegin(); file != kept.rend(); ++file) open_file(*file, state_, post_);
}

// Nobody plays to the wall. Once: a request to play again is heard.
void Viewer::pause_out_of_sight(const Snapshot& snapshot) {
  if (!plays(snapshot) || film_in_sight(state_, snapshot)) {
    paused_film_ = 0;
  } else if (paused_film_ != snapshot.film->number && post_(FilmPlayCommand{false})) {
    paused_film_ = snapshot.film->number;
  }
}

void Viewer::draw(const Snapshot& snapshot) {
  follow_snapshot(state_, snapshot);
  Ui ui{state_, snapshot, post_, textures_, difference_};
  apply_keys(ui);
  const ImGuiIO& io = ImGui::GetIO();
  ImGui::SetNextWindowPos(ImVec2(0, 0));
  ImGui::SetNextWindowSize(io.DisplaySize);
  const float pad = std::round(em() * 0.45f);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(pad, pad));
  ImGui::Begin("tessera", nullptr, kFrame);
  ImGui::PopStyleVar();
  const float bar = ImGui::GetFrameHeight();
  columns(ui, ImGui::GetContentRegionAvail().y - bar);
  status_bar(ui);
  ImGui::End();
  key_map_window(ui);
  problems_window(ui);
  pause_out_of_sight(snapshot);
  KeepCommand keep = compared(state_);
  if (!(keep == kept_) && post_(keep)) kept_ = std::move(keep);
}

bool Viewer::unsettled() const {
  const ImGuiContext& context = *ImGui::GetCurrentContext();
  return context.HoveredId != 0 && context.HoveredIdTimer <= kHintSeconds;
}

}  // namespace tessera
