// Joining captions.
#include "apps/captions/existing_caption.h"

#include "apps/captions/subtitles.h"
#include "apps/captions/text_forms.h"
#include "apps/captions/webdataset.h"
#include "engine/core/error.h"

namespace tessera {

ExistingCaption existing_caption(const std::string& name) {
  if (name == "overwrite") return ExistingCaption::kOverwrite;
  if (name == "append") return ExistingCaption::kAppend;
  return name == "prepend" ? ExistingCaption::kPrepend : ExistingCaption::kSkip;
}

std::string join_captions(std::string_view old_text, std::string_view caption,
                          ExistingCaption policy) {
  const std::string before = clean_caption(old_text), now = clean_caption(caption);
  if (policy == ExistingCaption::kSkip) return std::string(old_text);
  if (policy == ExistingCaption::kOverwrite || before.empty()) return now;
  if (now.empty()) return before;
  return policy == ExistingCaption::kAppend ? before + " " + now : now + " " + before;
}

void check_caption_extension(const std::string& text) {
  const bool good = !text.empty() && text.size() <= 32 && text.front() != '.' &&
                    text.find_first_not_of(
                        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789_-.") == std::string::npos;
  const std::string last = text.substr(text.rfind('.') + 1);
  if (!good || is_image_extension(last) || is_video_extension(last)) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_CAPTION_EXTENSION",
                 .where = "--caption-ext",
                 .expected = "an ending such as txt or caption, and no image's or video's",
                 .found = "\"" + text + "\""});
  }
}

}  // namespace tessera
