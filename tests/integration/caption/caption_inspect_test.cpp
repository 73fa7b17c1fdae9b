// `tessera inspect` of models that describe images.
#include "tests/integration/caption/caption_program.h"

namespace tessera::caption_inspect_test {
namespace {

class CaptionInspectTest : public CaptionTest {
 protected:
  void SetUp() override {}
  Json inspect(std::vector<std::string> words) {
    words.insert(words.begin(), "inspect");
    words.push_back("--json");
    const ProgramResult result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.json_lines().at(0);
  }
};

// A model that generates and describes shows both.
TEST_F(CaptionInspectTest, TheMadeUpModelDoesBoth) {
  const Json out = inspect({"test:tiny", "--memory", "--batch-size", "4"});
  EXPECT_EQ(out.at("image_tokens"), 64);
  const Json& describes = out.at("describes");
  EXPECT_EQ(describes.at("family"), "janus");
  EXPECT_EQ(describes.at("chat"), "janus-pro");
  EXPECT_EQ(describes.at("visual_tokens"), 16);
  EXPECT_EQ(describes.at("view"), "32x32");
  EXPECT_EQ(describes.at("layers"), 2);
  EXPECT_EQ(describes.at("encoder_layers"), 3);
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : describes.at("memory").items()) {
    if (name != "total" && bytes.is_number()) sum += bytes.get<std::int64_t>();
  }
  EXPECT_EQ(describes.at("memory").at("total"), sum);
  EXPECT_GT(describes.at("parameters").get<std::int64_t>(), 100'000);
}

// The tensors are those that the parameters are counted from, and the sizes follow the image.
TEST_F(CaptionInspectTest, ACaptionerIsShownAsOne) {
  CaptionTest::SetUp();
  if (IsSkipped()) return;
  const ProgramResult result = run({"inspect", model_.string(), "--tensors", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::int64_t count = 0;
  for (const Json& line : result.json_lines()) {
    if (!line.contains("tensor")) continue;
    std::int64_t elements = 1;
    for (const std::int64_t extent : line.at("shape")) elements *= extent;
    count += elements;
  }
  const Json model = result.json_lines().at(0);
  EXPECT_EQ(model.at("family"), "llava");
  EXPECT_EQ(model.at("chat"), "llava-1.5");
  EXPECT_EQ(model.at("parameters"), count);
  EXPECT_EQ(model.at("picture"), "640x480");
  EXPECT_EQ(inspect({model_.string(), "--size", "40x36"}).at("picture"), "40x36");
  const std::string text = run({"inspect", model_.string(), "--memory"}).out;
  for (const char* wanted : {"family: llava\n", "visual_tokens: ", "memory.tower: ", " MiB)"}) {
    EXPECT_NE(text.find(wanted), std::string::npos) << wanted << "\n" << text;
  }
}

// The plan bounds what a run takes, and not by much.
TEST_F(CaptionInspectTest, TheMemoryPlanHoldsAndIsNotWide) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers change the amount of memory";
#endif
  CaptionTest::SetUp();
  if (IsSkipped()) return;
  put_images("in", 12);
  for (const char* batch : {"1", "8"}) {
    const Json plan =
        inspect({model_.string(), "--memory", "--batch-size", batch, "-W", "40", "-H", "36"})
            .at("memory");
    const ProgramResult described = run({"caption", "-m", model_.string(), "in", "--batch-size",
                                         batch, "-o", "b" + std::string(batch) + ".jsonl"});
    ASSERT_EQ(described.exit_code, 0) << described.err;
    const double share = static_cast<double>(described.peak_bytes) / plan.at("total").get<double>();
    EXPECT_LT(share, 1.05) << batch;
    EXPECT_GT(share, 0.7) << batch;
  }
}

TEST_F(CaptionInspectTest, AnotherFolderIsRefusedByName) {
  put("bert/config.json", R"({"model_type": "bert"})");
  put("broken/config.json", R"({"model_type": "llava", "vision_config": {"hidden_size": 3}})");
  put("none/readme.txt", "nothing");
  for (const auto& [folder, words] : std::map<std::string, std::vector<std::string>>{
           {"bert", {"bert", "model_type", "janus, llamagen", "qwen2_vl"}},
           {"broken", {"broken"}},
           {"none", {"none", "no config.json", "llava_next"}}}) {
    const ProgramResult result = run({"inspect", folder});
    EXPECT_EQ(result.exit_code, 4) << folder << result.err;
    EXPECT_EQ(result.error_lines(), 1u) << result.err;
    for (const std::string& word : words) {
      EXPECT_NE(result.err.find(word), std::string::npos) << word << "\n" << result.err;
    }
  }
}

}  // namespace
}  // namespace tessera::caption_inspect_test
