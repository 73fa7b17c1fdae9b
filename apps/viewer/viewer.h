// One frame of the window: lays the panels out between splitters, applies keys. Knows ImGui alone,
// so that tests draw frames without a window.
#pragma once

#include "apps/viewer/widgets.h"

namespace tessera {

class Viewer {
 public:
  Viewer(UiState state, TextureSource& textures, Poster post);

  UiState& state() { return state_; }
  // Between ImGui::NewFrame() and ImGui::Render().
  void draw(const Snapshot& snapshot);
  // Whether the last frame's end still changes by itself: a hint is about to show.
  bool unsettled() const;
  // Files dropped on the window: each is opened, the last image's settings fill the fields.
  void drop(const std::vector<std::filesystem::path>& files);

 private:
  void pause_out_of_sight(const Snapshot& snapshot);

  UiState state_;
  TextureSource& textures_;
  Poster post_;
  KeepCommand kept_;               // as posted last
  std::uint64_t paused_film_ = 0;  // its number; 0 = the one that plays may
  DifferenceCache difference_;
};

}  // namespace tessera
