// Sizes and names of Chameleon's files as its authors released them.
#include "engine/families/chameleon_authors.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/config_bytes.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/families/language.h"

namespace tessera {

namespace {

std::int64_t authors_ffn(const JsonReader& params, std::int64_t width) {
  const std::int64_t multiple = params.integer_or("multiple_of", 256, 1, 65536);
  const double factor = params.number_or("ffn_dim_multiplier", 1.0, 0.01, 64.0);
  const std::int64_t plain = 2 * (4 * width) / 3;
  const auto scaled = truncate<std::int64_t>(to_double(plain) * factor);
  const std::int64_t ffn = (scaled + multiple - 1) / multiple * multiple;
  if (ffn < 1 || ffn > kMaxFfn) {
    params.fail("ffn_dim_multiplier", "a feed-forward width of 1 to 1048576", std::to_string(ffn));
  }
  return ffn;
}

// Each part has its heads, its share of the feed-forward width and of the head's rows, and its
// columns of the table.
PartAxis axis_of(std::string_view name) {
  constexpr std::string_view kColumns[] = {"tok_embeddings.weight", ".wo.weight", ".w2.weight"};
  constexpr std::string_view kRows[] = {".wq.weight", ".wk.weight", ".wv.weight",
                                        ".w1.weight", ".w3.weight", "output.weight"};
  const auto ends = [&](std::string_view end) { return name.ends_with(end); };
  if (std::ranges::any_of(kColumns, ends)) return PartAxis::kColumns;
  if (std::ranges::any_of(kRows, ends)) return PartAxis::kRows;
  return name.find("_normalization.") == std::string_view::npos ? PartAxis::kWhole
                                                                : PartAxis::kOwnRow;
}

std::string part_name(std::int64_t number, const char* ending) {
  return std::string("consolidated.") + (number < 10 ? "0" : "") + std::to_string(number) + ending;
}

}  // namespace

ModelSpec::Parts chameleon_parts(const JsonReader& params, const std::filesystem::path& folder,
                                 std::int64_t parts) {
  const char* const ending = file_exists(folder / part_name(0, ".pth")) ? ".pth" : ".safetensors";
  ModelSpec::Parts out{.files = {}, .rule = axis_of};
  for (std::int64_t i = 0; file_exists(folder / part_name(i, ending)); ++i) {
    out.files.push_back(folder / part_name(i, ending));
  }
  if (std::ssize(out.files) != parts) {
    params.fail("model_parallel_size",
                std::to_string(out.files.size()) + ", the files consolidated.00" + ending +
                    " and on",
                std::to_string(parts));
  }
  return out;
}

Json read_chameleon_params(const std::filesystem::path& folder) {
  const auto read = [&](const char* name) {
    const std::filesystem::path path = folder / name;
    return parse_json(read_file(path, kConfigBytes), path.string());
  };
  Json all = read("params.json");
  if (const auto inner = all.find("model"); inner != all.end() && inner->is_object()) {
    const Json nested = *inner;
    all.erase("model");
    all.update(nested);
  }
  if (file_exists(folder / "consolidate_params.json")) all.update(read("consolidate_params.json"));
  return all;
}

ModelConfig chameleon_authors_model(const JsonReader& params) {
  ModelConfig model;
  model.width = params.integer_or("dim", 512, 1, kMaxHidden);
  model.layers = params.integer_or("n_layers", 8, 1, kMaxLayers);
  model.heads = params.integer_or("n_heads", 8, 1, kMaxHeads);
  model.kv_heads = params.integer_or("n_kv_heads", model.heads, 1, kMaxHeads);
  if (model.heads % model.kv_heads != 0) {
    params.fail("n_kv_heads", "a divisor of " + std::to_string(model.heads),
                std::to_string(model.kv_heads));
  }
  if (model.width % (2 * model.heads) != 0) {
    params.fail("dim", "heads of an even width",
                std::to_string(model.width) + " / " + std::to_string(model.heads));
  }
  model.head_dim = model.width / model.heads;
  model.ffn_width = authors_ffn(params, model.width);
  model.norm_eps = to_float(params.number_or("norm_eps", 1e-5, 1e-12, 0.1));
  model.head_norms = params.boolean_or("qk_normalization", false);
  model.rope.theta = params.number_or("rope_theta", 10000.0, 1.0, 1e12);
  model.rope.pairing = RopePairing::kInterleaved;
  return model;
}

WeightNames chameleon_authors_names(const ModelConfig& model) {
  WeightNames names = original_names("");
  names.prompt_table = names.code_table = "tok_embeddings.weight";
  if (model.head_norms) {
    names.head_norms = HeadNormNames{.q = "attention.q_normalization",
                                     .k = "attention.k_normalization",
                                     .heads = model.heads,
                                     .kv_heads = model.kv_heads,
                                     .head_dim = model.head_dim};
  }
  return names;
}

std::vector<TensorSpec> chameleon_authors_tensors(const ModelConfig& model, std::int64_t vocab,
                                                  std::int64_t parts) {
  TensorList list;
  list.add("tok_embeddings.weight", {vocab, model.width});
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".";
    list.add(layer + "attention.wq.weight", {model.q_width(), model.width});
    list.add(layer + "attention.wk.weight", {model.kv_width(), model.width});
    list.add(layer + "attention.wv.weight", {model.kv_width(), model.width});
    list.add(layer + "attention.wo.weight", {model.width, model.q_width()});
    if (model.head_norms) {
      for (const char* name : {"attention.q_normalization", "attention.k_normalization"}) {
        if (parts == 1) {
          list.norm(layer + name, model.head_dim);
          continue;
        }
        list.add(layer + name + ".weight", {parts, model.head_dim});
        list.add(layer + name + ".bias", {parts, model.head_dim});
      }
    }
    list.add(layer + "feed_forward.w1.weight", {model.ffn_width, model.width});
    list.add(layer + "feed_forward.w2.weight", {model.width, model.ffn_width});
    list.add(layer + "feed_forward.w3.weight", {model.ffn_width, model.width});
    list.add(layer + "attention_norm.weight", {model.width});
    list.add(layer + "ffn_norm.weight", {model.width});
  }
  list.add("norm.weight", {model.width});
  list.add("output.weight", {vocab, model.width});
  return list.take();
}

}  // namespace tessera
