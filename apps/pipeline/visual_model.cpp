#include "apps/pipeline/visual_model.h"

#include "tokenizers/visual/movq_tokenizer.h"
#include "tokenizers/visual/vq_tokenizer.h"

namespace tessera {

std::unique_ptr<VisualTokenizer> make_visual_tokenizer(Backend& backend, const OpenedModel& model,
                                                       DType storage, TokenizerHalves halves) {
  const FamilySpec& spec = model.spec;
  if (spec.movq) {
    return std::make_unique<MovqTokenizer>(backend, *spec.movq, *model.vq_weights, storage, halves);
  }
  return std::make_unique<VqTokenizer>(backend, spec.vq, *model.vq_weights, storage, halves);
}

}  // namespace tessera
