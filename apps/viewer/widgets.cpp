// Pieces shared by the panels.
#include "apps/viewer/widgets.h"

#include <imgui_internal.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/core/index.h"

namespace tessera {

void text_line(std::string_view text) {
  ImGui::TextUnformatted(text.data(), text.data() + text.size());
}

void text_coloured(ImU32 colour, std::string_view text) {
  ImGui::PushStyleColor(ImGuiCol_Text, colour);
  text_line(text);
  ImGui::PopStyleColor();
}

void text_dim(std::string_view text) {
  text_coloured(ImGui::GetColorU32(ImGuiCol_TextDisabled), text);
}

namespace {
// A stranger's text may have more letters than a list of vertices takes.
std::string_view beginning(std::string_view text) {
  constexpr std::size_t kMax = 4000;  // bytes
  if (text.size() <= kMax) return text;
  std::size_t end = kMax;
  while (end > 0 && (byte_of(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}
}  // namespace

void text_wrapped(std::string_view text) {
  ImGui::PushTextWrapPos(0);
  text_line(beginning(text));
  ImGui::PopTextWrapPos();
}

void text_elided(std::string_view text, float width) {
  if (width <= 0) width = ImGui::GetContentRegionAvail().x;
  // A line break would be drawn as one.
  const std::size_t end = std::min(text.find('\n'), text.size());
  const char *from = text.data(), *to = text.data() + end;
  ImVec2 at = ImGui::GetCursorScreenPos();
  at.y += ImGui::GetCurrentWindow()->DC.CurrLineTextBaseOffset;
  const ImVec2 full = ImGui::CalcTextSize(from, to);
  const float right = at.x + std::min(width, full.x + 1);
  ImGui::RenderTextEllipsis(ImGui::GetWindowDrawList(), at, ImVec2(right, at.y + full.y), right,
                            right, from, to, &full);
  ImGui::Dummy(ImVec2(std::min(width, full.x), ImGui::GetTextLineHeight()));
}

void hint(std::string_view text) {
  const bool wanted = ImGui::IsItemHovered(ImGuiHoveredFlags_AllowWhenDisabled) &&
                      GImGui->HoveredIdTimer > kHintSeconds;
  if (!wanted) return;
  ImGui::BeginTooltip();
  ImGui::PushTextWrapPos(em() * 26);
  text_line(beginning(text));
  ImGui::PopTextWrapPos();
  ImGui::EndTooltip();
}

bool dragged() { return ImGui::IsItemActive() && ImGui::IsMouseDown(ImGuiMouseButton_Left); }

void heading(std::string_view text) {
  ImGui::Dummy(ImVec2(0, em() * 0.1f));
  text_dim(text);
}

namespace {
// The lines that ImGui would break a text into.
std::vector<std::string_view> lines_within(std::string_view text, float width) {
  std::vector<std::string_view> out;
  const ImFont& font = *ImGui::GetFont();
  const float scale = ImGui::GetFontSize() / font.FontSize;
  while (!text.empty()) {
    const char* const end = text.data() + text.size();
    const char* stop = font.CalcWordWrapPositionA(scale, text.data(), end, width);
    if (stop == text.data()) ++stop;  // narrower than one letter
    const auto length = std::min(to_size(stop - text.data()), text.find('\n'));
    out.push_back(text.substr(0, length));
    text.remove_prefix(std::min(length, text.size()));
    while (!text.empty() && (text.front() == ' ' || text.front() == '\n')) text.remove_prefix(1);
  }
  return out;
}
}  // namespace

void empty_state(std::string_view title, std::string_view what_to_do) {
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float width = std::min(room.x - em(), em() * 24);
  if (width < em() * 4) return;
  const ImVec2 first = ImGui::CalcTextSize(title.data(), title.data() + title.size());
  const ImVec2 second =
      ImGui::CalcTextSize(what_to_do.data(), what_to_do.data() + what_to_do.size(), false, width);
  const ImVec2 at = ImGui::GetCursorPos();
  float top = at.y + std::max(0.0f, (room.y - first.y - second.y - em() * 0.5f) / 2);
  ImGui::SetCursorPos(ImVec2(at.x + std::max(0.0f, (room.x - first.x) / 2), top));
  text_line(title);
  top += first.y + em() * 0.5f;
  for (const std::string_view line : lines_within(what_to_do, width)) {
    const float wide = ImGui::CalcTextSize(line.data(), line.data() + line.size()).x;
    ImGui::SetCursorPos(ImVec2(at.x + std::max(0.0f, (room.x - wide) / 2), top));
    text_dim(line);
    top += ImGui::GetTextLineHeight();
  }
}

namespace {

struct Wrapping {
  double width = 0;
  Measure measure;
};

// While it is edited the field keeps its lines broken; lengths stay, so the cursor does too.
int wrap_lines(ImGuiInputTextCallbackData* data) {
  const auto& wrapping = *static_cast<const Wrapping*>(data->UserData);
  const std::string text(data->Buf, to_size(data->BufTextLen));
  const std::string better = wrapped(joined(text), wrapping.width, wrapping.measure);
  if (better == text) return 0;
  std::copy(better.begin(), better.end(), data->Buf);
  data->BufDirty = true;
  return 0;
}

}  // namespace

bool prose_field(const char* id, std::string& edit, std::string& text, ImVec2 size) {
  const ImGuiStyle& style = ImGui::GetStyle();
  const float wide = size.x > 0 ? size.x : ImGui::GetContentRegionAvail().x;
  Wrapping wrapping{wide - 2 * style.FramePadding.x - style.ScrollbarSize - 2,
                    [](std::string_view piece) {
                      return ImGui::CalcTextSize(piece.data(), piece.data() + piece.size()).x;
                    }};
  // ImGui takes back what was typed when Esc leaves a field.
  const bool left = ImGui::GetActiveID() == ImGui::GetID(id) &&
                    ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Escape), false);
  if (text.find('\n') != std::string::npos) {  // its breaks are its own
    edit = text;
    const bool changed = ImGui::InputTextMultiline(id, &edit, size) && !left;
    if (changed) text = edit;
    return changed;
  }
  if (joined(edit) != text || ImGui::GetActiveID() != ImGui::GetID(id)) {
    edit = wrapped(text, wrapping.width, wrapping.measure);
  }
  const bool changed = ImGui::InputTextMultiline(id, &edit, size, ImGuiInputTextFlags_CallbackEdit,
                                                 wrap_lines, &wrapping) &&
                       !left;
  if (changed) text = joined(edit);
  return changed;
}

bool accent_button(const char* label, ImVec2 size) {
  const ImVec4 base = ImGui::GetStyle().Colors[ImGuiCol_CheckMark];
  // White on the accent needs a darker accent in the dark theme.
  const float luminance = 0.3f * base.x + 0.6f * base.y + 0.1f * base.z;
  const float dim = luminance > 0.5f ? 0.68f : 1.0f;
  const auto shade = [&](float by) {
    return ImVec4(base.x * dim * by, base.y * dim * by, base.z * dim * by, 1);
  };
  ImGui::PushStyleColor(ImGuiCol_Button, shade(1));
  ImGui::PushStyleColor(ImGuiCol_ButtonHovered, shade(1.12f));
  ImGui::PushStyleColor(ImGuiCol_ButtonActive, shade(0.9f));
  ImGui::PushStyleColor(ImGuiCol_Text, IM_COL32_WHITE);
  const bool pressed = ImGui::Button(label, size);
  ImGui::PopStyleColor(4);
  return pressed;
}

bool toggle_button(const char* label, bool on, ImVec2 size) {
  return on ? accent_button(label, size) : ImGui::Button(label, size);
}

namespace {

void draw_sign(Sign sign, ImVec2 centre, float size) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const ImU32 ink = ImGui::GetColorU32(ImGuiCol_Text);
  const float half = size / 2, bar = std::max(1.0f, std::round(size * 0.16f));
  // A triangle that points to the right (by = 1) or left, with its middle at x.
  const auto triangle = [&](float x, float by) {
    list.AddTriangleFilled(ImVec2(x - by * half * 0.8f, centre.y - half),
                           ImVec2(x - by * half * 0.8f, centre.y + half),
                           ImVec2(x + by * half * 0.9f, centre.y), ink);
  };
  const auto upright = [&](float x) {
    list.AddRectFilled(ImVec2(x - bar / 2, centre.y - half), ImVec2(x + bar / 2, centre.y + half),
                       ink);
  };
  const auto ended = [&](float by, float gap) {
    triangle(centre.x - by * bar * 0.6f, by);
    upright(centre.x + by * gap);
  };
  switch (sign) {
    case Sign::kPlay:
      triangle(centre.x, 1);
      break;
    case Sign::kPause:
      upright(centre.x - half * 0.45f);
      upright(centre.x + half * 0.45f);
      break;
    case Sign::kOn:
    case Sign::kBack: {  // a bar, and where it leads
      const float by = sign == Sign::kOn ? 1.0f : -1.0f;
      triangle(centre.x + by * half * 0.3f, by);
      upright(centre.x - by * half * 0.95f);
      break;
    }
    case Sign::kLast:
      ended(1, half * 0.9f);
      break;
    case Sign::kFirst:
      ended(-1, half * 0.9f);
      break;
    case Sign::kClose:
      for (const float by : {1.0f, -1.0f}) {
        list.AddLine(ImVec2(centre.x - half * 0.8f, centre.y - by * half * 0.8f),
                     ImVec2(centre.x + half * 0.8f, centre.y + by * half * 0.8f), ink,
                     std::max(1.5f, bar * 0.8f));
      }
      break;
  }
}

}  // namespace

bool sign_button(const char* id, Sign sign, float side) {
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const bool pressed = ImGui::Button(id, ImVec2(side, side));
  draw_sign(sign, ImVec2(std::round(at.x + side / 2), std::round(at.y + side / 2)),
            std::round(side * 0.4f));
  return pressed;
}

bool facts_table(const char* id) {
  if (!ImGui::BeginTable(id, 2, ImGuiTableFlags_SizingStretchProp)) return false;
  ImGui::TableSetupColumn("name", ImGuiTableColumnFlags_WidthFixed, em() * 6.2f);
  ImGui::TableSetupColumn("value", ImGuiTableColumnFlags_WidthStretch);
  return true;
}

void fact(std::string_view name, std::string_view value) {
  ImGui::TableNextRow();
  ImGui::TableNextColumn();
  text_dim(name);
  ImGui::TableNextColumn();
  text_wrapped(value);
}

void splitter(const char* id, Bar bar, float length, float& size, const BarRange& range) {
  const float thick = std::round(em() * 0.45f);
  const bool upright = bar == Bar::kUpright;
  length = std::max(length, 1.0f);  // ImGui takes no empty button
  ImGui::InvisibleButton(id, upright ? ImVec2(thick, length) : ImVec2(length, thick));
  const bool hot = ImGui::IsItemHovered() || ImGui::IsItemActive();
  if (hot) ImGui::SetMouseCursor(upright ? ImGuiMouseCursor_ResizeEW : ImGuiMouseCursor_ResizeNS);
  if (dragged()) {
    const ImVec2 moved = ImGui::GetIO().MouseDelta;
    size += range.direction * (upright ? moved.x : moved.y) / em();
  }
  size = std::clamp(size, range.low, std::max(range.low, range.high));
  if (!hot) return;
  const ImVec2 low = ImGui::GetItemRectMin(), high = ImGui::GetItemRectMax();
  const ImVec2 centre((low.x + high.x) / 2, (low.y + high.y) / 2);
  const ImVec2 half = upright ? ImVec2(1, length / 2) : ImVec2(length / 2, 1);
  ImGui::GetWindowDrawList()->AddRectFilled(ImVec2(centre.x - half.x, centre.y - half.y),
                                            ImVec2(centre.x + half.x, centre.y + half.y),
                                            ImGui::GetColorU32(ImGuiCol_SeparatorHovered));
}

std::string number_text(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string duration_text(double seconds) {
  if (seconds < 10) return number_text(seconds, 1) + " s";
  const auto whole = std::llround(seconds);
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

std::string clock_text(double seconds) {
  const auto all = std::llround(std::clamp(seconds, 0.0, 1e12) * 1000);
  const long long hours = all / 3600000, minutes = all / 60000 % 60;
  char text[64];
  if (hours > 0) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld.%03lld", hours, minutes, all / 1000 % 60,
                  all % 1000);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld.%03lld", minutes, all / 1000 % 60, all % 1000);
  }
  return text;
}

std::string bytes_text(std::uint64_t bytes) {
  const double amount = to_double(bytes);
  if (bytes < (1u << 20)) return number_text(amount / 1024, 0) + " KiB";
  if (bytes < (1u << 30)) return number_text(amount / (1 << 20), 0) + " MiB";
  return number_text(amount / (1 << 30), 1) + " GiB";
}

std::string_view state_text(GenerateState state) {
  switch (state) {
    case GenerateState::kQueued:
      return "queued";
    case GenerateState::kLoading:
      return "loading";
    case GenerateState::kGeneration:
      return "running";
    case GenerateState::kDone:
      return "done";
    case GenerateState::kStopped:
      return "stopped";
    case GenerateState::kFailed:
      return "failed";
  }
  return "";
}

ImU32 state_colour(GenerateState state, const Palette& colours) {
  switch (state) {
    case GenerateState::kQueued:
      return colours.dim;
    case GenerateState::kLoading:
    case GenerateState::kGeneration:
      return colours.accent;
    case GenerateState::kDone:
      return colours.good;
    case GenerateState::kStopped:
      return colours.warning;
    case GenerateState::kFailed:
      return colours.bad;
  }
  return colours.dim;
}

}  // namespace tessera
