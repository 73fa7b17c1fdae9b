// Rows of `eval videos`: means over videos, as tables and as JSON.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/lab/eval/eval_videos.h"

namespace tessera {

namespace {

template <typename Of>
Interval over(std::span<const VideoMeasures> videos, Of of) {
  std::vector<double> values;
  for (const VideoMeasures& video : videos) values.push_back(of(video));
  return bootstrap_mean(values);
}

std::string cell(const Interval& value, double scale, int digits) {
  if (value.count == 0) return " - |";
  char text[96];
  std::snprintf(text, sizeof text, " %.*f (%.*f-%.*f) |", digits, scale * value.mean, digits,
                scale * value.low, digits, scale * value.high);
  return text;
}

std::string head(std::span<const std::string> columns) {
  std::string names = "|", rule = "|";
  for (const std::string& column : columns) {
    names += " " + column + " |";
    rule += "---|";
  }
  return names + "\n" + rule + "\n";
}

std::string motion_table(std::span<const VideoRow> rows) {
  std::vector<std::string> columns = {"motion in videos of", "found", "all"};
  for (const std::string_view name : motion_names()) columns.emplace_back(name);
  std::string table = head(columns);
  for (const VideoRow& row : rows) {
    table += "| " + row.name + " |" + cell(row.found, 100.0, 1) + cell(row.motion, 100.0, 1);
    for (const Interval& motion : row.by_motion) table += cell(motion, 100.0, 1);
    table += "\n";
  }
  return table;
}

std::string steadiness_table(std::span<const VideoRow> rows) {
  const std::string columns[] = {"steadiness of videos of", "codes changed, %", "pixels, levels",
                                 "last as first, %",       "given frames, dB", "others, dB"};
  std::string table = head(columns);
  for (const VideoRow& row : rows) {
    table += "| " + row.name + " |" + cell(row.code_change, 100.0, 1) +
             cell(row.pixel_change, 1.0, 2) + cell(row.agreement[Mark::kScene], 100.0, 1) +
             cell(row.given_psnr, 1.0, 2) + cell(row.psnr, 1.0, 2) + "\n";
  }
  return table;
}

}  // namespace

VideoRow summarise(std::string name, std::span<const VideoMeasures> videos) {
  std::vector<Marks> attributes, agreement;
  for (const VideoMeasures& video : videos) {
    attributes.push_back(video.attributes);
    agreement.push_back(video.agreement);
  }
  VideoRow row{.name = name,
               .videos = std::ssize(videos),
               .attributes = summarise(name, attributes),
               .agreement = summarise(name, agreement)};
  row.motion = over(videos, [](const VideoMeasures& video) { return video.motion.right; });
  row.found = over(videos, [](const VideoMeasures& video) { return video.motion.found; });
  for (std::size_t i = 0; i < kMotions; ++i) {
    row.by_motion[i] =
        over(videos, [i](const VideoMeasures& video) { return video.motion.by_motion[i]; });
  }
  row.code_change = over(videos, [](const VideoMeasures& video) { return video.code_change; });
  row.pixel_change = over(videos, [](const VideoMeasures& video) { return video.pixel_change; });
  row.given_psnr = over(videos, [](const VideoMeasures& video) { return video.given_psnr; });
  row.psnr = over(videos, [](const VideoMeasures& video) { return video.psnr; });
  return row;
}

std::string video_tables(std::span<const VideoRow> rows) {
  std::vector<EvalRow> attributes;
  for (const VideoRow& row : rows) attributes.push_back(row.attributes);
  return markdown_table(attributes) + "\n" + motion_table(rows) + "\n" + steadiness_table(rows);
}

nlohmann::ordered_json row_json(const VideoRow& row) {
  nlohmann::ordered_json out = {{"row", row.name}, {"clips", row.videos}};
  for (std::size_t i = 0; i < kMarks; ++i) {
    out[std::string(name_of(static_cast<Mark>(i)))] = interval_json(row.attributes.marks[i]);
  }
  out["found"] = interval_json(row.found);
  out["motion"] = interval_json(row.motion);
  for (std::size_t i = 0; i < kMotions; ++i) {
    out["motion_" + std::string(motion_names()[i])] = interval_json(row.by_motion[i]);
  }
  out["code_change"] = interval_json(row.code_change);
  out["pixel_change"] = interval_json(row.pixel_change);
  for (std::size_t i = 0; i < kMarks; ++i) {
    const auto mark = static_cast<Mark>(i);
    if (mark == Mark::kOrder) continue;  // never asked
    out["last_as_first_" + std::string(name_of(mark))] = interval_json(row.agreement.marks[i]);
  }
  out["given_psnr_db"] = interval_json(row.given_psnr);
  out["psnr_db"] = interval_json(row.psnr);
  return out;
}

}  // namespace tessera
