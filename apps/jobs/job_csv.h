// Job files as CSV (RFC 4180): a header with the names of fields, then a row an item. A quoted cell
// may hold commas, doubled quotes and line breaks; an empty cell leaves its field open.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/captions/line_reader.h"
#include "apps/jobs/job_fields.h"
#include "apps/jobs/job_list.h"

namespace tessera {

// The code of errors after which no row can be read.
inline constexpr const char* kCsvFatal = "E_JOB_CSV_HEADER";

[[noreturn]] void fail_long_line(const TextLine& line);

class CsvJob {
 public:
  struct Step {
    std::optional<JobItem> item;  // empty for an empty line
    bool more = true;             // false at the end
  };
  CsvJob(LineReader& lines, const std::string& file) : lines_(lines), file_(file) {}

  // The next row. Error kUsage with line and column.
  Step next();

 private:
  struct Cell {
    std::string text;
    std::uint64_t line = 0;  // where the cell begins
    std::string place;
  };
  [[noreturn]] void fail(const Cell& cell, const char* code, std::string expected,
                         std::string found) const;
  bool read_row(std::vector<Cell>& row);
  Cell read_cell(std::string& text, std::size_t& at);
  void read_header(const std::vector<Cell>& row);
  JobItem item_of(const std::vector<Cell>& row) const;

  LineReader& lines_;
  const std::string& file_;
  std::vector<const JobField*> columns_;
};

}  // namespace tessera
