// Unicode as the reference tokenizer sees it: normal forms (UAX 15), lower case, white space, and
// the lossy reading of broken UTF-8 (one U+FFFD for each maximal part of a broken sequence).
#pragma once

#include <string>
#include <string_view>

namespace tessera {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// `text` is valid UTF-8. Linear but for the sorting of combining marks (n log n).
std::string normalize_unicode(std::string_view text, NormalForm form);

std::string lower_case(std::string_view text);

bool is_white_space(char32_t code);

// Without the white space at the ends, as Python's str.strip(), lstrip() and rstrip() take it away.
std::string_view strip_ends(std::string_view text, bool left = true, bool right = true);

std::string utf8_lossy(std::string_view bytes);

}  // namespace tessera
