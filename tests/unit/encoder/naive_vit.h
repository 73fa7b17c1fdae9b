// A vision transformer in plain double loops, as an oracle for the encoder: dense attention maps,
// rows dropped and merged after it was notified which, sizes counted by repeating keys physically.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/philox.h"
#include "vision/encoder/vision_encoder.h"

namespace tessera::testing {

inline std::vector<float> random_values(std::int64_t count, std::uint64_t stream, float scale = 1) {
  std::vector<float> out(static_cast<std::size_t>(count));
  const auto key = philox_key(stream, 0);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const PhiloxBlock block = philox4x32(
        {static_cast<std::uint32_t>(i), 0, static_cast<std::uint32_t>(Purpose::kTest), 0}, key);
    const double radius = std::sqrt(-2.0 * std::log(static_cast<double>(uniform_open(block[0]))));
    const double angle = 6.283185307179586 * static_cast<double>(uniform_open(block[1]));
    out[i] = scale * static_cast<float>(radius * std::cos(angle));
  }
  return out;
}

// Random weights of a scale that keeps activations alive.
inline std::map<std::string, Tensor> random_tower(const VitSpec& spec, std::uint64_t seed = 1) {
  std::map<std::string, Tensor> out;
  for (const TensorSpec& tensor : vit_tensors(spec)) {
    const bool vector = tensor.shape.rank() == 1;
    const bool gain = vector && tensor.name.ends_with("weight");
    const double inputs = static_cast<double>(tensor.shape.elements() / tensor.shape[0]);
    const auto scale = static_cast<float>(vector ? 0.3 : 1.2 / std::sqrt(inputs));
    const std::vector<float> values =
        random_values(tensor.shape.elements(), seed * 1000 + out.size(), scale);
    Tensor made = Tensor::host(DType::kF32, tensor.shape);
    for (std::size_t i = 0; i < values.size(); ++i)
      made.f32()[i] = values[i] + (gain ? 1.0f : 0.0f);
    out.emplace(tensor.name, std::move(made));
  }
  return out;
}

inline std::map<std::string, Tensor> clones(const std::map<std::string, Tensor>& tensors) {
  std::map<std::string, Tensor> out;
  for (const auto& [name, tensor] : tensors) out.emplace(name, tensor.clone());
  return out;
}

// What happens to the rows of one layer; empty = nothing.
struct RowChange {
  std::vector<std::int32_t> merge_to, stands_for;  // after the attention
  std::vector<std::int32_t> keep;                  // after the layer
};

using Rows = std::vector<std::vector<double>>;

class NaiveVit {
 public:
  NaiveVit(const VitSpec& spec, const std::map<std::string, Tensor>& tensors)
      : spec_(spec), tensors_(tensors) {}

  bool proportional = false;
  std::map<std::int64_t, RowChange> changes;
  // Of the last run, per layer: [head][row][column], before rows went.
  std::vector<std::vector<Rows>> attention;
  std::vector<VitPlace> places;  // of the rows that are left
  std::vector<double> sizes;

  // Rows after the last layer and the final norm, the class token included.
  Rows run(ConstTensorView pixels) {
    const VitGrid grid = vit_grid(spec_, pixels.shape);
    places = vit_places(spec_, grid);
    sizes.assign(places.size(), 1.0);
    attention.clear();
    Rows x = embed(pixels, grid);
    for (std::int64_t layer = 0; layer < spec_.run_layers; ++layer) x = run_layer(layer, x);
    return spec_.final_norm == VitFinalNorm::kApplied
               ? norm(spec_.names.prefix + spec_.names.final_norm, x)
               : x;
  }

 private:
  const float* at(const std::string& name) const { return tensors_.at(name).f32(); }

  Rows linear(const std::string& stem, const Rows& x, std::int64_t outputs,
              std::int64_t first = 0) const {
    const float* weight = at(stem + ".weight");
    const bool bias = tensors_.contains(stem + ".bias");
    Rows out;
    for (const auto& row : x) {
      out.emplace_back();
      for (std::int64_t n = first; n < first + outputs; ++n) {
        double sum = bias ? static_cast<double>(at(stem + ".bias")[n]) : 0.0;
        for (std::size_t k = 0; k < row.size(); ++k) {
          sum += row[k] * static_cast<double>(weight[static_cast<std::size_t>(n) * row.size() + k]);
        }
        out.back().push_back(sum);
      }
    }
    return out;
  }

  Rows norm(const std::string& stem, const Rows& x) const {
    Rows out = x;
    for (auto& row : out) {
      double mean = 0, squares = 0;
      for (const double v : row) mean += v / static_cast<double>(row.size());
      if (spec_.norm == VitNorm::kRms) mean = 0;
      for (const double v : row) squares += (v - mean) * (v - mean);
      const double factor = 1 / std::sqrt(squares / static_cast<double>(row.size()) +
                                          static_cast<double>(spec_.norm_eps));
      for (std::size_t c = 0; c < row.size(); ++c) {
        row[c] = (row[c] - mean) * factor * static_cast<double>(at(stem + ".weight")[c]);
        if (spec_.norm == VitNorm::kLayer) row[c] += static_cast<double>(at(stem + ".bias")[c]);
      }
    }
    return out;
  }

  Rows embed(ConstTensorView pixels, const VitGrid& grid) const {
    std::vector<float> patches(static_cast<std::size_t>(grid.patches() * spec_.patch_inputs()));
    vit_patches(spec_, places, pixels, patches.data());
    Rows in(static_cast<std::size_t>(grid.patches()));
    const auto width = static_cast<std::size_t>(spec_.patch_inputs());
    for (std::size_t i = 0; i < in.size(); ++i) {
      in[i].assign(patches.begin() + static_cast<std::ptrdiff_t>(i * width),
                   patches.begin() + static_cast<std::ptrdiff_t>((i + 1) * width));
    }
    Rows x = linear(spec_.names.prefix + spec_.names.patch, in, spec_.width);
    if (spec_.class_token) {
      const float* token = at(spec_.names.prefix + spec_.names.class_token);
      x.insert(x.begin(), std::vector<double>(token, token + spec_.width));
    }
    if (spec_.positions == VitPositions::kLearned) {
      const std::vector<std::int32_t> ids = vit_position_rows(spec_, grid, places);
      const float* table = at(spec_.names.prefix + spec_.names.positions);
      for (std::size_t i = 0; i < x.size(); ++i) {
        for (std::size_t c = 0; c < x[i].size(); ++c) {
          x[i][c] += static_cast<double>(table[static_cast<std::size_t>(ids[i]) * x[i].size() + c]);
        }
      }
    }
    return spec_.first_norm ? norm(spec_.names.prefix + spec_.names.first_norm, x) : x;
  }

  void rotate(Rows& x) const {
    if (spec_.positions != VitPositions::kRotary2d) return;
    const std::int64_t dim = spec_.head_dim(), half = dim / 2, quarter = dim / 4;
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::int64_t head = 0; head < spec_.heads; ++head) {
        for (std::int64_t k = 0; k < half; ++k) {
          const double position = k < quarter ? places[i].row : places[i].col;
          const double angle =
              position * std::pow(spec_.rope_theta, -2.0 * static_cast<double>(k % quarter) /
                                                        static_cast<double>(half));
          double& a = x[i][static_cast<std::size_t>(head * dim + k)];
          double& b = x[i][static_cast<std::size_t>(head * dim + k + half)];
          const double first = a * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + a * std::sin(angle);
          a = first;
        }
      }
    }
  }

  // A key of size s stands there s times.
  Rows attend(std::int64_t layer, const Rows& q, const Rows& k, const Rows& v) {
    const bool windowed = spec_.has_window(layer);
    const auto group = [&](std::size_t i) {
      return windowed ? places[i].window_group : places[i].frame_group;
    };
    const auto dim = static_cast<std::size_t>(spec_.head_dim());
    Rows out(q.size(), std::vector<double>(q[0].size(), 0.0));
    attention.emplace_back();
    for (std::size_t head = 0; head < static_cast<std::size_t>(spec_.heads); ++head) {
      attention.back().emplace_back(q.size(), std::vector<double>(q.size(), 0.0));
      for (std::size_t i = 0; i < q.size(); ++i) {
        std::vector<double>& weight = attention.back().back()[i];
        double total = 0;
        for (std::size_t j = 0; j < k.size(); ++j) {
          if (group(i) != group(j)) continue;
          double score = 0;
          for (std::size_t d = head * dim; d < (head + 1) * dim; ++d) score += q[i][d] * k[j][d];
          const int copies = proportional ? static_cast<int>(sizes[j]) : 1;
          for (int copy = 0; copy < copies; ++copy) {
            weight[j] += std::exp(score / std::sqrt(static_cast<double>(dim)));
          }
          total += weight[j];
        }
        for (std::size_t j = 0; j < k.size(); ++j) {
          weight[j] /= total;
          for (std::size_t d = head * dim; d < (head + 1) * dim; ++d) {
            out[i][d] += weight[j] * v[j][d];
          }
        }
      }
    }
    return out;
  }

  double activate(double x) const {
    switch (spec_.activation) {
      case VitActivation::kGelu:
        return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
      case VitActivation::kGeluTanh:
        return 0.5 * x *
               (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
      case VitActivation::kQuickGelu:
        return x / (1 + std::exp(-1.702 * x));
      case VitActivation::kSiluGated:
        return x / (1 + std::exp(-x));
    }
    return 0;
  }

  template <typename T>
  static std::vector<T> picked(const std::vector<T>& all, const std::vector<std::int32_t>& rows) {
    std::vector<T> out;
    for (const std::int32_t row : rows) out.push_back(all[static_cast<std::size_t>(row)]);
    return out;
  }

  Rows run_layer(std::int64_t layer, Rows x) {
    const VitNames& names = spec_.names;
    const std::string stem = vit_layer_name(names, layer);
    const std::int64_t c = spec_.width;
    const Rows in = norm(stem + names.norm1, x);
    const bool fused = names.qkv.size() == 1;
    const auto project = [&](std::size_t part) {
      return fused ? linear(stem + names.qkv[0], in, c, static_cast<std::int64_t>(part) * c)
                   : linear(stem + names.qkv[part], in, c);
    };
    Rows q = project(0), k = project(1);
    rotate(q);
    rotate(k);
    add(x, linear(stem + names.out, attend(layer, q, k, project(2)), c));
    const RowChange change = changes.contains(layer) ? changes.at(layer) : RowChange{};
    if (!change.merge_to.empty()) x = merged(x, change);
    const Rows second = norm(stem + names.norm2, x);
    Rows wide = linear(stem + names.mlp_in[0], second, spec_.mlp_width);
    const Rows up =
        spec_.gated() ? linear(stem + names.mlp_in[1], second, spec_.mlp_width) : Rows{};
    for (std::size_t i = 0; i < wide.size(); ++i) {
      for (std::size_t f = 0; f < wide[i].size(); ++f) {
        wide[i][f] = activate(wide[i][f]) * (up.empty() ? 1.0 : up[i][f]);
      }
    }
    add(x, linear(stem + names.mlp_out, wide, c));
    if (!change.keep.empty()) {
      x = picked(x, change.keep);
      places = picked(places, change.keep);
      sizes = picked(sizes, change.keep);
    }
    return x;
  }

  static void add(Rows& x, const Rows& y) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t c = 0; c < x[i].size(); ++c) x[i][c] += y[i][c];
    }
  }

  Rows merged(const Rows& x, const RowChange& change) {
    Rows out(change.stands_for.size(), std::vector<double>(x[0].size(), 0.0));
    std::vector<double> total(out.size(), 0.0);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto j = static_cast<std::size_t>(change.merge_to[i]);
      total[j] += sizes[i];
      for (std::size_t c = 0; c < x[i].size(); ++c) out[j][c] += sizes[i] * x[i][c];
    }
    for (std::size_t j = 0; j < out.size(); ++j) {
      for (double& v : out[j]) v /= total[j];
    }
    places = picked(places, change.stands_for);
    sizes = total;
    return out;
  }

  const VitSpec& spec_;
  const std::map<std::string, Tensor>& tensors_;
};

}  // namespace tessera::testing
