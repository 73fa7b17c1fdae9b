// The real program shows a studio that listens what it generates: the same pixels as in its files, and
// no difference to them.
#include "apps/studio/preview_sender.h"
#include "tests/integration/cli/program.h"
#include "tests/unit/studio/studio_run.h"
#include "vision/image/png.h"

namespace tessera::preview_program_test {
namespace {

using PreviewProgram = ProgramTest;

std::vector<std::string> generate(const std::string& folder) {
  return {"generate", "-m", "test:tiny", "-p",           "shown", "-s",
          "5",        "-b", "3",         "--output-dir", folder,  "--json"};
}

// Where the studio listens.
std::string address_of(StudioRun& run) {
  run.until([](const Snapshot& now) { return !now.status.listening.empty(); });
  return run.studio.snapshot().status.listening;
}

std::vector<Generation> done_generations(StudioRun& run, std::size_t count) {
  std::vector<Generation> out;
  run.until([&](const Snapshot& now) {
    out.clear();
    for (const Generation& one : now.generations) {
      if (one.state == GenerateState::kDone) out.push_back(one);
    }
    return out.size() == count;
  });
  return out;
}

TEST_F(PreviewProgram, GenerateShowsTheVeryPixelsOfItsFiles) {
  StudioRun studio({.listen = std::uint16_t{0}});
  const ProgramResult plain = run(generate("plain"));
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  std::vector<std::string> args = generate("shown");
  args.insert(args.end(), {"--preview-to", address_of(studio), "--batch-size", "2"});
  const ProgramResult shown = run(args);
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_EQ(shown.error_lines(), plain.error_lines()) << shown.err;
  const std::vector<Generation> generations = done_generations(studio, 3);
  const auto lines = shown.json_lines();
  ASSERT_EQ(lines.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string path = lines[i]["path"];
    EXPECT_EQ(content(path), content("plain" + path.substr(path.find('/'))));
    EXPECT_EQ(generations[i].image->rgb, read_own_png(folder_ / path).rgb);
    EXPECT_EQ(generations[i].settings.prompt, "shown");
    EXPECT_EQ(generations[i].settings.seed, 5 + i);
    EXPECT_EQ(generations[i].settings.model, "test:tiny");
    EXPECT_EQ(generations[i].facts.tokens, lines[i]["tokens"].get<std::int64_t>());
  }
}

TEST_F(PreviewProgram, BatchShowsItsImagesToo) {
  StudioRun studio({.listen = std::uint16_t{0}});
  put_file(folder_ / "job.csv", "id,prompt,seed\na,one,7\nb,two,8\n");
  const ProgramResult result = run({"batch", "job.csv", "-m", "test:tiny", "--output-dir", "out",
                                    "--preview-to", address_of(studio), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<Generation> generations = done_generations(studio, 2);
  EXPECT_EQ(generations[0].settings.prompt, "one");
  EXPECT_EQ(generations[0].image->rgb, read_own_png(folder_ / "out/a_7.png").rgb);
  EXPECT_EQ(generations[1].image->rgb, read_own_png(folder_ / "out/b_8.png").rgb);
}

TEST_F(PreviewProgram, AViewerThatIsNotThereIsNoError) {
  std::string address;
  {
    StudioRun studio({.listen = std::uint16_t{0}});
    address = address_of(studio);
  }
  std::vector<std::string> args = generate("out");
  args.insert(args.end(), {"--preview-to", address});
  const ProgramResult result = run(args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.json_lines().size(), 3u);
  EXPECT_NE(result.err.find("nobody listens at " + address), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("nobody listens"), result.err.rfind("nobody listens")) << "said once";
}

TEST_F(PreviewProgram, OtherMachinesAreRefused) {
  for (const char* address : {"192.168.1.5:7000", "another-machine:7000", "7000"}) {
    std::vector<std::string> args = generate("out");
    args.insert(args.end(), {"--preview-to", address});
    const ProgramResult result = run(args);
    EXPECT_EQ(result.exit_code, 2) << address;
    EXPECT_NE(result.out.find("E_PREVIEW_TO"), std::string::npos) << result.out;
  }
  EXPECT_TRUE(files().empty());
}

// --preview keeps its own interval, with a viewer or without.
TEST_F(PreviewProgram, PreviewFilesStayAsTheyWere) {
  StudioRun studio({.listen = std::uint16_t{0}});
  std::vector<std::string> args = {
      "generate",  "-m",    "test:tiny",          "-p", "x", "-s", "5", "-o", "a.png",
      "--preview", "p.png", "--preview-interval", "3"};
  ASSERT_EQ(run(args).exit_code, 0);
  const std::string alone = content("p.png");
  args[8] = "b.png";
  args.insert(args.end(), {"--preview-to", address_of(studio)});
  ASSERT_EQ(run(args).exit_code, 0);
  EXPECT_EQ(content("p.png"), alone);
  EXPECT_EQ(content("a.png"), content("b.png"));
}

}  // namespace
}  // namespace tessera::preview_program_test
