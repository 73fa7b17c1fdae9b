// What a painted clip says about itself: the block of facts that painted pictures carry, as the
// comment of its container and as an XMP packet for a file beside it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/runtime/facts.h"

namespace tessera {

struct ClipTexts {
  std::string comment;  // ClipFormat's: one line of JSON
  std::string xmp;  // for save_xmp_sidecar() (vision/image/xmp.h); its description is the comment
};

// `more`: fields of clips alone, as "fps", behind those of facts_json(). The texts stand in the
// file before its end is known, so that tokens and passes are left out. kOnlyAiMark: no prompt, no
// setting, `more` neither; the mark of the digital source type stays in both.
ClipTexts clip_texts(const ImageFacts& facts, const nlohmann::ordered_json& more,
                     RecordFacts record);

}  // namespace tessera
