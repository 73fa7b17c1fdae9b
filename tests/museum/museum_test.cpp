// The museum of bad files: every exhibit is refused with its code, exit code 4 and a line that
// names file, place, expected and found, within a second and 64 MiB.
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <set>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/io.h"
#include "engine/families/registry.h"
#include "tests/museum/exhibit.h"
#include "tests/support/temp_folder.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {
namespace {

constexpr double kMaxSeconds = 1.0;
constexpr long kMaxGrowthKib = 64 * 1024;
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kInstrumented = true;  // keeps freed memory: growth says nothing, time little
#else
constexpr bool kInstrumented = false;
#endif

// VmHWM (peak) or VmRSS of this process in KiB.
long memory_kib(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field)) return std::stol(line.substr(field.size() + 1));
  }
  return 0;
}

void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

void open_exhibit(const Exhibit& exhibit, const std::filesystem::path& path) {
  switch (exhibit.read_as) {
    case ReadAs::kCheckpoint:
      Checkpoint::open(path);
      return;
    case ReadAs::kConfig:
      load_model_spec(path.parent_path());
      return;
    case ReadAs::kTokenizer:
      TextTokenizer::from_file(path);
      return;
  }
}

// What is wrong with the way this error tells of the exhibit; empty if nothing.
std::string complaints(const Exhibit& exhibit, const Error& error,
                       const std::filesystem::path& folder) {
  const std::string line = error.what();
  const ErrorInfo& info = error.info();
  const std::string& named =
      exhibit.named_file.empty() ? exhibit.files.front().first : exhibit.named_file;
  std::string out;
  const auto check = [&](bool good, const std::string& what) {
    if (!good) out += what + "; ";
  };
  check(info.code == exhibit.code, "code " + info.code + " instead of " + exhibit.code);
  check(error.exit_code() == 4, "exit code " + std::to_string(error.exit_code()));
  check(info.file == (folder / named).string(), "names the file " + info.file);
  check(!info.expected.empty() && !info.found.empty(), "no expected or no found");
  for (const std::string& word : exhibit.words) {
    check(line.find(word) != std::string::npos, "no \"" + word + "\"");
  }
  check(line.size() <= 1024, "longer than 1 KiB");
  check(escape_for_terminal(line) == line, "control bytes");
  check(line.find("0x7f") == std::string::npos, "a pointer");
  return out.empty() ? out : out + "in: " + line;
}

// CPU time, so that a busy machine does not fail a fast refusal.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

std::string visit(const Exhibit& exhibit) {
  TempFolder folder;
  for (const auto& [name, contents] : exhibit.files) put_file(folder / name, contents);
  reset_peak();
  const long memory = memory_kib("VmRSS");
  const double start = cpu_seconds();
  try {
    open_exhibit(exhibit, folder / exhibit.files.front().first);
    return "accepted";
  } catch (const Error& error) {
    const double seconds = cpu_seconds() - start;
    const long growth = memory_kib("VmHWM") - memory;
    std::string out = complaints(exhibit, error, folder.path());
    if (kInstrumented) return out;
    if (seconds > kMaxSeconds) out += " took " + std::to_string(seconds) + " s";
    if (growth > kMaxGrowthKib) out += " took " + std::to_string(growth) + " KiB";
    return out;
  }
}

class Museum : public ::testing::TestWithParam<Exhibit> {};

TEST_P(Museum, IsRefusedQuicklyWithACompleteMessage) { EXPECT_EQ(visit(GetParam()), ""); }

std::vector<Exhibit> all_exhibits() {
  std::vector<Exhibit> all;
  for (const auto& room : {safetensors_exhibits(), index_exhibits(), torch_exhibits(),
                           config_exhibits(), tokenizer_exhibits()}) {
    all.insert(all.end(), room.begin(), room.end());
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Exhibits, Museum, ::testing::ValuesIn(all_exhibits()),
                         [](const auto& row) { return row.param.name; });

// The guide itself is checked: it complains of a good file and of each part of a wrong label.
TEST(MuseumCatalogue, WrongLabelsAreNoticed) {
  const Exhibit right = safetensors_exhibits().front();
  ASSERT_EQ(visit(right), "");
  Exhibit wrong = right;
  wrong.code = "E_ST_HOLE";
  EXPECT_NE(visit(wrong), "");
  wrong = right;
  wrong.words.push_back("a word that no message holds");
  EXPECT_NE(visit(wrong), "");
  wrong = right;
  wrong.named_file = "another";
  EXPECT_NE(visit(wrong), "");
  wrong = right;
  wrong.files.front().second = std::string("\2\0\0\0\0\0\0\0{}", 10);
  EXPECT_EQ(visit(wrong), "accepted");
}

TEST(MuseumCatalogue, HoldsAtLeastAHundredFilesUnderNamesOfTheirOwn) {
  std::set<std::string> names, codes;
  for (const Exhibit& exhibit : all_exhibits()) {
    EXPECT_TRUE(names.insert(exhibit.name).second) << exhibit.name;
    EXPECT_FALSE(exhibit.words.empty()) << exhibit.name;
    codes.insert(exhibit.code);
  }
  std::printf("museum: %zu bad files, %zu error codes\n", names.size(), codes.size());
  EXPECT_GE(names.size(), 100u);
}

}  // namespace
}  // namespace tessera
