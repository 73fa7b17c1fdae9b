// Palettes, spacing, fonts.
#include "apps/viewer/theme.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

constexpr float kFontPixels = 16;
constexpr std::size_t kMaxFontBytes = std::size_t{32} << 20;

struct Shades {
  ImU32 window, panel, raised, hovered, pressed, border, text, dim, accent, accent_strong;
};
constexpr Shades kDark = {IM_COL32(21, 23, 27, 255),    IM_COL32(28, 31, 36, 255),
                          IM_COL32(40, 44, 51, 255),    IM_COL32(51, 56, 65, 255),
                          IM_COL32(61, 67, 77, 255),    IM_COL32(52, 57, 66, 255),
                          IM_COL32(228, 230, 234, 255), IM_COL32(157, 164, 175, 255),
                          IM_COL32(92, 184, 178, 255),  IM_COL32(47, 133, 128, 255)};
constexpr Shades kLight = {IM_COL32(236, 237, 239, 255), IM_COL32(248, 248, 249, 255),
                           IM_COL32(228, 230, 233, 255), IM_COL32(216, 219, 224, 255),
                           IM_COL32(203, 207, 213, 255), IM_COL32(205, 209, 215, 255),
                           IM_COL32(30, 33, 38, 255),    IM_COL32(91, 98, 110, 255),
                           IM_COL32(12, 116, 111, 255),  IM_COL32(20, 124, 119, 255)};

ImVec4 colour(ImU32 value) { return ImGui::ColorConvertU32ToFloat4(value); }
ImVec4 faded(ImU32 value, float alpha) {
  ImVec4 out = colour(value);
  out.w = alpha;
  return out;
}

void set_colours(ImGuiStyle& style, const Shades& shades) {
  ImVec4* at = style.Colors;
  const auto set = [at](std::initializer_list<ImGuiCol> which, ImU32 value) {
    for (const ImGuiCol one : which) at[one] = colour(value);
  };
  set({ImGuiCol_Text}, shades.text);
  set({ImGuiCol_TextDisabled}, shades.dim);
  set({ImGuiCol_WindowBg}, shades.window);
  set({ImGuiCol_ChildBg, ImGuiCol_MenuBarBg}, shades.panel);
  set({ImGuiCol_PopupBg}, shades.panel);
  set({ImGuiCol_Border, ImGuiCol_Separator, ImGuiCol_TableBorderLight, ImGuiCol_TableBorderStrong},
      shades.border);
  set({ImGuiCol_FrameBg, ImGuiCol_Button, ImGuiCol_Header, ImGuiCol_Tab}, shades.raised);
  set({ImGuiCol_FrameBgHovered, ImGuiCol_ButtonHovered, ImGuiCol_HeaderHovered,
       ImGuiCol_TabHovered},
      shades.hovered);
  set({ImGuiCol_FrameBgActive, ImGuiCol_ButtonActive, ImGuiCol_HeaderActive, ImGuiCol_TabActive,
       ImGuiCol_TabUnfocusedActive},
      shades.pressed);
  set({ImGuiCol_TabUnfocused}, shades.raised);
  set({ImGuiCol_TitleBg, ImGuiCol_TitleBgActive, ImGuiCol_TitleBgCollapsed}, shades.raised);
  set({ImGuiCol_ScrollbarGrab, ImGuiCol_ResizeGrip}, shades.hovered);
  set({ImGuiCol_ScrollbarGrabHovered, ImGuiCol_ScrollbarGrabActive}, shades.pressed);
  at[ImGuiCol_ScrollbarBg] = faded(shades.panel, 0);
  set({ImGuiCol_CheckMark, ImGuiCol_SliderGrab, ImGuiCol_SliderGrabActive, ImGuiCol_PlotHistogram,
       ImGuiCol_PlotHistogramHovered, ImGuiCol_PlotLines, ImGuiCol_NavHighlight,
       ImGuiCol_SeparatorHovered, ImGuiCol_SeparatorActive, ImGuiCol_DragDropTarget},
      shades.accent);
  // Texts of sliders stay readable under the grab.
  at[ImGuiCol_SliderGrab] = faded(shades.accent, 0.5f);
  at[ImGuiCol_SliderGrabActive] = faded(shades.accent, 0.7f);
  at[ImGuiCol_TextSelectedBg] = faded(shades.accent, 0.35f);
  at[ImGuiCol_ModalWindowDimBg] = at[ImGuiCol_NavWindowingDimBg] = ImVec4(0, 0, 0, 0.45f);
  at[ImGuiCol_BorderShadow] = ImVec4(0, 0, 0, 0);
}

}  // namespace

const Palette& palette(ThemeName theme) {
  static constexpr Palette kDarkPalette = {IM_COL32(15, 16, 19, 255),
                                           kDark.border,
                                           kDark.dim,
                                           kDark.accent,
                                           IM_COL32(255, 255, 255, 255),
                                           IM_COL32(122, 196, 134, 255),
                                           IM_COL32(226, 179, 92, 255),
                                           IM_COL32(236, 122, 110, 255)};
  static constexpr Palette kLightPalette = {IM_COL32(222, 224, 228, 255),
                                            kLight.border,
                                            kLight.dim,
                                            kLight.accent,
                                            IM_COL32(255, 255, 255, 255),
                                            IM_COL32(36, 120, 58, 255),
                                            IM_COL32(146, 92, 0, 255),
                                            IM_COL32(180, 44, 34, 255)};
  return theme == ThemeName::kDark ? kDarkPalette : kLightPalette;
}

void apply_theme(ThemeName theme, float scale) {
  ImGuiStyle style;
  style.WindowRounding = 0;
  style.ChildRounding = 6;
  style.FrameRounding = 5;
  style.PopupRounding = 6;
  style.GrabRounding = 4;
  style.TabRounding = 5;
  style.ScrollbarRounding = 6;
  style.ScrollbarSize = 11;
  style.WindowPadding = ImVec2(12, 10);
  style.FramePadding = ImVec2(9, 5);
  style.ItemSpacing = ImVec2(8, 7);
  style.ItemInnerSpacing = ImVec2(7, 4);
  style.CellPadding = ImVec2(6, 3);
  style.GrabMinSize = 12;
  style.WindowBorderSize = 0;
  style.ChildBorderSize = 1;
  style.PopupBorderSize = 1;
  style.FrameBorderSize = 0;
  style.WindowMenuButtonPosition = ImGuiDir_None;
  style.ScaleAllSizes(scale);
  set_colours(style, theme == ThemeName::kDark ? kDark : kLight);
  const Shades& shades = theme == ThemeName::kDark ? kDark : kLight;
  style.Colors[ImGuiCol_TabActive] = colour(shades.accent_strong);
  if (theme == ThemeName::kLight) style.Colors[ImGuiCol_TabActive] = colour(shades.pressed);
  ImGui::GetStyle() = style;
}

std::vector<std::filesystem::path> font_places() {
  constexpr const char* kFonts[] = {
      "fonts/truetype/dejavu/DejaVuSans.ttf", "fonts/opentype/inter/Inter-Regular.otf",
      "fonts/truetype/inter/Inter-Regular.ttf", "fonts/truetype/noto/NotoSans-Regular.ttf",
      "fonts/truetype/liberation/LiberationSans-Regular.ttf"};
  const char* given = std::getenv("XDG_DATA_DIRS");
  // The default of the XDG base directory specification.
  std::istringstream folders(given != nullptr && *given != '\0' ? given
                                                                : "/usr/local/share:/usr/share");
  std::vector<std::filesystem::path> roots, out;
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty()) roots.emplace_back(folder);
  }
  for (const char* font : kFonts) {
    for (const auto& root : roots) out.push_back(root / font);
  }
  return out;
}

std::filesystem::path load_font(const std::vector<std::filesystem::path>& places, float scale) {
  // Latin with its extensions, Greek, Cyrillic, punctuation, arrows, shapes.
  static constexpr ImWchar kRanges[] = {0x20,   0x24f,  0x370,  0x52f,  0x2010, 0x205e,
                                        0x20a0, 0x20bf, 0x2190, 0x21ff, 0x2200, 0x22ff,
                                        0x25a0, 0x25ff, 0x2713, 0x2717, 0};
  ImFontAtlas& atlas = *ImGui::GetIO().Fonts;
  atlas.Clear();
  for (const auto& place : places) {
    if (!file_exists(place)) continue;
    const std::string data = read_file(place, kMaxFontBytes, ErrorKind::kGeneral);
    // The atlas frees what it is given with its own allocator.
    void* copy = ImGui::MemAlloc(data.size());
    std::memcpy(copy, data.data(), data.size());
    ImFontConfig config;
    config.OversampleH = 2;
    config.PixelSnapH = true;
    if (atlas.AddFontFromMemoryTTF(copy, narrow<int>(data.size()), std::round(kFontPixels * scale),
                                   &config, kRanges) != nullptr) {
      return place;
    }
  }
  ImFontConfig config;
  config.SizePixels = 13 * std::max(1.0f, std::round(kFontPixels * scale / 13));
  atlas.AddFontDefault(&config);
  return {};
}

}  // namespace tessera
