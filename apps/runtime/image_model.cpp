#include "apps/runtime/image_model.h"

#include <utility>

#include "apps/runtime/generation_parts.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/visual_model.h"
#include "engine/core/index.h"

namespace tessera {

ImageModel::ImageModel(Runtime& runtime, const GenerateOptions& options, OpenedModel model,
                       std::string shown, WrittenSpaces spaces)
    : GeneratorModel(runtime, options, std::move(model), std::move(shown), spaces) {
  check_geometry(options_, spec(), name_);
  const std::int64_t factor = spec().vq.downsample();
  auto own = CodePatches::load(spec().tokenizer.parent_path(), config().codes, factor);
  patches_ =
      std::make_unique<CodePatches>(own ? std::move(*own) : CodePatches(config().codes, factor));
  settle();
}

void ImageModel::load() {
  if (loaded()) return;
  if (pixels_ == nullptr) load_pixels();
  if (spec().context && !caption_) {
    caption_.emplace(load_caption_rows(opened_, backend(), storage_));
  }
  load_tokens([&] { return pixels_->codebook(); });
  forget_files();
}

std::size_t ImageModel::loop_bytes_of(std::int64_t logit_ids, const StreamLimits& limits,
                                      const LoopNeeds& needs) const {
  const auto scratch = [&](std::int64_t rows) {
    return StreamModel::scratch_bytes(config(), rows, backend());
  };
  const StreamModelShape shape{config().transformer, logit_ids, scratch};
  std::size_t bytes = stream_cache_bytes(shape, backend(), limits) +
                      stream_activation_bytes(shape, backend(), limits);
  if (draft_) bytes += draft_->drafter_bytes(backend(), draft_limits(limits, needs));
  return bytes;
}

std::size_t ImageModel::loop_bytes(const StreamLimits& limits, const LoopNeeds& needs) const {
  return loop_bytes_of(logit_ids(), limits, needs);
}

ErrorInfo ImageModel::no_room(const LoopNeeds& /*needs*/) const {
  return {.kind = ErrorKind::kMemory,
          .code = "E_MEMORY",
          .file = name_,
          .where = "one image",
          .hint = "try --dtype bf16 or another device"};
}

MemoryPlan ImageModel::plan(const LoopNeeds& needs, std::size_t others) const {
  return plan_with(needs, [&](MemoryPlan& plan, const StreamLimits& limits) {
    plan.activations += aids_bytes(options_.method, aids_, limits.items);
    if (logit_ids() != config().codes) {
      plan.activations +=
          loop_bytes_of(logit_ids(), limits, needs) - loop_bytes_of(config().codes, limits, needs);
    }
    (plan.on_device ? plan.captioner : plan.process) += others;
  });
}

void ImageModel::make_rows(Stream& stream) {
  if (!spec().context) return;
  load();
  const auto put = [&](StreamPrompt& prompt, Tensor rows) {
    prompt.positions.assign(to_size(rows.shape()[0]), {0, 0, 0});
    prompt.next_position = config().transformer.rope.condition_rows;
    prompt.rows = std::make_shared<const Tensor>(std::move(rows));
    prompt.ids.clear();
  };
  const Tensor& features = text_->rows_of(stream.prompt.ids);
  if (stream.guided()) put(stream.unconditional, caption_->unconditional(features.shape()[0]));
  put(stream.prompt, caption_->prompt(features.view()));
}

GenerateSubmission::Tools ImageModel::tools() {
  return {grammar(), *pixels_, *patches_,
          [this](std::size_t slot, const DraftRequest& request) { announce(slot, request); }};
}

// On a second stream of the same device, where there is such a thing.
void ImageModel::load_pixels() {
  std::unique_ptr<Backend> stream;
  if (backend().memory()) {
    stream = make_backend(options_.device, {.threads = options_.threads}, options_.cuda);
  }
  auto tokenizer = make_visual_tokenizer(stream != nullptr ? *stream : backend(), opened_,
                                         vq_storage_, TokenizerHalves::kDecoder);
  pixels_ = std::make_unique<PixelDecoder>(std::move(stream), std::move(tokenizer), grammar().rows,
                                           grammar().columns);
  opened_.vq_weights->verify_unchanged();
  opened_.vq_weights.reset();  // a file of its own is done with before the next one is read
}

}  // namespace tessera
