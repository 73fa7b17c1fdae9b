// What is said about a key of a tokenizer's files that changes nothing here.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

struct TokenizerNote {
  std::string file;  // name within the folder
  std::string key;
  bool neutral = true;   // false: the reference, or one release of it, gives other tokens or texts
  std::string_view why;  // outlives everything
};

}  // namespace tessera
