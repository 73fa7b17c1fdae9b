// Output names and prompt files.
#include "apps/runtime/output_names.h"

#include <gtest/gtest.h>

#include "engine/core/io.h"
#include "tests/support/temp_folder.h"

namespace tessera::output_names_test {
namespace {

std::string code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.info().code;
  }
  return "";
}

TEST(NamePattern, Numbers) {
  EXPECT_EQ(NamePattern("out_%04d.png").name(7), "out_0007.png");
  EXPECT_EQ(NamePattern("out_%04d.png").name(12345), "out_12345.png");
  EXPECT_EQ(NamePattern("%d.png").name(7), "7.png");
  EXPECT_EQ(NamePattern("a%3d.png").name(7), "a  7.png");
  EXPECT_EQ(NamePattern("100%%_%02d.png").name(1), "100%_01.png");
  EXPECT_FALSE(NamePattern("100%%.png").numbered());
}

TEST(NamePattern, RefusesOtherConversions) {
  for (const char* bad : {"%s.png", "%n.png", "%d%d.png", "%.png", "%0", "%04x.png", "a.jpg", "",
                          ".png", "dir/.png", "%*d.png", "%-4d.png", "%123d.png", "a.png%"}) {
    EXPECT_EQ(code_of([&] { NamePattern{bad}; }), "E_OUTPUT_PATTERN") << bad;
  }
}

TEST(PlanOutputs, GoesOnPastExistingFiles) {
  const TempFolder folder;
  write_file_atomic(folder.path() / "out_0001.png", "x");
  write_file_atomic(folder.path() / "out_0003.png", "x");
  const NamePattern pattern("out_%04d.png");
  const auto kept = plan_outputs(pattern, folder.path(), 3, Existing::kKeep);
  EXPECT_EQ(kept[0].filename(), "out_0002.png");
  EXPECT_EQ(kept[1].filename(), "out_0004.png");
  EXPECT_EQ(kept[2].filename(), "out_0005.png");
  const auto over = plan_outputs(pattern, folder.path(), 2, Existing::kOverwrite);
  EXPECT_EQ(over[0].filename(), "out_0001.png");
  EXPECT_EQ(over[1].filename(), "out_0002.png");
}

TEST(PlanOutputs, RefusesWhatCannotBeWritten) {
  const TempFolder folder;
  write_file_atomic(folder.path() / "here.png", "x");
  ensure_output_folder(folder.path() / "folder.png");
  const auto plan = [&](const char* name, std::size_t count, Existing existing) {
    return code_of([&] { plan_outputs(NamePattern(name), folder.path(), count, existing); });
  };
  EXPECT_EQ(plan("here.png", 1, Existing::kKeep), "E_OUTPUT_EXISTS");
  EXPECT_EQ(plan("here.png", 1, Existing::kOverwrite), "");
  EXPECT_EQ(plan("one.png", 2, Existing::kKeep), "E_OUTPUT_PATTERN");
  EXPECT_EQ(plan("folder.png", 1, Existing::kOverwrite), "E_OUTPUT_FOLDER");
  EXPECT_NE(plan("here.png/x.png", 1, Existing::kKeep), "");
  EXPECT_NE(
      code_of([] { plan_outputs(NamePattern("x.png"), "/proc/nowhere", 1, Existing::kKeep); }), "");
}

TEST(PromptFile, OnePromptALine) {
  const TempFolder folder;
  const auto path = folder.path() / "prompts.txt";
  write_file_atomic(path, "\xef\xbb\xbf# comment\r\n\none\r\n  two words \n#x\nlast");
  EXPECT_EQ(read_prompt_file(path), (std::vector<std::string>{"one", "  two words", "last"}));
  for (const auto& [text, where] : std::vector<std::pair<std::string, std::string>>{
           {"ok\nbad\xff\n", "2:4"},
           {std::string("a\0b", 3), "1:2"},
           {"# only\n", "1:1"},
           {"\n" + std::string(70000, 'x'), "2:65537"}}) {
    write_file_atomic(path, text);
    try {
      read_prompt_file(path);
      ADD_FAILURE() << where;
    } catch (const Error& error) {
      EXPECT_EQ(error.info().where, where);
      EXPECT_EQ(error.info().kind, ErrorKind::kUsage);
    }
  }
  EXPECT_THROW(read_prompt_file(folder.path() / "none.txt"), Error);
}

}  // namespace
}  // namespace tessera::output_names_test
