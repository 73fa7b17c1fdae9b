// How stacked matrices are kept: neighbours of one type are one part. For backends that pack them.
#pragma once

#include <span>
#include <vector>

#include "engine/backend/backend.h"

namespace tessera {

struct StackedPart {
  LinearPart part;
  std::span<const ConstTensorView> sources;
};

// One part or several, in order. Sets outputs, inputs, storage and parts of `weight`, an empty one.
inline std::vector<StackedPart> split_stacked(std::span<const ConstTensorView> stacked,
                                              DType storage, LinearWeight& weight) {
  expects(!stacked.empty(), "at least one matrix to pack");
  weight.k = stacked[0].shape[1];
  std::vector<StackedPart> out;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < stacked.size(); ++i) {
    const ConstTensorView& source = stacked[i];
    expects(source.shape.rank() == 2 && source.shape[1] == weight.k,
            "stacked matrices share inputs");
    expects(weight.k % storage_of(source.dtype).block == 0, "rows of whole blocks");
    const std::int64_t n = source.shape[0];
    const DType own = kept_as(source.dtype, storage);
    if (out.empty() || out.back().part.storage != own) {
      out.push_back({{0, own}, {}});
      begin = i;
    }
    out.back().part.n += n;
    out.back().sources = stacked.subspan(begin, i + 1 - begin);
    weight.n += n;
  }
  weight.storage = out.size() == 1 ? out[0].part.storage : DType::kFile;
  if (out.size() > 1) {
    for (const StackedPart& one : out) weight.parts.push_back(one.part);
  }
  return out;
}

}  // namespace tessera
