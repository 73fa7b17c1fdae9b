// Rotary tables against their formulas in double, prompts of the unconditional branch, and a whole
// transformer against a plain double-precision one.
#include <gtest/gtest.h>

#include <cmath>

#include "apps/lab/models/test_models.h"
#include "tests/support/model_runner.h"

namespace tessera::model_test {
namespace {

TEST(RopeTable, OneDimensional) {
  const auto backend = make_backend("cpu", {.threads = 1});
  const RopeTable table = make_rope_table(*backend, {.theta = 500.0, .positions = 700}, 20);
  ASSERT_EQ(table.cos.shape(), (Shape{700, 10}));
  for (std::int64_t p = 0; p < 700; p += 13) {
    for (std::int64_t i = 0; i < 10; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(500.0, -2.0 * static_cast<double>(i) / 20);
      // The angle is an f32 product of an f32 frequency: off by a few of its last places.
      const double tolerance = 1e-7 + 3e-7 * angle;
      EXPECT_NEAR(table.cos.f32()[p * 10 + i], std::cos(angle), tolerance);
      EXPECT_NEAR(table.sin.f32()[p * 10 + i], std::sin(angle), tolerance);
    }
  }
}

TEST(RopeTable, GridOfHeadWidth100) {
  const auto backend = make_backend("cpu", {.threads = 1});
  const RopeTable table = make_rope_table(*backend,
                                          {.layout = RopeLayout::kGrid2d,
                                           .pairing = RopePairing::kInterleaved,
                                           .condition_rows = 2,
                                           .grid_rows = 3,
                                           .grid_cols = 5},
                                          100);
  ASSERT_EQ(table.cos.shape(), (Shape{2 + 15, 50}));
  for (std::int64_t i = 0; i < 2 * 50; ++i) {
    EXPECT_EQ(table.cos.f32()[i], 0.0f);
    EXPECT_EQ(table.sin.f32()[i], 0.0f);
  }
  for (std::int64_t r = 0; r < 3; ++r) {
    for (std::int64_t c = 0; c < 5; ++c) {
      for (std::int64_t pair = 0; pair < 50; ++pair) {
        const double place = static_cast<double>(pair < 25 ? r : c);
        const double angle = place * std::pow(10000.0, -2.0 * static_cast<double>(pair % 25) / 50);
        const std::int64_t at = (2 + r * 5 + c) * 50 + pair;
        EXPECT_NEAR(table.cos.f32()[at], std::cos(angle), 1e-6);
        EXPECT_NEAR(table.sin.f32()[at], std::sin(angle), 1e-6);
      }
    }
  }
}

TEST(ImageModelTest, UnconditionalPrompts) {
  const auto backend = make_backend("cpu", {.threads = 1});
  OpenedModel opened = open_model("test:null");
  const StreamModel model = load_stream_model(opened, *backend, DType::kF32);
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(model.unconditional_prompt(Ids{1, 8, 9, 7, 3}, 2), (Ids{1, 2, 2, 2, 3}));
  EXPECT_EQ(model.unconditional_prompt(Ids{1, 3}, 2), (Ids{1, 3}));
  EXPECT_EQ(model.unconditional_prompt(Ids{1}, 2), (Ids{1}));
  StreamModelConfig classes;
  classes.unconditional = UnconditionalRule::kNullClass;
  classes.null_class = 1000;
  EXPECT_EQ(unconditional_prompt(classes, Ids{7}, 2), (Ids{1000}));
}

// One whole pass in double, straight from the formulas, over the tensors of the checkpoint.
class PlainModel {
 public:
  PlainModel(const ModelSpec& spec, const Checkpoint& weights) : spec_(spec), weights_(weights) {}

  std::vector<double> hidden(std::vector<double> x) const {
    const ModelConfig& c = spec_.model.transformer;
    for (std::int64_t i = 0; i < c.layers; ++i) {
      const std::string layer = "model.language_model.layers." + std::to_string(i) + ".";
      const auto normed = norm(x, layer + "input_layernorm.weight");
      auto q = matrix(normed, layer + "self_attn.q_proj.weight");
      auto k = matrix(normed, layer + "self_attn.k_proj.weight");
      const auto v = matrix(normed, layer + "self_attn.v_proj.weight");
      turn(q, c.heads);
      turn(k, c.kv_heads);
      add(x, matrix(attend(q, k, v), layer + "self_attn.o_proj.weight"));
      const auto inner = norm(x, layer + "post_attention_layernorm.weight");
      auto gate = matrix(inner, layer + "mlp.gate_proj.weight");
      const auto up = matrix(inner, layer + "mlp.up_proj.weight");
      for (std::size_t n = 0; n < gate.size(); ++n) gate[n] *= up[n] / (1 + std::exp(-gate[n]));
      add(x, matrix(gate, layer + "mlp.down_proj.weight"));
    }
    return norm(x, "model.language_model.norm.weight");
  }

 private:
  std::int64_t rows(const std::vector<double>& x) const {
    return static_cast<std::int64_t>(x.size()) / spec_.model.transformer.width;
  }
  const ConstTensorView& tensor(const std::string& name) const { return *weights_.find(name); }

  std::vector<double> norm(const std::vector<double>& x, const std::string& name) const {
    const std::int64_t width = spec_.model.transformer.width;
    std::vector<double> out(x.size());
    for (std::int64_t r = 0; r < rows(x); ++r) {
      double sum = 0;
      for (std::int64_t i = 0; i < width; ++i)
        sum += std::pow(x[static_cast<std::size_t>(r * width + i)], 2);
      const double scale = 1 / std::sqrt(sum / static_cast<double>(width) + 1e-6);
      for (std::int64_t i = 0; i < width; ++i) {
        const auto at = static_cast<std::size_t>(r * width + i);
        out[at] = x[at] * scale * static_cast<double>(tensor(name).f32()[i]);
      }
    }
    return out;
  }

  std::vector<double> matrix(const std::vector<double>& x, const std::string& name) const {
    const ConstTensorView& w = tensor(name);
    const std::int64_t n = w.shape[0], k = w.shape[1];
    const auto count = static_cast<std::int64_t>(x.size()) / k;
    std::vector<double> out(static_cast<std::size_t>(count * n));
    for (std::int64_t r = 0; r < count; ++r) {
      for (std::int64_t o = 0; o < n; ++o) {
        double sum = 0;
        for (std::int64_t i = 0; i < k; ++i) {
          sum += x[static_cast<std::size_t>(r * k + i)] * static_cast<double>(w.f32()[o * k + i]);
        }
        out[static_cast<std::size_t>(r * n + o)] = sum;
      }
    }
    return out;
  }

  void turn(std::vector<double>& x, std::int64_t heads) const {
    const std::int64_t hd = spec_.model.transformer.head_dim;
    const auto count = static_cast<std::int64_t>(x.size()) / (heads * hd);
    for (std::int64_t r = 0; r < count; ++r) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t i = 0; i < hd / 2; ++i) {
          const double angle =
              static_cast<double>(r) *
              std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(hd));
          double& a = x[static_cast<std::size_t>((r * heads + h) * hd + i)];
          double& b = x[static_cast<std::size_t>((r * heads + h) * hd + i + hd / 2)];
          const double turned = a * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + a * std::sin(angle);
          a = turned;
        }
      }
    }
  }

  std::vector<double> attend(const std::vector<double>& q, const std::vector<double>& k,
                             const std::vector<double>& v) const {
    const ModelConfig& c = spec_.model.transformer;
    const auto count = static_cast<std::int64_t>(q.size()) / c.q_width();
    std::vector<double> out(q.size(), 0.0);
    for (std::int64_t r = 0; r < count; ++r) {
      for (std::int64_t h = 0; h < c.heads; ++h) {
        const std::int64_t g = h * c.kv_heads / c.heads;
        std::vector<double> weight;
        double sum = 0;
        for (std::int64_t s = 0; s <= r; ++s) {
          double score = 0;
          for (std::int64_t i = 0; i < c.head_dim; ++i) {
            score += q[static_cast<std::size_t>((r * c.heads + h) * c.head_dim + i)] *
                     k[static_cast<std::size_t>((s * c.kv_heads + g) * c.head_dim + i)];
          }
          weight.push_back(std::exp(score / std::sqrt(static_cast<double>(c.head_dim))));
          sum += weight.back();
        }
        for (std::int64_t s = 0; s <= r; ++s) {
          for (std::int64_t i = 0; i < c.head_dim; ++i) {
            out[static_cast<std::size_t>((r * c.heads + h) * c.head_dim + i)] +=
                weight[static_cast<std::size_t>(s)] / sum *
                v[static_cast<std::size_t>((s * c.kv_heads + g) * c.head_dim + i)];
          }
        }
      }
    }
    return out;
  }

  static void add(std::vector<double>& x, const std::vector<double>& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  const ModelSpec& spec_;
  const Checkpoint& weights_;
};

TEST(TransformerTest, EqualsAPlainOneInDouble) {
  const auto backend = make_backend("cpu", {.threads = 2});
  for (const char* name : {"test:tiny", "test:null"}) {
    OpenedModel opened = open_model(name);
    const StreamModel model = load_stream_model(opened, *backend, DType::kF32);
    ModelRunner runner(model, 1, 80);
    std::vector<std::int32_t> prompt;
    for (std::int32_t i = 0; i < 75; ++i) prompt.push_back(i * 37 % 260);
    const std::vector<float> rows = runner.prompt_rows(prompt);
    const std::vector<double> want =
        PlainModel(opened.spec, *opened.weights).hidden({rows.begin(), rows.end()});
    EXPECT_LE(relative_difference(runner.forward({{0, rows}}), {want.begin(), want.end()}), 3e-6)
        << name;
  }
}

}  // namespace
}  // namespace tessera::model_test
