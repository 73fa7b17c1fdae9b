// From features of the image encoder to rows of the language model: LLaVA's two layers, Janus'
// aligner, Qwen's merger and Idefics3's pixel shuffle are one thing with other data. The patches of
// a cell of n x n places are joined, row by row within the cell; then linear layers with an
// activation between them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/towers/projector_spec.h"
#include "vision/encoder/vision_encoder.h"

namespace tessera {

struct ProjectedImage {
  Tensor rows;  // [cells, out_width]
  // Number of each: times, then raster order; ascending. A class token that was kept is -1.
  std::vector<std::int32_t> cells;
  std::int64_t cell_rows = 0, cell_cols = 0;
};

class Projector {
 public:
  // Error kModel naming the tensor. The backend must outlive the projector.
  Projector(Backend& backend, const ProjectorSpec& spec, const Checkpoint& checkpoint,
            DType storage);

  // Cells of which the encoder kept no patch are left out; with cell > 1 a cell has all of its
  // patches or none: expects() that. Takes scratch_bytes(spec, features) from the arena and gives
  // it back.
  ProjectedImage project(const EncodedImage& image, Arena& arena) const;
  // Bare features [cells * cell * cell, in_width], the patches of a cell side by side: what a
  // selection after the encoder left or made. [cells, out_width]. The same scratch.
  Tensor project_rows(ConstTensorView features, Arena& arena) const;

  static std::size_t scratch_bytes(const ProjectorSpec& spec, std::int64_t features);

  const ProjectorSpec& spec() const { return spec_; }
  std::size_t weight_bytes() const;

 private:
  Backend* backend_;
  ProjectorSpec spec_;
  RowNorm norm_;  // weight empty = none
  std::vector<Linear> layers_;
};

}  // namespace tessera
