// Bootstrap by addressed random numbers, and the tables that an evaluation prints.
#include "apps/lab/eval/eval_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/philox.h"

namespace tessera {

namespace {

double mean_of(std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum / to_double(values.size());
}

double median_of(std::vector<double>& values) {
  const auto middle = values.begin() + to_index(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

// `of` may reorder what it is given.
template <typename Statistic>
Interval bootstrap(std::span<const double> values, int draws, std::uint64_t seed, Statistic of) {
  expects(draws > 0, "a bootstrap draws");
  Interval out{.count = std::ssize(values)};
  if (values.empty()) return out;
  const auto count = values.size();
  std::vector<double> sample(values.begin(), values.end());
  out.mean = of(sample);

  std::vector<double> means(to_size(draws));
  for (std::size_t draw = 0; draw < means.size(); ++draw) {
    PhiloxBlock block{};
    for (std::uint64_t place = 0; place < count; ++place) {
      if (place % 4 == 0) {
        block = philox4x32({low_bits<std::uint32_t>(place / 4), low_bits<std::uint32_t>(draw),
                            static_cast<std::uint32_t>(Purpose::kTest), 0},
                           philox_key(seed, count));
      }
      // The high half of a 32 x 64 bit product: uniform over [0, count) to one part in 2^32.
      const std::uint64_t pick = (std::uint64_t{block[place % 4]} * count) >> 32;
      sample[place] = values[pick];
    }
    means[draw] = of(sample);
  }
  std::sort(means.begin(), means.end());
  const auto at = [&](double share) {
    return means[truncate<std::size_t>(share * to_double(means.size() - 1))];
  };
  out.low = at(0.025);
  out.high = at(0.975);
  return out;
}

}  // namespace

Interval bootstrap_all(std::span<const double> values, int draws, std::uint64_t seed) {
  return bootstrap(values, draws, seed, mean_of);
}

Interval bootstrap_median(std::span<const double> values, int draws, std::uint64_t seed) {
  return bootstrap(values, draws, seed, median_of);
}

Interval bootstrap_mean(std::span<const double> values, int draws, std::uint64_t seed) {
  std::vector<double> asked;
  std::copy_if(values.begin(), values.end(), std::back_inserter(asked),
               [](double value) { return value >= 0.0; });
  return bootstrap_all(asked, draws, seed);
}

EvalRow summarise(std::string name, std::span<const Marks> marks) {
  EvalRow row{.name = std::move(name), .images = std::ssize(marks)};
  std::vector<double> values(marks.size());
  for (std::size_t mark = 0; mark < kMarks; ++mark) {
    std::transform(marks.begin(), marks.end(), values.begin(),
                   [mark](const Marks& image) { return image.value[mark]; });
    row.marks[mark] = bootstrap_mean(values);
  }
  return row;
}

double psnr(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  expects(a.size() == b.size() && !a.empty(), "two images of one size");
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = double{to_double(a[i])} - b[i];
    sum += difference * difference;
  }
  if (sum == 0.0) return 99.0;
  return 10.0 * std::log10(255.0 * 255.0 * to_double(a.size()) / sum);
}

std::string markdown_table(std::span<const EvalRow> rows) {
  std::string header = "| images of | N |";
  std::string rule = "|---|---|";
  for (std::size_t mark = 0; mark < kMarks; ++mark) {
    header += " " + std::string(name_of(static_cast<Mark>(mark))) + " |";
    rule += "---|";
  }
  std::string table = header + "\n" + rule + "\n";
  for (const EvalRow& row : rows) {
    table += "| " + row.name + " | " + std::to_string(row.images) + " |";
    for (const Interval& cell : row.marks) {
      char text[64];
      std::snprintf(text, sizeof text, " %.1f (%.1f-%.1f) |", 100.0 * cell.mean, 100.0 * cell.low,
                    100.0 * cell.high);
      table += cell.count == 0 ? " - |" : text;
    }
    table += "\n";
  }
  return table;
}

nlohmann::ordered_json interval_json(const Interval& interval) {
  if (interval.count == 0) return {{"asked", 0}};
  return {{"mean", interval.mean},
          {"low", interval.low},
          {"high", interval.high},
          {"asked", interval.count}};
}

nlohmann::ordered_json row_json(const EvalRow& row) {
  nlohmann::ordered_json out = {{"row", row.name}, {"pictures", row.images}};
  for (std::size_t mark = 0; mark < kMarks; ++mark) {
    out[std::string(name_of(static_cast<Mark>(mark)))] = interval_json(row.marks[mark]);
  }
  return out;
}

}  // namespace tessera
