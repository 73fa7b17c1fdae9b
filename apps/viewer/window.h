// The window: GLFW, OpenGL 3 and ImGui's context, set up once and taken down with this object. All
// calls from the thread that made it.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "apps/viewer/gl_textures.h"
#include "apps/viewer/ui_state.h"
#include "vision/image/image.h"

namespace tessera {

// CPU time of the drawing thread for one frame, milliseconds.
struct FrameCost {
  double build = 0;   // panels to draw lists
  double submit = 0;  // draw lists to OpenGL
  double swap = 0;    // showing it, with what a software renderer does there
};

struct WindowOptions {
  int width = 1280, height = 800;  // pixels at scale 1
  double scale = 0;                // of texts and spaces; 0 = the screen's own
  ThemeName theme = ThemeName::kDark;
};

class Window {
 public:
  // Error kGeneral: no display (E_DISPLAY), no OpenGL 3 (E_OPENGL).
  explicit Window(const WindowOptions& options);
  ~Window();
  Window(Window&&) = delete;

  bool closed() const;
  double scale() const;
  std::filesystem::path font() const;  // empty = the built-in one
  TextureSource& textures();

  // Waits for an event, at most `seconds`. True when something happened that a frame should show.
  bool wait(double seconds);
  std::vector<std::filesystem::path> take_dropped();
  void resize(int width, int height);
  // The pointer counts as outside the window: a self-test must not depend on where it lies.
  void ignore_mouse();

  void begin_frame(ThemeName theme);
  void end_frame();           // renders; nothing is on the screen yet
  Image read_pixels() const;  // of the rendered frame
  void show();
  const FrameCost& cost() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
