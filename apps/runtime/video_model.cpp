// Opens, checks and loads a model of videos.
#include "apps/runtime/video_model.h"

#include <algorithm>
#include <utility>

#include "apps/runtime/generation_parts.h"
#include "apps/runtime/memory.h"
#include "apps/runtime/visual_model.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"
#include "engine/decoding/stream_loop.h"

namespace tessera {

namespace {

void check_videos(const GenerateOptions& options, const ModelSpec& spec, const std::string& name) {
  check_generates(spec, name);
  if (spec.blocks && !spec.movq) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_NBP_TOKENIZER",
                 .file = name,
                 .where = "video tokenizer",
                 .expected = "a model with a video tokenizer that is read (vq_config)",
                 .found = "NBP's own, which is not",
                 .hint = "`tessera inspect` looks at the model"});
  }
  if (!spec.video) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_MODEL_PICTURES",
                 .file = name,
                 .expected = "a model that generates videos",
                 .found = "one that generates images",
                 .hint = "`tessera generate` generates with it"});
  }
  check_geometry(options, spec, name);
}

// Blocks are neither drafted nor guided.
void check_blocks(const ModelSpec& spec, const DecodeMethod& method) {
  if (!spec.blocks || (!method.speculative() && method.shape() == PassShape::kLine)) return;
  refuse_request("E_DECODE_CONFLICT", "--decode", "plain, as this model writes whole blocks",
                 "a method that drafts");
}

}  // namespace

VideoModel::VideoModel(Runtime& runtime, const GenerateOptions& options, OpenedModel model,
                       std::string shown_name)
    : GeneratorModel(runtime, options, std::move(model), std::move(shown_name)) {
  check_videos(options_, spec(), name_);
  check_blocks(spec(), options_.method);
  settle();
}

const PassModel& VideoModel::tokens() const {
  if (blocks_) return *blocks_;
  return share_->tokens();
}

LoopParts VideoModel::parts() const {
  if (!blocks_) return parts_->parts();
  LoopParts out;
  out.blocks = blocks_->reading();
  return out;
}

StreamLimits VideoModel::limits(const LoopNeeds& needs) const {
  if (writes_blocks()) {
    return block_limits(*spec().blocks, grammar(),
                        {.items = needs.slots,
                         .prompt_rows = needs.prompt_rows,
                         .kv = options_.method.cache_next_to(storage_)});
  }
  // No window begins with more grids than leave one to write.
  const std::size_t given = grammar().tokens_of(to_size(config().grids - 1));
  StreamLimits out = GeneratorModel::limits(needs);
  out.given_tokens = to_index(given);
  out.budget = out.branches() * backend().rows_at_once();
  return out;
}

MemoryPlan VideoModel::plan(const LoopNeeds& needs, bool encodes) const {
  return plan_with(needs, [&](MemoryPlan& plan, const StreamLimits& limits) {
    if (!writes_blocks()) {
      plan.activations = image_activation_bytes(config(), backend(), limits) +
                         aids_bytes(options_.method, aids_, limits.items);
    }
    // A video's decoder keeps what of its past the next grid needs.
    plan.vq_scratch *= to_size(limits.items);
    if (encodes) {
      plan.vq_weights = visual_weight_bytes(spec(), backend(), vq_storage_, VqHalves::kBoth);
      plan.vq_scratch *= 2;
    }
  });
}

std::size_t VideoModel::loop_bytes(const StreamLimits& limits, const LoopNeeds& needs) const {
  LoopNeeds held = needs;
  held.slots = limits.items;
  const MemoryPlan made = plan(held, /*encodes=*/false);
  return made.kv + made.activations;
}

ErrorInfo VideoModel::no_room(const LoopNeeds& needs) const {
  return {.kind = ErrorKind::kMemory,
          .code = "E_MEMORY",
          .file = name_,
          .where = "a video with a prompt of " + std::to_string(needs.prompt_rows) + " tokens",
          .hint = "try --dtype bf16"};
}

void VideoModel::load_tokenizer(bool encoder) {
  if (tokenizer_ != nullptr && (both_halves_ || !encoder)) return;
  tokenizer_.reset();  // before the new one: both together may not fit
  tokenizer_ = make_video_tokenizer(backend(), opened_, vq_storage_,
                                   encoder ? TokenizerHalves::kBoth : TokenizerHalves::kDecoder);
  both_halves_ = encoder;
  opened_.vq_weights->verify_unchanged();
}

void VideoModel::load() {
  load_tokenizer(/*encoder=*/false);
  if (blocks_ || share_->has_weights()) return;
  if (writes_blocks()) {
    blocks_.emplace(load_block_model(opened_, backend(), storage_));
  } else {
    load_tokens([&] { return tokenizer_->codebook(); });
  }
  forget_files();
}

VideoWindows::Parts VideoModel::window_parts() const {
  expects(tokenizer_ != nullptr, "the tokenizer is loaded");
  return {tokenizer_, video_spec(), grammar(), to_size(kept_grids())};
}

std::vector<std::int32_t> VideoModel::encode(const std::vector<Image>& frames) const {
  std::vector<std::int32_t> codes;
  if (frames.empty()) return codes;
  const auto encoder = tokenizer_->video_encoder(narrow<int>(spec().image_height()),
                                                 narrow<int>(spec().image_width()));
  for (const Image& frame : frames) {
    const Tensor pixels = image_from_bytes(frame.rgb, frame.height, frame.width);
    const auto grid = encoder->push(pixels.view());
    if (grid) codes.insert(codes.end(), grid->begin(), grid->end());
  }
  return codes;
}

CrossContext VideoModel::context_of(const Tensor& text) const {
  Tensor rows = backend().allocate(DType::kF32, text.shape());
  backend().upload(text.view(), rows.view());
  return share_->weights().transformer().make_context(rows.view(), beside(storage_));
}

}  // namespace tessera
