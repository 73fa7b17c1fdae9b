// Text and JSON lines are read line by line; what is common to the forms stands in JobReading. CSV
// is in job_csv.cpp.
#include "apps/jobs/job_list.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "apps/captions/line_reader.h"
#include "apps/captions/text_forms.h"
#include "apps/jobs/job_csv.h"
#include "apps/jobs/job_fields.h"
#include "engine/core/index.h"
#include "engine/core/json_scan.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxJobBytes = std::size_t{256} << 20;  // of the items' text

void check(const TextLine& line, std::size_t offset, const FieldProblem& problem) {
  if (problem.expected.empty()) return;
  line.fail(problem.code, offset + problem.offset, problem.expected, problem.found);
}

// Field names already given in this item, for "each field once".
JobItem parse_json_fields(const TextLine& line, JsonScanner& scanner) {
  const JsonToken open = scanner.next();
  if (open.kind != JsonKind::kObjectBegin) {
    line.fail("E_JOB_FIELD", open.offset, "an object", std::string(json_kind_name(open.kind)));
  }
  JobItem item{.line = line.number};
  std::unordered_set<const JobField*> seen;
  for (JsonToken key = scanner.next(); key.kind == JsonKind::kKey; key = scanner.next()) {
    const std::string name(key.text.substr(0, 100));
    const JobField* field = find_job_field(key.text);
    if (field == nullptr) {
      line.fail("E_JOB_FIELD", key.offset, "one of " + job_field_names(),
                "the unknown field \"" + name + "\"");
    }
    if (!seen.insert(field).second) {
      line.fail("E_JOB_FIELD", key.offset, "each field once", "\"" + name + "\" again");
    }
    const bool number = field->type == FieldType::kInteger || field->type == FieldType::kNumber;
    const JsonToken value = scanner.next();
    if (value.kind != (number ? JsonKind::kNumber : JsonKind::kString)) {
      line.fail("E_JOB_FIELD", value.offset,
                std::string(number ? "a number" : "a string") + " for \"" + name + "\"",
                std::string(json_kind_name(value.kind)));
    }
    FieldProblem problem = set_job_field(item, *field, value.text);
    problem.offset = 0;  // escapes move the bytes of a string
    check(line, value.offset, problem);
  }
  if (item.prompt.empty()) line.fail("E_JOB_FIELD", open.offset, "the field \"prompt\"", "none");
  scanner.next();  // the end, or an error of the scanner
  return item;
}

JobItem parse_json_line(const TextLine& line) {
  try {
    JsonScanner scanner(
        line.text, line.file,
        {.max_bytes = LineReader::kMaxLineBytes, .max_depth = 8, .kind = ErrorKind::kUsage});
    return parse_json_fields(line, scanner);
  } catch (const Error& error) {
    line.fail_at_byte(error);
  }
}

// The items of a job as they come, with the checks that go over all of them.
class JobReading {
 public:
  JobReading(ByteSource& source, std::string file) : file_(std::move(file)), lines_(source) {}

  JobList read(JobForm form) {
    if (form == JobForm::kCsv) {
      CsvJob csv(lines_, file_);
      while (more() && step([&] { return csv.next(); })) {
      }
    } else {
      const bool json = form == JobForm::kJsonLines;
      while (more() && step([&] { return next_line(json); })) {
      }
    }
    finish();
    return std::move(list_);
  }

 private:
  bool more() const { return list_.errors.size() < kMaxJobErrors; }

  // One item; its errors are kept. False at the end.
  template <typename Next>
  bool step(Next next) {
    try {
      CsvJob::Step got = next();
      if (got.item) add(*got.item);
      return got.more;
    } catch (const Error& error) {
      list_.errors.push_back(error.info());
      // What cannot be read, or whose columns are unknown, has no next line.
      return error.info().code != "E_IO_READ" && error.info().code != kCsvFatal;
    }
  }

  CsvJob::Step next_line(bool json) {
    std::string text;
    const LineReader::Got got = lines_.next(text);
    if (got == LineReader::Got::kEnd) return {.more = false};
    std::size_t skipped = 0;
    if (lines_.number() == 1 && text.starts_with("\xef\xbb\xbf")) skipped = 3;
    const TextLine line{std::string_view(text).substr(skipped), file_, lines_.number()};
    if (got == LineReader::Got::kTooLong) fail_long_line(line);
    if (json) {
      if (line.text.find_first_not_of(" \t\r") == std::string_view::npos) return {};
      return {.item = parse_json_line(line)};
    }
    const std::size_t size = line.text.find_last_not_of(" \t\r") + 1;  // npos + 1 = 0
    if (size == 0 || line.text.front() == '#') return {};
    JobItem item{.line = line.number};
    check(line, 0, set_job_field(item, *find_job_field("prompt"), line.text.substr(0, size)));
    return {.item = std::move(item)};
  }

  void add(JobItem& item) {
    const TextLine line{"", file_, item.line};
    bytes_ += item.prompt.size() + (item.negative_prompt ? item.negative_prompt->size() : 0);
    if (list_.items.size() >= kMaxJobItems || bytes_ > kMaxJobBytes) {
      line.fail("E_JOB_SIZE", 0, "at most 1000000 items and 256 MiB of text", "more");
    }
    if (!item.id.empty()) {
      const auto [before, fresh] = ids_.emplace(item.id, item.line);
      if (!fresh) {
        line.fail("E_JOB_DUPLICATE", 0, "each id once",
                  "\"" + item.id + "\" here and in line " + std::to_string(before->second));
      }
    }
    list_.items.push_back(std::move(item));
  }

  // Ids for items without one; the second of two equal items gets "-2".
  void finish() {
    std::unordered_map<std::string, std::uint64_t> times;
    for (JobItem& item : list_.items) {
      if (!item.id.empty()) continue;
      const std::string made = made_item_id(item);
      std::uint64_t& count = times[made];
      do {
        item.id = ++count == 1 ? made : made + "-" + std::to_string(count);
      } while (!ids_.emplace(item.id, item.line).second);
    }
    if (list_.items.empty() && list_.errors.empty()) {
      list_.errors.push_back({.kind = ErrorKind::kUsage,
                              .code = "E_JOB_EMPTY",
                              .file = file_,
                              .where = "line 1, column 1",
                              .expected = "an item",
                              .found = "none"});
    }
  }

  std::string file_;
  LineReader lines_;
  JobList list_;
  std::uint64_t bytes_ = 0;
  std::unordered_map<std::string, std::uint64_t> ids_;  // where each was first seen
};

Json item_fields(const JobItem& item) {
  Json out = Json::object();
  out["prompt"] = item.prompt;
  for (const JobField& field : job_fields()) {
    if (field.type == FieldType::kId || field.name == "prompt" || !is_given(item, field)) continue;
    out[std::string(field.name)] = job_field_json(item, field);
  }
  return out;
}

}  // namespace

bool operator==(const JobItem& a, const JobItem& b) {
  if (a.id != b.id || a.prompt != b.prompt) return false;
  return std::ranges::all_of(
      job_fields(), [&](const JobField& field) { return same_job_field(a, b, field); });
}

void fail_long_line(const TextLine& line) {
  line.fail("E_JOB_LINE", 0,
            "lines of at most " + std::to_string(LineReader::kMaxLineBytes) + " bytes",
            "a longer one");
}

JobForm job_form_of(const fs::path& path) {
  const std::string ending = path.extension().string();
  if (ending == ".txt") return JobForm::kText;
  if (ending == ".jsonl" || ending == ".ndjson") return JobForm::kJsonLines;
  if (ending == ".csv") return JobForm::kCsv;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_JOB_FORM",
               .file = path.string(),
               .where = "job file",
               .expected = "a name that ends in .txt, .jsonl or .csv",
               .found = ending.empty() ? "no ending" : ending});
}

JobList read_job(ByteSource& source, const std::string& file, JobForm form) {
  return JobReading(source, file).read(form);
}

JobList read_job_file(const fs::path& path) {
  const JobForm form = job_form_of(path);
  InputFile source(path, ErrorKind::kUsage);
  return read_job(source, path.string(), form);
}

std::string job_line(const JobItem& item) {
  Json out = Json::object();
  out["id"] = item.id;
  out.update(item_fields(item));
  return json_line(out);
}

std::string made_item_id(const JobItem& item) {
  static constexpr std::size_t kMaxWords = 32;  // characters
  std::string words;
  for (const char c : item.prompt) {
    const char low = c >= 'A' && c <= 'Z' ? char_of(c - 'A' + 'a') : c;
    const bool kept = (low >= 'a' && low <= 'z') || (low >= '0' && low <= '9');
    if (words.size() >= kMaxWords) break;
    if (kept) {
      words += low;
    } else if (!words.empty() && words.back() != '-') {
      words += '-';
    }
  }
  if (!words.empty() && words.back() != '-') words += '-';
  return words + content_hash(json_line(item_fields(item))).substr(0, 12);
}

}  // namespace tessera
