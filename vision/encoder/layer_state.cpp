// Rows of a running encoder: attention weights on demand, dropping and merging.
#include "vision/encoder/layer_state.h"

#include <algorithm>
#include <cmath>

#include "engine/core/index.h"
#include "engine/nn/pass_views.h"
#include "engine/ops/host_access.h"
#include "engine/ops/ops.h"
#include "vision/encoder/row_views.h"

namespace tessera {

namespace {

float softmax_scale(const VitSpec& spec) { return 1.0f / std::sqrt(to_float(spec.head_dim())); }

// Nothing of nothing.
ConstTensorView part_of(ConstTensorView x, const RowRun& run) {
  return x.empty() ? x : rows_of(x, run.begin, run.count());
}

// Rows `from` of a small table, in place.
void gather(Backend& backend, TensorView& table, std::span<const std::int32_t> from) {
  if (table.empty()) return;
  const auto count = std::ssize(from);
  Tensor rows = backend.allocate(DType::kF32, {count, table.shape[1]});
  ops::embedding(backend, table, from, rows.view());
  table = rows_of(table, 0, count);
  backend.copy(rows.view(), table);
}

// Neighbouring rows with one number; numbers ascend.
template <typename GroupOf>
std::vector<RowRun> runs_by(std::span<const VitPlace> places, const GroupOf& group_of) {
  std::vector<RowRun> runs;
  std::int32_t last = -1;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::int32_t group = group_of(places[i]);
    const auto row = to_index(i);
    if (runs.empty() || group != last) {
      expects(group > last, "rows that belong together stand together, in order");
      runs.push_back({row, row});
      last = group;
    }
    runs.back().end = row + 1;
  }
  return runs;
}

}  // namespace

std::vector<RowRun> attention_runs(std::span<const VitPlace> places, bool windowed) {
  return runs_by(places, [&](const VitPlace& place) {
    return windowed ? place.window_group : place.frame_group;
  });
}

std::vector<RowRun> image_runs(std::span<const VitPlace> places) {
  return runs_by(places, [](const VitPlace& place) { return place.image; });
}

ConstTensorView LayerState::queries() const {
  expects(!changed_, "queries are those of the rows that ran");
  return rows_.q;
}
ConstTensorView LayerState::keys() const {
  expects(!changed_, "keys are those of the rows that ran");
  return rows_.k;
}
ConstTensorView LayerState::values() const {
  expects(!changed_, "values are those of the rows that ran");
  return rows_.v;
}
ConstTensorView LayerState::log_sums() const {
  expects(!changed_, "log-sums are those of the rows that ran");
  return rows_.log_sums;
}

void LayerState::attention_of(std::int64_t first, std::int64_t count, AttentionMean mean,
                              TensorView out) const {
  expects(attention_runs(places(), spec_.has_window(layer_)).size() == 1,
          "attention of chosen rows: all rows attend to each other");
  ops::row_attention(backend_, {.q = rows_of(queries(), first, count),
                                .keys = keys(),
                                .key_bias = rows_.key_bias,
                                .log_sum = rows_of(log_sums(), first, count),
                                .scale = softmax_scale(spec_),
                                .mean = mean,
                                .out = out});
}

void LayerState::run_attention(ConstTensorView q, ConstTensorView log_sum, const RowRun& run,
                               float share, TensorView out) const {
  const bool per_head = out.shape.rank() == 2;
  const std::int64_t outputs = per_head ? spec_.heads : 1;
  const std::int64_t n = run.count();
  Tensor part = backend_.allocate(DType::kF32, per_head ? Shape{spec_.heads, n} : Shape{n});
  ops::row_attention(backend_, {.q = q,
                                .keys = part_of(keys(), run),
                                .key_bias = part_of(rows_.key_bias, run),
                                .log_sum = log_sum,
                                .scale = softmax_scale(spec_),
                                .mean = per_head ? AttentionMean::kRows : AttentionMean::kBoth,
                                .out = part.view()});
  const HostView weights(backend_, part.view());
  for (std::int64_t head = 0; head < outputs; ++head) {
    for (std::int64_t i = 0; i < n; ++i) {
      out.f32()[head * rows() + run.begin + i] = weights.f32()[head * n + i] * share;
    }
  }
}

void LayerState::attention(AttentionRows whose, HeadMean heads, TensorView out) const {
  const Shape wanted = heads == HeadMean::kMean ? Shape{rows()} : Shape{spec_.heads, rows()};
  expects(out.shape == wanted && out.device.kind == DeviceKind::kCpu,
          "attention: out is [heads, rows] of the host, or [rows] with the mean");
  expects(whose != AttentionRows::kClassToken || spec_.class_token,
          "attention: the encoder has a class token");
  const bool windowed = spec_.has_window(layer_);
  for (const RowRun& image : image_runs(places())) {
    const auto own = places().subspan(to_size(image.begin), to_size(image.count()));
    if (whose == AttentionRows::kClassToken) {
      const auto found =
          std::find_if(own.begin(), own.end(), [](const VitPlace& place) { return place.id < 0; });
      expects(found != own.end(), "an image keeps its class token");
      const std::int64_t row = image.begin + (found - own.begin());
      run_attention(rows_of(queries(), row, 1), rows_of(log_sums(), row, 1), image, 1.0f, out);
    } else if (whose == AttentionRows::kMeanQuery) {
      const auto n = to_size(image.count());
      const std::vector<std::int32_t> to(n, 0);
      const std::vector<float> weight(n, 1.0f / to_float(n));
      Tensor mean = backend_.allocate(DType::kF32, {1, spec_.width});
      ConstTensorView q = part_of(queries(), image);
      q.shape = {image.count(), spec_.width};
      ops::combine_rows(backend_, q, to, weight, mean.view());
      run_attention(heads_of(mean.view(), spec_.heads), {}, image, 1.0f, out);
    } else {
      for (RowRun run : attention_runs(own, windowed)) {
        run = {run.begin + image.begin, run.end + image.begin};
        const float share = to_float(run.count()) / to_float(image.count());
        run_attention(part_of(queries(), run), part_of(log_sums(), run), run, share, out);
      }
    }
  }
}

void LayerState::expect_rows_may_go() const {
  expects(spec_.taps.empty(), "rows whose features come from several layers stay");
}

void LayerState::take_places(std::span<const std::int32_t> from) {
  std::vector<VitPlace> places;
  for (const std::int32_t row : from) places.push_back(nth(rows_.places, row));
  rows_.places = std::move(places);
  gather(backend_, rows_.cos, from);
  gather(backend_, rows_.sin, from);
  changed_ = true;
}

void LayerState::keep(std::span<const std::int32_t> rows) {
  expect_rows_may_go();
  expects(!rows.empty(), "keep: at least one row");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    expects(rows[i] >= 0 && rows[i] < rows_.count() && (i == 0 || rows[i] > rows[i - 1]),
            "keep: rows are ascending and there");
  }
  for (const RowRun& image : image_runs(places())) {
    const auto first = std::lower_bound(rows.begin(), rows.end(), image.begin);
    expects(first != rows.end() && *first < image.end, "keep: every image keeps a row");
  }
  for (std::int64_t i = 0; i < rows_.count(); ++i) {
    expects(nth(rows_.places, i).id >= 0 || std::binary_search(rows.begin(), rows.end(), i),
            "keep: the class token stays");
  }
  const auto count = std::ssize(rows);
  const TensorView kept = rows_of(rows_.spare, 0, count);
  ops::embedding(backend_, rows_.x, rows, kept);
  rows_.spare = rows_of(rows_.x, 0, count);
  rows_.x = kept;
  std::vector<float> sizes;
  for (const std::int32_t row : rows) sizes.push_back(nth(rows_.sizes, row));
  rows_.sizes = std::move(sizes);
  take_places(rows);
}

void LayerState::merge(std::span<const std::int32_t> to, std::span<const std::int32_t> stands_for) {
  expect_rows_may_go();
  const auto count = std::ssize(stands_for);
  expects(std::ssize(to) == rows_.count() && count > 0, "merge: every row has a destination");
  for (std::size_t j = 0; j < stands_for.size(); ++j) {
    const std::int32_t row = stands_for[j];
    expects(row >= 0 && row < rows_.count() && nth(to, row) == narrow<std::int32_t>(j),
            "merge: a new row stands for one that goes into it");
  }
  std::vector<float> sizes(stands_for.size(), 0.0f);
  for (std::size_t i = 0; i < to.size(); ++i) {
    expects(to[i] >= 0 && to[i] < count, "merge: destinations are new rows");
    const auto j = to_size(to[i]);
    const VitPlace& old = rows_.places[i];
    const VitPlace& next = nth(rows_.places, stands_for[j]);
    expects(old.frame_group == next.frame_group && old.window_group == next.window_group,
            "merge: rows of one run merge");
    expects(old.id >= 0 || stands_for[j] == narrow<std::int32_t>(i),
            "merge: class tokens stand for themselves");
    sizes[j] += rows_.sizes[i];
  }
  std::vector<float> weight(to.size());
  for (std::size_t i = 0; i < to.size(); ++i) {
    weight[i] = rows_.sizes[i] / nth(sizes, to[i]);
  }
  const TensorView merged = rows_of(rows_.spare, 0, count);
  ops::combine_rows(backend_, rows_.x, to, weight, merged);
  rows_.spare = rows_of(rows_.x, 0, count);
  rows_.x = merged;
  rows_.sizes = std::move(sizes);
  take_places(stands_for);
}

}  // namespace tessera
