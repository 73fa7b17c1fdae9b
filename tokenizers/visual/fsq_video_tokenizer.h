// The video tokenizer of Cosmos: the first frame is a grid of codes, every frames() further ones are
// another. Nothing looks ahead, so a video that goes on gives the same first codes and frames as one
// in a piece; the middle's attention along time keeps keys of all grids, so memory grows with a
// video's length.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/index.h"
#include "engine/nn/fsq_video_spec.h"
#include "tokenizers/visual/fsq.h"
#include "tokenizers/visual/video_tokenizer.h"

namespace tessera {

class FsqVideoTokenizer final : public VideoTokenizer {
 public:
  // Reads the tensors of fsq_video_tensors(spec), but for those of fsq_video_unused(). Error kModel.
  FsqVideoTokenizer(Backend& backend, const FsqVideoSpec& spec, const Checkpoint& checkpoint,
                   DType storage, TokenizerHalves halves);
  ~FsqVideoTokenizer() override;

  std::int64_t codes() const override { return quantizer_.codes(); }
  int factor() const override { return narrow<int>(spec_.spatial); }
  // Frames of every grid but the first.
  int frames() const { return spec_.frames(); }
  const FsqVideoSpec& spec() const { return spec_; }

  // An image is a video of one frame.
  std::vector<std::int32_t> encode(ConstTensorView image) const override;
  Tensor decode(std::span<const std::int32_t> ids, int rows, int cols) const override;
  std::size_t decode_scratch_bytes(int rows, int cols) const override;
  Tensor codebook() const override;
  std::vector<std::uint8_t> to_pixels(ConstTensorView image) const override;
  std::unique_ptr<GridEncoder> video_encoder(int height, int width) const override;
  std::unique_ptr<GridDecoder> video_decoder(int rows, int cols) const override;

 private:
  friend class FsqVideoEncoder;
  friend class FsqVideoDecoder;
  struct Sides;

  Backend& backend_;
  FsqVideoSpec spec_;
  FiniteScalars quantizer_;
  std::unique_ptr<Sides> sides_;
};

// The tokenizer outlives it and has both halves.
class FsqVideoEncoder final : public GridEncoder {
 public:
  FsqVideoEncoder(const FsqVideoTokenizer& tokenizer, int height, int width);
  ~FsqVideoEncoder() override;
  std::optional<std::vector<std::int32_t>> push(ConstTensorView image) override;
  // The same with the latents [h, w, levels] that the codes are made of; empty until a grid stands.
  Tensor push_latents(ConstTensorView image);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The tokenizer outlives it.
class FsqVideoDecoder final : public GridDecoder {
 public:
  FsqVideoDecoder(const FsqVideoTokenizer& tokenizer, int rows, int cols);
  ~FsqVideoDecoder() override;
  std::vector<Tensor> next(std::span<const std::int32_t> ids, int wanted) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
