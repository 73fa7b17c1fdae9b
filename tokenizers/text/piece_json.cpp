#include "tokenizers/text/piece_json.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace tessera {

Json replace_json(const char* kind, std::string_view pattern, std::string_view content) {
  return {{"type", "Replace"}, {"pattern", {{kind, pattern}}}, {"content", content}};
}

Json metaspace_json(std::string_view scheme, bool split) {
  return {{"type", "Metaspace"},
          {"replacement", kPieceSpace},
          {"prepend_scheme", scheme},
          {"split", split}};
}

Json piece_decoder(bool strips) {
  Json steps = Json::array(
      {replace_json("String", kPieceSpace, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  if (strips) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

}  // namespace tessera
