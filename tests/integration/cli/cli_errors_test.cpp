// What goes wrong ends with the right code and one line, and leaves nothing after.
#include <algorithm>

#include "tests/integration/cli/program.h"

namespace tessera::cli_errors_test {
namespace {

using Json = nlohmann::ordered_json;

class CliErrors : public ProgramTest {
 protected:
  // The line names all of `parts`; with --json the same error is an object on stdout.
  void expect_refused(const std::vector<std::string>& args, int code,
                      const std::vector<std::string>& parts) {
    const std::vector<std::string> before = files();
    const ProgramResult plain = run(args);
    std::string shown;
    for (const std::string& arg : args) shown += arg.substr(0, 60) + " ";
    SCOPED_TRACE(shown);
    EXPECT_EQ(plain.exit_code, code);
    EXPECT_EQ(plain.out, "");
    EXPECT_EQ(plain.error_lines(), 1u) << plain.err;
    EXPECT_LE(plain.err.size(), 1100u);
    for (const std::string& part : parts) {
      EXPECT_NE(plain.err.find(part), std::string::npos) << part << " is not in: " << plain.err;
    }
    std::vector<std::string> with_json = args;
    with_json.push_back("--json");
    const ProgramResult json = run(with_json);
    EXPECT_EQ(json.exit_code, code);
    const auto lines = json.json_lines();
    ASSERT_EQ(lines.size(), 1u);
    const Json& error = lines[0].at("error");
    for (const char* field : {"code", "file", "where", "expected", "found", "hint"}) {
      EXPECT_TRUE(error.at(field).is_string()) << field;
    }
    EXPECT_EQ(error.at("code").get<std::string>().substr(0, 2), "E_");
    EXPECT_EQ(files(), before) << "something was left over";
  }

  std::vector<std::string> generate(std::vector<std::string> more) {
    std::vector<std::string> args = {"generate", "-m", "test:tiny"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
};

TEST_F(CliErrors, UsageIsTwo) {
  expect_refused(generate({"-p", "x", "--no-such-flag"}), 2, {"--no-such-flag"});
  expect_refused({"no-such-command"}, 2, {"no-such-command"});
  expect_refused(generate({"-p", "x", "--decode", "magic"}), 2, {"--decode", "gumbel", "magic"});
  expect_refused(generate({"-p", "x", "--decode", "gumbel", "--accept", "grouped"}), 2,
                 {"--accept", "grouped"});
  expect_refused(generate({"-p", "x", "--decode", "sjd", "--window", "65"}), 2,
                 {"--window", "1 to 64", "65"});
  expect_refused(generate({"-p", "x", "--drafter", "nobody"}), 2, {"--drafter", "uniform"});
  expect_refused(generate({"-p", "x", "--decode", "plain", "--tail", "gumbel"}), 2, {"plain"});
  expect_refused(generate({"-p", "x", "--decode", "sjd", "--drafter", "context"}), 2,
                 {"guesses.safetensors"});
  expect_refused(generate({"-p", "x", "--decode", "lantern", "--delta", "2"}), 2, {"--delta"});
  expect_refused(generate({"-p", "x", "--decode", "draft"}), 2, {"--model-draft"});
  expect_refused({}, 2, {"--help"});
  EXPECT_EQ(run({"generate", "-p"}).exit_code, 2);
  expect_refused(generate({}), 2, {"--prompt"});
  expect_refused(generate({"-p", ""}), 2, {"--prompt"});
  expect_refused(generate({"-p", "x", "--prompt-file", "y"}), 2, {"--prompt-file"});
  expect_refused(generate({"--prompt-file", "none.txt"}), 2, {"none.txt"});
  expect_refused(generate({"-p", std::string(5000, 'x')}), 2, {"tokens", "960"});
  expect_refused(generate({"-p", "bad \xff byte"}), 2, {"UTF-8"});
}

// The program of users names the one of the laboratory where a command is there, and has none of its
// models.
TEST_F(CliErrors, TheLaboratoryIsAnotherProgram) {
  for (const char* moved : {"bench", "eval", "scene"}) {
    const ProgramResult result = run_program(TESSERA_ALONE, {moved, "x"});
    EXPECT_EQ(result.exit_code, 2) << moved;
    EXPECT_EQ(result.error_lines(), 1u) << result.err;
    EXPECT_NE(result.err.find(std::string("tessera-lab ") + moved), std::string::npos) << result.err;
    EXPECT_EQ(run_program(TESSERA_ALONE, {"--help"}).out.find(std::string("  ") + moved + " "),
              std::string::npos);
  }
  EXPECT_EQ(run_program(TESSERA_ALONE, {"no-such-command"}).err.find("tessera-lab"),
            std::string::npos);
  put_file(folder_ / "c.toml", "[bench]\nreps = 3\n");
  EXPECT_EQ(run_program(TESSERA_ALONE, {"models", "--config", "c.toml"}).exit_code, 0);
  for (const char* model : {"test:tiny", "random:llamagen:B"}) {
    const ProgramResult result =
        run_program(TESSERA_ALONE, {"generate", "-m", model, "-p", "x", "-o", "x.png"});
    EXPECT_EQ(result.exit_code, 4) << model;
    EXPECT_NE(result.err.find(model), std::string::npos) << result.err;
    EXPECT_EQ(run_program(TESSERA_ALONE, {"inspect", "-m", model}).exit_code, 4);
  }
  EXPECT_EQ(run({"inspect", "-m", "test:tiny"}).exit_code, 0) << "the laboratory has them";
}

TEST_F(CliErrors, RangesAreNamed) {
  expect_refused(generate({"-p", "x", "--temp", "-1"}), 2, {"--temp", "from 0 to 100", "'-1'"});
  expect_refused(generate({"-p", "x", "--temp", "nan"}), 2, {"--temp"});
  expect_refused(generate({"-p", "x", "--top-p", "0"}), 2, {"--top-p"});
  expect_refused(generate({"-p", "x", "--top-k", "1.5"}), 2, {"--top-k", "integer"});
  expect_refused(generate({"-p", "x", "--cfg-scale", "-0.5"}), 2, {"--cfg-scale", "from 0 to 100"});
  expect_refused(generate({"-p", "x", "-s", "-2"}), 2, {"--seed"});
  expect_refused(generate({"-p", "x", "-b", "0"}), 2, {"--batch-count"});
  expect_refused(generate({"-p", "x", "--batch-size", "9999"}), 2, {"--batch-size"});
  expect_refused(generate({"-p", "x", "--dtype", "int4"}), 2, {"--dtype", "auto|f32|bf16"});
  expect_refused(generate({"-p", "x", "--progress", "loud"}), 2, {"--progress"});
  expect_refused(generate({"-p", "x", "--device", "tpu"}), 2, {"tpu"});
  expect_refused(generate({"-p", "x", "-t", "-1"}), 2, {"--threads"});
}

TEST_F(CliErrors, GeometryNamesWhatTheModelCan) {
  expect_refused(generate({"-p", "x", "--size", "512x512"}), 2, {"32x32", "512x512"});
  expect_refused(generate({"-p", "x", "-W", "64"}), 2, {"32x32", "64x32"});
  expect_refused(generate({"-p", "x", "--size", "32"}), 2, {"WIDTHxHEIGHT"});
  expect_refused(generate({"-p", "x", "--size", "32x32", "-W", "64"}), 2, {"--size"});
}

TEST_F(CliErrors, ModelsAreFour) {
  expect_refused({"generate", "-m", "nowhere", "-p", "x"}, 4, {"nowhere", "tessera models"});
  expect_refused({"generate", "-m", "org/name", "-p", "x"}, 4,
                 {"huggingface-cli download org/name"});
  expect_refused({"generate", "-m", "test:none", "-p", "x"}, 4, {"test:none", "test:tiny"});
  expect_refused({"inspect", "-m", "nowhere"}, 4, {"nowhere"});
  expect_refused({"generate", "-m", "tabletop-draft", "-p", "x"}, 4,
                 {"tabletop-draft", "draft model", "--model-draft"});
  std::filesystem::create_directories(folder_ / "model");
  expect_refused({"generate", "-m", "model", "-p", "x"}, 4, {"model"});
  put_file(folder_ / "model/config.json", "{\"model_type\":\"unheard-of\"}");
  expect_refused({"generate", "-m", "model", "-p", "x"}, 4, {"unheard-of", "janus"});
  put_file(folder_ / "model/config.json", "{\"model_type\":\"janus\",");
  expect_refused({"generate", "-m", "model", "-p", "x"}, 4, {"config.json"});
  put_file(folder_ / "weights.pt", "no pickle");
  expect_refused({"generate", "-m", "weights.pt", "-p", "7"}, 4, {"weights.pt"});
}

TEST_F(CliErrors, OutputIsSixAndFoundBeforeTheModelLoads) {
  put_file(folder_ / "file", "x");
  expect_refused(generate({"-p", "x", "--output-dir", "file"}), 6, {"file"});
  expect_refused(generate({"-p", "x", "--output-dir", "file/below"}), 6, {"file"});
  expect_refused(generate({"-p", "x", "-o", "/proc/x.png"}), 6, {"/proc"});
  expect_refused(generate({"-p", "x", "--preview", "file/p.png"}), 6, {"file"});
  expect_refused(generate({"-p", "x", "--sheet", "file/s.png"}), 6, {"file"});
  put_file(folder_ / "mine.png", "precious");
  expect_refused(generate({"-p", "x", "-o", "mine.png"}), 6, {"mine.png", "--overwrite"});
  EXPECT_EQ(content("mine.png"), "precious");
  expect_refused(generate({"-p", "x", "-o", "x.jpg"}), 2, {"x.jpg", ".png"});
  expect_refused(generate({"-p", "x", "-o", "%s.png"}), 2, {"%s.png"});
  expect_refused(generate({"-p", "x", "-o", "one.png", "-b", "2"}), 2, {"out_%04d.png"});
}

TEST_F(CliErrors, BadFromImageIsTwo) {
  expect_refused({"generate", "--from-image", "none.png"}, 2, {"none.png"});
  put_file(folder_ / "text.png", "hello");
  expect_refused({"generate", "--from-image", "text.png"}, 2, {"text.png", "PNG"});
  ASSERT_EQ(run({"generate", "-m", "test:tiny", "-p", "x", "-o", "a.png"}).exit_code, 0);
  const std::string good = content("a.png");
  put_file(folder_ / "cut.png", good.substr(0, good.size() / 2));
  expect_refused({"generate", "--from-image", "cut.png"}, 2, {"cut.png"});
  ASSERT_EQ(run({"generate", "-m", "test:tiny", "-p", "x", "-o", "bare.png", "--disable-metadata"})
                .exit_code,
            0);
  expect_refused({"generate", "--from-image", "bare.png"}, 2, {"bare.png", "none"});
}

TEST_F(CliErrors, MetadataOfABadFileFailsThatFileOnly) {
  put_file(folder_ / "text.png", "hello");
  expect_refused({"metadata", "text.png"}, 1, {"text.png"});
  expect_refused({"metadata"}, 2, {"FILE"});
  ASSERT_EQ(run({"generate", "-m", "test:tiny", "-p", "x", "-o", "a.png"}).exit_code, 0);
  const ProgramResult both = run({"metadata", "text.png", "a.png", "--json"});
  EXPECT_EQ(both.exit_code, 3);
  ASSERT_EQ(both.json_lines().size(), 2u);
  EXPECT_EQ(both.json_lines()[1].at("origin"), "tessera");
}

TEST_F(CliErrors, FullStdoutIsSix) {
  const ProgramResult result =
      run({"generate", "-m", "test:tiny", "-p", "x", "--json"}, {}, nullptr, "/dev/full");
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_NE(result.err.find("stdout"), std::string::npos);
}

TEST_F(CliErrors, HostileNamesReachTheTerminalEscaped) {
  const ProgramResult result = run({"generate", "-m", "\x1b]0;owned\x07", "-p", "x"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(result.err.find('\x1b'), std::string::npos);
  EXPECT_EQ(result.err.find('\x07'), std::string::npos);
}

}  // namespace
}  // namespace tessera::cli_errors_test
