// Adds up what a run holds, from the same shapes and packing rules that loading uses.
#include "engine/families/memory_plan.h"

#include <algorithm>

#include "engine/backend/row_verifier.h"
#include "engine/core/index.h"
#include "engine/model/caption_rows.h"
#include "engine/nn/vq_graph.h"

namespace tessera {

namespace {

// The program itself, its libraries, stacks, allocator slack: measured on an idle process, rounded.
constexpr std::size_t kProcessBytes = std::size_t{12} << 20;

std::size_t matrix_bytes(std::int64_t rows, std::int64_t cols, DType dtype) {
  return to_size(rows * cols) * dtype_size(dtype);
}

std::size_t weight_bytes(const ModelSpec& spec, const Backend& backend, DType storage) {
  const ModelConfig& model = spec.model.transformer;
  const auto linear = [&](std::int64_t n, std::int64_t k) {
    return backend.packed_linear_bytes(n, k, storage);
  };
  const std::size_t norm = matrix_bytes(1, model.width, DType::kF32);
  const std::size_t heads = model.qk_norm ? 2 * matrix_bytes(1, model.head_dim, DType::kF32) : 0;
  const std::size_t head_norms =
      model.head_norms ? 2 * matrix_bytes(model.heads + model.kv_heads, model.head_dim, DType::kF32)
                       : 0;
  const std::size_t cross = model.context_width == 0
                                ? 0
                                : norm + heads + linear(model.q_width(), model.width) +
                                      linear(2 * model.kv_width(), model.context_width) +
                                      linear(model.width, model.q_width());
  const std::size_t layer =
      2 * norm + heads + head_norms + cross + linear(model.q_width() + 2 * model.kv_width(), model.width) +
      linear(model.width, model.q_width()) + linear(2 * model.ffn_width, model.width) +
      linear(model.width, model.ffn_width);
  std::size_t sum = to_size(model.layers) * layer + norm;
  sum += matrix_bytes(spec.model.prompt_vocab, model.width, beside(storage));
  sum += matrix_bytes(1, model.rope_numbers(), DType::kF32);
  if (model.added_places) sum += matrix_bytes(model.rope.rows(), model.width, DType::kBF16);
  if (spec.context) {
    sum += spec.context->caption
               ? CaptionRows::bytes(spec.context->rows, spec.context->width, model.width, backend,
                                    storage)
               : CrossContext::bytes(model, spec.context->rows, beside(storage));
  }
  const bool narrow = spec.model.code_width > 0;
  sum += matrix_bytes(spec.model.image_vocabulary(), narrow ? spec.model.code_width : model.width,
                      beside(storage));
  const auto bias_bytes = [](std::int64_t n, bool bias) {
    return bias ? matrix_bytes(1, n, DType::kF32) : 0;
  };
  const auto biased = [&](std::int64_t n, std::int64_t k, bool bias) {
    return linear(n, k) + bias_bytes(n, bias);
  };
  if (narrow) {
    sum +=
        biased(model.width, spec.model.code_width, true) + biased(model.width, model.width, true);
  }
  if (!spec.names.head_in.empty()) sum += biased(model.width, model.width, spec.names.head_bias);
  return sum + backend.packed_linear_bytes(spec.model.codes, model.width, head_storage(storage)) +
         bias_bytes(spec.model.codes, spec.names.head_bias);
}

}  // namespace

std::size_t visual_weight_bytes(const ModelSpec& spec, const Backend& backend, DType storage,
                                VqHalves halves) {
  if (spec.fsq) return fsq_video_weight_bytes(*spec.fsq, backend, storage, halves);
  return spec.movq ? movq_weight_bytes(*spec.movq, backend, storage, halves)
                   : vq_weight_bytes(spec.vq, backend, storage, halves);
}

std::size_t visual_scratch_bytes(const ModelSpec& spec, const Backend& backend) {
  const auto rows = narrow<int>(spec.model.grid_rows);
  const auto cols = narrow<int>(spec.model.grid_cols);
  if (spec.fsq) return fsq_video_scratch_bytes(*spec.fsq, backend, rows, cols);
  return spec.movq ? movq_decode_scratch_bytes(*spec.movq, backend, rows, cols)
                   : vq_decode_scratch_bytes(spec.vq, backend, rows, cols);
}

MemoryPlan plan_memory(const ModelSpec& spec, const Backend& backend,
                       const MemoryRequest& request) {
  const ModelConfig& model = spec.model.transformer;
  const std::int64_t sequences = request.images * request.branches();
  MemoryPlan plan;
  plan.weights = weight_bytes(spec, backend, request.storage);
  plan.kv =
      KvCacheShape{.layers = model.layers,
                   .kv_heads = model.kv_heads,
                   .head_dim = model.head_dim,
                   .capacity = spec.model.cache_rows(request.prompt_tokens) + request.spare_rows,
                   .sequences = sequences,
                   .dtype = request.cache()}
          .bytes();
  // Prefill is the widest pass: every prompt row of every sequence, in and out, then one row of
  // logits for each.
  const std::int64_t widest = sequences * std::max<std::int64_t>(request.prompt_tokens, 1);
  plan.activations = StreamModel::scratch_bytes(spec.model, widest, backend) +
                     2 * matrix_bytes(widest, model.width, DType::kF32) +
                     matrix_bytes(sequences, spec.model.codes, DType::kF32) +
                     backend.attention_scratch_bytes(std::min(widest, backend.rows_at_once()),
                                                     model.heads, model.head_dim);
  plan.vq_weights = visual_weight_bytes(spec, backend, DType::kF32);
  plan.vq_scratch = visual_scratch_bytes(spec, backend);
  plan.process = kProcessBytes;
  return plan;
}

MemoryPlan placed_on_device(MemoryPlan plan, const ModelSpec& spec, const MemoryRequest& request) {
  const auto row = to_size(spec.model.image_vocabulary()) * sizeof(float);
  const auto rows = to_size(request.images * request.window);
  plan.on_device = true;
  plan.staging = kDeviceStagingBytes;
  plan.libraries = kDeviceLibraryBytes;
  // Rows that are verified and their order; with distributions, those of the pass before as well.
  plan.dists = VerifyLimits{.codes = spec.model.codes,
                            .rows = request.images * request.window,
                            .items = request.images,
                            .width = request.spare_rows > 0 ? 1 : 0}
                   .bytes(request.dists);
  plan.sampling = rows * row * (request.dists ? 2 : 1);
  return plan;
}

namespace {

// The largest number of images, less than asked for, that fits; 0 = not even one.
std::int64_t images_that_fit(MemoryRequest request, std::size_t free,
                             FunctionRef<std::size_t(const MemoryRequest&)> bytes_of) {
  std::int64_t fits = 0, beyond = request.images;
  while (beyond - fits > 1) {
    request.images = fits + (beyond - fits) / 2;
    (bytes_of(request) <= free ? fits : beyond) = request.images;
  }
  return fits;
}

// The widest of half, a quarter and so on of the window that fits; 0 = none.
std::int64_t window_that_fits(MemoryRequest request, std::size_t free,
                              FunctionRef<std::size_t(const MemoryRequest&)> bytes_of) {
  while (request.window > 1) {
    request.window /= 2;
    if (bytes_of(request) <= free) return request.window;
  }
  return 0;
}

// Every single change that is enough.
void add_single_changes(const MemoryRequest& asked, std::size_t free,
                        FunctionRef<std::size_t(const MemoryRequest&)> bytes_of,
                        std::vector<MemoryRequest>& out) {
  if (const std::int64_t images = images_that_fit(asked, free, bytes_of); images > 0) {
    out.push_back(asked);
    out.back().images = images;
  }
  if (const std::int64_t window = window_that_fits(asked, free, bytes_of); window > 0) {
    out.push_back(asked);
    out.back().window = window;
  }
}

}  // namespace

std::vector<MemoryRequest> what_fits(const MemoryRequest& asked, std::size_t free,
                                     FunctionRef<std::size_t(const MemoryRequest&)> bytes_of) {
  std::vector<MemoryRequest> out;
  add_single_changes(asked, free, bytes_of, out);
  MemoryRequest narrow = asked;
  narrow.storage = DType::kBF16;
  const bool narrower = asked.storage == DType::kF32;
  if (narrower && bytes_of(narrow) <= free) out.push_back(narrow);
  if (!out.empty()) return out;
  if (narrower) add_single_changes(narrow, free, bytes_of, out);
  if (!out.empty()) return out;
  for (MemoryRequest least : {asked, narrow}) {
    least.images = least.window = 1;
    if (out.empty() && bytes_of(least) <= free) out.push_back(least);
  }
  return out;
}

std::string fit_advice(const MemoryRequest& asked, const std::vector<MemoryRequest>& would_fit) {
  std::string text;
  for (const MemoryRequest& fit : would_fit) {
    std::string flags;
    const auto add = [&](bool changed, const std::string& flag) {
      if (changed) flags += (flags.empty() ? "" : " ") + flag;
    };
    add(fit.storage != asked.storage, "--dtype bf16");
    add(fit.images != asked.images, "--batch-size " + std::to_string(fit.images));
    add(fit.window != asked.window, "--window " + std::to_string(fit.window));
    text += (text.empty() ? "" : ", or ") + flags;
  }
  return text;
}

}  // namespace tessera
