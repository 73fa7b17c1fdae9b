// The image tokenizer of a model that generates, whatever its kind.
#pragma once

#include <memory>

#include "engine/backend/backend.h"
#include "engine/families/open_model.h"
#include "tokenizers/visual/video_tokenizer.h"

namespace tessera {

// Reads model.vq_weights. Error kModel.
std::unique_ptr<VisualTokenizer> make_visual_tokenizer(Backend& backend, const OpenedModel& model,
                                                       DType storage, TokenizerHalves halves);

// The same of a model of videos.
std::unique_ptr<VideoTokenizer> make_video_tokenizer(Backend& backend, const OpenedModel& model,
                                                   DType storage, TokenizerHalves halves);

}  // namespace tessera
