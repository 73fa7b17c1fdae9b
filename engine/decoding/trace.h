// What happened to every token of an image, for overlays: recorded by the stream loop on request,
// where the row that a token was verified by is at hand. Nothing is allocated between two passes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera {

// What is known of a token. id -1: it does not stand yet, the rest means nothing.
struct TokenMark {
  std::int32_t id = -1;   // of the codebook, or a control id of the stream
  std::int32_t pass = 0;  // forward pass that froze it, from 1
  float probability = 0;  // in the row it was verified by, after guidance and truncation
  float entropy = 0;      // of that row, nats
};

struct DecodeTrace {
  std::vector<TokenMark> marks;         // [tokens of the stream] by position; empty = not asked for
  std::vector<std::int32_t> committed;  // tokens that was committed in each pass, from pass 1

  // Room for one image. A pass nearly always brings a token; one whose rows broke may not.
  void start(std::size_t tokens) {
    marks.assign(tokens, TokenMark{});
    committed.clear();
    committed.reserve(2 * tokens + 1);
  }
};

}  // namespace tessera
