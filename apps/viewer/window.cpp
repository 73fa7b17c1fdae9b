// GLFW and OpenGL after the window.
#include "apps/viewer/window.h"

#include <backends/imgui_impl_glfw.h>
#include <backends/imgui_impl_opengl3.h>
#include <backends/imgui_impl_opengl3_loader.h>
#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <time.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <string>

#include "apps/viewer/theme.h"
#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

// CPU milliseconds of this thread.
double thread_ms() {
  struct timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return to_double(now.tv_sec) * 1e3 + to_double(now.tv_nsec) * 1e-6;
}

// Frames after an event: ImGui settles hovering and focus over a few.
constexpr int kSettleFrames = 3;

std::string glfw_problem() {
  const char* text = nullptr;
  const int code = glfwGetError(&text);
  if (code == GLFW_NO_ERROR || text == nullptr) return "none";
  return text;
}

[[noreturn]] void refuse(const char* code, std::string expected, std::string found,
                         std::string hint) {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = code,
               .where = "window",
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

}  // namespace

struct Window::State {
  GLFWwindow* window = nullptr;
  double scale = 1;
  std::filesystem::path font;
  std::unique_ptr<GlTextures> textures;
  std::vector<std::filesystem::path> dropped;
  int lively = kSettleFrames;  // frames still to draw for the last event
  ThemeName theme = ThemeName::kDark;
  FrameCost cost;
  bool mouse = true;

  static State& of(GLFWwindow* window) {
    return *static_cast<State*>(glfwGetWindowUserPointer(window));
  }
  static void wake(GLFWwindow* window) { of(window).lively = kSettleFrames; }

  void open(const WindowOptions& options) {
    glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
    glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 0);
    float wide = 1, high = 1;
    GLFWmonitor* monitor = glfwGetPrimaryMonitor();
    if (monitor != nullptr) glfwGetMonitorContentScale(monitor, &wide, &high);
    scale = options.scale > 0 ? options.scale : std::clamp(double{wide}, 0.5, 4.0);
    int width = static_cast<int>(options.width * scale);
    int height = static_cast<int>(options.height * scale);
    if (monitor != nullptr) {
      int x = 0, y = 0, max_wide = width, max_high = height;
      glfwGetMonitorWorkarea(monitor, &x, &y, &max_wide, &max_high);
      width = std::min(width, max_wide);
      height = std::min(height, max_high);
    }
    window = glfwCreateWindow(width, height, "Tessera", nullptr, nullptr);
    if (window == nullptr) {
      refuse("E_OPENGL", "a window with OpenGL 3.0", glfw_problem(),
             "install libgl1-mesa-dri for a software renderer");
    }
    glfwSetWindowUserPointer(window, this);
    glfwMakeContextCurrent(window);
    glfwSwapInterval(1);
    listen();
  }

  // ImGui's callbacks call these on.
  void listen() {
    glfwSetKeyCallback(window, [](GLFWwindow* at, int key, int, int action, int mods) {
      wake(at);
      if (key == GLFW_KEY_Q && action == GLFW_PRESS && (mods & GLFW_MOD_CONTROL) != 0) {
        glfwSetWindowShouldClose(at, GLFW_TRUE);
      }
    });
    glfwSetCharCallback(window, [](GLFWwindow* at, unsigned int) { wake(at); });
    glfwSetCursorPosCallback(window, [](GLFWwindow* at, double, double) { wake(at); });
    glfwSetMouseButtonCallback(window, [](GLFWwindow* at, int, int, int) { wake(at); });
    glfwSetScrollCallback(window, [](GLFWwindow* at, double, double) { wake(at); });
    glfwSetWindowFocusCallback(window, [](GLFWwindow* at, int) { wake(at); });
    glfwSetCursorEnterCallback(window, [](GLFWwindow* at, int) { wake(at); });
    glfwSetFramebufferSizeCallback(window, [](GLFWwindow* at, int, int) { wake(at); });
    glfwSetWindowRefreshCallback(window, [](GLFWwindow* at) { wake(at); });
    glfwSetDropCallback(window, [](GLFWwindow* at, int count, const char** paths) {
      wake(at);
      for (int i = 0; i < count; ++i) of(at).dropped.emplace_back(paths[i]);
    });
  }
};

Window::Window(const WindowOptions& options) : state_(std::make_unique<State>()) {
  if (glfwInit() != GLFW_TRUE) {
    refuse("E_DISPLAY", "a display to open a window on", glfw_problem(),
           "set DISPLAY, or start it inside a desktop or xvfb-run");
  }
  try {
    state_->open(options);
  } catch (...) {
    glfwTerminate();
    throw;
  }
  ImGui::CreateContext();
  ImGuiIO& io = ImGui::GetIO();
  io.IniFilename = nullptr;  // the window writes no file of its own
  io.ConfigFlags |= ImGuiConfigFlags_NavEnableKeyboard;
  ImGui_ImplGlfw_InitForOpenGL(state_->window, true);
  ImGui_ImplOpenGL3_Init("#version 130");
  state_->font = load_font(font_places(), to_float(state_->scale));
  apply_theme(options.theme, to_float(state_->scale));
  state_->theme = options.theme;
  ImGui_ImplOpenGL3_NewFrame();  // makes the device objects, and loads OpenGL
  state_->textures = std::make_unique<GlTextures>();
}

Window::~Window() {
  state_->textures.reset();
  ImGui_ImplOpenGL3_Shutdown();
  ImGui_ImplGlfw_Shutdown();
  ImGui::DestroyContext();
  glfwDestroyWindow(state_->window);
  glfwTerminate();
}

bool Window::closed() const { return glfwWindowShouldClose(state_->window) == GLFW_TRUE; }
double Window::scale() const { return state_->scale; }
std::filesystem::path Window::font() const { return state_->font; }
TextureSource& Window::textures() { return *state_->textures; }
const FrameCost& Window::cost() const { return state_->cost; }

bool Window::wait(double seconds) {
  if (state_->lively > 0) {
    glfwPollEvents();
  } else {
    glfwWaitEventsTimeout(seconds);
  }
  return state_->lively > 0;
}

std::vector<std::filesystem::path> Window::take_dropped() {
  return std::exchange(state_->dropped, {});
}

void Window::resize(int width, int height) {
  glfwSetWindowSize(state_->window, width, height);
  state_->lively = kSettleFrames;
}

void Window::ignore_mouse() { state_->mouse = false; }

void Window::begin_frame(ThemeName theme) {
  if (theme != state_->theme) {
    state_->theme = theme;
    apply_theme(theme, to_float(state_->scale));
  }
  if (state_->lively > 0) --state_->lively;
  state_->cost.build = -thread_ms();
  ImGui_ImplOpenGL3_NewFrame();
  ImGui_ImplGlfw_NewFrame();
  if (!state_->mouse) ImGui::GetIO().MousePos = ImVec2(-FLT_MAX, -FLT_MAX);
  ImGui::NewFrame();
}

void Window::end_frame() {
  ImGui::Render();
  const double built = thread_ms();
  state_->cost.build += built;
  int width = 0, height = 0;
  glfwGetFramebufferSize(state_->window, &width, &height);
  glViewport(0, 0, width, height);
  const ImVec4 back = ImGui::GetStyle().Colors[ImGuiCol_WindowBg];
  glClearColor(back.x, back.y, back.z, 1);
  glClear(0x4000 /* GL_COLOR_BUFFER_BIT */);
  ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
  state_->cost.submit = thread_ms() - built;
}

Image Window::read_pixels() const {
  int width = 0, height = 0;
  glfwGetFramebufferSize(state_->window, &width, &height);
  Image flipped(width, height), out(width, height);
  glPixelStorei(0x0d05 /* GL_PACK_ALIGNMENT */, 1);
  glReadPixels(0, 0, width, height, 0x1907 /* GL_RGB */, GL_UNSIGNED_BYTE, flipped.rgb.data());
  for (std::int64_t y = 0; y < height; ++y) {
    std::copy_n(flipped.at(0, height - 1 - y), 3 * width, out.at(0, y));
  }
  return out;
}

void Window::show() {
  const double start = thread_ms();
  glfwSwapBuffers(state_->window);
  state_->cost.swap = thread_ms() - start;
  state_->textures->end_frame();
}

}  // namespace tessera
