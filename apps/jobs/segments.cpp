// Segments by item, and their files.
#include "apps/jobs/segments.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::string_view kPrefix = "clip-";
constexpr std::string_view kCodesLine = "tessera codes 1\n";
constexpr std::size_t kCodeBytes = 4;

std::string video_file(const std::string& id, std::int64_t number, std::string_view ending) {
  char text[32];
  std::snprintf(text, sizeof text, "-%06" PRId64 ".", number);
  return std::string(kPrefix) + id + text + std::string(ending);
}

}  // namespace

Json segment_fields(const std::string& id, const VideoSegment& segment) {
  return {{"segment", id},
          {"first", segment.first},
          {"grids", segment.grids},
          {"passes", segment.passes},
          {"file",
           {{"p", segment.file.name},
            {"len", segment.file.bytes},
            {"sha256", segment.file.sha256},
            {"xxh3", segment.file.xxh3}}}};
}

void Segments::take(const Json& fields) {
  if (fields.value("st", std::string()) == "done") items_.erase(fields.value("id", std::string()));
  if (!fields.contains("segment")) return;
  const std::string id = fields.at("segment").get<std::string>();
  const Json& file = fields.at("file");
  VideoSegment read{
      .first = fields.at("first").get<std::int64_t>(),
      .grids = fields.at("grids").get<std::int64_t>(),
      .passes = fields.at("passes").get<std::int64_t>(),
      .file = {file.at("p").get<std::string>(), file.at("len").get<std::uint64_t>(),
               file.at("sha256").get<std::string>(), file.at("xxh3").get<std::string>()}};
  const bool counts = read.first >= 0 && read.first < kMaxVideoFrames && read.grids > 0 &&
                      read.grids <= kMaxVideoFrames;
  if (!counts || !is_plain_name(id) || read.file.name != segment_name(id, read.first)) return;
  std::vector<VideoSegment>& known = items_[id];
  const auto same = std::find_if(known.begin(), known.end(), [&](const VideoSegment& segment) {
    return segment.first >= read.first;
  });
  known.erase(same, known.end());
  const std::int64_t end = known.empty() ? 0 : known.back().first + known.back().grids;
  if (read.first == end) known.push_back(std::move(read));
}

std::span<const VideoSegment> Segments::of(const std::string& id) const {
  const auto item = items_.find(id);
  if (item == items_.end()) return {};
  return item->second;
}

void Segments::cut(const std::string& id, std::size_t segment) {
  const auto item = items_.find(id);
  if (item == items_.end()) return;
  if (segment < item->second.size()) item->second.resize(segment);
  if (item->second.empty()) items_.erase(item);
}

std::string segment_name(const std::string& id, std::int64_t first) {
  return video_file(id, first, "codes");
}

std::string draft_name(const std::string& id, std::string_view container) {
  return video_file(id, 0, container);
}

std::string item_of_video_file(std::string_view name) {
  static constexpr std::string_view kDigits = "0123456789";
  if (!name.starts_with(kPrefix)) return {};
  const std::size_t dash = name.rfind('-'), dot = name.rfind('.');
  if (dot == std::string_view::npos || dash < kPrefix.size() || dot <= dash + 6) return {};
  if (name.substr(dash + 1, dot - dash - 1).find_first_not_of(kDigits) != std::string_view::npos) {
    return {};
  }
  return std::string(name.substr(kPrefix.size(), dash - kPrefix.size()));
}

std::string codes_text(std::span<const std::int32_t> codes) {
  std::string out(kCodesLine);
  out.reserve(out.size() + codes.size() * kCodeBytes);
  for (const std::int32_t code : codes) {
    const auto bits = low_bits<std::uint32_t>(code);
    for (unsigned byte = 0; byte < kCodeBytes; ++byte) {
      out += char_of(bits >> (8 * byte) & 0xff);
    }
  }
  return out;
}

std::optional<std::vector<std::int32_t>> codes_in(std::string_view text, std::size_t count,
                                                  std::int64_t codes) {
  if (!text.starts_with(kCodesLine)) return std::nullopt;
  text.remove_prefix(kCodesLine.size());
  if (text.size() != count * kCodeBytes) return std::nullopt;
  std::vector<std::int32_t> out;
  out.reserve(count);
  for (std::size_t at = 0; at < text.size(); at += kCodeBytes) {
    std::uint32_t bits = 0;
    for (unsigned byte = 0; byte < kCodeBytes; ++byte) {
      bits |= std::uint32_t{byte_of(text[at + byte])} << (8 * byte);
    }
    if (std::int64_t{bits} >= codes) return std::nullopt;
    out.push_back(narrow<std::int32_t>(bits));
  }
  return out;
}

}  // namespace tessera
