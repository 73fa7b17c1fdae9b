#include "apps/lab/bench/random_text_model.h"

#include <algorithm>
#include <map>
#include <vector>

#include "apps/lab/models/random_weights.h"
#include "engine/families/language.h"
#include "engine/families/open_model.h"
#include "engine/families/published_sizes.h"

namespace tessera {

namespace {

// Weights drawn when the loader asks for them.
class DrawnSource final : public TensorSource {
 public:
  explicit DrawnSource(const std::vector<TensorSpec>& tensors) {
    for (const TensorSpec& tensor : tensors) shapes_.emplace(tensor.name, tensor.shape);
  }
  ConstTensorView get(const std::string& name) override {
    Tensor& made = made_[name] =
        random_weight(name, shapes_.at(name), {.seed = 1, .matrix_std = 0});
    return std::as_const(made).view();
  }
  void done(const std::string& name) override { made_.erase(name); }
  std::string file_of(const std::string&) const override { return "random weights"; }

 private:
  std::map<std::string, Shape> shapes_;
  std::map<std::string, Tensor> made_;
};

ModelSpec text_spec(const RandomTextModel& what) {
  const auto row = std::find_if(kLlamaGenSizes.begin(), kLlamaGenSizes.end(),
                                [&](const PublishedSize& p) { return p.name == what.size; });
  if (row == kLlamaGenSizes.end()) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_FLAG_VALUE",
                 .where = what.flag,
                 .expected = "a size of LlamaGen, for instance L",
                 .found = what.size});
  }
  ModelSpec spec;
  spec.layouts = {{"model.", "lm_head.weight"}};
  ModelConfig& model = spec.model.transformer;
  model.layers = row->layers;
  model.width = row->width;
  model.heads = model.kv_heads = row->heads;
  model.head_dim = row->width / row->heads;
  // As LlamaGen has it: two thirds of four widths, up to a multiple of 256.
  model.ffn_width = (row->width * 8 / 3 + 255) / 256 * 256;
  model.rope.positions = what.positions;
  spec.model.vocab = what.vocab;
  spec.model.max_positions = what.positions;
  spec.names = text_names(spec.model, spec.layouts.front());
  return spec;
}

}  // namespace

StreamModel random_text_model(const RandomTextModel& what, Backend& backend, DType storage) {
  const ModelSpec spec = text_spec(what);
  DrawnSource source(text_tensors(spec.model, spec.layouts.front()));
  return load_stream_model(spec.model, spec.names, source, backend, storage);
}

}  // namespace tessera
