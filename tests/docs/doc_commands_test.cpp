// Runs the commands that the pages show, each page in a folder of its own, and compares the output
// of ```console blocks. Commands whose comment ends in a marker ("needs weights") are skipped by
// name. CONTRIBUTING.md describes the convention.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>

#include "tests/docs/doc_page.h"

namespace tessera::docs {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = TESSERA_SOURCE_DIR;
const fs::path kPlace = fs::path(TESSERA_BINARY_DIR) / "tests/docs/pages";

std::string content_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Result {
  int exit_code = 0;
  std::string out, err;
};

class DocCommands : public ::testing::TestWithParam<Page> {
 protected:
  // The page's folder as tests/docs/folder.sh makes it.
  void make_folder(const Page& page) {
    std::string name = page.name();
    std::replace(name.begin(), name.end(), '/', '-');
    folder_ = kPlace / name;
    fs::remove_all(folder_);
    fs::create_directories(folder_ / ".page");
    const std::string make = "bash '" + (kRoot / "tests/docs/folder.sh").string() + "' '" +
                             kRoot.string() + "' '" + TESSERA_ALONE + "' '" +
                             (kRoot / page.name()).string() + "'";
    const Result made = run(make);
    ASSERT_EQ(made.exit_code, 0) << made.err;
  }

  Result run(const std::string& text) const {
    const fs::path own = folder_ / ".page";
    std::ofstream(own / "command") << text << "\n";
    const std::string line = "cd '" + folder_.string() + "' && HOME='" + own.string() +
                             "' HF_HUB_CACHE='" + (own / "hub").string() + "' PATH='" +
                             (own / "bin").string() + "':\"$PATH\" " +
                             "timeout 280 bash .page/command > .page/out 2> .page/err < /dev/null";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, content_of(own / "out"),
            content_of(own / "err")};
  }

  fs::path folder_;
};

TEST_P(DocCommands, Run) {
  const Page& page = GetParam();
  if (page.commands().empty()) GTEST_SKIP() << "no commands: " << page.name();
  make_folder(page);
  if (HasFatalFailure()) return;
  for (const Command& command : page.commands()) {
    const std::string where = page.name() + ":" + std::to_string(command.line);
    if (!command.marker.empty()) {
      std::printf("skipped (%s): %s: %s\n", command.marker.c_str(), where.c_str(),
                  command.text.c_str());
      continue;
    }
    const Result found = run(command.text);
    EXPECT_EQ(found.exit_code, command.exit_code) << where << ": " << command.text << "\n"
                                                  << found.out << found.err;
    if (!command.has_output) continue;
    const std::string shown = command.exit_code == 0 ? found.out : found.out + found.err;
    EXPECT_TRUE(output_fits(command.output, shown))
        << where << ": " << command.text << "\nprints:\n"
        << shown;
  }
}

std::string test_name(const ::testing::TestParamInfo<Page>& info) {
  std::string out;
  for (const char c : fs::path(info.param.name()).replace_extension().string()) {
    out += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Pages, DocCommands, ::testing::ValuesIn(all_pages(kRoot)), test_name);

}  // namespace
}  // namespace tessera::docs
