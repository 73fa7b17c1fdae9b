// Pages of the documentation, read as text: which lines are prose, what they link to, which
// commands they show.
#pragma once

#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

namespace tessera::docs {

enum class LineKind { kProse, kHeading, kTable, kCode, kFence };

struct Line {
  int number = 0;  // from 1
  LineKind kind = LineKind::kProse;
  std::string text;
};

struct Link {
  int line = 0;
  std::string target;  // as written: a path, #anchor, or a URL
};

struct Sentence {
  int line = 0;  // where its paragraph begins
  std::string text;
  int words = 0;
};

// A command of a ```sh or ```console block, and the output that a console block shows after it.
struct Command {
  int line = 0;
  std::string text;    // continued lines and here-documents are part of it
  std::string marker;  // why tests do not run it ("needs weights"), or empty
  int exit_code = 0;   // "# exit 2"
  bool has_output = false;
  std::vector<std::string> output;
};

class Page {
 public:
  Page(std::string name, const std::string& text);  // name: relative to the root of the tree

  const std::string& name() const { return name_; }
  const std::vector<Line>& lines() const { return lines_; }
  std::vector<Link> links() const;
  std::vector<std::string> anchors() const;  // of its headings, as GitHub spells them
  // Prose joined to paragraphs and list items, with headings and tables line by line; no code.
  std::vector<Line> paragraphs() const;
  std::vector<Sentence> sentences() const;  // of prose; headings and tables are left out
  std::vector<Command> commands() const;

 private:
  std::string name_;
  std::vector<Line> lines_;
  std::vector<std::string> languages_;  // of each line's block, empty outside
};

// For test reports.
inline void PrintTo(const Page& page, std::ostream* out) { *out << page.name(); }

// README.md, CONTRIBUTING.md, CHANGELOG.md, examples/README.md, docs/*.md and docs/decisions/*.md.
std::vector<Page> all_pages(const std::filesystem::path& root);

// Without code spans, link targets and comments; what remains is read by people.
std::string prose_of(const std::string& paragraph);

// Characters of a UTF-8 text.
std::size_t characters_of(const std::string& text);

// Whether a shown output fits: a line "..." stands for any lines, "..." in a line for any text.
// Seconds ("0.06 s") are not compared.
bool output_fits(const std::vector<std::string>& shown, const std::string& found);

}  // namespace tessera::docs
