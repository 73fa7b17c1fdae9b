#include "apps/runtime/code_encoder.h"

#include "apps/runtime/visual_layout.h"
#include "engine/core/index.h"
#include "tokenizers/visual/movq_tokenizer.h"
#include "tokenizers/visual/vq_tokenizer.h"

namespace tessera {

namespace {

std::unique_ptr<VisualTokenizer> load_tokenizer(Backend& backend, const CodeTower& codes,
                                                const Checkpoint& checkpoint, DType storage) {
  constexpr TokenizerHalves kHalf = TokenizerHalves::kEncoder;
  if (codes.movq) {
    return std::make_unique<MovqTokenizer>(backend, *codes.movq, checkpoint, storage, kHalf);
  }
  return std::make_unique<VqTokenizer>(backend, codes.vq, checkpoint, storage, kHalf);
}

// [3, height, width] as the tokenizer takes it, [height, width, 3].
Tensor channels_last(const EncoderView& view) {
  Tensor out = Tensor::host(DType::kF32, Shape{view.height, view.width, 3});
  float* const to = out.view().f32();
  const std::size_t pixels = to_size(view.height * view.width);
  for (std::size_t channel = 0; channel < 3; ++channel) {
    for (std::size_t i = 0; i < pixels; ++i) {
      to[3 * i + channel] = view.values[channel * pixels + i];
    }
  }
  return out;
}

}  // namespace

CodeEncoder::CodeEncoder(Backend& backend, const VisionTower& tower, const Checkpoint& checkpoint,
                         DType storage, const TokenModel& text)
    : family_(tower.family), ids_(tower.codes->ids), row_end_id_(tower.codes->row_end), text_(text) {
  VisionTower located = tower;
  locate_tower(located, checkpoint);
  check_tower_tensors(located, checkpoint);
  tokenizer_ = load_tokenizer(backend, *located.codes, checkpoint, storage);
  if (tower.codes->row_end >= 0) row_end_ = rows_of({{tower.codes->row_end}});
}

std::vector<float> CodeEncoder::rows_of(std::span<const std::int32_t> ids) const {
  Backend& backend = text_.backend();
  const Shape shape{std::ssize(ids), text_.width()};
  Tensor rows = backend.allocate(DType::kF32, shape);
  text_.embed_prompt(ids, rows.view());
  Tensor host = Tensor::host(DType::kF32, shape);
  backend.download(rows.view(), host.view());
  backend.synchronize();
  return {host.view().f32(), host.view().f32() + shape.elements()};
}

std::vector<std::int32_t> CodeEncoder::codes_of(const PreprocessedImage& image) const {
  expects(image.views.size() == 1, "an image of codes is one view");
  std::vector<std::int32_t> ids = tokenizer_->encode(channels_last(image.views.front()).view());
  for (std::int32_t& id : ids) id = nth(ids_, id);
  return ids;
}

std::vector<std::int32_t> CodeEncoder::ids(const PreprocessedImage& image) const {
  const std::vector<std::int32_t> codes = codes_of(image);
  if (!image.plan.row_newlines) return codes;
  std::vector<std::int32_t> out;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    out.push_back(codes[i]);
    if (to_index(i + 1) % image.plan.view_cols == 0) out.push_back(row_end_id_);
  }
  return out;
}

VisualRows CodeEncoder::encode(const PreprocessedImage& image, bool three_axes,
                               PruneSession* session, std::optional<EncodedTiles>) const {
  if (session != nullptr) refuse_patch_methods(*session, family_, true);
  const VisualLayout layout = layout_of(image.plan, {.three_axes = three_axes});
  const std::vector<std::int32_t> ids = codes_of(image);
  const std::vector<float> rows = rows_of(ids);
  VisualRows out;
  out.block = out.whole = layout.block;
  out.total = layout.block.count();
  out.width = text_.width();
  out.offsets = layout.offsets;
  out.rows.resize(to_size(out.total * out.width));
  std::int64_t next = 0;
  for (TokenIndex i = 0; i < out.block.count(); ++i) {
    out.positions.push_back(out.block[i].position);
    if (out.block[i].kind == TokenKind::kNewline) continue;
    std::copy_n(rows.begin() + next * out.width, out.width, out.rows.begin() + i * out.width);
    ++next;
  }
  expects(next == std::ssize(ids), "a token a code");
  place_newlines(out, row_end_);
  return out;
}

}  // namespace tessera
