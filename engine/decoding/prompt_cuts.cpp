// Parts of the layers, one after the other; what is left of the rows moves together between them.
#include "engine/decoding/prompt_cuts.h"

#include <numeric>
#include <utility>

#include "engine/core/index.h"
#include "engine/ops/ops.h"

namespace tessera {

namespace {

TensorView first_rows(Tensor& matrix, std::int64_t rows) {
  const TensorView all = matrix.view();
  return {all.dtype, Shape{rows, all.shape[1]}, all.data, all.device};
}

}  // namespace

void run_prompt_in_parts(const Transformer& transformer, std::int64_t sequence,
                         ConstTensorView rows, std::span<const std::array<std::int64_t, 3>> places,
                         PromptCuts& cuts, KvCache& cache, Arena& arena, TensorView last) {
  Backend& backend = transformer.backend();
  const std::int64_t width = transformer.config().width, layers = transformer.config().layers;
  const std::int64_t total = rows.shape[0];
  expects(cache.length(sequence) == 0, "the prompt of an empty sequence");
  Tensor in = backend.allocate(DType::kF32, Shape{total, width});
  Tensor out = backend.allocate(DType::kF32, Shape{total, width});
  std::vector<std::int64_t> left(to_size(total)), moved(left.size());
  std::iota(left.begin(), left.end(), 0);
  std::iota(moved.begin(), moved.end(), 0);
  std::vector<std::int32_t> sequences(left.size(), narrow<std::int32_t>(sequence));
  std::vector<std::array<std::int64_t, 3>> own(places.begin(), places.end());
  std::vector<std::int64_t> positions;
  for (const auto& place : own) positions.push_back(place[0]);
  ConstTensorView now = rows;
  std::vector<std::int64_t> ends = cuts.layers();
  ends.push_back(layers);
  std::int64_t first = 0;
  for (const std::int64_t end : ends) {
    expects(end > first && end <= layers, "cuts ascend inside the model");
    const TensorView reached = first_rows(out, now.shape[0]);
    transformer.forward_layers({.rows = now,
                                .sequences = std::span(sequences).first(left.size()),
                                .positions = positions,
                                .places = own},
                               {first, end}, cache, arena, reached, {.observer = cuts.observer()});
    first = end;
    if (end == layers) break;
    const std::vector<std::int64_t> kept = cuts.keep({end, left, reached, &cache, sequence});
    expects(!kept.empty() && kept.back() + 1 == std::ssize(left), "the last row stays");
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const auto from = to_size(kept[i]);
      expects(from < left.size() && (i == 0 || kept[i] > kept[i - 1]), "kept rows ascend");
      left[i] = left[from];
      own[i] = own[from];
      positions[i] = positions[from];
      // One row at a time: rows that stay lie after one another anywhere.
      ops::store_rows(backend, reached.f32() + kept[i] * width, width,
                      std::span(moved).subspan(i, 1),
                      {DType::kF32, Shape{total, 1, width}, in.view().data, in.view().device});
    }
    const auto dropped = to_index(left.size() - kept.size());
    left.resize(kept.size());
    own.resize(kept.size());
    positions.resize(kept.size());
    if (dropped > 0) cache.cut(sequence, end, dropped);
    now = first_rows(in, std::ssize(left));
  }
  const std::int64_t at = std::ssize(left) - 1;
  const std::int64_t zero = 0;
  ops::store_rows(backend, out.f32() + at * width, width, {&zero, 1},
                  {DType::kF32, Shape{1, 1, width}, last.data, last.device});
}

}  // namespace tessera
