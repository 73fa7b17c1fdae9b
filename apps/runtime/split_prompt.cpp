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
    std::string_view text = segment.text;
    // Images are written among control tokens, and never by a user's text.
    while (segment.kind != PromptSegment::Kind::kPlain) {
      const std::size_t at = text.find(image);
      if (at == std::string_view::npos) break;
      if (at > 0) piece.push_back({PromptSegment::Kind::kControl, std::string(text.substr(0, at))});
      if (first || !piece.empty()) end_piece();
      ids.push_back(image_id);
      text.remove_prefix(at + image.size());
    }
    if (!text.empty()) piece.push_back({segment.kind, std::string(text)});
  }
  end_piece();
  return ids;
}

}  // namespace tessera
