// An image on the screen: pixels, token overlays, visual tokens, pixel values, what lies under the
// mouse. Shared by the single image and both sides of a comparison.
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>

#include "apps/viewer/panels/panels.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr double kValuesZoom = 48;

ImVec2 point(double x, double y) { return ImVec2(to_float(x), to_float(y)); }

ImU32 screen_colour(const Colour& colour, float alpha) {
  return IM_COL32(colour.red, colour.green, colour.blue, static_cast<int>(alpha * 255));
}

bool meets(const Rect& a, const Rect& b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

void draw_marks(Ui& ui, const Generation& generation, const Placement& placed, const Rect& visible) {
  const TokenGrid grid = tokens_of(generation);
  const Overlay overlay = ui.state.overlay;
  const OverlayRange range = overlay_range(grid, overlay);
  if (!range.any) return;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  for (std::int64_t row = 0; row < generation.grid_rows; ++row) {
    for (std::int64_t column = 0; column < generation.grid_columns; ++column) {
      const auto& mark = nth(grid.marks, row * generation.grid_columns + column);
      const Rect cell = cell_rect(placed, generation.grid_rows, generation.grid_columns, {row, column});
      if (mark.id < 0 || !meets(cell, visible)) continue;
      const Colour colour = heat_colour(range.share(overlay_value(grid, mark, overlay)));
      list.AddRectFilled(point(cell.left, cell.top), point(cell.right, cell.bottom),
                         screen_colour(colour, ui.state.overlay_strength));
    }
  }
}

void draw_tiles(const CaptionEntry& caption, const Placement& placed, const Rect& visible) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const Rect whole = placed.rect();
  for (const VisualTile& tile : caption.tiles) {
    Placement part = placed;  // the tile's share of the image, as a placement of its own
    part.left = whole.left + tile.left * whole.width();
    part.top = whole.top + tile.top * whole.height();
    part.zoom = 1;
    part.width = std::llround(tile.width * whole.width());
    part.height = std::llround(tile.height * whole.height());
    for (std::int64_t i = 0; i < tile.rows * tile.columns; ++i) {
      const Rect cell =
          cell_rect(part, tile.rows, tile.columns, {i / tile.columns, i % tile.columns});
      const auto at = to_size(i);
      if (at >= tile.kept.size() || !meets(cell, visible)) continue;
      const ImVec2 low = point(cell.left, cell.top), high = point(cell.right, cell.bottom);
      if (tile.kept[at] == 0) {
        list.AddRectFilled(low, high, IM_COL32(10, 10, 14, 205));
      } else if (at < tile.scores.size() && !std::isnan(tile.scores[at])) {
        list.AddRectFilled(low, high, screen_colour(heat_colour(tile.scores[at]), 0.28f));
        list.AddRect(low, high, screen_colour(heat_colour(tile.scores[at]), 0.8f));
      }
    }
  }
}

// Red, green and blue of every pixel, written into it.
void draw_values(const Image& image, const Placement& placed, const Rect& visible) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const double zoom = placed.zoom;
  const auto first = [zoom](double low, double start) {
    return std::max<std::int64_t>(0, static_cast<std::int64_t>(std::floor((low - start) / zoom)));
  };
  const float size = to_float(std::min(zoom / 4.2, double{em()}));
  for (std::int64_t y = first(visible.top, placed.top); y < image.height; ++y) {
    const double top = placed.top + to_double(y) * zoom;
    if (top >= visible.bottom) break;
    for (std::int64_t x = first(visible.left, placed.left); x < image.width; ++x) {
      const double left = placed.left + to_double(x) * zoom;
      if (left >= visible.right) break;
      const std::uint8_t* rgb = image.at(x, y);
      const int light = (299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2]) / 1000;
      const ImU32 ink = light > 128 ? IM_COL32(0, 0, 0, 235) : IM_COL32(255, 255, 255, 235);
      char text[32];
      const int length = std::snprintf(text, sizeof text, "%d\n%d\n%d", rgb[0], rgb[1], rgb[2]);
      list.AddText(ImGui::GetFont(), size,
                   point(left + zoom * 0.12, top + (zoom - 3 * double{size}) / 2), ink, text,
                   text + length);
    }
  }
}

// The cursor may stem from an image of another grid.
bool within(const Generation& generation, const CellPosition& cell) {
  return cell.row < generation.grid_rows && cell.column < generation.grid_columns;
}

void draw_cursor(const Ui& ui, const Generation& generation, const Placement& placed) {
  if (!ui.state.cursor || !within(generation, *ui.state.cursor)) return;
  const Rect cell = cell_rect(placed, generation.grid_rows, generation.grid_columns, *ui.state.cursor);
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const ImVec2 low = point(cell.left, cell.top), high = point(cell.right, cell.bottom);
  list.AddRect(ImVec2(low.x - 1, low.y - 1), ImVec2(high.x + 1, high.y + 1), IM_COL32_BLACK, 0, 0,
               3);
  list.AddRect(low, high, IM_COL32_WHITE, 0, 0, 1);
}

}  // namespace

Placement draw_image(Ui& ui, const StageImage& decoded_image, const Rect& area, const Rect& visible) {
  const Image& image = *decoded_image.image;
  const Placement placed = place(ui.state.view, area, image.width, image.height);
  const Rect whole = placed.rect();
  ImDrawList& list = *ImGui::GetWindowDrawList();
  list.PushClipRect(point(visible.left, visible.top), point(visible.right, visible.bottom), true);
  const bool moves = decoded_image.film != nullptr;
  if (const ImTextureID texture =
          moves ? ui.textures.moving(decoded_image.image) : ui.textures.texture(decoded_image.image)) {
    list.AddImage(texture, point(whole.left, whole.top), point(whole.right, whole.bottom));
  }
  if (of_tokens(ui.state.overlay) && decoded_image.generation != nullptr &&
      decoded_image.generation->marks != nullptr) {
    draw_marks(ui, *decoded_image.generation, placed, visible);
  }
  if (ui.state.overlay == Overlay::kVisual && decoded_image.caption != nullptr) {
    draw_tiles(*decoded_image.caption, placed, visible);
  }
  if (placed.zoom >= kValuesZoom) draw_values(image, placed, visible);
  if (decoded_image.generation != nullptr) draw_cursor(ui, *decoded_image.generation, placed);
  list.PopClipRect();
  return placed;
}

std::vector<std::string> described_spot(const UiState& state, const StageImage& decoded_image,
                                        const Placement& shown) {
  std::vector<std::string> lines;
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const bool inside = state.report.area.contains(mouse.x, mouse.y);
  std::optional<CellPosition> cell = state.cursor;
  const Generation* generation = decoded_image.generation;
  // What is placed may be another image: of a comparison, or of the frame before.
  const bool placed = decoded_image.image != nullptr && decoded_image.image->width == shown.width &&
                      decoded_image.image->height == shown.height;
  if (inside && placed) {
    if (const auto pixel = pixel_at(shown, mouse.x, mouse.y)) {
      const std::uint8_t* rgb = decoded_image.image->at(pixel->x, pixel->y);
      char text[80];
      std::snprintf(text, sizeof text, "pixel %" PRId64 ", %" PRId64 ": %d %d %d", pixel->x,
                    pixel->y, rgb[0], rgb[1], rgb[2]);
      lines.emplace_back(text);
      if (decoded_image.caption != nullptr) {
        const auto visual = visual_token_at(decoded_image.caption->tiles,
                                            (to_double(pixel->x) + 0.5) / to_double(shown.width),
                                            (to_double(pixel->y) + 0.5) / to_double(shown.height));
        if (visual) lines.push_back(describe_visual_token(*visual));
      }
      if (generation != nullptr) {
        cell = cell_at(shown, generation->grid_rows, generation->grid_columns, mouse.x, mouse.y);
      }
    }
  }
  if (cell && generation != nullptr && generation->marks != nullptr) {
    const auto at = to_size(cell->row * generation->grid_columns + cell->column);
    if (within(*generation, *cell) && at < generation->marks->size()) {
      lines.push_back(
          describe_token(tokens_of(*generation), (*generation->marks)[at], cell->row, cell->column));
    }
  }
  return lines;
}

void spot_tooltip(const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(em() * 0.6f, em() * 0.5f));
  ImGui::BeginTooltip();
  for (const std::string& line : lines) text_line(line);
  ImGui::EndTooltip();
  ImGui::PopStyleVar();
}

void handle_stage_mouse(Ui& ui, const Placement& shown) {
  const ImGuiIO& io = ImGui::GetIO();
  const Rect& area = ui.state.report.area;
  if (ImGui::IsItemHovered() && io.MouseWheel != 0) {
    ui.state.view = zoomed(ui.state.view, area, shown, io.MouseWheel > 0 ? 1 : -1, io.MousePos.x,
                           io.MousePos.y);
  }
  if (dragged() && (io.MouseDelta.x != 0 || io.MouseDelta.y != 0)) {
    ui.state.view = panned(ui.state.view, shown, io.MouseDelta.x, io.MouseDelta.y);
  }
}

}  // namespace tessera
