// Convolutions over frames and along time, on maps [h, w, C] that come one after another. Internal
// to tokenizers/visual.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/core/tensor.h"
#include "engine/ops/conv2d.h"

namespace tessera {

using Map = std::shared_ptr<Tensor>;

// What a layer read last, oldest first.
using Past = std::deque<Map>;
inline constexpr std::size_t kPastMaps = 2;  // what a kernel of three frames looks back
void remember(Past& past, Map map);

// The device's copy of a host tensor; a vector of one value.
Tensor uploaded(Backend& backend, const Tensor& host);
Tensor filled(Backend& backend, std::int64_t count, float value);

// A kernel as slices along time, the oldest frame's first. NAME.weight [out, in, kt, k, k] and
// NAME.bias [out].
class TimeConv {
 public:
  struct Size {
    std::int64_t out = 0, in = 0;
    int kt = 1, k = 1;
  };
  TimeConv(Backend& backend, const Checkpoint& checkpoint, const std::string& name,
           const Size& size, DType storage);

  std::int64_t out_channels() const { return size_.out; }
  // One map a slice, null for zeros; the last is there. `form` has how each is read (scale, shift,
  // swish, stride), the output and whether it is added to; without pads of its own, zeros are
  // around as far as the kernel reaches.
  void apply(Backend& backend, std::span<const Map> inputs, Conv2dArgs form) const;

 private:
  Size size_;
  std::vector<ConvWeight> slices_;
  Tensor bias_;
};

}  // namespace tessera
