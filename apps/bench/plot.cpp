#include "apps/bench/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <vector>

namespace tessera {

namespace {

constexpr double kWidth = 920, kHeight = 460, kLeft = 60, kRight = 360, kTop = 40, kBottom = 50;
constexpr const char* kColours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e",
                                    "#8c564b", "#17becf", "#e377c2", "#7f7f7f", "#bcbd22",
                                    "#004488", "#aa3377", "#000000"};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

// A range around [low, high] that begins and ends on a step of 1, 2 or 5 times a power of ten.
struct Axis {
  double low = 0, high = 1, step = 1;

  Axis(double least, double most) {
    const double span = std::max(most - least, 1e-6);
    const double power = std::pow(10, std::floor(std::log10(span / 4)));
    const double lead = span / 4 / power;
    step = power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
    low = std::floor(least / step) * step;
    high = std::ceil(most / step) * step;
    if (high <= low) high = low + step;
  }
  double share(double value) const { return (value - low) / (high - low); }
};

std::string line(double x1, double y1, double x2, double y2, const std::string& style) {
  return "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) +
         "\" y2=\"" + number(y2) + "\" " + style + "/>\n";
}

std::string text_at(double x, double y, const std::string& text, const std::string& style) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" " + style + ">" + escaped(text) +
         "</text>\n";
}

}  // namespace

std::string scatter_svg(const PlotTitles& titles, std::span<const PlotPoint> points) {
  double x_least = 1e300, x_most = -1e300, y_least = 1e300, y_most = -1e300;
  for (const PlotPoint& point : points) {
    x_least = std::min(x_least, point.x_low);
    x_most = std::max(x_most, point.x_high);
    y_least = std::min(y_least, point.y_low);
    y_most = std::max(y_most, point.y_high);
  }
  const Axis x_axis(points.empty() ? 0 : x_least, points.empty() ? 1 : x_most);
  const Axis y_axis(points.empty() ? 0 : y_least, points.empty() ? 1 : y_most);
  const double wide = kWidth - kLeft - kRight, high = kHeight - kTop - kBottom;
  const auto px = [&](double x) { return kLeft + wide * x_axis.share(x); };
  const auto py = [&](double y) { return kTop + high * (1 - y_axis.share(y)); };
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(kWidth) +
                    "\" height=\"" + number(kHeight) +
                    "\" font-family=\"sans-serif\" font-size=\"12\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  const std::string grid = "stroke=\"#dddddd\"", centred = "text-anchor=\"middle\"";
  for (double x = x_axis.low; x <= x_axis.high + x_axis.step / 2; x += x_axis.step) {
    out += line(px(x), kTop, px(x), kTop + high, grid) +
           text_at(px(x), kTop + high + 18, number(x), centred);
  }
  for (double y = y_axis.low; y <= y_axis.high + y_axis.step / 2; y += y_axis.step) {
    out += line(kLeft, py(y), kLeft + wide, py(y), grid) +
           text_at(kLeft - 6, py(y) + 4, number(y), "text-anchor=\"end\"");
  }
  std::vector<std::string> names;                // in the order of the legend
  std::map<std::string, const PlotPoint*> last;  // point of each series
  for (const PlotPoint& point : points) {
    const auto known = std::find(names.begin(), names.end(), point.name);
    const auto series = static_cast<std::size_t>(known - names.begin());
    const bool first = known == names.end();
    if (first) names.push_back(point.name);
    const std::string colour = kColours[series % std::size(kColours)];
    const std::string stroke = "stroke=\"" + colour + "\"";
    const std::string mark =
        stroke + " stroke-width=\"2\" fill=\"" + (point.filled ? colour : "white") + "\"";
    const auto circle = [&](double cx, double cy) {
      out += "<circle cx=\"" + number(cx) + "\" cy=\"" + number(cy) + "\" r=\"5\" " + mark + "/>\n";
    };
    if (const PlotPoint*& before = last[point.name]; before != nullptr) {
      out += line(px(before->x), py(before->y), px(point.x), py(point.y),
                  stroke + " stroke-width=\"1.5\"");
    }
    last[point.name] = &point;
    out += line(px(point.x_low), py(point.y), px(point.x_high), py(point.y), stroke) +
           line(px(point.x), py(point.y_low), px(point.x), py(point.y_high), stroke);
    circle(px(point.x), py(point.y));
    if (!first) continue;
    const double row = kTop + 10 + 18 * static_cast<double>(series);
    circle(kLeft + wide + 20, row - 4);
    out += text_at(kLeft + wide + 32, row, point.name, "");
  }
  out += text_at(kLeft + wide / 2, kHeight - 12, titles.x, centred) +
         text_at(kLeft + wide / 2, 22, titles.title, centred + " font-size=\"15\"") +
         "<text transform=\"translate(16 " + number(kTop + high / 2) + ") rotate(-90)\" " +
         centred + ">" + escaped(titles.y) + "</text>\n</svg>\n";
  return out;
}

}  // namespace tessera
