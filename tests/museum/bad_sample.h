// One bad file (or folder of files) and the error it must give.
#pragma once

#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

enum class ReadAs { kCheckpoint, kConfig, kTokenizer, kTokenizerFolder, kTemplate };

struct BadSample {
  std::string name;
  ReadAs read_as = ReadAs::kCheckpoint;
  std::string code;                // exact
  std::vector<std::string> words;  // each must stand in the one-line message
  // File name and contents; the first is the one that is opened.
  std::vector<std::pair<std::string, std::string>> files;
  // The file that the message names; empty: the one opened.
  std::string named_file = {};
};

// Test listings show the name, not the bytes.
inline void PrintTo(const BadSample& bad_sample, std::ostream* out) { *out << bad_sample.name; }

std::vector<BadSample> safetensors_bad_samples();
std::vector<BadSample> index_bad_samples();
std::vector<BadSample> torch_bad_samples();
std::vector<BadSample> config_bad_samples();
std::vector<BadSample> tokenizer_bad_samples();
std::vector<BadSample> vocabulary_bad_samples();
std::vector<BadSample> template_bad_samples();

}  // namespace tessera
