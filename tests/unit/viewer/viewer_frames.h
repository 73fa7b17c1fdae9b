// A window of the viewer without a screen, whose frames ImGui builds: keys and clicks go in, what
// is posted and which textures are asked for come out.
#pragma once

#include <gtest/gtest.h>
#include <imgui.h>

#include <functional>
#include <set>

#include "apps/viewer/viewer.h"

namespace tessera {

// Names textures without making any.
class NamedTextures final : public TextureSource {
 public:
  ImTextureID texture(const std::shared_ptr<const Image>& image) override {
    if (image == nullptr) return nullptr;
    asked.insert(image.get());
    return const_cast<Image*>(image.get());
  }
  ImTextureID moving(const std::shared_ptr<const Image>& frame) override {
    if (frame != nullptr) moved.insert(frame.get());
    return const_cast<Image*>(frame.get());
  }
  std::set<const Image*> asked, moved;
};

class Frames : public ::testing::Test {
 protected:
  Frames()
      : viewer_(first_state("", std::nullopt), textures_, [this](Command command) {
          if (on_post_) on_post_(command);
          posted_.push_back(std::move(command));
          return true;
        }) {
    ImGui::CreateContext();
    ImGuiIO& io = ImGui::GetIO();
    io.IniFilename = nullptr;
    io.ConfigFlags |= ImGuiConfigFlags_NavEnableKeyboard;
    io.DisplaySize = ImVec2(1280, 800);
    io.DeltaTime = 1.0f / 60;
    for (int key = 0; key < ImGuiKey_COUNT; ++key) io.KeyMap[key] = key + 1;
    use_scale(1);
  }
  ~Frames() override { ImGui::DestroyContext(); }

  void use_scale(float scale) {
    load_font(font_places(), scale);
    unsigned char* pixels = nullptr;
    int width = 0, height = 0;
    ImGui::GetIO().Fonts->GetTexDataAsAlpha8(&pixels, &width, &height);
    apply_theme(viewer_.state().theme, scale);
  }

  // Vertices of one frame.
  int frame(const Snapshot& snapshot, int times = 3) {
    for (int i = 0; i < times; ++i) {
      textures_.asked.clear();
      textures_.moved.clear();
      ImGui::NewFrame();
      viewer_.draw(snapshot);
      ImGui::Render();
      ImGuiIO& io = ImGui::GetIO();
      std::fill(std::begin(io.KeysDown), std::end(io.KeysDown), false);
      io.KeyCtrl = false;
    }
    return ImGui::GetDrawData()->TotalVtxCount;
  }
  void type(const Snapshot& snapshot, char character) {
    ImGui::GetIO().AddInputCharacter(static_cast<unsigned char>(character));
    frame(snapshot, 1);
  }

  NamedTextures textures_;
  void click(const Snapshot& snapshot, float x, float y) {
    ImGuiIO& io = ImGui::GetIO();
    io.MousePos = ImVec2(x, y);
    frame(snapshot, 2);
    io.MouseDown[0] = true;
    frame(snapshot, 1);
    io.MouseDown[0] = false;
    frame(snapshot, 1);
  }

  std::vector<Command> posted_;
  std::function<void(const Command&)> on_post_;
  Viewer viewer_;
};

inline Image flat(std::int64_t side, std::uint8_t value) {
  return Image(side, side,
               std::vector<std::uint8_t>(static_cast<std::size_t>(side * side * 3), value));
}

}  // namespace tessera
