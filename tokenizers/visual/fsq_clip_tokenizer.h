// The clip tokenizer of Cosmos: the first frame is a grid of codes, every frames() further ones are
// another. Nothing looks ahead, so a clip that goes on gives the same first codes and frames as one
// in a piece; the middle's attention along time keeps keys of all grids, so memory grows with a
// clip's length.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/nn/fsq_clip_spec.h"
#include "tokenizers/visual/clip_tokenizer.h"
#include "tokenizers/visual/fsq.h"

namespace tessera {

class FsqClipTokenizer final : public ClipTokenizer {
 public:
  // Reads the tensors of fsq_clip_tensors(spec), but for those of fsq_clip_unused(). Error kModel.
  FsqClipTokenizer(Backend& backend, const FsqClipSpec& spec, const Checkpoint& checkpoint,
                   DType storage, TokenizerHalves halves);
  ~FsqClipTokenizer() override;

  std::int64_t codes() const override { return quantizer_.codes(); }
  int factor() const override { return static_cast<int>(spec_.spatial); }
  // Frames of every grid but the first.
  int frames() const { return spec_.frames(); }
  const FsqClipSpec& spec() const { return spec_; }

  // A picture is a clip of one frame.
  std::vector<std::int32_t> encode(ConstTensorView image) const override;
  Tensor decode(std::span<const std::int32_t> ids, int rows, int cols) const override;
  std::size_t decode_scratch_bytes(int rows, int cols) const override;
  Tensor codebook() const override;
  std::vector<std::uint8_t> to_pixels(ConstTensorView image) const override;
  std::unique_ptr<GridEncoder> clip_encoder(int height, int width) const override;
  std::unique_ptr<GridDecoder> clip_decoder(int rows, int cols) const override;

 private:
  friend class FsqClipEncoder;
  friend class FsqClipDecoder;
  struct Sides;

  Backend& backend_;
  FsqClipSpec spec_;
  FiniteScalars quantizer_;
  std::unique_ptr<Sides> sides_;
};

// The tokenizer outlives it and has both halves.
class FsqClipEncoder final : public GridEncoder {
 public:
  FsqClipEncoder(const FsqClipTokenizer& tokenizer, int height, int width);
  ~FsqClipEncoder() override;
  std::optional<std::vector<std::int32_t>> push(ConstTensorView image) override;
  // The same with the latents [h, w, levels] that the codes are made of; empty until a grid stands.
  Tensor push_latents(ConstTensorView image);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The tokenizer outlives it.
class FsqClipDecoder final : public GridDecoder {
 public:
  FsqClipDecoder(const FsqClipTokenizer& tokenizer, int rows, int cols);
  ~FsqClipDecoder() override;
  std::vector<Tensor> next(std::span<const std::int32_t> ids, int wanted) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
