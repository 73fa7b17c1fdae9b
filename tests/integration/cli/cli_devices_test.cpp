// --device and the flags next to it, in every sub-command that computes.
#include "tests/integration/cli/program.h"

namespace tessera::cli_devices_test {
namespace {

class CliDevices : public ProgramTest {};

TEST_F(CliDevices, EverySubCommandOpensTheDeviceThatIsNamed) {
  put_file(folder_ / "job.jsonl", "{\"prompt\": \"a cube\"}\n");
  put_file(folder_ / "x.png", "");
  const std::string job = (folder_ / "job.jsonl").string(), out = (folder_ / "out").string();
  const std::vector<std::vector<std::string>> calls = {
      {"generate", "-p", "a cube", "-m", "test:tiny"},
      {"video", "-p", "a cube", "-m", "test:clip", "-o", (folder_ / "x.webp").string()},
      {"batch", job, "-m", "test:tiny", "--output-dir", out},
      {"caption", (folder_ / "x.png").string()},
      {"inspect", "-m", "test:tiny"},
      {"eval", "scenes", "-m", "test:tiny"},
      {"bench", "decode", "--prompts", "1", "--methods", "gumbel"},
      {"bench", "caption", "--prompts", "1"},
  };
  for (std::vector<std::string> call : calls) {
    call.insert(call.end(), {"--device", "cuda:99", "--deterministic", "--tf32"});
    const ProgramResult result = run(call);
    EXPECT_EQ(result.exit_code, 2) << call[0] << ": " << result.err;
    EXPECT_NE(result.err.find("device"), std::string::npos) << call[0] << ": " << result.err;
    EXPECT_NE(result.err.find("cuda:99"), std::string::npos) << call[0] << ": " << result.err;
  }
}

TEST_F(CliDevices, TheProcessorAlwaysIsDeterministic) {
  const auto generate = [&](const std::vector<std::string>& more) {
    std::vector<std::string> call = {
        "generate",   "-p", "a cube", "-m", "test:tiny",
        "--seed",     "7",  "--json", "-o", (folder_ / "same.png").string(),
        "--overwrite"};
    call.insert(call.end(), more.begin(), more.end());
    const ProgramResult result = run(call);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.json_lines().at(0).at("sha256").get<std::string>();
  };
  const std::string plain = generate({"--device", "cpu"});
  EXPECT_EQ(generate({"--device", "cpu", "--deterministic"}), plain);
  EXPECT_EQ(generate({"--device", "auto", "--deterministic", "--tf32"}), plain);
}

TEST_F(CliDevices, CeilingsOfTheHostAreNoMeasureOfADevice) {
  const ProgramResult ops = run({"bench", "ops", "--device", "cuda"});
  EXPECT_EQ(ops.exit_code, 2);
  EXPECT_NE(ops.err.find("tessera-lab gpu-check"), std::string::npos) << ops.err;
}

TEST_F(CliDevices, InspectSplitsThePlanBetweenDeviceAndHost) {
  const ProgramResult result =
      run({"inspect", "-m", "test:tiny", "--memory", "--json", "--batch-size", "3"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto memory = result.json_lines().at(0).at("memory");
  const auto field = [](const nlohmann::ordered_json& of, const char* name) {
    return of.at(name).get<std::uint64_t>();
  };
  const auto device = memory.at("device");
  EXPECT_EQ(field(device, "device_bytes"),
            field(memory, "weights") + field(memory, "kv") + field(memory, "activations") +
                field(memory, "vq_weights") + field(memory, "vq_scratch") + field(device, "laws") +
                field(device, "staging") + field(device, "libraries"));
  EXPECT_GE(field(device, "host_bytes"), field(memory, "process") + field(device, "staging"));
  EXPECT_GT(field(device, "laws"), 0u);
  EXPECT_NE(run({"inspect", "-m", "test:tiny", "--memory"}).out.find("memory.device.libraries: "),
            std::string::npos);
}

TEST_F(CliDevices, DoctorSaysWhyThereIsNoCudaAndEndsWell) {
  const ProgramResult result = run({"doctor", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  int cuda = 0;
  for (const auto& line : result.json_lines()) {
    const std::string subject = line.at("subject");
    if (!subject.starts_with("device cuda")) continue;
    ++cuda;
    if (line.at("usable").get<bool>()) {
      EXPECT_GT(line.at("memory_total").get<std::uint64_t>(), 0u);
      EXPECT_EQ(line.at("state"), "ok");
    } else {
      EXPECT_EQ(line.at("state"), "note");
      EXPECT_NE(line.at("why_not"), "");
    }
  }
  EXPECT_GE(cuda, 1);
}

}  // namespace
}  // namespace tessera::cli_devices_test
