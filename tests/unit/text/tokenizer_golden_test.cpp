// Ids and decoded text equal those of the Hugging Face package, on every recorded string.
#include <gtest/gtest.h>

#include "tests/unit/text/replay.h"

namespace tessera::tokenizer_golden_test {
namespace {

const std::string kGolden = TESSERA_SOURCE_DIR "/tests/golden/text";

TEST(TextTokenizerGolden, EveryRecordedStringAgrees) {
  const auto names = replay_names(kGolden);
  ASSERT_GE(names.size(), 4u);
  for (const std::string& name : names) {
    const ReplayResult result = replay(kGolden, name);
    EXPECT_GE(result.strings, 60u) << name;
    EXPECT_EQ(result.disagreement_count, 0u) << name;
    for (const std::string& line : result.disagreements) ADD_FAILURE() << name << ": " << line;
  }
}

// SentencePiece models and vocab.json with merges.txt, as the reference converts them.
TEST(TextTokenizerGolden, EveryFolderWithoutTokenizerJsonAgrees) {
  const auto folders = replay_folders(kGolden + "_folders");
  ASSERT_GE(folders.size(), 12u);
  for (const auto& folder : folders) {
    const ReplayResult result = replay_folder(folder);
    EXPECT_GE(result.strings, 60u) << folder;
    EXPECT_EQ(result.disagreement_count, 0u) << folder;
    for (const std::string& line : result.disagreements) ADD_FAILURE() << folder << ": " << line;
  }
}

TEST(TextTokenizerGolden, EveryPreTokenizerCutsTheSameWords) {
  const ReplayResult result = replay_words(kGolden + "/words.jsonl");
  EXPECT_GE(result.strings, 1500u);
  EXPECT_EQ(result.disagreement_count, 0u);
  for (const std::string& line : result.disagreements) ADD_FAILURE() << line;
}

}  // namespace
}  // namespace tessera::tokenizer_golden_test
