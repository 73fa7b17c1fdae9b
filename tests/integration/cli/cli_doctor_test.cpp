// `tessera doctor`: the process that reads images, and the memory of models.
#include "tests/integration/cli/program.h"
#include "tests/support/refused_seccomp.h"
#include "video/frame_writer.h"
#include "vision/image/image_reader.h"

namespace tessera::cli_doctor_test {
namespace {

class CliDoctor : public ProgramTest {
 protected:
  static nlohmann::ordered_json finding(const ProgramResult& result, const std::string& subject) {
    for (const auto& line : result.json_lines()) {
      if (line.at("subject") == subject) return line;
    }
    ADD_FAILURE() << "nothing about " << subject << ": " << result.out << result.err;
    return {{"state", ""}, {"text", ""}, {"fix", ""}};
  }
};

TEST_F(CliDoctor, TriesTheProcessThatReadsImages) {
  const auto whole = finding(run({"doctor", "--json"}), "image reader");
  EXPECT_EQ(whole.at("state"), "ok") << whole;
  EXPECT_EQ(whole.at("text"), "confined by " + std::string(kWholeConfinement));
  if (kWholeConfinement == "nothing") return;
  without_seccomp([&] {
    const auto fewer = finding(run({"doctor", "--json"}), "image reader");
    EXPECT_EQ(fewer.at("state"), "note");
    EXPECT_EQ(fewer.at("text"), "confined by limits");
    EXPECT_NE(fewer.at("fix"), "");
  });
}

TEST_F(CliDoctor, MissesAReaderThatIsNotThereOrSaysNothing) {
  const std::filesystem::path program = folder_ / "bin/tessera",
                              helper = folder_ / "bin/tessera-helper";
  std::filesystem::create_directories(folder_ / "bin");
  std::filesystem::copy_file(TESSERA_PROGRAM, program);
  const ProgramResult none = run_program(program.string(), {"doctor", "--json"});
  EXPECT_EQ(none.exit_code, 4) << none.err;
  EXPECT_EQ(finding(none, "image reader").at("state"), "missing");
  put_file(helper, "#!/bin/sh\necho I am another program >&0\n");
  std::filesystem::permissions(helper, std::filesystem::perms::owner_all);
  const ProgramResult other = run_program(program.string(), {"doctor", "--json"});
  EXPECT_EQ(other.exit_code, 4) << other.err;
  EXPECT_EQ(finding(other, "image reader").at("state"), "missing");
  EXPECT_NE(finding(other, "image reader").at("text").get<std::string>().find("greeting"),
            std::string::npos);
}

TEST_F(CliDoctor, ListsTheEncodersOfEveryContainer) {
  const ProgramResult result = run({"doctor", "--json"});
  const auto process = finding(result, "videos");
  EXPECT_EQ(process.at("state"), "ok") << process;
  EXPECT_EQ(process.at("text"), "confined by " + std::string(kWholeConfinement));
  for (const VideoContainer container : kVideoContainers) {
    const auto line = finding(result, "videos ." + std::string(name_of(container)));
    std::string names;
    for (const VideoCodec codec : codecs_there(container, {.program = VIDEO_HELPER})) {
      names += (names.empty() ? "written as " : ", ") + std::string(name_of(codec));
    }
    EXPECT_EQ(line.at("state"), names.empty() ? "note" : "ok");
    EXPECT_EQ(line.at("text"), names.empty() ? "no encoder" : names);
  }
  EXPECT_EQ(finding(result, "videos .webp").at("text"), "written as webp");
  EXPECT_NE(run({"doctor"}).out.find("ok  videos .webp: written as webp\n"), std::string::npos);
  if (kWholeConfinement == "nothing") return;
  without_seccomp([&] {
    const auto fewer = finding(run({"doctor", "--json"}), "videos");
    EXPECT_EQ(fewer.at("state"), "note");
    EXPECT_EQ(fewer.at("text"), "confined by limits");
    EXPECT_NE(fewer.at("fix"), "");
  });
}

TEST_F(CliDoctor, MissesAProcessForVideosThatIsNotThereOrSaysNothing) {
  const std::filesystem::path program = folder_ / "bin/tessera",
                              video = folder_ / "bin/tessera-video";
  std::filesystem::create_directories(folder_ / "bin");
  std::filesystem::copy_file(TESSERA_PROGRAM, program);
  const ProgramResult none = run_program(program.string(), {"doctor", "--json"});
  EXPECT_EQ(none.exit_code, 4) << none.err;
  EXPECT_EQ(finding(none, "videos").at("state"), "missing");
  EXPECT_EQ(finding(none, "videos").at("text"), "no " + video.string());
  put_file(video, "#!/bin/sh\necho I am another program >&0\n");
  std::filesystem::permissions(video, std::filesystem::perms::owner_all);
  const ProgramResult other = run_program(program.string(), {"doctor", "--json"});
  EXPECT_EQ(other.exit_code, 4) << other.err;
  EXPECT_EQ(finding(other, "videos").at("state"), "missing");
  EXPECT_NE(finding(other, "videos").at("text"), "no " + video.string());
}

TEST_F(CliDoctor, SaysWhatEveryModelNeeds) {
  int models = 0;
  for (const auto& line : run({"doctor", "--json"}).json_lines()) {
    const std::string subject = line.at("subject"), text = line.at("text");
    if (!subject.starts_with("model ") || line.at("state") != "ok") continue;
    EXPECT_EQ(text.find("needs 0 B"), std::string::npos) << subject << ": " << text;
    EXPECT_NE(text.find("needs "), std::string::npos) << subject << ": " << text;
    ++models;
  }
  EXPECT_GT(models, 0);
}

}  // namespace
}  // namespace tessera::cli_doctor_test
