// The check of a GPU where there is none: it measures nothing and says so. On the processor, with
// tiny shapes, every phase runs to its end and its objects have the fields of a measurement.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/run_shell.h"
#include "tests/support/temp_folder.h"

namespace tessera::gpu_check_test {
namespace {

// stdout and stderr
ShellOutcome run(const std::string& command) { return run_shell(command + " 2>&1"); }

class GpuCheck : public ::testing::Test {
 protected:
  std::string out() const { return (folder_ / "check.jsonl").string(); }
  ShellOutcome phase(const std::string& name, const std::string& device,
                     const std::string& more = "") const {
    return run(std::string(TESSERA_PROGRAM) + " gpu-check " + name +
               " --quick --models test:tiny --device " + device + " --out " + out() +
               " --git abc123" + more);
  }
  ShellOutcome script(const std::string& device, const std::string& more = "") const {
    const std::filesystem::path program = TESSERA_PROGRAM;
    return run("bash " TESSERA_SOURCE_DIR "/apps/lab/bench/gpu-check.sh --quick --bin " +
               program.parent_path().string() + " --out " + out() + " --device " + device + more);
  }
  std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> objects;
    std::istringstream in(get_file(out()));
    for (std::string line; std::getline(in, line);) objects.push_back(nlohmann::json::parse(line));
    return objects;
  }
  void test_program(const std::string& text) const {
    std::filesystem::create_directories(folder_ / "tests");
    put_file(folder_ / "tests/carried_test", "#!/bin/sh\n" + text);
    put_file(folder_ / "tests/device_tests.txt", "carried_test *Cuda*:*cuda*\n");
    std::filesystem::permissions(folder_ / "tests/carried_test", std::filesystem::perms::owner_all);
  }

  TempFolder folder_;
};

TEST_F(GpuCheck, WithoutADeviceNothingIsMeasured) {
  if (phase("device", "cuda:0").code == 0) GTEST_SKIP() << "there is a device";
  for (const char* name : {"device", "probe", "micro", "macro", "law", "image", "prefill"}) {
    const ShellOutcome said = phase(name, "cuda:0");
    EXPECT_EQ(said.code, 3) << name << ": " << said.out;
    EXPECT_NE(said.out.find("no device: nothing was measured (cuda:0: "), std::string::npos)
        << said.out;
  }
  EXPECT_FALSE(std::filesystem::exists(out()));
  const ShellOutcome whole = script("cuda:0");
  EXPECT_EQ(whole.code, 3) << whole.out;
  EXPECT_EQ(whole.out.find("---"), std::string::npos) << "no phase began: " << whole.out;
  EXPECT_FALSE(std::filesystem::exists(out()));
  const ShellOutcome table = phase("table", "cuda:0");
  EXPECT_EQ(table.code, 3);
  EXPECT_EQ(table.out, "nothing was measured\n");
}

TEST_F(GpuCheck, ObjectsHaveTheFieldsOfAMeasurement) {
  for (const char* name : {"probe", "micro", "macro", "law", "image", "prefill"}) {
    const ShellOutcome said = phase(name, "cpu");
    ASSERT_EQ(said.code, 0) << name << ": " << said.out;
  }
  std::set<std::string> names;
  for (const auto& object : lines()) {
    const std::string name = object.at("name");
    names.insert(name);
    for (const char* field :
         {"schema", "git", "dirty", "date", "host", "device", "build", "impl", "quick"}) {
      EXPECT_TRUE(object.contains(field)) << name << " lacks " << field;
    }
    EXPECT_EQ(object.at("schema"), "tessera.bench/1");
    EXPECT_EQ(object.at("git"), "abc123");
    EXPECT_EQ(object.at("quick"), true);
    const bool timed = name == "linear.skinny" || name == "attn.window" ||
                       name.starts_with("step.") || name.starts_with("fuse.") ||
                       name.starts_with("prefill.") || name == "vit.encode" ||
                       (name.starts_with("image.") && name != "image.vq");
    if (!timed) continue;
    for (const char* field : {"shape", "warmup", "reps", "bytes", "flops", "probe_gbs", "eff",
                              "tflops", "floor_us", "share_of_floor"}) {
      EXPECT_TRUE(object.contains(field)) << name << " lacks " << field;
    }
    for (const char* field : {"median", "p10", "p90", "min"}) {
      EXPECT_GT(object.at("t_us").at(field).get<double>(), 0) << name;
    }
    EXPECT_GT(object.at("eff").get<double>(), 0) << name;
    if (name == "step.sweep") {
      EXPECT_GT(object.at("predicted_us").get<double>(), 0);
      EXPECT_GT(object.at("t_over_t1").get<double>(), 0);
    }
  }
  for (const char* name :
       {"mem.read", "mem.copy", "graph.gap", "linear.skinny", "attn.window", "fuse.qkv_rope_cache",
        "fuse.silu_mul", "fuse.addrms", "step.sweep", "step.deterministic", "law.share",
        "image.plain", "image.sjd", "image.coupled", "image.gsd", "image.vq", "prefill.llava",
        "prefill.ttft", "vit.encode"}) {
    EXPECT_TRUE(names.contains(name)) << "nothing of " << name;
  }
  const ShellOutcome table = phase("table", "cpu");
  EXPECT_EQ(table.code, 0);
  EXPECT_LE(std::count(table.out.begin(), table.out.end(), '\n'), 30);
  EXPECT_EQ(table.out.find("quick run: "), 0u) << table.out;
  EXPECT_EQ(table.out.find(": met\n"), std::string::npos) << table.out;
  EXPECT_EQ(table.out.find(": missed\n"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("mem.read: "), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("step.sweep, "), std::string::npos) << table.out;
}

TEST_F(GpuCheck, AFailedTestEndsTheCheckBeforeFigures) {
  test_program("exit 1\n");
  const ShellOutcome failed = script("cpu", " --tests " + (folder_ / "tests").string());
  EXPECT_EQ(failed.code, 1) << failed.out;
  EXPECT_NE(failed.out.find("a test failed on this device: nothing after it is measured"),
            std::string::npos)
      << failed.out;
  for (const auto& object : lines()) {
    const std::string name = object.at("name");
    EXPECT_TRUE(name == "mem.read" || name == "mem.copy" || name == "gemm.peak") << name;
  }
}

TEST_F(GpuCheck, TestsThatAllSkipProveNothing) {
  test_program("echo '[  PASSED  ] 0 tests.'\n");
  const ShellOutcome skipped = script("cpu", " --tests " + (folder_ / "tests").string());
  EXPECT_EQ(skipped.code, 1) << skipped.out;
  EXPECT_NE(skipped.out.find("no test ran on this device"), std::string::npos) << skipped.out;
}

TEST_F(GpuCheck, AProgramThatDoesNotStartIsNoFailedTest) {
  test_program("exec /no/such/program\n");
  const ShellOutcome said = script("cpu", " --tests " + (folder_ / "tests").string());
  EXPECT_EQ(said.code, 1) << said.out;
  EXPECT_NE(said.out.find("carried_test does not start on this machine"), std::string::npos)
      << said.out;
}

TEST_F(GpuCheck, TestsAreHeardTheirCasesSourcesAndCard) {
  test_program(
      "echo \"[  PASSED  ] 1 test of $1, $TESSERA_TEST_SOURCES, $TESSERA_LONG, "
      "${CUDA_VISIBLE_DEVICES-all}\"\n");
  const ShellOutcome said =
      script("cpu", " --phases parity --sources /recorded --tests " + (folder_ / "tests").string());
  EXPECT_EQ(said.code, 0) << said.out;
  EXPECT_NE(said.out.find("1 test of --gtest_filter=*Cuda*:*cuda*, /recorded, 1, all"),
            std::string::npos)
      << said.out;
  EXPECT_EQ(said.out.find("--- macro"), std::string::npos) << said.out;
}

TEST_F(GpuCheck, WrongFlagsAreRefusedBeforeAnything) {
  for (const char* flags : {" --minutes x", " --minutes 0.5", " --slow 2x", " --phases macro,magic",
                            " --tests /no/list/there", " --what"}) {
    const ShellOutcome said = script("cpu", flags);
    EXPECT_EQ(said.code, 2) << flags << said.out;
    EXPECT_EQ(said.out.find("---"), std::string::npos) << flags << said.out;
  }
}

TEST_F(GpuCheck, ABundleIsMadeOfABuildAlone) {
  const std::string bundle = "bash " TESSERA_SOURCE_DIR "/apps/lab/bench/gpu-bundle.sh ";
  const ShellOutcome said = run(bundle + folder_.path().string() + " " + out());
  EXPECT_EQ(said.code, 2);
  EXPECT_NE(said.out.find("configure it with tests and CUDA"), std::string::npos) << said.out;
  EXPECT_EQ(run(bundle).code, 2);
  EXPECT_FALSE(std::filesystem::exists(out()));
}

TEST_F(GpuCheck, RecordedTracesAreReplayed) {
  const std::string file = (folder_ / "trace.json").string();
  // Every draft is right: a window of four rows brings four tokens.
  put_file(file, R"({"tested_by_depth": [8, 8], "accepted_by_depth": [8, 8]})");
  const ShellOutcome said = phase("image", "cpu", " --accept-trace coupled=" + file);
  ASSERT_EQ(said.code, 0) << said.out;
  int seen = 0;
  for (const auto& object : lines()) {
    if (object.at("name") != "image.coupled") continue;
    EXPECT_EQ(object.at("accept_trace").at("name"), "recorded");
    EXPECT_EQ(object.at("accept_trace").at("tokens_per_pass"), 4);
    if (object.at("window").at("mode") != "fixed") continue;
    // The prompt's pass brings one token, the others four.
    EXPECT_EQ(object.at("passes"), 1 + 16) << "64 tokens";
    ++seen;
  }
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(phase("image", "cpu", " --accept-trace plain=" + file).code, 2);
}

TEST_F(GpuCheck, PeersSayWhatIsMissingOrWriteObjects) {
  const ShellOutcome said =
      run("python3 " TESSERA_SOURCE_DIR "/apps/lab/bench/gpu_peers.py --quick --device cpu --out " +
          out());
  EXPECT_EQ(said.code, 0) << said.out;
  if (said.out == "torch is not installed: no peers\n") {
    EXPECT_FALSE(std::filesystem::exists(out()));
    GTEST_SKIP() << said.out;
  }
  std::set<std::string> impls;
  for (const auto& object : lines()) {
    EXPECT_EQ(object.at("quick"), true);
    EXPECT_GT(object.at("t_us").at("median").get<double>(), 0);
    EXPECT_TRUE(object.at("model").contains("dims"));
    if (object.at("name") != "prefill.peer") impls.insert(object.at("impl"));
  }
  EXPECT_TRUE(impls.contains("torch compiled")) << said.out;
}

TEST_F(GpuCheck, NothingBeginsWhenTheTimeIsOver) {
  const ShellOutcome said = script("cpu", " --minutes 0");
  EXPECT_EQ(said.code, 1) << said.out;
  EXPECT_NE(said.out.find("--- macro: no time left"), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("nothing was measured"), std::string::npos) << said.out;
}

TEST_F(GpuCheck, TheScriptGoesThroughAllPhases) {
  test_program("[ \"$TESSERA_TEST_DEVICE\" = cuda ] && echo '[  PASSED  ] 3 tests.'\n");
  const ShellOutcome said = script("cpu", " --tests " + (folder_ / "tests").string());
  EXPECT_EQ(said.code, 0) << said.out;
  std::size_t at = 0;
  for (const char* phase :
       {"--- probe: done", "--- parity: carried_test: done", "--- macro: done", "--- micro: done",
        "--- law: done", "--- image: done", "--- prefill: done", "--- peers", "--- table"}) {
    at = said.out.find(phase, at);
    ASSERT_NE(at, std::string::npos) << "no " << phase << " in its place: " << said.out;
  }
  EXPECT_NE(said.out.find("step.sweep", at), std::string::npos) << "the table is last";
}

}  // namespace
}  // namespace tessera::gpu_check_test
