#include "apps/runtime/split_prompt.h"

#include <algorithm>

namespace tessera {

std::vector<std::int32_t> encode_around_images(const TextTokenizer& tokenizer, const Prompt& prompt,
                                               std::string_view image, std::int32_t image_id) {
  const auto beginning = std::ssize(tokenizer.encode("", true));
  std::vector<std::int32_t> ids;
  Prompt piece;
  bool first = true;
  const auto end_piece = [&] {
    const std::vector<std::int32_t> some = encode_prompt(tokenizer, piece);
    ids.insert(ids.end(), some.begin() + (first ? 0 : beginning), some.end());
    piece.clear();
    first = false;
  };
  for (const PromptSegment& segment : prompt) {
    if (segment.kind != PromptSegment::Kind::kImage) {
      piece.push_back(segment);
      continue;
    }
    end_piece();
    ids.insert(ids.end(), segment.text.size() / image.size(), image_id);
  }
  end_piece();
  return ids;
}

}  // namespace tessera
