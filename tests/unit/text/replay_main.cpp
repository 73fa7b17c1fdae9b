// text_tokenizer_replay FOLDER: every tokenizer of the folder against its recorded strings.
#include <cstdio>

#include "tests/unit/text/replay.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: text_tokenizer_replay FOLDER\n");
    return 2;
  }
  std::size_t wrong = 0;
  for (const std::string& name : tessera::replay_names(argv[1])) {
    const tessera::ReplayResult result = tessera::replay(argv[1], name);
    std::printf("%-16s %zu strings, %zu disagreements\n", name.c_str(), result.strings,
                result.disagreement_count);
    for (const std::string& line : result.disagreements) std::printf("  %s\n", line.c_str());
    wrong += result.disagreement_count;
  }
  return wrong == 0 ? 0 : 1;
}
