// Generating through the real program: same seed, same bytes; the record generates it again;
// signals.
#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/integration/cli/program.h"
#include "vision/image/png.h"

namespace tessera::cli_generate_test {
namespace {

using Json = nlohmann::ordered_json;

class CliGenerate : public ProgramTest {
 protected:
  ProgramResult generate(std::vector<std::string> more) {
    std::vector<std::string> args = {"generate", "-m", "test:tiny"};
    args.insert(args.end(), more.begin(), more.end());
    const ProgramResult result = run(args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }
};

TEST_F(CliGenerate, JsonHasTheContractsFields) {
  const auto lines = generate({"-p", "a red cube", "-s", "5", "-b", "2", "--json"}).json_lines();
  ASSERT_EQ(lines.size(), 2u);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::size_t at = 0;
    for (const auto& [name, value] : lines[i].items()) {
      if (at < std::size(kImageLine)) {
        EXPECT_EQ(name, kImageLine[at]);
      }
      ++at;
    }
    EXPECT_GE(at, std::size(kImageLine));
    EXPECT_EQ(lines[i]["seed"], 5 + i);
    EXPECT_EQ(lines[i]["tokens"], 64);
    EXPECT_EQ(lines[i]["decode"], "plain");
    EXPECT_EQ(lines[i]["preserves_distribution"], true);
  }
  EXPECT_EQ(files(), (std::vector<std::string>{"out_0001.png", "out_0002.png"}));
  EXPECT_EQ(read_own_png(folder_ / "out_0001.png").width, 32);
}

TEST_F(CliGenerate, SameSeedSameBytes) {
  const auto hash = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), {"-p", "a red cube", "-s", "5", "-b", "5", "--json", "-o", name});
    std::vector<std::string> out;
    for (const Json& line : generate(more).json_lines()) out.push_back(line["sha256"]);
    return out;
  };
  const auto truth = hash("a%d.png", {"-t", "1"});
  ASSERT_EQ(truth.size(), 5u);
  EXPECT_NE(truth[0], truth[1]);
  int run_number = 0;
  for (const char* threads : {"1", "2", "3", "7"}) {
    for (const char* batch : {"1", "2", "5"}) {
      EXPECT_EQ(hash("r" + std::to_string(run_number++) + "_%d.png",
                     {"-t", threads, "--batch-size", batch}),
                truth)
          << threads << " threads, batch " << batch;
    }
  }
}

// Tests run the program of the laboratory, for its models; what users run writes the same.
TEST_F(CliGenerate, BothProgramsWriteTheSameBytes) {
  std::string bytes[2];
  int i = 0;
  for (const char* program : {TESSERA_PROGRAM, TESSERA_ALONE}) {
    const ProgramResult result = run_program(
        program, {"generate", "-p", "a red cube", "--seed", "5", "-o", "a.png", "--overwrite"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    bytes[i++] = get_file(folder_ / "a.png");
  }
  EXPECT_FALSE(bytes[0].empty());
  EXPECT_EQ(bytes[0], bytes[1]);
}

TEST_F(CliGenerate, GumbelAndAutoGenerateThePlainImage) {
  const auto pixels = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), {"-p", "a red cube", "-s", "5", "-o", name});
    generate(more);
    return read_own_png(folder_ / name).rgb;
  };
  const auto plain = pixels("plain.png", {});
  EXPECT_EQ(pixels("gumbel.png", {"--decode", "gumbel", "--window", "9"}), plain);
  EXPECT_EQ(pixels("auto1.png", {"--decode", "auto"}), plain);
  EXPECT_EQ(pixels("auto2.png", {"--decode", "auto", "-t", "1"}), plain);
  EXPECT_EQ(content("auto1.png"), content("auto2.png")) << "widths are no part of the record";
  EXPECT_NE(pixels("sjd.png", {"--decode", "sjd"}), plain) << "the same distribution, another draw";
}

TEST_F(CliGenerate, EveryMethodGeneratesAndGeneratesAgain) {
  int number = 0;
  for (const char* method : {"gumbel", "sjd", "coupled", "coupled-gumbel", "gsd", "lantern", "cool",
                             "lookup", "recycle"}) {
    const std::string name = "m" + std::to_string(number++) + ".png";
    const auto line = generate({"-p", "a red cube", "-s", "3", "--decode", method, "--window", "8",
                                "--json", "-o", name})
                          .json_lines()
                          .at(0);
    EXPECT_EQ(line["decode"], method);
    EXPECT_LE(line["passes"], 64);
    EXPECT_EQ(line["meters"]["passes"], line["passes"]);
    const bool lossy = std::string(method) == "gsd" || std::string(method) == "lantern" ||
                       std::string(method) == "cool";
    EXPECT_EQ(line["preserves_distribution"], !lossy) << method;
    const ProgramResult again =
        run({"generate", "--from-image", name, "-o", "again_" + name, "-t", "1"});
    ASSERT_EQ(again.exit_code, 0) << again.err;
    EXPECT_EQ(content(name), content("again_" + name)) << method;
  }
}

TEST_F(CliGenerate, FromImageGivesTheSameBytesAndFlagsWin) {
  generate({"-p",          "a \xe7\xba\xa2 cube, \"big\"\nline",
            "-n",          "fog",
            "-s",          "77",
            "--temp",      "0.83",
            "--top-k",     "31",
            "--top-p",     "0.97",
            "--min-p",     "0.001",
            "--typical",   "0.99",
            "--cfg-scale", "3.7",
            "--dtype",     "bf16",
            "-o",          "a.png"});
  const ProgramResult again = run({"generate", "--from-image", "a.png", "-o", "b.png"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(content("a.png"), content("b.png"));
  const ProgramResult other =
      run({"generate", "--from-image", "a.png", "-s", "78", "-o", "c.png", "--json"});
  EXPECT_EQ(other.json_lines().at(0)["seed"], 78);
  EXPECT_NE(content("a.png"), content("c.png"));
}

TEST_F(CliGenerate, WeightsInBlocksAreRecordedAndEveryMethodKeepsTheImage) {
  for (const std::string type : {"q8", "q4"}) {
    const auto pixels = [&](const std::string& name, const char* method) {
      const auto line = generate({"-p", "x", "-s", "3", "--dtype", type, "--decode", method, "-o",
                                  name, "--json"})
                            .json_lines()
                            .at(0);
      EXPECT_EQ(line["dtype"], type);
      return read_own_png(folder_ / name).rgb;
    };
    const std::string name = type + ".png", again = "again_" + name;
    EXPECT_EQ(pixels(name, "plain"), pixels("gumbel_" + name, "gumbel"));
    ASSERT_EQ(run({"generate", "--from-image", name, "-o", again}).exit_code, 0);
    EXPECT_EQ(content(name), content(again));
  }
}

TEST_F(CliGenerate, ACacheOfEightBitsIsRecordedAndEveryMethodKeepsTheImage) {
  const auto pixels = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> args = {"-p", "x", "-s", "3", "-o", name};
    args.insert(args.end(), more.begin(), more.end());
    generate(args);
    return read_own_png(folder_ / name).rgb;
  };
  const auto plain = pixels("plain.png", {"--kv", "q8"});
  EXPECT_EQ(pixels("gumbel.png", {"--kv", "q8", "--decode", "gumbel"}), plain);
  EXPECT_NE(pixels("auto.png", {}), plain);
  const auto facts = [&](const char* name) {
    return run({"metadata", name, "--json"}).json_lines().at(0).at("facts");
  };
  EXPECT_EQ(facts("plain.png").at("kv"), "q8");
  EXPECT_FALSE(facts("auto.png").contains("kv")) << "records are as they were";
  ASSERT_EQ(run({"generate", "--from-image", "plain.png", "-o", "again.png"}).exit_code, 0);
  EXPECT_EQ(content("plain.png"), content("again.png"));
  const ProgramResult bad = run({"generate", "-p", "x", "--kv", "q4", "-o", "bad.png"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_NE(bad.err.find("one of auto, f32, bf16, q8"), std::string::npos) << bad.err;
}

TEST_F(CliGenerate, WhatProductsMakeOfInputsIsRecordedAndEveryMethodKeepsTheImage) {
  struct Switch {
    const char* dtype;
    const char* flag;
    const char* key;
  };
  for (const auto& [dtype, flag, key] :
       {Switch{"q4", "--precise", "precise"}, {"bf16", "--bf16-inputs", "bf16_inputs"}}) {
    const auto pixels = [&, type = dtype](const std::string& name,
                                          const std::vector<std::string>& more) {
      std::vector<std::string> args = {"-p",      "x",  "-s", "3", "--overwrite",
                                       "--dtype", type, "-o", name};
      args.insert(args.end(), more.begin(), more.end());
      generate(args);
      return read_own_png(folder_ / name).rgb;
    };
    const auto plain = pixels("plain.png", {flag});
    EXPECT_EQ(pixels("gumbel.png", {flag, "--decode", "gumbel"}), plain) << flag;
    EXPECT_NE(pixels("without.png", {}), plain) << flag;
    const auto facts = [&](const char* name) {
      return run({"metadata", name, "--json"}).json_lines().at(0).at("facts");
    };
    EXPECT_EQ(facts("plain.png").at(key), true);
    EXPECT_FALSE(facts("without.png").contains(key)) << "records are as they were";
    ASSERT_EQ(
        run({"generate", "--from-image", "plain.png", "--overwrite", "-o", "again.png"}).exit_code,
        0);
    EXPECT_EQ(content("plain.png"), content("again.png")) << flag;
  }
}

TEST_F(CliGenerate, InputsOfBf16NeedWeightsOfBf16) {
  const ProgramResult bad =
      run({"generate", "-p", "x", "--dtype", "q8", "--bf16-inputs", "-o", "bad.png"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_NE(bad.err.find("--bf16-inputs: expected weights of bf16, found q8"), std::string::npos)
      << bad.err;
}

// The viewer generated such images when flags and records did not take them.
TEST_F(CliGenerate, GuidanceBelowOneIsRecordedAndGeneratesAgain) {
  generate({"-p", "x", "-s", "3", "--cfg-scale", "0.5", "-o", "a.png"});
  const ProgramResult again = run({"generate", "--from-image", "a.png", "-o", "b.png"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(content("a.png"), content("b.png"));
}

TEST_F(CliGenerate, HiddenSpellingsMeanTheSame) {
  const std::vector<std::string> plain = {"-p", "x", "-s", "3", "--decode", "coupled"};
  const auto generated = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), plain.begin(), plain.end());
    more.insert(more.end(), {"-o", name});
    generate(more);
    return content(name);
  };
  const std::string truth = generated("a.png", {"--redraft", "resample"});
  EXPECT_EQ(generated("b.png", {"--tail", "resample"}), truth);
  put_file(folder_ / "c.toml", "tail = \"resample\"\n");
  EXPECT_EQ(generated("c.png", {"--config", "c.toml"}), truth);
  EXPECT_NE(generated("d.png", {}), truth);
  std::vector<std::string> args = {"generate", "-m", "test:tiny", "-o", "e.png"};
  args.insert(args.end(), plain.begin(), plain.end());
  ASSERT_EQ(run(args, {{"TESSERA_TAIL", "resample"}}).exit_code, 0);
  EXPECT_EQ(content("e.png"), truth);
}

TEST_F(CliGenerate, RandomSeedsAreRecordedAndGenerateAgain) {
  const auto first = generate({"-p", "x", "-s", "-1", "-o", "a.png", "--json"}).json_lines();
  const auto second = generate({"-p", "x", "-o", "b.png", "--json"}).json_lines();
  EXPECT_NE(first.at(0)["seed"], second.at(0)["seed"]);
  generate({"-p", "x", "-s", first[0]["seed"].dump(), "-o", "c.png"});
  EXPECT_EQ(content("a.png"), content("c.png"));
}

TEST_F(CliGenerate, MetadataComesBackWhateverThePromptHolds) {
  const std::vector<std::string> prompts = {
      "\xe7\xba\xa2\xe8\x89\xb2\xe7\x9a\x84\xe7\x90\x83 \xd1\x88\xd0\xb0\xd1\x80 "
      "\xd9\x83\xd8\xb1\xd8\xa9 \xf0\x9f\x8e\xa8",
      "\x1b]0;owned\x07\x1b[31mred\x1b[2J",
      "x\nSteps: 1, Sampler: fake, Seed: 2, Size: 1x1, Tessera: \"{}\"",
      "caf\xc3\xa9 </rdf:RDF> & \"quotes\"",
  };
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::string name = "p" + std::to_string(i) + ".png";
    generate({"-p", prompts[i], "-o", name});
    const Json line = run({"metadata", name, "--json"}).json_lines().at(0);
    EXPECT_EQ(line["origin"], "tessera");
    EXPECT_EQ(line["facts"]["prompt"], prompts[i]);
    EXPECT_EQ(line["digital_source_type"], "trainedAlgorithmicMedia");
    const std::string shown = run({"metadata", name}).out;
    for (const char c : shown) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
  }
}

TEST_F(CliGenerate, NoRecordOnRequestButTheAiMark) {
  generate({"-p", "a secret prompt", "-o", "a.png", "--disable-metadata"});
  EXPECT_EQ(content("a.png").find("secret"), std::string::npos);
  EXPECT_EQ(content("a.png").find("test:tiny"), std::string::npos);
  const Json line = run({"metadata", "a.png", "--json"}).json_lines().at(0);
  EXPECT_EQ(line["origin"], "none");
  EXPECT_EQ(line["digital_source_type"], "trainedAlgorithmicMedia");
}

TEST_F(CliGenerate, NoPathOfThisMachineIsRecorded) {
  generate({"-p", "x", "--output-dir", folder_.path().string() + "/deep/er", "-o", "a.png"});
  EXPECT_EQ(content("deep/er/a.png").find(folder_.path().string()), std::string::npos);
}

TEST_F(CliGenerate, PromptFileSheetAndPreview) {
  put_file(folder_ / "p.txt", "# two\none\ntwo\n");
  generate({"--prompt-file", "p.txt", "-b", "2", "--output-dir", "out", "--sheet", "sheet.png",
            "--preview", "now.png", "-s", "3"});
  EXPECT_EQ(files(), (std::vector<std::string>{"now.png", "out/out_0001.png", "out/out_0002.png",
                                               "out/out_0003.png", "out/out_0004.png",
                                               "out/sheet.png", "p.txt"}));
  EXPECT_EQ(read_own_png(folder_ / "out/sheet.png").width, 2 * 32 + 3 * 4);
  EXPECT_EQ(read_own_png(folder_ / "now.png").width, 32);
}

TEST_F(CliGenerate, ProgressSpeaksJsonOnStderr) {
  const ProgramResult result = generate({"-p", "x", "--progress", "json"});
  std::istringstream in(result.err);
  int lines = 0;
  for (std::string line; std::getline(in, line); ++lines) {
    EXPECT_TRUE(Json::parse(line).at("progress").contains("rows_done"));
  }
  EXPECT_GE(lines, 1);
  EXPECT_EQ(generate({"-p", "x", "--progress", "none"}).err, "");
}

// The files that are there after a signal are whole, and no temporary stays.
TEST_F(CliGenerate, SignalsStopAfterThePassAndKeepFinishedFiles) {
  for (const auto& [number, code] : {std::pair{SIGINT, 130}, {SIGTERM, 143}}) {
    const std::string name = "s" + std::to_string(number) + "_%d.png";
    const std::size_t already = files().size();
    const ProgramResult result =
        run({"generate", "-m", "test:tiny", "-p", "x", "-b", "100000", "-o", name}, {},
            [&](pid_t child) {
              for (int i = 0; i < 3000 && files().size() < already + 3; ++i) {
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
              }
              kill(child, number);
            });
    EXPECT_EQ(result.exit_code, code) << result.err;
  }
  EXPECT_GE(files().size(), 3u);
  for (const std::string& name : files()) {
    EXPECT_TRUE(name.ends_with(".png")) << name;
    EXPECT_NO_THROW(read_own_png(folder_ / name)) << name;
  }
}

// What `inspect --memory` says is what the run takes, within 5 %.
TEST_F(CliGenerate, PeakMemoryIsWhatInspectSays) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers change the amount of memory";
#endif
  const std::string model = TESSERA_SOURCE_DIR "/assets/models/tabletop-janus";
  if (!std::filesystem::exists(model)) GTEST_SKIP() << "the bundled model is not there";
  const std::string prompt = "a large red shiny sphere on a gray floor";
  for (const char* batch : {"1", "4"}) {
    const Json plan =
        run({"inspect", "-m", model, "--memory", "--json", "--batch-size", batch, "-p", prompt})
            .json_lines()
            .at(0)
            .at("memory");
    const ProgramResult generated =
        run({"generate", "-m", model, "-p", prompt, "-b", batch, "--batch-size", batch,
             "--overwrite", "--progress", "none"});
    ASSERT_EQ(generated.exit_code, 0) << generated.err;
    const double ratio = static_cast<double>(generated.peak_bytes) / plan.at("total").get<double>();
    EXPECT_GT(ratio, 0.95) << batch;
    EXPECT_LT(ratio, 1.05) << batch;
  }
}

}  // namespace
}  // namespace tessera::cli_generate_test
