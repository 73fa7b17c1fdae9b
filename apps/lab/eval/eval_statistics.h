// Figures of an evaluation: means with bootstrap intervals (Efron: "Bootstrap methods: another look
// at the jackknife", 1979), and how they are printed.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "apps/lab/scorer/attributes.h"
#include "engine/core/index.h"

namespace tessera {

// A mean and the percentile interval that holds it in 95 of 100 resamplings.
struct Interval {
  double mean = 0.0;
  double low = 0.0;
  double high = 0.0;
  std::int64_t count = 0;  // values after it; 0 = nothing was asked
};

// Values below 0 (kNotAsked) are left out. The resamplings are addressed by (seed, draw, place), so
// that equal values give equal intervals.
Interval bootstrap_mean(std::span<const double> values, int draws = 2000, std::uint64_t seed = 1);
// The same over any values.
Interval bootstrap_all(std::span<const double> values, int draws = 2000, std::uint64_t seed = 1);

// The median and its percentile interval, over any values.
Interval bootstrap_median(std::span<const double> values, int draws = 2000, std::uint64_t seed = 1);

// One line of the table: a set of images and how often each attribute was right.
struct EvalRow {
  std::string name;
  std::int64_t images = 0;
  std::array<Interval, kMarks> marks;
  const Interval& operator[](Mark mark) const { return nth(marks, mark); }
};
EvalRow summarise(std::string name, std::span<const Marks> marks);

// 10 log10(255^2 / mean squared error) in dB over bytes; 99 for equal images.
double psnr(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b);

// Markdown: one line a row, "97.5 (95.0-99.0)" in per cent a cell, a dash where nothing was asked.
std::string markdown_table(std::span<const EvalRow> rows);

// {"row","pictures","count":{"mean","low","high","asked"},...}
nlohmann::ordered_json row_json(const EvalRow& row);
nlohmann::ordered_json interval_json(const Interval& interval);

}  // namespace tessera
