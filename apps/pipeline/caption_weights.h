// The weight file of a captioning model against its configuration: where the names of its parts
// stand, and that every tensor of both halves is there, in its shape, and none beside them.
#pragma once

#include "apps/pipeline/caption_spec.h"
#include "engine/checkpoint/checkpoint.h"

namespace tessera {

// Settles the layouts, the newline's name and whether the head is the embedding table's. Error
// kModel (E_TEXT_LAYOUT, E_TOWER_LAYOUT, E_TENSORS, E_CAPTION_MODEL) naming what is missing, wrong
// or surplus. Parts that no reader of pictures has (a painter's) are passed over.
void settle_caption_weights(CaptionSpec& spec, const Checkpoint& weights);

// Numbers in both halves, the newline and a head of its own; a tied table once.
std::int64_t parameter_count(const CaptionSpec& spec);

}  // namespace tessera
