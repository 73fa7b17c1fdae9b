// One bad file (or folder of files) and the error it must give.
#pragma once

#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

enum class ReadAs { kCheckpoint, kConfig, kTokenizer };

struct Exhibit {
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
inline void PrintTo(const Exhibit& exhibit, std::ostream* out) { *out << exhibit.name; }

std::vector<Exhibit> safetensors_exhibits();
std::vector<Exhibit> index_exhibits();
std::vector<Exhibit> torch_exhibits();
std::vector<Exhibit> config_exhibits();
std::vector<Exhibit> tokenizer_exhibits();

}  // namespace tessera
