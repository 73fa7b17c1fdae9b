// Flags, environment and config file in their order; help, version, and the commands that only
// tell.
#include <algorithm>

#include "tests/integration/cli/program.h"

namespace tessera::cli_settings_test {
namespace {

class CliSettings : public ProgramTest {
 protected:
  std::string seed_of(const std::vector<std::string>& more,
                      const std::map<std::string, std::string>& variables = {}) {
    std::vector<std::string> args = {"generate", "-m",     "test:tiny",  "-p",
                                     "x",        "--json", "--overwrite"};
    args.insert(args.end(), more.begin(), more.end());
    const ProgramResult result = run(args, variables);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code == 0 ? result.json_lines().at(0)["seed"].dump() : "";
  }
};

TEST_F(CliSettings, FlagThenEnvironmentThenFile) {
  put_file(folder_ / "c.toml", "seed = 11\n[generate]\nbatch-count = 1\n");
  EXPECT_EQ(seed_of({"--config", "c.toml"}), "11");
  EXPECT_EQ(seed_of({"--config", "c.toml"}, {{"TESSERA_SEED", "22"}}), "22");
  EXPECT_EQ(seed_of({"--config", "c.toml", "-s", "33"}, {{"TESSERA_SEED", "22"}}), "33");
  EXPECT_EQ(seed_of({}, {{"TESSERA_CONFIG", "c.toml"}}), "11");
}

TEST_F(CliSettings, SectionBeatsTopAndTheHomeFileIsRead) {
  std::filesystem::create_directories(home_ / ".config/tessera");
  put_file(home_ / ".config/tessera/config.toml", "seed = 1\n[generate]\nseed = 2\n");
  EXPECT_EQ(seed_of({}), "2");
  put_file(folder_ / "other.toml", "[inspect]\nmemory = true\n");
  EXPECT_EQ(seed_of({"--config", "other.toml", "-s", "4"}), "4");
}

TEST_F(CliSettings, FlagsWithoutValueTakeTrueAndFalse) {
  const std::vector<std::string> args = {"generate", "-m", "test:tiny", "-p", "x", "-o", "a.png"};
  ASSERT_EQ(run(args).exit_code, 0);
  EXPECT_EQ(run(args).exit_code, 6);
  EXPECT_EQ(run(args, {{"TESSERA_OVERWRITE", "true"}}).exit_code, 0);
  EXPECT_EQ(run(args, {{"TESSERA_OVERWRITE", "false"}}).exit_code, 6);
  EXPECT_EQ(run(args, {{"TESSERA_OVERWRITE", "perhaps"}}).exit_code, 2);
}

TEST_F(CliSettings, UnknownKeysAndBadValuesAreNamed) {
  const auto refused = [&](const std::string& text) {
    put_file(folder_ / "c.toml", text);
    const ProgramResult result =
        run({"generate", "-m", "test:tiny", "-p", "x", "--config", "c.toml"});
    EXPECT_EQ(result.exit_code, 2) << text;
    EXPECT_EQ(result.error_lines(), 1u) << result.err;
    return result.err;
  };
  EXPECT_NE(refused("sede = 1\n").find("sede"), std::string::npos);
  EXPECT_NE(refused("[generate]\nsede = 1\n").find("sede"), std::string::npos);
  EXPECT_NE(refused("[genrate]\nseed = 1\n").find("genrate"), std::string::npos);
  EXPECT_NE(refused("temp = \"hot\"\n").find("temp"), std::string::npos);
  const ProgramResult result =
      run({"generate", "-m", "test:tiny", "-p", "x"}, {{"TESSERA_TOP_K", "many"}});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("TESSERA_TOP_K"), std::string::npos);
  EXPECT_EQ(run({"generate", "-p", "x", "--config", "none.toml"}).exit_code, 2);
}

TEST_F(CliSettings, HelpAndVersion) {
  const ProgramResult version = run_program(TESSERA_ALONE, {"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out.substr(0, 8), "tessera ");
  EXPECT_EQ(run({"--version"}).out, "tessera-lab" + version.out.substr(7));
  for (const char* command : {"generate", "models", "inspect", "metadata", "doctor"}) {
    const ProgramResult result = run({command, "--help"});
    EXPECT_EQ(result.exit_code, 0) << command;
    EXPECT_NE(result.out.find("--json"), std::string::npos) << command;
  }
}

TEST_F(CliSettings, TellingCommandsSpeakJson) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"models", "--json"},
        {"inspect", "-m", "test:tiny", "--memory", "--tensors", "--json"},
        {"generate", "--list-devices", "--json"}}) {
    const ProgramResult result = run(args);
    EXPECT_EQ(result.exit_code, 0) << args[0] << result.err;
    EXPECT_NO_THROW(result.json_lines());
  }
  const ProgramResult doctor = run({"doctor", "--json"}, {{"TESSERA_TOPK", "1"}});
  bool misspelt = false;
  for (const auto& line : doctor.json_lines()) {
    misspelt =
        misspelt || (line["subject"] == "environment TESSERA_TOPK" && line["state"] == "note");
  }
  EXPECT_TRUE(misspelt);
}

}  // namespace
}  // namespace tessera::cli_settings_test
