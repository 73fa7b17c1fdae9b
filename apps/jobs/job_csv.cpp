// A row is read cell by cell; a quoted cell takes further lines until its closing quote.
#include "apps/jobs/job_csv.h"

#include <algorithm>


namespace tessera {

namespace {

constexpr std::size_t kMaxColumns = 256;

}  // namespace

void CsvJob::fail(const Cell& cell, const char* code, std::string expected,
                  std::string found) const {
  throw Error({.kind = ErrorKind::kUsage,
               .code = code,
               .file = file_,
               .where = cell.place,
               .expected = std::move(expected),
               .found = std::move(found)});
}

// The cell at byte `at` of the line; leaves `at` on the comma after it or at the end of the line.
// `text` becomes the last line that the cell reached.
CsvJob::Cell CsvJob::read_cell(std::string& text, std::size_t& at) {
  const auto here = [&] { return TextLine{text, file_, lines_.number()}; };
  Cell cell{.line = lines_.number(), .place = here().place(at)};
  if (at >= text.size() || text[at] != '"') {
    const std::size_t end = std::min(text.find(',', at), text.size());
    cell.text = text.substr(at, end - at);
    const std::size_t quote = cell.text.find('"');
    if (quote != std::string::npos) {
      here().fail("E_JOB_CSV", at + quote, "a cell with quotes at both ends", "a quote inside");
    }
    at = end;
    if (at == text.size() && cell.text.ends_with('\r')) cell.text.pop_back();
    return cell;
  }
  for (++at;;) {
    const std::size_t quote = std::min(text.find('"', at), text.size());
    cell.text += text.substr(at, quote - at);
    if (cell.text.size() > LineReader::kMaxLineBytes) fail_long_line(here());
    at = quote;
    if (at < text.size()) {
      const bool doubled = at + 1 < text.size() && text[at + 1] == '"';
      if (!doubled) break;
      cell.text += '"';
      at += 2;
      continue;
    }
    cell.text += '\n';
    const LineReader::Got got = lines_.next(text);
    at = 0;
    if (got == LineReader::Got::kTooLong) fail_long_line(here());
    if (got == LineReader::Got::kEnd) {
      fail(cell, "E_JOB_CSV", "a closing quote", "the end of the file");
    }
  }
  ++at;
  if (at + 1 == text.size() && text[at] == '\r') ++at;
  if (at < text.size() && text[at] != ',') {
    here().fail("E_JOB_CSV", at, "a comma or the end of the line", "more after a quoted cell");
  }
  return cell;
}

// False at the end. An empty line gives no cells.
bool CsvJob::read_row(std::vector<Cell>& row) {
  std::string text;
  row.clear();
  const LineReader::Got got = lines_.next(text);
  if (got == LineReader::Got::kEnd) return false;
  if (got == LineReader::Got::kTooLong) fail_long_line(TextLine{text, file_, lines_.number()});
  if (lines_.number() == 1 && text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
  if (text.find_first_not_of(" \t\r") == std::string::npos) return true;
  for (std::size_t at = 0;; ++at) {
    row.push_back(read_cell(text, at));
    if (row.size() > kMaxColumns) {
      fail(row.back(), "E_JOB_CSV", "at most 256 columns", "more");
    }
    if (at >= text.size()) return true;
  }
}

void CsvJob::read_header(const std::vector<Cell>& row) {
  for (const Cell& cell : row) {
    const JobField* field = find_job_field(cell.text);
    if (field == nullptr) {
      fail(cell, kCsvFatal, "one of " + job_field_names(),
           "the unknown field \"" + cell.text.substr(0, 100) + "\"");
    }
    if (std::find(columns_.begin(), columns_.end(), field) != columns_.end()) {
      fail(cell, kCsvFatal, "each field once", "\"" + cell.text + "\" again");
    }
    columns_.push_back(field);
  }
  if (std::find(columns_.begin(), columns_.end(), find_job_field("prompt")) == columns_.end()) {
    fail(row.front(), kCsvFatal, "the field \"prompt\"", "none");
  }
}

JobItem CsvJob::item_of(const std::vector<Cell>& row) const {
  if (row.size() != columns_.size()) {
    fail(row.back(), "E_JOB_CSV", std::to_string(columns_.size()) + " cells, as in the header",
         std::to_string(row.size()));
  }
  JobItem item{.line = row.front().line};
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i].text.empty()) continue;
    const FieldProblem problem = set_job_field(item, *columns_[i], row[i].text);
    if (!problem.expected.empty()) fail(row[i], problem.code, problem.expected, problem.found);
  }
  if (item.prompt.empty()) fail(row.front(), "E_JOB_FIELD", "a prompt", "an empty cell");
  return item;
}

CsvJob::Step CsvJob::next() {
  std::vector<Cell> row;
  try {
    if (!read_row(row)) return {.item = std::nullopt, .more = false};
    if (row.empty()) return {};
    if (!columns_.empty()) return {.item = item_of(row)};
  } catch (const Error& error) {
    if (!columns_.empty() || error.info().code == "E_IO_READ") throw;
    ErrorInfo info = error.info();  // without columns the rest means nothing
    info.code = kCsvFatal;
    throw Error(std::move(info));
  }
  read_header(row);
  return {};
}

}  // namespace tessera
