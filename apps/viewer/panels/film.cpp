// The video that is watched, below its frame: small images over the whole length, a line of time
// that is dragged, the time, and buttons for what the keys do.
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>

#include "apps/viewer/panels/panels.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr float kStripHeight = 3.4f, kLineHeight = 1.2f;  // in units of the font size
constexpr float kMinImage = 9;                        // that the strip leaves to the image

ImVec2 film_point(double x, double y) { return ImVec2(to_float(x), to_float(y)); }

bool strip_fits(float room) {
  return room > em() * (kMinImage + kStripHeight + kLineHeight) + 2 * ImGui::GetFrameHeight();
}

// Where a time lies on the line.
double x_of(const Film& film, const Rect& line, double seconds) {
  return line.left + line.width() * std::clamp(seconds / film.seconds, 0.0, 1.0);
}

double time_of(const Film& film, std::int64_t frame) {
  return nth((*film.times), std::clamp<std::int64_t>(frame, 0, film.frames() - 1));
}

std::int64_t frame_under(const Film& film, const Rect& line, double x) {
  return film.frame_at((x - line.left) / line.width() * film.seconds);
}

// The part of an image that fills a cell of this shape.
void draw_filling(ImTextureID texture, const Image& image, const Rect& cell) {
  ImVec2 low(0, 0), high(1, 1);
  const auto decoded_image = to_double(image.width) / to_double(image.height);
  const double shape = cell.width() / cell.height();
  if (decoded_image > shape) {
    const auto cut = to_float((1 - shape / decoded_image) / 2);
    low.x = cut;
    high.x = 1 - cut;
  } else {
    const auto cut = to_float((1 - decoded_image / shape) / 2);
    low.y = cut;
    high.y = 1 - cut;
  }
  ImGui::GetWindowDrawList()->AddImage(texture, film_point(cell.left, cell.top),
                                       film_point(cell.right, cell.bottom), low, high);
}

// As many cells as are about the shape of a frame, at most as many as there are small images.
std::size_t cells_of(const Film& film, const Rect& strip) {
  const double shape = to_double(film.width) / to_double(film.height);
  const double wide = std::max(strip.height() * std::clamp(shape, 0.4, 2.5), 8.0);
  const auto fit = static_cast<std::size_t>(std::max(1.0, std::round(strip.width() / wide)));
  return std::min(fit, std::max<std::size_t>(film.strip.size(), 1));
}

void draw_cell(Ui& ui, const FilmThumbnail& one, const Rect& cell) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  if (const ImTextureID texture = ui.textures.texture(one.image)) {
    draw_filling(texture, *one.image, cell);
  } else if (!one.problem.empty()) {
    list.AddRect(film_point(cell.left + 1, cell.top + 1),
                 film_point(cell.right - 1, cell.bottom - 1), ui.colours().bad);
  }
}

void draw_strip(Ui& ui, const Film& film, const Rect& strip) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  list.AddRectFilled(film_point(strip.left, strip.top), film_point(strip.right, strip.bottom),
                     ui.colours().canvas, em() * 0.25f);
  const std::size_t cells = cells_of(film, strip);
  for (std::size_t i = 0; i < cells && !film.strip.empty(); ++i) {
    const auto edge = [&](std::size_t at) {
      return std::round(strip.left + strip.width() * to_double(at) / to_double(cells));
    };
    // The small image in the middle of what the cell stands for.
    const std::size_t from = (2 * i + 1) * film.strip.size() / (2 * cells);
    draw_cell(ui, film.strip[from], {edge(i) + 1, strip.top, edge(i + 1) - 1, strip.bottom});
  }
}

void draw_line(const Ui& ui, const Film& film, const Rect& line, bool hot) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const double middle = std::round((line.top + line.bottom) / 2);
  const float thick = std::round(em() * 0.22f);
  const auto bar = [&](double from, double to, ImU32 colour) {
    const double half = double{thick} / 2;
    list.AddRectFilled(film_point(from, middle - half), film_point(to, middle + half), colour,
                       thick / 2);
  };
  const double here = x_of(film, line, time_of(film, film.wanted));
  bar(line.left, line.right, ImGui::GetColorU32(ImGuiCol_FrameBg));
  // How long the shown frame stays.
  const double next =
      film.wanted + 1 < film.frames() ? time_of(film, film.wanted + 1) : film.seconds;
  bar(line.left, here, ui.colours().accent);
  bar(here, std::max(x_of(film, line, next), here + 1), ImGui::GetColorU32(ImGuiCol_Text));
  if (!film.error.code.empty()) {  // more is in the file, and damaged
    const double high = em() * 0.4;
    list.AddRectFilled(film_point(line.right - 3, middle - high),
                       film_point(line.right, middle + high), ui.colours().bad);
  }
  list.AddCircleFilled(film_point(here, middle), em() * (hot ? 0.46f : 0.38f), ui.colours().accent,
                       24);
  list.AddCircleFilled(film_point(here, middle), em() * 0.16f, ImGui::GetColorU32(ImGuiCol_ChildBg),
                       16);
}

// Over the small images, at the shown frame.
void draw_head(const Film& film, const Rect& strip) {
  const double x = std::round(x_of(film, strip, time_of(film, film.wanted)));
  ImDrawList& list = *ImGui::GetWindowDrawList();
  list.AddRectFilled(film_point(x - 2, strip.top), film_point(x + 2, strip.bottom),
                     IM_COL32(0, 0, 0, 150));
  list.AddRectFilled(film_point(x - 1, strip.top), film_point(x + 1, strip.bottom), IM_COL32_WHITE);
}

// Images and line are one thing to be dragged.
void scrub(Ui& ui, const Film& film, bool with_strip) {
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float wide = std::max(ImGui::GetContentRegionAvail().x, em());
  const float strip_high = with_strip ? std::round(em() * kStripHeight) : 0;
  const float line_high = std::round(em() * kLineHeight);
  ImGui::InvisibleButton("##scrub", ImVec2(wide, strip_high + line_high));
  const bool hot = ImGui::IsItemHovered() || ImGui::IsItemActive();
  const bool focused = ImGui::IsItemFocused() && !GImGui->NavDisableHighlight;
  const double left = at.x, right = at.x + wide, top = at.y;
  const Rect line{left, top + strip_high, right, top + strip_high + line_high};
  ui.state.report.film_line = line;
  if (with_strip) {
    const Rect strip{left, top, right, top + strip_high};
    ui.state.report.film_strip = strip;
    draw_strip(ui, film, strip);
    draw_head(film, strip);
  }
  draw_line(ui, film, line, hot || focused);
  const std::int64_t under = frame_under(film, line, ImGui::GetIO().MousePos.x);
  if (dragged() && under != film.wanted && !ui.post(FilmSeekCommand{under})) {
    ui.state.notice = "the queue is full";
  }
  if (!hot) return;
  std::vector<std::string> lines = {clock_text(time_of(film, under)) + ", frame " +
                                    std::to_string(under + 1)};
  for (const FilmThumbnail& one : film.strip) {
    if (one.frame == under && !one.problem.empty()) lines.push_back(one.problem);
  }
  if (!film.error.code.empty()) lines.push_back(format_error(film.error));
  spot_tooltip(lines);
}

void button(Ui& ui, const char* id, Sign sign, Action action, std::string_view says) {
  if (sign_button(id, sign, ImGui::GetFrameHeight())) ui.act(action);
  hint(says);
  ImGui::SameLine(0, em() * 0.2f);
}

void transport(Ui& ui, const Film& film) {
  const bool playing = film.state == FilmState::kPlaying;
  button(ui, "##first", Sign::kFirst, Action::kFilmStart, "first frame (b)");
  button(ui, "##back", Sign::kBack, Action::kFilmBack, "one frame back (,)");
  if (sign_button("##play", playing ? Sign::kPause : Sign::kPlay, ImGui::GetFrameHeight())) {
    ui.act(Action::kFilmPlay);
  }
  hint(playing ? "pause (P)" : "play (P)");
  ImGui::SameLine(0, em() * 0.2f);
  button(ui, "##on", Sign::kOn, Action::kFilmOn, "one frame on (.)");
  button(ui, "##last", Sign::kLast, Action::kFilmEnd, "last frame (E)");
}

std::string speed_text(double speed) {
  return speed >= 1 ? number_text(speed, 0) + "x" : "1/" + number_text(1 / speed, 0) + "x";
}

void choose_speed(Ui& ui, const Film& film, float width) {
  ImGui::SetNextItemWidth(width);
  if (ImGui::BeginCombo("##speed", speed_text(film.speed).c_str())) {
    for (const double speed : kFilmSpeeds) {
      const std::string text = speed_text(speed);
      if (ImGui::Selectable(text.c_str(), speed == film.speed) &&
          !ui.post(FilmSpeedCommand{speed})) {
        ui.state.notice = "the queue is full";
      }
    }
    ImGui::EndCombo();
  }
  hint("speed (S slower, F faster)");
}

float text_width(const std::string& text) { return ImGui::CalcTextSize(text.c_str()).x; }

// What does not fit in is left out: first the length, then the number of the frame.
void where(const Film& film, float room) {
  const std::string now = clock_text(time_of(film, film.frame));
  const std::string whole = " / " + clock_text(film.seconds);
  const std::string frame =
      "frame " + std::to_string(film.frame + 1) + " of " + std::to_string(film.frames());
  const float gap = em() * 0.7f, both = text_width(now) + gap + text_width(frame);
  ImGui::AlignTextToFramePadding();
  if (text_width(now) > room) return;
  text_line(now);
  if (both > room) return;
  if (both + text_width(whole) <= room) {
    ImGui::SameLine(0, 0);
    text_dim(whole);
  }
  ImGui::SameLine(0, gap);
  text_dim(frame);
}

void film_failure(Ui& ui, const Film& film) {
  const std::string text = format_error(film.error);
  ImGui::AlignTextToFramePadding();
  ImGui::PushStyleColor(ImGuiCol_Text, ui.colours().bad);
  text_elided(text, ImGui::GetContentRegionAvail().x - ImGui::GetFrameHeight() - em() * 0.6f);
  ImGui::PopStyleColor();
  hint(text);
}

void search(const Film& film, float room) {
  const std::string text = "looking for the damage between frames " +
                           std::to_string(film.search->good + 1) + " and " +
                           std::to_string(film.search->bad + 1);
  ImGui::AlignTextToFramePadding();
  text_elided(text, room);
  hint(text);
}

// In a narrow window the speed gives way first, then the loop; both have keys.
void controls(Ui& ui, const Film& film) {
  const float gap = em() * 0.3f, side = ImGui::GetFrameHeight();
  const float loop = text_width("Loop") + 2 * ImGui::GetStyle().FramePadding.x + gap;
  const float speed = em() * 4.2f + gap;
  if (film.state == FilmState::kFailed) {
    film_failure(ui, film);
    ImGui::SameLine(ImGui::GetContentRegionMax().x - side);
  } else {
    transport(ui, film);
    float room = ImGui::GetContentRegionAvail().x - side - gap;
    const bool with_loop = room >= loop, with_speed = room >= loop + speed;
    room -= (with_loop ? loop : 0) + (with_speed ? speed : 0);
    ImGui::SameLine(0, em() * 0.6f);
    if (film.search) {
      search(film, room - em() * 0.9f);
    } else {
      where(film, room - em() * 0.9f);
    }
    ImGui::SameLine(ImGui::GetContentRegionMax().x - side - (with_loop ? loop : 0) -
                    (with_speed ? speed : 0));
    if (with_loop) {
      if (toggle_button("Loop", film.loop)) ui.act(Action::kFilmLoop);
      hint("round and round, or once (L)");
      ImGui::SameLine(0, gap);
    }
    if (with_speed) {
      choose_speed(ui, film, speed - gap);
      ImGui::SameLine(0, gap);
    }
  }
  if (sign_button("##close", Sign::kClose, side)) ui.act(Action::kFilmClose);
  hint("close the video (X)");
}

}  // namespace

float film_panel_height(float room) {
  const float lines = em() * kLineHeight + ImGui::GetFrameHeight() +
                      2 * ImGui::GetStyle().ItemSpacing.y + em() * 0.1f;
  return std::round(lines + (strip_fits(room) ? em() * kStripHeight : 0));
}

void film_panel(Ui& ui, const Film& film) {
  const float high = ImGui::GetContentRegionAvail().y;
  const bool strip = high > em() * (kStripHeight + kLineHeight) + ImGui::GetFrameHeight();
  scrub(ui, film, strip);
  controls(ui, film);
}

void film_facts(const Film& film) {
  if (film.width > 0) {
    fact("Size", std::to_string(film.width) + " x " + std::to_string(film.height));
    fact("Format", film.container + ", " + film.codec);
  }
  if (film.frames() > 0) {
    fact("Frames", std::to_string(film.frames()));
    fact("Length", clock_text(film.seconds));
    fact("Rate", number_text(to_double(film.frames()) / film.seconds, 2) + " a second");
    fact("Kept", bytes_text(film.kept_bytes) + " of decoded frames");
  }
  for (const std::string& note : film.notes) fact("Note", note);
  if (!film.error.code.empty()) {
    fact(film.state == FilmState::kFailed ? "Failed" : "Damaged", format_error(film.error));
  }
}

}  // namespace tessera
