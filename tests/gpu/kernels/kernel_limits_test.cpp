// Registers, spills, stack and shared memory of every kernel of the library, as ptxas counted them
// while it was built, against the table of limits; and that a kernel over its limit is found.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "engine/backend/cuda/recorder.h"
#include "engine/families/memory_plan.h"
#include "tests/gpu/kernels/kernel_use.h"
#include "tests/support/temp_folder.h"

namespace tessera {
namespace {

std::vector<KernelUse> kernels_of(const std::string& list_of_objects) {
  std::vector<KernelUse> out;
  std::istringstream objects(get_file(list_of_objects));
  for (std::string object; std::getline(objects, object);) {
    if (!object.ends_with(".cu.o")) continue;
    for (KernelUse& kernel : parse_ptxas(get_file(object + ".ptxas"))) out.push_back(kernel);
  }
  return out;
}

std::vector<KernelLimit> table() {
  return parse_limits(get_file(TESSERA_SOURCE_DIR "/tests/gpu/kernels/kernel_limits.txt"));
}

bool library_is_built() { return std::string(TESSERA_KERNEL_OBJECTS) != ""; }

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += "\n  " + line;
  return out;
}

TEST(KernelLimits, EveryKernelKeepsToThem) {
  if (!library_is_built()) GTEST_SKIP() << "the CUDA backend is not a part of this build";
  const std::vector<KernelUse> kernels = kernels_of(TESSERA_KERNEL_OBJECTS);
  EXPECT_GT(kernels.size(), 30u);
  const auto found = findings_of(kernels, table());
  EXPECT_TRUE(found.empty()) << joined(found);
}

TEST(KernelLimits, TheTableNamesNothingElse) {
  if (!library_is_built()) GTEST_SKIP() << "the CUDA backend is not a part of this build";
  const auto unused = unused_limits(kernels_of(TESSERA_KERNEL_OBJECTS), table());
  EXPECT_TRUE(unused.empty()) << joined(unused);
}

// The fixture is compiled as the library is: one kernel is modest, the other one spills.
TEST(KernelLimits, AKernelOverItsLimitIsFound) {
  std::vector<KernelUse> kernels = kernels_of(TESSERA_FIXTURE_OBJECTS);
  std::erase_if(kernels, [](const KernelUse& kernel) { return kernel.machine != kPlanned; });
  if (kernels.empty()) GTEST_SKIP() << "not built for " << kPlanned;
  ASSERT_EQ(kernels.size(), 2u);
  const auto findings = [&](const std::string& limits) {
    return findings_of(kernels, parse_limits(limits));
  };
  const auto of_both =
      findings("modest_fixture 256 32 8 0 0 no\ngreedy_fixture 1024 32 2 0 4096 no\n");
  ASSERT_EQ(of_both.size(), 1u) << joined(of_both);
  EXPECT_NE(of_both[0].find("greedy_fixture for sm_90a"), std::string::npos);
  EXPECT_NE(of_both[0].find("bytes spilled, at most 0"), std::string::npos);
  // The modest one, limit by limit.
  const auto modest = [&](const std::string& limit) {
    auto found = findings_of({kernels[0].name == "modest_fixture" ? kernels[0] : kernels[1]},
                             parse_limits("modest_fixture " + limit));
    return joined(found);
  };
  EXPECT_EQ(modest("256 32 8 0 0 no"), "");
  EXPECT_NE(modest("256 4 8 0 0 no").find("registers, at most 4"), std::string::npos);
  EXPECT_NE(modest("1024 32 9 0 0 no").find("registers of all planned blocks"), std::string::npos);
  EXPECT_NE(modest("1024 32 3 0 0 no").find("threads of all planned blocks"), std::string::npos);
  EXPECT_EQ(modest("256 32 1 232448 0 no"), "") << "227 KiB are there";
  EXPECT_NE(modest("256 32 1 232449 0 no").find("bytes of shared memory"), std::string::npos);
  EXPECT_NE(modest("256 32 3 80000 0 no").find("of all planned blocks"), std::string::npos);
  // Elsewhere more registers, stack and fewer blocks are no fault, what cannot run is.
  const auto elsewhere = [](KernelUse kernel) {
    kernel.machine = "sm_86";
    return joined(findings_of({kernel}, parse_limits("k 256 32 8 50000 0 no\n")));
  };
  EXPECT_EQ(elsewhere({.name = "k", .registers = 64, .stack = 56}), "");
  EXPECT_NE(elsewhere({.name = "k", .spilled = 4}).find("spilled"), std::string::npos);
  EXPECT_NE(elsewhere({.name = "k", .shared = 52000}).find("shared memory"), std::string::npos);
  EXPECT_NE(elsewhere({.name = "k", .registers = 272}).find("of a block"), std::string::npos);
  const auto missing = findings("modest_fixture 256 32 8 0 0 no\n");
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_NE(missing[0].find("greedy_fixture for sm_90a: no limit"), std::string::npos);
  EXPECT_EQ(unused_limits(kernels, parse_limits("*_fixture 1 1 1 1 1 no\ngone 1 1 1 1 1 no\n")),
            std::vector<std::string>{"gone"});
}

TEST(KernelLimits, NamesAreWithoutNamespacesAndParameters) {
  EXPECT_EQ(kernel_name("_ZN7tessera14greedy_fixtureEPf"), "greedy_fixture");
  EXPECT_EQ(kernel_name("_ZN7tessera4cuda12_GLOBAL__N_16attendIfLi64ELi2EEEvNS1_4WorkE"),
            "attend<float,64,2>");
  EXPECT_EQ(kernel_name("plain"), "plain");
  const auto limits = parse_limits("attend<*,64,*> 1 1 1 1 1 no\nattend<*> 2 2 2 2 2 yes # rest\n");
  EXPECT_EQ(limit_of("attend<float,64,2>", limits)->threads, 1);
  EXPECT_EQ(limit_of("attend<float,16,2>", limits)->threads, 2);
  EXPECT_EQ(limit_of("other", limits), nullptr);
  EXPECT_THROW(parse_limits("attend 1 2 3\n"), std::runtime_error);
  EXPECT_THROW(parse_ptxas("ptxas info    : Compiling entry function 'x' for 'sm_90a'\n"),
               std::runtime_error);
}

// The plan of memory allows as many recorded passes as are kept 1 MiB of arguments each.
TEST(StagingBytes, AreThoseOfTheRecorder) {
  const cuda::RecorderLimits limits;
  EXPECT_EQ(kDeviceStagingBytes, (limits.passes << 20) + limits.loose_bytes);
}

std::string output_of(const std::string& command) {
  std::string out;
  if (FILE* pipe = popen(command.c_str(), "r")) {
    std::array<char, 65536> part;
    while (const std::size_t got = std::fread(part.data(), 1, part.size(), pipe)) {
      out.append(part.data(), got);
    }
    pclose(pipe);
  }
  return out;
}

// Products of bf16 are the tensor cores': HMMA (or Hopper's HGMMA) stands in their code, and in no
// other kernel's.
TEST(KernelCode, Bf16ProductsUseTensorCores) {
  if (!library_is_built()) GTEST_SKIP() << "the CUDA backend is not a part of this build";
  if (std::system("command -v cuobjdump > /dev/null && command -v nvdisasm > /dev/null") != 0) {
    GTEST_SKIP() << "cuobjdump or nvdisasm is not installed";
  }
  const std::string code = output_of("cuobjdump -sass '" TESSERA_KERNEL_LIBRARY "'");
  const auto limits = table();
  std::istringstream lines(code);
  std::string kernel;
  int with = 0;
  bool used = false;
  const auto end_of_kernel = [&] {
    const KernelLimit* limit = kernel.empty() ? nullptr : limit_of(kernel, limits);
    if (limit == nullptr) return;
    EXPECT_EQ(used, limit->tensor_cores) << kernel;
    with += used ? 1 : 0;
  };
  for (std::string line; std::getline(lines, line);) {
    if (const std::size_t at = line.find("Function : "); at != std::string::npos) {
      end_of_kernel();
      kernel = kernel_name(line.substr(at + 11));
      used = false;
    }
    used =
        used || line.find("HMMA.") != std::string::npos || line.find("HGMMA.") != std::string::npos;
  }
  end_of_kernel();
  EXPECT_GT(with, 0);
}

}  // namespace
}  // namespace tessera
