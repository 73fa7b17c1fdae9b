// A scatter plot with error bars as SVG, for the benchmarks' images.
#pragma once

#include <span>
#include <string>

namespace tessera {

struct PlotPoint {
  std::string name;
  double x = 0, x_low = 0, x_high = 0;
  double y = 0, y_low = 0, y_high = 0;
  bool filled = true;  // else an empty mark
};

struct PlotTitles {
  std::string x, y, title;
};

// Points of one name are one series: of one colour, joined in their order, named once.
std::string scatter_svg(const PlotTitles& titles, std::span<const PlotPoint> points);

}  // namespace tessera
