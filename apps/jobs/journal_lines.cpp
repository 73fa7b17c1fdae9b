// A line is {"n":..., fields, "prev":"xxxxxxxx","crc":"xxxxxxxx"}; "crc" is over all bytes before
// it, "prev" is the "crc" of the line before.
#include "apps/jobs/journal_lines.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/captions/text_forms.h"

namespace tessera::journal_lines {

namespace {

// ,"crc":"xxxxxxxx"}
constexpr std::string_view kSumStart = ",\"crc\":\"", kSumEnd = "\"}";
constexpr std::size_t kSumBytes = 8 + 8 + 2;
constexpr std::size_t kMaxRecordBytes = std::size_t{64} << 20;  // a header may hold all inputs

}  // namespace

std::string hex8(std::uint32_t value) {
  char buffer[12];
  std::snprintf(buffer, sizeof buffer, "%08x", value);
  return buffer;
}

std::uint64_t OpenedLine::number() const { return record->at("n").get<std::uint64_t>(); }

bool OpenedLine::follows(std::uint64_t count, std::uint32_t before) const {
  return number() == count && record->at("prev").get<std::string>() == hex8(before);
}

std::optional<OpenedLine> open_line(std::string_view line) {
  if (line.size() < kSumBytes || !line.ends_with(kSumEnd)) return std::nullopt;
  const std::string_view body = line.substr(0, line.size() - kSumBytes);
  if (!line.substr(body.size()).starts_with(kSumStart)) return std::nullopt;
  const std::uint32_t sum = crc32c(body);
  if (line.substr(body.size() + kSumStart.size(), 8) != hex8(sum)) return std::nullopt;
  try {
    Json record = parse_json(line, "journal", {.max_bytes = kMaxRecordBytes, .max_depth = 16});
    const bool typed = record.is_object() && record.contains("n") && record.contains("prev") &&
                       record.at("n").is_number_unsigned() && record.at("prev").is_string();
    if (typed) return OpenedLine{std::make_shared<Json>(std::move(record)), sum};
  } catch (const std::exception&) {  // a line of somebody else, whatever its checksum says
  }
  return std::nullopt;
}

std::string seal_line(const Json& fields, std::uint64_t number, std::uint32_t& last_sum) {
  Json record = Json::object();
  record["n"] = number;
  for (const auto& [key, value] : fields.items()) {
    if (key != "n" && key != "prev" && key != "crc") record[key] = value;
  }
  record["prev"] = hex8(last_sum);
  std::string line = json_line(record);
  line.pop_back();  // the closing brace
  last_sum = crc32c(line);
  return line + std::string(kSumStart) + hex8(last_sum) + std::string(kSumEnd) + "\n";
}

bool read_more(InputFile& source, std::string& buffer) {
  static constexpr std::size_t kPiece = std::size_t{256} << 10;
  if (buffer.size() > kMaxRecordBytes) return false;
  const std::size_t before = buffer.size();
  buffer.resize(before + kPiece);
  buffer.resize(before + source.read(buffer.data() + before, kPiece));
  return buffer.size() > before;
}

}  // namespace tessera::journal_lines
