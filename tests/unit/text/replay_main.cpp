// text_tokenizer_replay FOLDER: every tokenizer of the folder, and of the folders in it,
// against its recorded strings.
// text_tokenizer_replay --encode FOLDER: for each NAME.texts.jsonl (a string a line) with its
// tokenizer, NAME.tokenizer.json or the folder NAME, writes NAME.out.jsonl, what the program makes
// of each, for a comparison elsewhere.
#include <cstdio>
#include <exception>
#include <string_view>

#include "tests/unit/text/replay.h"

namespace {

int encode_all(const char* folder) {
  for (const std::string& name : tessera::text_names(folder)) {
    try {
      const std::size_t count = tessera::encode_texts(folder, name);
      std::printf("%-32s %zu strings\n", name.c_str(), count);
    } catch (const std::exception& error) {
      std::printf("%-32s %s\n", name.c_str(), error.what());
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--encode") return encode_all(argv[2]);
  if (argc != 2) {
    std::fprintf(stderr, "usage: text_tokenizer_replay [--encode] FOLDER\n");
    return 2;
  }
  std::size_t wrong = 0;
  const auto report = [&](const std::string& name, const tessera::ReplayResult& result) {
    std::printf("%-16s %zu strings, %zu disagreements\n", name.c_str(), result.strings,
                result.disagreement_count);
    for (const std::string& line : result.disagreements) std::printf("  %s\n", line.c_str());
    wrong += result.disagreement_count;
  };
  for (const std::string& name : tessera::replay_names(argv[1]))
    report(name, tessera::replay(argv[1], name));
  for (const auto& folder : tessera::replay_folders(argv[1]))
    report(folder.filename().string(), tessera::replay_folder(folder));
  return wrong == 0 ? 0 : 1;
}
