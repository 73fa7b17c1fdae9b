#include "apps/runtime/visual_model.h"

#include "tokenizers/visual/fsq_video_tokenizer.h"
#include "tokenizers/visual/movq_tokenizer.h"
#include "tokenizers/visual/vq_tokenizer.h"

namespace tessera {

std::unique_ptr<VisualTokenizer> make_visual_tokenizer(Backend& backend, const OpenedModel& model,
                                                       DType storage, TokenizerHalves halves) {
  const ModelSpec& spec = model.spec;
  if (spec.movq || spec.fsq) return make_video_tokenizer(backend, model, storage, halves);
  return std::make_unique<VqTokenizer>(backend, spec.vq, *model.vq_weights, storage, halves);
}

std::unique_ptr<VideoTokenizer> make_video_tokenizer(Backend& backend, const OpenedModel& model,
                                                   DType storage, TokenizerHalves halves) {
  const ModelSpec& spec = model.spec;
  if (spec.fsq) {
    return std::make_unique<FsqVideoTokenizer>(backend, *spec.fsq, *model.vq_weights, storage,
                                              halves);
  }
  expects(spec.movq.has_value(), "the model has a video tokenizer");
  return std::make_unique<MovqTokenizer>(backend, *spec.movq, *model.vq_weights, storage, halves);
}

}  // namespace tessera
