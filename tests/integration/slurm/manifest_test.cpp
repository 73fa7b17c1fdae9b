// The Kubernetes manifest, without Kubernetes: it parses, its parts fit each other, and what its
// containers would run generates the whole job.
#include "tests/integration/slurm/block_yaml.h"
#include "tests/integration/slurm/scale_out.h"

namespace tessera::manifest_test {
namespace {

using Json = nlohmann::ordered_json;

class Manifest : public ScaleOutTest {
 protected:
  Json manifest_ = BlockYaml::parse(
      get_file(std::string(TESSERA_SOURCE_DIR) + "/assets/scale-out/tessera-job.yaml"));
  Json pod_ = manifest_["spec"]["template"]["spec"];
  Json container_ = pod_["containers"].at(0);
  std::vector<std::string> args_ = container_["args"];

  // Fields of an object that are not among `known`.
  static std::string others(const Json& object, const std::set<std::string>& known) {
    std::string names;
    for (const auto& [name, value] : object.items()) {
      if (!known.contains(name)) names += name + " ";
    }
    return names;
  }
  std::string after(const std::string& flag) const {
    const auto at = std::find(args_.begin(), args_.end(), flag);
    return at == args_.end() || at + 1 == args_.end() ? "" : *(at + 1);
  }
};

TEST_F(Manifest, HasTheFieldsOfAnIndexedJob) {
  EXPECT_EQ(manifest_["apiVersion"], "batch/v1");
  EXPECT_EQ(manifest_["kind"], "Job");
  const Json& spec = manifest_["spec"];
  EXPECT_EQ(others(manifest_, {"apiVersion", "kind", "metadata", "spec"}), "");
  EXPECT_EQ(others(spec, {"completionMode", "completions", "parallelism", "backoffLimit",
                          "podFailurePolicy", "template"}),
            "");
  EXPECT_EQ(
      others(pod_, {"restartPolicy", "terminationGracePeriodSeconds", "containers", "volumes"}),
      "");
  EXPECT_EQ(others(container_, {"name", "image", "workingDir", "command", "args", "env",
                                "resources", "volumeMounts"}),
            "");
  EXPECT_EQ(spec["completionMode"], "Indexed");
  EXPECT_EQ(pod_["restartPolicy"], "Never") << "podFailurePolicy asks for it";
  EXPECT_LE(spec["parallelism"], spec["completions"]);
  EXPECT_TRUE(container_["env"][0]["value"].is_string()) << "values of env are texts";
  EXPECT_EQ(container_["resources"]["limits"]["memory"],
            container_["resources"]["requests"]["memory"]);
}

TEST_F(Manifest, ItsPartsFit) {
  const Json& spec = manifest_["spec"];
  EXPECT_EQ(after("--shard"), "auto/" + std::to_string(spec["completions"].get<int>()));
  EXPECT_EQ(after("--threads"), container_["resources"]["requests"]["cpu"]);
  EXPECT_EQ(container_["volumeMounts"][0]["name"], pod_["volumes"][0]["name"]);
  EXPECT_EQ(container_["volumeMounts"][0]["mountPath"], container_["workingDir"]);
  // Exit codes: every one of the program is either ignored, final, or (6) tried again.
  std::map<int, std::string> actions;
  for (const Json& rule : spec["podFailurePolicy"]["rules"]) {
    if (!rule.contains("onExitCodes")) continue;
    EXPECT_EQ(rule["onExitCodes"]["containerName"], container_["name"]);
    EXPECT_EQ(rule["onExitCodes"]["operator"], "In");
    for (const int code : rule["onExitCodes"]["values"]) {
      EXPECT_TRUE(actions.emplace(code, rule["action"]).second) << code;
    }
  }
  EXPECT_EQ(actions, (std::map<int, std::string>{{1, "FailJob"},
                                                 {2, "FailJob"},
                                                 {3, "FailJob"},
                                                 {4, "FailJob"},
                                                 {5, "FailJob"},
                                                 {75, "Ignore"}}));
}

// Each pod's command, with what an Indexed Job puts into its environment.
TEST_F(Manifest, ItsPodsGenerateTheWholeJob) {
  const std::string job = put_job(40);
  generate_whole(job);
  EXPECT_EQ(container_["command"], Json::array({"tessera"}));
  for (int index = manifest_["spec"]["completions"].get<int>() - 1; index >= 0; --index) {
    const ProgramResult pod =
        run(args_, {{"JOB_COMPLETION_INDEX", std::to_string(index)}, {"TESSERA_MODEL", kModel}});
    EXPECT_EQ(pod.exit_code, 0) << pod.err;
  }
  expect_whole("out");
}

TEST(BlockYaml, ReadsItsPartAndRefusesTheRest) {
  EXPECT_EQ(
      BlockYaml::parse("a: 1\n# c\nb:\n  - x\n  - y: \"2\"\n    z: 4Gi\nc:\n  d: e-f\n").dump(),
      R"({"a":1,"b":["x",{"y":"2","z":"4Gi"}],"c":{"d":"e-f"}})");
  for (const char* bad : {"",
                          "a",
                          "a:",
                          "a: 1\na: 2",
                          "a: b: c",
                          "a: [1]",
                          "a: {b: 1}",
                          "a: yes",
                          "a: 'x'",
                          "a: \"x",
                          "a: b # c",
                          "a: &b",
                          "a: *b",
                          "a: |\n  b",
                          "a:\n- 1\nb",
                          "a: 1\n  b: 2",
                          "a:\n    b: 1\n  c: 2",
                          "\ta: 1",
                          "a:\tb",
                          "a: 0x1",
                          "a: 01",
                          "a: 1.5",
                          "- a\n b",
                          "a:b"}) {
    EXPECT_THROW(BlockYaml::parse(bad), std::runtime_error) << bad;
  }
}

}  // namespace
}  // namespace tessera::manifest_test
