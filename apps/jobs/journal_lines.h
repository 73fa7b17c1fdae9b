// Lines of a journal: how a record is sealed and opened, and a file as whole lines. For whoever
// reads or writes journals; what the records mean is in apps/jobs/journal.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/core/file_stream.h"
#include "engine/core/json.h"

namespace tessera::journal_lines {

std::string hex8(std::uint32_t value);

struct OpenedLine {
  std::shared_ptr<Json> record;
  std::uint32_t sum = 0;  // of the record, the chain's next link

  std::uint64_t number() const;
  bool follows(std::uint64_t count, std::uint32_t before) const;  // the chain holds
};
// A line whose own checksum holds, wherever it stands; nullopt for any other.
std::optional<OpenedLine> open_line(std::string_view line);

// Number first, chain and checksum last, with the line's end. Fields of that name in `fields` are
// left out. `last_sum` is that of the line before, and this line's afterwards.
std::string seal_line(const Json& fields, std::uint64_t number, std::uint32_t& last_sum);

// Appends the next piece of the source; false at its end, or when a line is longer than any record.
bool read_more(InputFile& source, std::string& buffer);

// Gives whole lines one by one until `take` refuses one. Returns the bytes from the file's start
// while no line was taken.
template <typename Take>
std::string take_lines(InputFile& source, Take take) {
  std::string buffer;
  for (std::size_t at = 0;;) {
    const std::size_t line_end = buffer.find('\n', at);
    if (line_end == std::string::npos) {
      buffer.erase(0, std::exchange(at, 0));
      if (!read_more(source, buffer)) return buffer;
      continue;
    }
    if (!take(std::string_view(buffer).substr(at, line_end - at))) return buffer;
    at = line_end + 1;
  }
}

}  // namespace tessera::journal_lines
