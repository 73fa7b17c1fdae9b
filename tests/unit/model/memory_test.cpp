// The memory plan against what loading and running really take: peak resident set within 5 %.
// Weights are a hole in a file, 0.25 GB as bf16, 0.5 GB once packed as f32.
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "engine/families/memory_plan.h"
#include "engine/families/open_model.h"
#include "tests/support/model_runner.h"
#include "tests/support/published_names.h"
#include "tests/support/temp_folder.h"

namespace tessera::memory_test {
namespace {

constexpr const char* kConfig = R"({"model_type": "janus", "vision_config": null,
  "text_config": {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8,
    "num_attention_heads": 16, "vocab_size": 16000, "max_position_embeddings": 2048},
  "vq_config": {"base_channels": 32, "channel_multiplier": [1, 1], "num_res_blocks": 1,
    "latent_channels": 32, "num_embeddings": 4096, "num_patches": 4, "projection_dim": 1024,
    "image_token_embed_dim": 1024}})";

// "VmHWM:  1234 kB" in bytes.
std::int64_t status_bytes(const std::string& key) {
  const std::string text = get_file("/proc/self/status");
  std::size_t at = text.find(key);
  expects(at != std::string::npos, "the kernel reports this");
  at = text.find_first_of("0123456789", at);
  std::int64_t kib = 0;
  std::from_chars(text.data() + at, text.data() + text.size(), kib);
  return kib * 1024;
}

void reset_peak() { put_file("/proc/self/clear_refs", "5"); }

TEST(MemoryPlan, PeakIsWithinFivePercentOfThePlan) {
  const TempFolder folder;
  put_file(folder / "config.json", kConfig);
  write_sparse_safetensors(folder / "model.safetensors",
                           parse_family_config(kConfig, "config.json").tensors);
  const auto backend = make_backend("cpu", {.threads = 2});
  for (const DType storage : {DType::kF32, DType::kBF16}) {
    const std::int64_t before = status_bytes("VmRSS:");
    reset_peak();
    ASSERT_LT(status_bytes("VmHWM:"), before + (8 << 20)) << "the peak can be reset";
    MemoryPlan plan;
    {
      OpenedModel opened = open_model(folder.path().string());
      const MemoryRequest request{.storage = storage, .images = 1, .prompt_tokens = 20};
      plan = plan_memory(opened.spec, *backend, request);
      const StreamModel model = load_stream_model(opened, *backend, storage);
      EXPECT_NEAR(static_cast<double>(model.weight_bytes()), static_cast<double>(plan.weights),
                  0.001 * static_cast<double>(plan.weights));
      ModelRunner runner(model, 2, opened.spec.model.cache_rows(20), storage);
      const std::vector<float> rows = runner.prompt_rows(std::vector<std::int32_t>(20, 5));
      runner.forward({{0, rows}, {1, rows}});
      runner.logits(row_of(rows, 0, model.width()));
    }
    const auto planned = static_cast<double>(plan.weights + plan.kv + plan.activations);
    const auto peak = static_cast<double>(status_bytes("VmHWM:") - before);
    EXPECT_NEAR(peak / planned, 1.0, 0.05)
        << dtype_name(storage) << ": peak " << peak << " planned " << planned;
  }
}

}  // namespace
}  // namespace tessera::memory_test
