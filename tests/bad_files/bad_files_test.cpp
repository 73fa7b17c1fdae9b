// The corpus of bad files of bad files: every bad sample is refused with its code, exit code 4 and
// a line that names file, place, expected and found, within a second and 64 MiB.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/io.h"
#include "engine/families/registry.h"
#include "tests/bad_files/bad_sample.h"
#include "tests/bad_files/refusal_cost.h"
#include "tests/support/temp_folder.h"
#include "tokenizers/template/template.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera::bad_files_test {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kInstrumented = true;  // keeps freed memory: growth says nothing, time little
#else
constexpr bool kInstrumented = false;
#endif

// On a short conversation; with a step and byte budget that fits the time of a bad file.
void render_template(const std::filesystem::path& path) {
  const Json messages = {{{"role", "user"}, {"content", "<s>hi"}}};
  TemplateInput input;
  input.messages = &messages;
  const std::string text = read_file(path, ChatTemplate::kMaxSourceBytes + 1);
  ChatTemplate::parse(text, path.string())
      .render(input, {.max_steps = 1'000'000, .max_bytes = std::size_t{16} << 20});
}

void open_bad_sample(const BadSample& bad_sample, const std::filesystem::path& path) {
  switch (bad_sample.read_as) {
    case ReadAs::kCheckpoint:
      Checkpoint::open(path);
      return;
    case ReadAs::kConfig:
      load_model_spec(path.parent_path());
      return;
    case ReadAs::kTokenizer:
      TextTokenizer::from_file(path);
      return;
    case ReadAs::kTokenizerFolder:
      TextTokenizer::from_folder(path.parent_path());
      return;
    case ReadAs::kTemplate:
      render_template(path);
      return;
  }
}

// What is wrong with the way this error tells of the bad sample; empty if nothing.
std::string complaints(const BadSample& bad_sample, const Error& error,
                       const std::filesystem::path& folder) {
  const std::string line = error.what();
  const ErrorInfo& info = error.info();
  const std::string& named =
      bad_sample.named_file.empty() ? bad_sample.files.front().first : bad_sample.named_file;
  std::string out;
  const auto check = [&](bool good, const std::string& what) {
    if (!good) out += what + "; ";
  };
  check(info.code == bad_sample.code, "code " + info.code + " instead of " + bad_sample.code);
  check(error.exit_code() == 4, "exit code " + std::to_string(error.exit_code()));
  check(info.file == (folder / named).string(), "names the file " + info.file);
  check(!info.expected.empty() && !info.found.empty(), "no expected or no found");
  for (const std::string& word : bad_sample.words) {
    check(line.find(word) != std::string::npos, "no \"" + word + "\"");
  }
  check(line.size() <= 1024, "longer than 1 KiB");
  check(escape_for_terminal(line) == line, "control bytes");
  check(line.find("0x7f") == std::string::npos, "a pointer");
  return out.empty() ? out : out + "in: " + line;
}

std::string visit(const BadSample& bad_sample) {
  TempFolder folder;
  for (const auto& [name, contents] : bad_sample.files) put_file(folder / name, contents);
  const RefusalCost cost;
  try {
    open_bad_sample(bad_sample, folder / bad_sample.files.front().first);
    return "accepted";
  } catch (const Error& error) {
    const std::string dear = kInstrumented ? "" : cost.complaint();
    return complaints(bad_sample, error, folder.path()) + dear;
  }
}

class BadFiles : public ::testing::TestWithParam<BadSample> {};

TEST_P(BadFiles, IsRefusedQuicklyWithACompleteMessage) { EXPECT_EQ(visit(GetParam()), ""); }

std::vector<BadSample> all_bad_samples() {
  std::vector<BadSample> all;
  for (const auto& room : {safetensors_bad_samples(), index_bad_samples(), torch_bad_samples(),
                            config_bad_samples(), tokenizer_bad_samples(), vocabulary_bad_samples(),
                            template_bad_samples()}) {
    all.insert(all.end(), room.begin(), room.end());
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(BadSamples, BadFiles, ::testing::ValuesIn(all_bad_samples()),
                         [](const auto& row) { return row.param.name; });

// The guide itself is checked: it complains of a good file and of each part of a wrong label.
TEST(BadFilesCatalogue, WrongLabelsAreNoticed) {
  const BadSample right = safetensors_bad_samples().front();
  ASSERT_EQ(visit(right), "");
  BadSample wrong = right;
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

TEST(BadFilesCatalogue, HoldsAtLeastAHundredFilesUnderNamesOfTheirOwn) {
  std::set<std::string> names, codes;
  for (const BadSample& bad_sample : all_bad_samples()) {
    EXPECT_TRUE(names.insert(bad_sample.name).second) << bad_sample.name;
    EXPECT_FALSE(bad_sample.words.empty()) << bad_sample.name;
    codes.insert(bad_sample.code);
  }
  std::printf("corpus of bad files: %zu bad files, %zu error codes\n", names.size(), codes.size());
  EXPECT_GE(names.size(), 100u);
}

}  // namespace
}  // namespace tessera::bad_files_test
