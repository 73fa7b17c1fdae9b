// Brings the tensors of a model onto a device, one at a time: no more than one source tensor is
// resident next to what is packed already, and a large table never stands in memory twice.
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoint/non_finite.h"
#include "engine/families/model_spec.h"
#include "engine/families/open_model.h"
#include "engine/model/transformer.h"
#include "engine/nn/linear.h"

namespace tessera {

class WeightLoader {
 public:
  // `storage`: how the device keeps matrices (Backend::keeps); kFile: matrices and tables as their
  // files have them. Both must outlive the loader.
  WeightLoader(TensorSource& source, Backend& backend, DType storage);

  // All of them: Error kModel (E_WEIGHT_NOT_FINITE) naming the tensor, the first NaN or infinity in
  // it and how many there are. Matrices as f16: E_WEIGHT_RANGE for a number that is none of f16.
  Tensor vector(const std::string& name);  // f32
  // `offset` added to every number, one rounding to f32.
  Tensor norm(const std::string& name, float offset);
  Tensor filled(float value, std::int64_t count);
  // As it is kept next to the matrices; of `rows`, one range after the other, if there are any.
  Tensor table(const std::string& name, const std::vector<RowRange>& rows = {});
  // Vectors one after the other, f32; empty for no names.
  Tensor joined(const std::vector<std::string>& names);
  LinearWeight pack(const std::vector<std::string>& names);
  // stem.weight and stem.bias; an empty stem gives an empty layer.
  Linear linear(const std::string& stem, bool bias);
  // The same as an output layer, kept as head_storage(); of `rows`, if there are any.
  Linear head(const std::string& stem, bool bias, const std::vector<RowRange>& rows);
  LinearWeight pack_head(const std::string& name);
  TransformerWeights transformer(const WeightNames& names, std::int64_t layers);

 private:
  [[noreturn]] void refuse(const std::string& name, const NonFinite& bad) const;
  ConstTensorView fetch(const std::string& name, DType storage);
  ConstTensorView get(const std::string& name);
  void check(const std::string& name, const ConstTensorView& part, std::int64_t first,
             DType storage) const;
  Tensor converted(const std::string& name, const ConstTensorView& view, DType dtype,
                   const std::vector<RowRange>& rows = {});
  Tensor uploaded(ConstTensorView numbers);  // f32, from the host
  LinearWeight packed(const std::vector<std::string>& names, DType storage);
  LinearWeight packed_rows(const std::string& name, const std::vector<RowRange>& rows,
                           DType storage);
  CrossWeights cross(const CrossNames& names, const std::string& prefix);
  // Of queries, then keys, a row a head.
  Tensor head_rows(const HeadNormNames& names, const std::string& prefix, const char* leaf);
  LayerWeights layer(const WeightNames& names, const std::string& prefix);

  TensorSource& source_;
  Backend& backend_;
  DType storage_;
};

}  // namespace tessera
