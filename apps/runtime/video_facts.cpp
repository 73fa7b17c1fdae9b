#include "apps/runtime/video_facts.h"

#include <nlohmann/json.hpp>

#include "vision/image/xmp.h"

namespace tessera {

VideoTexts video_texts(const ImageFacts& facts, const nlohmann::ordered_json& more,
                     RecordFacts record) {
  Json comment = {{"digital_source_type", "trainedAlgorithmicMedia"}};
  if (record == RecordFacts::kAll) {
    comment.update(facts_json(facts));
    for (const char* later : {"tokens", "passes", "tokens_per_pass"}) comment.erase(later);
    comment.update(more);
  }
  VideoTexts out;
  out.comment = comment.dump(-1, ' ', false, Json::error_handler_t::replace);
  out.xmp = xmp_packet(
      {.creator_tool = facts.program, .description = out.comment, .made_by_model = true});
  return out;
}

}  // namespace tessera
