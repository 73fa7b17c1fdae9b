// What README.md and docs/ look like: links, lengths, words, and that every page begins with an
// example. tests/docs/words.txt lists the words that are not used.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "tests/docs/doc_page.h"

namespace tessera::docs {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = TESSERA_SOURCE_DIR;
constexpr std::size_t kMaxCharacters = 120;
constexpr int kMaxWords = 40;
// Of README.md and docs/, without the generated tables of docs/cli.md: half of what there was, and
// 650 for the server, 500 for Python and 300 for packages and the viewer as a client, which came later.
constexpr int kMaxWordsOfAll = 23990;

const std::vector<Page>& pages() {
  static const std::vector<Page> kPages = all_pages(kRoot);
  return kPages;
}

std::vector<std::string> long_lines(const Page& page) {
  std::vector<std::string> out;
  for (const Line& line : page.lines()) {
    if (line.kind == LineKind::kTable || line.kind == LineKind::kCode) continue;
    if (characters_of(line.text) <= kMaxCharacters) continue;
    out.push_back(page.name() + ":" + std::to_string(line.number) + ": " +
                  std::to_string(characters_of(line.text)) + " characters");
  }
  return out;
}

std::vector<std::string> long_sentences(const Page& page) {
  std::vector<std::string> out;
  for (const Sentence& sentence : page.sentences()) {
    if (sentence.words <= kMaxWords) continue;
    out.push_back(page.name() + ":" + std::to_string(sentence.line) + ": " +
                  std::to_string(sentence.words) + " words: " + sentence.text);
  }
  return out;
}

// Targets that lead nowhere. Addresses on the network are left alone.
std::vector<std::string> broken_links(const Page& page, const fs::path& root) {
  std::vector<std::string> out;
  for (const Link& link : page.links()) {
    if (link.target.starts_with("https://")) continue;
    const std::size_t hash = link.target.find('#');
    const std::string path = link.target.substr(0, hash);
    const fs::path file =
        path.empty() ? root / page.name() : (root / page.name()).parent_path() / path;
    const std::string where = page.name() + ":" + std::to_string(link.line) + ": " + link.target;
    if (!fs::exists(file)) {
      out.push_back(where + ": no such file");
      continue;
    }
    if (hash == std::string::npos) continue;
    std::ifstream in(file, std::ios::binary);
    const Page target("", std::string{std::istreambuf_iterator<char>(in), {}});
    const std::vector<std::string> anchors = target.anchors();
    if (std::find(anchors.begin(), anchors.end(), link.target.substr(hash + 1)) == anchors.end()) {
      out.push_back(where + ": no such heading");
    }
  }
  return out;
}

// words.txt: "word: what to write" a line, "page word: reason" for an exception, # for comments.
struct Words {
  std::map<std::string, std::string> instead;
  std::map<std::string, std::string> exceptions;  // "page word" to its reason
};

Words read_words(std::istream& in) {
  Words out;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) {
      ADD_FAILURE() << "words.txt: no reason: " << line;
      continue;
    }
    const std::string key = line.substr(0, colon);
    (key.find(".md ") == std::string::npos ? out.instead : out.exceptions)[key] =
        line.substr(colon + 2);
  }
  return out;
}

// Every run of letters in lower case; words that are all capitals stay as they are (CLIP, LAW).
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> out;
  std::string word;
  for (const char c : text + " ") {
    if (std::isalpha(static_cast<unsigned char>(c))) {
      word += c;
      continue;
    }
    const bool capitals = word.size() > 1 && std::all_of(word.begin(), word.end(), [](char l) {
                            return std::isupper(static_cast<unsigned char>(l));
                          });
    if (!capitals) {
      for (char& l : word) l = static_cast<char>(std::tolower(static_cast<unsigned char>(l)));
    }
    if (!word.empty()) out.push_back(word);
    word.clear();
  }
  return out;
}

std::vector<std::string> unwanted_words(const Page& page, const Words& words,
                                        std::set<std::string>& used) {
  std::vector<std::string> out;
  for (const Line& line : page.paragraphs()) {
    for (const std::string& word : words_of(prose_of(line.text))) {
      const auto entry = words.instead.find(word);
      if (entry == words.instead.end()) continue;
      const std::string exception = page.name() + " " + word;
      if (words.exceptions.contains(exception)) {
        used.insert(exception);
        continue;
      }
      out.push_back(page.name() + ":" + std::to_string(line.number) + ": '" + word + "', write " +
                    entry->second);
    }
  }
  return out;
}

bool is_guide(const Page& page) {
  return page.name() == "README.md" ||
         (page.name().starts_with("docs/") && !page.name().starts_with("docs/decisions/"));
}

// Whether an example that a test runs comes early: a command, a diff that tests/adding applies, a
// program that the tests of the installed library build, or one that those of the Python package run.
bool begins_with_an_example(const Page& page) {
  constexpr int kEarly = 40;
  for (const Command& command : page.commands()) {
    if (command.marker.empty() && command.line <= kEarly) return true;
  }
  for (const Line& line : page.lines()) {
    if (line.number > 2 * kEarly || line.kind != LineKind::kFence) continue;
    for (const char* fence : {"```diff", "```cpp", "```python"}) {
      if (line.text == fence) return true;
    }
  }
  return false;
}

int words_counted(const Page& page) {
  int count = 0;
  bool generated = false;
  for (const Line& line : page.lines()) {
    if (line.text.starts_with("<!-- settings: ")) generated = !generated;
    std::istringstream in(line.text);
    for (std::string word; in >> word;) count += generated ? 0 : 1;
  }
  return count;
}

void expect_none(const std::vector<std::string>& found) {
  for (const std::string& fault : found) ADD_FAILURE() << fault;
}

TEST(DocText, LinesAreAtMost120CharactersOutsideOfTablesAndCode) {
  for (const Page& page : pages()) expect_none(long_lines(page));
}

TEST(DocText, SentencesHaveAtMost40Words) {
  for (const Page& page : pages()) expect_none(long_sentences(page));
}

TEST(DocText, EveryLinkLeadsToAFileAndAHeading) {
  std::size_t links = 0;
  for (const Page& page : pages()) {
    expect_none(broken_links(page, kRoot));
    links += page.links().size();
  }
  EXPECT_GT(links, 50u) << "links are found";
}

TEST(DocText, WordsOfTheListAreNotUsed) {
  std::ifstream in(kRoot / "tests/docs/words.txt");
  const Words words = read_words(in);
  ASSERT_GT(words.instead.size(), 20u);
  std::set<std::string> used;
  for (const Page& page : pages()) expect_none(unwanted_words(page, words, used));
  for (const auto& [exception, reason] : words.exceptions) {
    EXPECT_TRUE(used.contains(exception)) << "no longer needed: " << exception;
  }
}

TEST(DocText, EveryGuideBeginsWithAnExampleThatATestRuns) {
  for (const Page& page : pages()) {
    EXPECT_TRUE(!is_guide(page) || begins_with_an_example(page)) << page.name();
  }
}

TEST(DocText, AllOfItStaysShort) {
  int words = 0;
  for (const Page& page : pages()) {
    if (page.name() == "README.md" || page.name().starts_with("docs/")) words += words_counted(page);
  }
  RecordProperty("words", words);
  std::printf("%d words\n", words);
  EXPECT_LE(words, kMaxWordsOfAll);
}

// CONTRIBUTING.md lists the questions that README.md answers, each with the heading of its answer.
TEST(DocText, TheReadmeAnswersTheListedQuestions) {
  const auto find = [](const char* name) {
    return std::find_if(pages().begin(), pages().end(),
                        [&](const Page& page) { return page.name() == name; });
  };
  int questions = 0;
  for (const Link& link : find("CONTRIBUTING.md")->links()) {
    if (link.target.starts_with("README.md#")) ++questions;
  }
  EXPECT_EQ(questions, 12);
}

// Each check sees what it is there for.
TEST(DocChecks, FaultsAreFound) {
  const std::string words(41, 'w');
  std::string sentence;
  for (int i = 0; i < 41; ++i) sentence += "word ";
  const Page page("docs/x.md",
                  "# A page\n\n" + std::string(121, 'a') + "\n\n" + sentence +
                      "\nends. Short.\n\n[a](nowhere.md) [b](#no-heading) [c](#a-page)\n"
                      "\nA law in `law` is a [law](law.md).\n```\na law\n```\n");
  EXPECT_EQ(long_lines(page).size(), 2u);
  EXPECT_EQ(long_sentences(page).size(), 1u);
  std::istringstream list("law: distribution\nclip: video\n");
  std::set<std::string> used;
  EXPECT_EQ(unwanted_words(page, read_words(list), used).size(), 2u);
  EXPECT_FALSE(begins_with_an_example(page));
  const fs::path root = fs::path(TESSERA_BINARY_DIR) / "tests/docs/faults";
  fs::create_directories(root / "docs");
  std::ofstream(root / "docs/x.md") << "# A page\n";
  EXPECT_EQ(broken_links(page, root).size(), 3u);
}

TEST(DocChecks, CommandsAreReadWithTheirOutputsAndMarkers) {
  const Page page("x.md",
                  "```sh\n# a comment\na b   # what it does\nc \\\n  d   # needs weights\n"
                  "cat <<'END' > f\nline\nEND\ne # exit 2\n```\n"
                  "```console\n$ f\none\ntwo\n$ g\n```\n```\nnot a command\n```\n");
  const std::vector<Command> commands = page.commands();
  ASSERT_EQ(commands.size(), 6u);
  EXPECT_EQ(commands[0].text, "a b   # what it does");
  EXPECT_EQ(commands[0].marker, "");
  EXPECT_EQ(commands[1].marker, "needs weights");
  EXPECT_EQ(commands[2].text, "cat <<'END' > f\nline\nEND");
  EXPECT_EQ(commands[3].exit_code, 2);
  EXPECT_EQ(commands[4].output, (std::vector<std::string>{"one", "two"}));
  EXPECT_FALSE(commands[5].has_output);
}

TEST(DocChecks, OutputsAreComparedButForSecondsAndDots) {
  EXPECT_TRUE(output_fits({"a  0.06 s"}, "a  12.5 s\n"));
  EXPECT_FALSE(output_fits({"a  0.06 s"}, "b  0.06 s\n"));
  EXPECT_TRUE(output_fits({"a", "...", "d"}, "a\nb\nc\nd\n"));
  EXPECT_FALSE(output_fits({"a", "...", "d"}, "a\nb\nc\n"));
  EXPECT_FALSE(output_fits({"a"}, "a\nb\n"));
  EXPECT_TRUE(output_fits({"{\"x\":1,...,\"y\":2,...}"}, "{\"x\":1,\"z\":0,\"y\":2,\"w\":3}\n"));
  EXPECT_FALSE(output_fits({"{\"x\":1,...,\"y\":3}"}, "{\"x\":1,\"z\":0,\"y\":2}\n"));
}

}  // namespace
}  // namespace tessera::docs
