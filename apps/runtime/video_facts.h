// What a generated video says about itself: the block of facts that generated images carry, as the
// comment of its container and as an XMP packet for a file next to it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/runtime/facts.h"

namespace tessera {

struct VideoTexts {
  std::string comment;  // VideoFormat's: one line of JSON
  std::string xmp;  // for save_xmp_sidecar() (vision/image/xmp.h); its description is the comment
};

// `more`: fields of videos alone, as "fps", after those of facts_json(). The texts stand in the
// file before its end is known, so that tokens and passes are left out. kOnlyAiMark: no prompt, no
// setting, `more` neither; the mark of the digital source type stays in both.
VideoTexts video_texts(const ImageFacts& facts, const nlohmann::ordered_json& more,
                     RecordFacts record);

}  // namespace tessera
