// The weights of one vision transformer on a backend, read from a checkpoint by the spec's names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/nn/linear.h"
#include "engine/towers/vit_spec.h"

namespace tessera {

// LayerNorm, or RMSNorm when there is no bias.
struct RowNorm {
  Tensor weight;  // [C]
  Tensor bias;    // [C] or empty
  float eps = 1e-6f;

  std::size_t bytes() const { return weight.bytes() + bias.bytes(); }
};
void apply(Backend& backend, const RowNorm& norm, ConstTensorView x, TensorView out);

struct VitLayerWeights {
  RowNorm norm1, norm2;
  Linear q, k, v;  // [C, C]
  Linear out;      // [C, C]
  Linear mlp_in;   // [F, C], or gate and up stacked [2 F, C]
  Linear mlp_out;  // [C, F]
};

struct VitWeights {
  Linear patch;                         // [C, 3 frames patch patch]
  Tensor class_token;                   // [1, C] or empty
  Tensor positions;                     // [places, C] or empty
  RowNorm first_norm;                   // weight empty = none
  std::vector<VitLayerWeights> layers;  // those that are run
  RowNorm final_norm;                   // weight empty = none

  std::size_t bytes() const;
};

// How a matrix is kept in an encoder of `storage`: so, or with kFile as its file has it; of blocks
// as what stands next to them (beside()).
DType encoder_storage(const Checkpoint& weights, std::string_view name, DType storage);

// Reads tensors one by one, checked for shape, type and NaN (checked_weight), packs them for the
// backend and gives their pages back.
class WeightReader {
 public:
  WeightReader(Backend& backend, const Checkpoint& checkpoint, DType storage)
      : backend_(backend), checkpoint_(checkpoint), storage_(storage) {}

  Tensor vector(const std::string& name, std::int64_t n);
  Tensor matrix(const std::string& name, const Shape& in_file, Shape shape);  // f32
  RowNorm norm(const std::string& stem, std::int64_t width, VitNorm kind, float eps);
  // The weights of several stems, each [out, in], on top of each other, with their biases.
  Linear linear(const std::vector<std::string>& stems, std::int64_t out, std::int64_t in,
                bool bias);
  // Rows [part * out, (part + 1) * out) of one fused weight [parts * out, in] and its bias.
  Linear linear_part(const std::string& stem, std::int64_t part, std::int64_t parts,
                     std::int64_t out, std::int64_t in);
  // A convolution kernel whose stride is its size, [out, ...] with `in` numbers an output.
  Linear patch(const std::string& stem, const Shape& kernel, bool bias);

 private:
  Tensor upload(Tensor host, Shape shape);
  // One type for all of them: f32 where they differ.
  DType kept(const std::vector<std::string>& stems) const;

  Backend& backend_;
  const Checkpoint& checkpoint_;
  DType storage_;
};

// Error kModel naming the tensor that is missing, wrong or not finite.
VitWeights load_vit_weights(Backend& backend, const VitSpec& spec, const Checkpoint& checkpoint,
                            DType storage);

}  // namespace tessera
