// Job files. Oracle: whatever the bytes, items are within their ranges and errors name a place; an
// item list that is written as JSON lines, as CSV and, where it can be, as text is read back as
// the very same list from each.
#include <nlohmann/json.hpp>
#include <set>

#include "apps/captions/text_forms.h"
#include "apps/jobs/job_list.h"
#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "tests/fuzz/targets/fuzz_support.h"
#include "tests/support/memory_source.h"

namespace tessera::fuzz {
namespace {

JobList read(const std::string& text, JobForm form) {
  MemorySource source(text);
  return read_job(source, "f", form);
}

void check_item(const JobItem& item) {
  require(!item.id.empty() && item.id.size() <= 140 && item.id.front() != '.',
          "ids are no hidden names");
  for (const char c : item.id) {
    require(std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-',
            "ids are plain");
  }
  require(!item.prompt.empty() && item.prompt.size() <= 65536 && is_valid_utf8(item.prompt) &&
              item.prompt.find('\0') == std::string::npos,
          "prompts are texts");
  require(!item.seed || (*item.seed >= 0 && *item.seed <= kMaxJobSeed), "seeds are in range");
  for (const auto& [row, value] : item.settings.entries()) {
    require(value.number >= row->low && value.number <= row->high, "settings are in range");
  }
  require(!item.kind || *item.kind == "image" || *item.kind == "picture" || *item.kind == "video",
          "kinds are known");
  require(!item.frames || (*item.frames >= 1 && *item.frames <= kMaxVideoFrames),
          "lengths are in range");
  require(!item.fps || (*item.fps >= 1 && *item.fps <= 240), "rates are in range");
}

void check_list(const JobList& list) {
  require(!list.items.empty() || !list.errors.empty(), "an empty list is an error");
  require(list.errors.size() <= kMaxJobErrors, "errors are bounded");
  for (const ErrorInfo& error : list.errors) {
    require(error.kind == ErrorKind::kUsage && error.file == "f" &&
                error.where.starts_with("line ") && !error.expected.empty(),
            "errors are of usage and have a place");
  }
  std::set<std::string> ids;
  for (const JobItem& item : list.items) {
    check_item(item);
    require(ids.insert(item.id).second, "ids are different");
  }
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

// CSV with all columns, written the plain way.
std::string csv_of(const std::vector<JobItem>& items, bool ids) {
  static const char* const kNames[] = {"id",
                                       "prompt",
                                       "negative-prompt",
                                       "seed",
                                       "temp",
                                       "top-k",
                                       "top-p",
                                       "min-p",
                                       "typical",
                                       "cfg-scale",
                                       "kind",
                                       "frames",
                                       "fps",
                                       "container",
                                       "first-frames",
                                       "first-frames-sha256"};
  std::string out;
  for (const char* name : kNames) out += (out.empty() ? "" : ",") + std::string(name);
  out += "\r\n";
  for (const JobItem& item : items) {
    const Json fields = Json::parse(job_line(item));
    std::string row;
    for (const char* name : kNames) {
      if (name != kNames[0]) row += ',';
      if (!fields.contains(name) || (!ids && name == kNames[0])) continue;
      const Json& value = fields.at(name);
      row += value.is_string() ? quoted(value.get<std::string>()) : value.dump();
    }
    out += row + "\r\n";
  }
  return out;
}

std::string json_of(const std::vector<JobItem>& items, bool ids) {
  std::string out;
  for (const JobItem& item : items) {
    Json fields = Json::parse(job_line(item));
    if (!ids) fields.erase("id");
    out += json_line(fields) + "\n";
  }
  return out;
}

void check_equal(const JobList& list, const std::vector<JobItem>& items) {
  require(list.errors.empty(), "what was written is read without errors");
  require(list.items == items, "the forms give equal lists");
}

void check_forms(std::vector<JobItem> items) {
  static constexpr std::size_t kEnough = 24;  // items, for the time of a run
  if (items.empty()) return;
  if (items.size() > kEnough) items.resize(kEnough);
  check_equal(read(json_of(items, true), JobForm::kJsonLines), items);
  check_equal(read(csv_of(items, true), JobForm::kCsv), items);
  // Without ids, which are then made from what the items say.
  const JobList bare = read(json_of(items, false), JobForm::kJsonLines);
  check_equal(read(csv_of(items, false), JobForm::kCsv), bare.items);
  std::string text;
  for (const JobItem& item : items) {
    JobItem only;
    only.id = item.id;
    only.prompt = item.prompt;
    const bool plain = item == only && item.prompt.find('\n') == std::string::npos &&
                       item.prompt.front() != '#' && !item.prompt.starts_with("\xef\xbb\xbf") &&
                       std::string(" \t\r").find(item.prompt.back()) == std::string::npos;
    if (!plain) return;
    text += item.prompt + "\n";
  }
  check_equal(read(text, JobForm::kText), bare.items);
}

std::vector<std::string> seeds() {
  return {
      "Ja cat\n# no\ntwo dogs\n",
      "J{\"id\":\"a\",\"prompt\":\"x\",\"seed\":1,\"temp\":0.5}\n{\"prompt\":\"y\\n\\\"z\\\"\"}\n",
      "J{\"prompt\":\"p\",\"negative-prompt\":\"n\",\"top-k\":1,\"top-p\":0.5,\"min-p\":0,"
      "\"typical\":1,\"cfg-scale\":1}",
      "Cid,prompt,seed\none,a,1\n\"two\",\"b, \"\"c\"\"\nd\",\n",
      "Cprompt,temp,cfg-scale\r\n\"x\",0,1\r\ny,100,100\r\n",
      "Cprompt,kind,frames,fps,container,first_frames\na,video,8,5,webm,b.png\nc,picture,,,,\n",
      "C\xef\xbb\xbfprompt\n\"\"\"\"\n",
      "Ta cat\n# no\ntwo dogs\n",
  };
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  tessera::fuzz::write_seeds_if_asked(tessera::fuzz::seeds());
  return 0;
}

// The first byte chooses the form.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const JobForm form = data[0] == 'J'   ? JobForm::kJsonLines
                       : data[0] == 'C' ? JobForm::kCsv
                                        : JobForm::kText;
  const JobList list = fuzz::read(text, form);
  fuzz::check_list(list);
  fuzz::check_forms(list.items);
  return 0;
}

// Pieces of the grammar put into the text, next to libFuzzer's own changes.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace tessera::fuzz;
  static const char* const kPieces[] = {"\"",
                                        "\"\"",
                                        ",",
                                        "\n",
                                        "\r\n",
                                        "#",
                                        "\\n",
                                        "1e999",
                                        "-1",
                                        "0",
                                        "0.5",
                                        "9007199254740992",
                                        "\"id\":\".a\",",
                                        ".a",
                                        "..",
                                        "a",
                                        "prompt",
                                        "\"temp\":-0.5,",
                                        "\"seed\":7,",
                                        "temp",
                                        "{\"prompt\":\"q\"}\n",
                                        "\"x\"\"y\""};
  static const char* const kNumbers[] = {"-1", "-0.5", "0", "1.5", "1e-7", "101", "1e999", "9"};
  Choice choice(seed);
  if (size > 0 && !choice.one_in(3)) {
    std::string text(as_text(data, size));
    const std::size_t digit = text.find_first_of("0123456789", choice.below(text.size()));
    if (digit != std::string::npos && choice.one_in(3)) {
      text.replace(digit, 1, kNumbers[choice.below(std::size(kNumbers))]);
      return release(text, data, max_size);
    }
    const std::string piece = kPieces[choice.below(std::size(kPieces))];
    const std::size_t at = 1 + choice.below(text.size());
    if (choice.one_in(4)) {
      text.erase(std::min(at, text.size()), 1 + choice.below(8));
    } else {
      text.insert(std::min(at, text.size()), piece);
    }
    return release(text, data, max_size);
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
