// One vision transformer for every tower that a VitSpec describes: patches to features, with hooks
// after the attention and after each layer. Const weights. Images that are encoded together go
// through every layer side by side, so that an observer sees all of them at once; an image's
// features depend on that image alone, bit for bit, and not on threads. Everything is computed in
// f32.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "vision/encoder/layer_state.h"
#include "vision/encoder/vit_grid.h"
#include "engine/towers/vit_spec.h"
#include "vision/encoder/vit_weights.h"

namespace tessera {

// One image, tile or video.
struct EncoderInput {
  ConstTensorView pixels;  // [3, H, W] or [T, 3, H, W] f32, normalised, host memory
  // Pixels that hold image, the rest being padding right and below; 0 = all. Padding is encoded
  // but seen by no other patch. For specs with bucketed positions.
  std::int64_t filled_height = 0;
  std::int64_t filled_width = 0;
};

struct EncodeOptions {
  std::span<TowerObserver* const> observers = {};  // called in order
  // Rows that were merged count in attention as many times as patches went into them
  // (Bolya et al. 2023): ln(size) is added to their scores.
  bool proportional_attention = false;
  // The class token's row stays in the features even where the spec drops it.
  bool keep_class_token = false;
};

struct EncodedImage {
  Tensor features;               // [rows, feature_width], the final norm applied if the spec has it
  std::vector<VitPlace> places;  // of each row, ids ascending: the class token first, if it is kept
  std::vector<float> sizes;      // patches in each row; 1 unless rows were merged
  VitGrid grid;
};

class VisionEncoder {
 public:
  // Activations of the MLP stand in memory for this many rows at once.
  static constexpr std::int64_t kMlpRows = 256;

  // Error kModel (check_vit_spec, load_vit_weights). `file` is the spec's name in messages. The
  // backend must outlive the encoder.
  VisionEncoder(Backend& backend, const VitSpec& spec, const Checkpoint& checkpoint, DType storage,
                const std::string& file = "config.json");

  // All images at once; see vit_grid for errors. Takes scratch_bytes(spec, patches of all,
  // images) from the arena and gives it back.
  std::vector<EncodedImage> encode(std::span<const EncoderInput> images, Arena& arena,
                                   const EncodeOptions& options = {}) const;
  EncodedImage encode(const EncoderInput& image, Arena& arena,
                      const EncodeOptions& options = {}) const;

  // Bytes of the arena that so many patches in so many images need.
  static std::size_t scratch_bytes(const VitSpec& spec, std::int64_t patches,
                                   std::int64_t images = 1);

  const VitSpec& spec() const { return spec_; }
  Backend& backend() const { return *backend_; }
  std::size_t weight_bytes() const { return weights_.bytes(); }

 private:
  struct Run;  // one call of encode()

  // Residual stream before layer 0.
  void embed(std::span<const EncoderInput> images, Run& run) const;
  void make_rotary(Run& run) const;
  void run_layer(std::int64_t layer, const EncodeOptions& options, Run& run) const;
  void attend(std::int64_t layer, TensorView delta, EncoderRows& rows) const;
  void run_mlp(const VitLayerWeights& weights, TensorView delta, Arena& arena,
               EncoderRows& rows) const;
  // Copies the rows after `layers` layers to their columns of the features, if they are tapped.
  void tap(std::int64_t layers, Run& run) const;
  std::vector<EncodedImage> finish(bool with_class_token, Run& run) const;

  Backend* backend_;
  VitSpec spec_;
  VitWeights weights_;
};

}  // namespace tessera
