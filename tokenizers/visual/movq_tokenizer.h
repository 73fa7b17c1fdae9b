// The video tokenizer of Emu3: four frames are one grid of codes. Grids are encoded and decoded one
// after another, as a stream: convolutions along time look back two frames, never ahead, so memory
// does not grow with a video's length, and a video that goes on later gives the same codes and frames
// as one in a piece.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/index.h"
#include "engine/nn/movq_spec.h"
#include "tokenizers/visual/video_tokenizer.h"

namespace tessera {

class MovqTokenizer final : public VideoTokenizer {
 public:
  // As VqTokenizer, with the tensors of movq_tensors(spec).
  MovqTokenizer(Backend& backend, const MovqSpec& spec, const Checkpoint& checkpoint, DType storage,
                TokenizerHalves halves);
  ~MovqTokenizer() override;

  std::int64_t codes() const override { return spec_.frame.codes; }
  int factor() const override { return narrow<int>(spec_.frame.downsample()); }
  // Frames that one grid of codes stands for.
  int frames() const { return spec_.frames(); }
  const MovqSpec& spec() const { return spec_; }

  // An image is a video of one grid whose frames are all the same; the first is released.
  std::vector<std::int32_t> encode(ConstTensorView image) const override;
  Tensor decode(std::span<const std::int32_t> ids, int rows, int cols) const override;
  std::size_t decode_scratch_bytes(int rows, int cols) const override;
  Tensor codebook() const override;
  std::vector<std::uint8_t> to_pixels(ConstTensorView image) const override;
  std::unique_ptr<GridEncoder> video_encoder(int height, int width) const override;
  std::unique_ptr<GridDecoder> video_decoder(int rows, int cols) const override;

 private:
  friend class VideoEncoder;
  friend class MovqVideoDecoder;
  struct TimeRes;
  struct TimeSide;
  class Stream;

  Backend& backend_;
  MovqSpec spec_;
  Tensor codebook_;      // [V, D] f32 on the device
  Tensor ones_, zeros_;  // [D] f32 on the device
  std::optional<ConvStack> decoder_;
  std::unique_ptr<TimeSide> decoder_time_;
  std::optional<ConvStack> encoder_;
  std::unique_ptr<TimeSide> encoder_time_;
};

// With every frames()-th image the codes of a grid. The tokenizer outlives it and has both halves.
class VideoEncoder final : public GridEncoder {
 public:
  // Frames of height x width pixels, multiples of factor().
  VideoEncoder(const MovqTokenizer& tokenizer, int height, int width);
  ~VideoEncoder() override;
  std::optional<std::vector<std::int32_t>> push(ConstTensorView image) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The tokenizer outlives it.
class MovqVideoDecoder final : public GridDecoder {
 public:
  MovqVideoDecoder(const MovqTokenizer& tokenizer, int rows, int cols);
  ~MovqVideoDecoder() override;
  std::vector<Tensor> next(std::span<const std::int32_t> ids, int wanted) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
