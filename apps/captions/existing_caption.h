// What becomes of a caption that is there already: the same four policies for text files next to
// images and for members of a WebDataset.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

enum class ExistingCaption : std::uint8_t { kSkip, kOverwrite, kAppend, kPrepend };

// "overwrite", "append", "prepend"; anything else is kSkip.
ExistingCaption existing_caption(const std::string& name);

// Error kUsage E_CAPTION_EXTENSION for an extension of text files that is none or an image's.
void check_caption_extension(const std::string& text);

// The text to store. kAppend and kPrepend join with one space, or with nothing if one is empty;
// kSkip releases the old text.
std::string join_captions(std::string_view old_text, std::string_view caption,
                          ExistingCaption policy);

}  // namespace tessera
