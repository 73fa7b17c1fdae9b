// tokenizer.json files that must be refused, each with the code it must be refused by: a small good
// file with one thing wrong. Also for the corpus of bad files of bad files.
#pragma once

#include <string>
#include <vector>

namespace tessera {

struct BadTokenizer {
  std::string name;   // file name in words: "merge_of_unknown_token"
  std::string json;   // the file
  std::string code;   // Error code expected
  std::string where;  // part of the place that the message must name
};

// The good file that the others are made from.
std::string good_tokenizer_json();

std::vector<BadTokenizer> bad_tokenizers();

}  // namespace tessera
