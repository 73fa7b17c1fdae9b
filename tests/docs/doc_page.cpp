#include "tests/docs/doc_page.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

namespace tessera::docs {

namespace fs = std::filesystem;

namespace {

// Why a command of a page is not run by a test. It is the end of the command's comment.
constexpr std::array<std::string_view, 7> kMarkers = {
    "needs weights", "needs a GPU", "needs a window", "needs the network",
    "needs Slurm",   "needs time",  "builds"};

std::string trimmed(const std::string& text) {
  const std::size_t from = text.find_first_not_of(" \t");
  if (from == std::string::npos) return "";
  return text.substr(from, text.find_last_not_of(" \t") - from + 1);
}

bool begins_list_item(const std::string& text) {
  static const std::regex kItem(R"(^\s*([-*]|\d+\.)\s)");
  return std::regex_search(text, kItem);
}

int words_in(const std::string& text) {
  std::istringstream in(text);
  int count = 0;
  for (std::string word; in >> word;) {
    if (std::any_of(word.begin(), word.end(), [](unsigned char c) { return std::isalnum(c); })) {
      ++count;
    }
  }
  return count;
}

void split_sentences(const std::string& paragraph, int line, std::vector<Sentence>& out) {
  std::size_t from = 0;
  for (std::size_t i = 0; i < paragraph.size(); ++i) {
    const bool ends = std::string(".!?").find(paragraph[i]) != std::string::npos &&
                      (i + 1 == paragraph.size() || paragraph[i + 1] == ' ');
    if (!ends && i + 1 != paragraph.size()) continue;
    const std::string text = trimmed(paragraph.substr(from, i + 1 - from));
    if (!text.empty()) out.push_back({line, text, words_in(text)});
    from = i + 1;
  }
}

// Splits off what the comment at a command's end says to tests.
void read_comment(Command& command) {
  const std::size_t hash = command.text.rfind(" # ");
  if (hash == std::string::npos) return;
  const std::string comment = trimmed(command.text.substr(hash + 3));
  for (const std::string_view marker : kMarkers) {
    if (comment.ends_with(marker)) command.marker = marker;
  }
  static const std::regex kExit(R"(exit (\d+)$)");
  std::smatch match;
  if (std::regex_search(comment, match, kExit)) command.exit_code = std::stoi(match[1]);
}

bool is_continued(const std::string& text) { return text.ends_with("\\"); }

// The word that ends a here-document which begins in this line, or nothing.
std::string here_document_end(const std::string& text) {
  static const std::regex kHere(R"(<<'?(\w+)'?)");
  std::smatch match;
  return std::regex_search(text, match, kHere) ? match[1].str() : "";
}

}  // namespace

Page::Page(std::string name, const std::string& text) : name_(std::move(name)) {
  std::istringstream in(text);
  std::string language, line;
  bool in_code = false, generated = false;  // tables that another test compares
  for (int number = 1; std::getline(in, line); ++number) {
    const std::string begin = trimmed(line);
    LineKind kind = LineKind::kProse;
    if (begin.starts_with("<!-- settings: ")) generated = !generated;
    if (generated) {
      kind = LineKind::kCode;
    } else if (begin.starts_with("```")) {
      kind = LineKind::kFence;
      in_code = !in_code;
      language = in_code ? begin.substr(3) : "";
    } else if (in_code) {
      kind = LineKind::kCode;
    } else if (begin.starts_with("|")) {
      kind = LineKind::kTable;
    } else if (begin.starts_with("#")) {
      kind = LineKind::kHeading;
    }
    lines_.push_back({number, kind, line});
    languages_.push_back(language);
  }
}

std::vector<Link> Page::links() const {
  static const std::regex kLink(R"(\]\(([^)\s]+)\))");
  std::vector<Link> out;
  for (const Line& line : lines_) {
    if (line.kind == LineKind::kCode) continue;
    for (std::sregex_iterator it(line.text.begin(), line.text.end(), kLink), end; it != end; ++it) {
      out.push_back({line.number, (*it)[1]});
    }
  }
  return out;
}

std::vector<std::string> Page::anchors() const {
  std::vector<std::string> out;
  std::map<std::string, int> seen;
  for (const Line& line : lines_) {
    if (line.kind != LineKind::kHeading) continue;
    std::string anchor;
    for (const char c : trimmed(line.text.substr(line.text.find_first_not_of('#')))) {
      const auto byte = static_cast<unsigned char>(c);
      if (std::isalnum(byte) || byte >= 0x80 || c == '-' || c == '_') {
        anchor += static_cast<char>(std::tolower(byte));
      } else if (c == ' ') {
        anchor += '-';
      }
    }
    const int before = seen[anchor]++;
    out.push_back(before == 0 ? anchor : anchor + "-" + std::to_string(before));
  }
  return out;
}

std::vector<Line> Page::paragraphs() const {
  std::vector<Line> out;
  bool open = false;
  for (const Line& line : lines_) {
    if (line.kind == LineKind::kCode || line.kind == LineKind::kFence) {
      open = false;
    } else if (line.kind != LineKind::kProse) {
      out.push_back(line);
      open = false;
    } else if (trimmed(line.text).empty()) {
      open = false;
    } else if (open && !begins_list_item(line.text)) {
      out.back().text += " " + trimmed(line.text);
    } else {
      out.push_back(line);
      open = true;
    }
  }
  return out;
}

std::vector<Sentence> Page::sentences() const {
  std::vector<Sentence> out;
  for (const Line& line : paragraphs()) {
    if (line.kind == LineKind::kProse) split_sentences(prose_of(line.text), line.number, out);
  }
  return out;
}

std::vector<Command> Page::commands() const {
  std::vector<Command> out;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const bool console = languages_[i] == "console";
    if (lines_[i].kind != LineKind::kCode || (!console && languages_[i] != "sh")) continue;
    std::string text = lines_[i].text;
    if (console && !text.starts_with("$ ")) {
      if (!out.empty()) {
        out.back().has_output = true;
        out.back().output.push_back(text);
      }
      continue;
    }
    if (console) text = text.substr(2);
    if (trimmed(text).empty() || trimmed(text).starts_with("#")) continue;
    Command command{.line = lines_[i].number, .text = text, .marker = {}, .output = {}};
    read_comment(command);
    while (is_continued(command.text) && i + 1 < lines_.size()) {
      command.text += "\n" + lines_[++i].text;
      read_comment(command);
    }
    const std::string end = here_document_end(text);
    while (!end.empty() && lines_[i].text != end && i + 1 < lines_.size()) {
      command.text += "\n" + lines_[++i].text;
    }
    out.push_back(std::move(command));
  }
  return out;
}

std::vector<Page> all_pages(const fs::path& root) {
  std::vector<fs::path> files = {"README.md", "CONTRIBUTING.md", "CHANGELOG.md",
                                 "examples/README.md"};
  for (const char* folder : {"docs", "docs/decisions"}) {
    for (const auto& entry : fs::directory_iterator(root / folder)) {
      if (entry.path().extension() == ".md") files.push_back(fs::relative(entry.path(), root));
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<Page> out;
  for (const fs::path& file : files) {
    std::ifstream in(root / file, std::ios::binary);
    out.emplace_back(file.string(), std::string{std::istreambuf_iterator<char>(in), {}});
  }
  return out;
}

std::string prose_of(const std::string& paragraph) {
  static const std::regex kCode("`[^`]*`"), kTarget(R"(\]\([^)\s]*\))"), kComment("<!--.*-->");
  std::string out = std::regex_replace(paragraph, kComment, "");
  out = std::regex_replace(out, kCode, "x");
  return std::regex_replace(out, kTarget, "]");
}

std::size_t characters_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

namespace {

std::string without_seconds(const std::string& text) {
  static const std::regex kSeconds(R"(\d+(\.\d+)? s\b)");
  return std::regex_replace(text, kSeconds, "# s");
}

// Parts of the shown line must be found in order; the first at its beginning, the last at its end.
bool line_fits(const std::string& shown, const std::string& found) {
  std::size_t at = 0, from = 0;
  for (bool first = true;; first = false) {
    const std::size_t dots = shown.find("...", from);
    const std::string part = shown.substr(from, dots == std::string::npos ? dots : dots - from);
    if (dots == std::string::npos) {
      if (first) return found == part;
      return found.size() >= at + part.size() && found.ends_with(part);
    }
    const std::size_t hit = found.find(part, at);
    if (hit == std::string::npos || (first && hit != 0)) return false;
    at = hit + part.size();
    from = dots + 3;
  }
}

bool lines_fit(const std::vector<std::string>& shown, std::size_t i,
               const std::vector<std::string>& found, std::size_t j) {
  if (i == shown.size()) return j == found.size();
  if (shown[i] == "...") {
    for (std::size_t k = j; k <= found.size(); ++k) {
      if (lines_fit(shown, i + 1, found, k)) return true;
    }
    return false;
  }
  return j < found.size() && line_fits(shown[i], found[j]) && lines_fit(shown, i + 1, found, j + 1);
}

}  // namespace

bool output_fits(const std::vector<std::string>& shown, const std::string& found) {
  std::vector<std::string> want, have;
  for (const std::string& line : shown) want.push_back(without_seconds(line));
  std::istringstream in(found);
  for (std::string line; std::getline(in, line);) have.push_back(without_seconds(line));
  return lines_fit(want, 0, have, 0);
}

}  // namespace tessera::docs
