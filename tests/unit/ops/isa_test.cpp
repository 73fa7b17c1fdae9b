// Instructions that not every x86-64 machine has stay inside the four object files that are compiled
// for them, and those files define no shared inline function: the linker could pick such a copy for
// the whole program, which would then end with SIGILL on an older machine.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>

namespace tessera::isa_test {
namespace {

const std::string kLibrary = TESSERA_BINARY_DIR "/engine/backend/cpu/libengine_backend_cpu.a";

// Calls body(object file, line) for the output of a tool that names the members of an archive.
template <typename Body>
bool for_each_line(const std::string& command, Body body) {
  FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return false;
  std::string member;
  char line[4096];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    const std::string text = line;
    const std::size_t end = text.find(".o:");  // of a source, or of several that are compiled together
    if (end != std::string::npos && text.find(' ') > end) {
      member = text.substr(0, text.find('.'));
    } else {
      body(member, text);
    }
  }
  return pclose(pipe) == 0;
}

bool is_special(const std::string& member) {
  return member == "kernels_avx2" || member == "kernels_avx512" || member == "kernels_vnni" ||
         member == "kernels_bf16";
}

TEST(InstructionSets, WideRegistersStayWhereTheyBelong) {
  std::map<std::string, int> wide;
  const bool ran = for_each_line("objdump -d --no-show-raw-insn '" + kLibrary + "'",
                                 [&](const std::string& member, const std::string& line) {
                                   wide[member] += line.find("%ymm") != std::string::npos ||
                                                   line.find("%zmm") != std::string::npos;
                                 });
  if (!ran) GTEST_SKIP() << "objdump is not installed";
  EXPECT_GT(wide["kernels_avx2"], 1000) << "the check sees wide registers where they are";
  EXPECT_GT(wide["kernels_avx512"], 1000);
  EXPECT_GT(wide["kernels_vnni"], 1000);
  EXPECT_GT(wide["kernels_bf16"], 1000);
  EXPECT_GE(wide.size(), 5u) << "kernels, and what calls them";
  for (const auto& [member, count] : wide) {
    if (!is_special(member)) {
      EXPECT_EQ(count, 0) << member;
    }
  }
}

TEST(InstructionSets, SpecialFilesShareNoInlineFunction) {
  int weak_elsewhere = 0;
  std::map<std::string, std::string> weak;
  const bool ran = for_each_line("nm -C '" + kLibrary + "'",
                                 [&](const std::string& member, const std::string& line) {
                                   // "address W name": weak; "u": unique; "V": weak object.
                                   const std::size_t type = line.find_first_of("WVu", 16);
                                   if (type != 17) return;
                                   if (is_special(member))
                                     weak[member] += line;
                                   else
                                     ++weak_elsewhere;
                                 });
  if (!ran) GTEST_SKIP() << "nm is not installed";
  EXPECT_TRUE(weak.empty()) << weak["kernels_avx2"] << weak["kernels_avx512"] << weak["kernels_vnni"]
                            << weak["kernels_bf16"];
  EXPECT_GT(weak_elsewhere, 0) << "the check sees shared functions where they are";
}

}  // namespace
}  // namespace tessera::isa_test
