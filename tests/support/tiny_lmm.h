// Tiny captioning models of every family with what the reference recorded of them
// (assets/recipes/fixtures_lmm.py).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/runtime/caption_prompt.h"
#include "apps/runtime/patch_encoder.h"
#include "engine/backend/backend.h"
#include "engine/core/storage.h"
#include "engine/families/describe.h"
#include "engine/families/language.h"
#include "engine/families/open_model.h"

namespace tessera {

struct TinyLmm {
  explicit TinyLmm(const std::string& family, int threads = 1, const std::string& device = "cpu")
      : TinyLmm(goldens() / family, goldens() / family / "recorded.safetensors", threads, device) {}
  TinyLmm(const std::filesystem::path& model, const std::filesystem::path& recording, int threads,
          const std::string& device = "cpu")
      : folder(model),
        spec(load_model_spec(folder, {.use = ModelUse::kDescribe})),
        weights(std::make_shared<const Checkpoint>(Checkpoint::open(folder / "model.safetensors"))),
        recorded(Checkpoint::open(recording)),
        backend(make_backend(device, {.threads = threads})) {
    settle_describing(spec, *weights);
    load();
  }
  // One that was opened otherwise.
  TinyLmm(OpenedModel model, const std::filesystem::path& recording)
      : spec(std::move(model.spec)),
        weights(model.weights),
        recorded(Checkpoint::open(recording)),
        backend(make_backend("cpu", {.threads = 1})) {
    load();
  }

  void load() {
    spec.model.transformer.rope.positions = spec.model.max_positions;
    const auto source = source_of(weights);
    text = std::make_unique<StreamModel>(
        load_stream_model(spec.model, spec.names, *source, *backend, DType::kF32));
    std::vector<float> newline;
    const std::string& name = spec.describe->newline_name;
    if (!name.empty()) newline = floats(*weights, name);
    images = std::make_unique<PatchEncoder>(*backend, spec.describe->tower, "config.json",
                                               *weights, newline, DType::kF32);
  }

  static std::filesystem::path goldens() {
    return std::filesystem::path(TESSERA_SOURCE_DIR) / "tests" / "golden" / "lmm";
  }
  static std::vector<float> floats(const Checkpoint& from, const std::string& name) {
    const ConstTensorView* view = from.find(name);
    expects(view != nullptr, "a recorded tensor");
    std::vector<float> out(static_cast<std::size_t>(view->shape.elements()));
    read_numbers(*view, 0, 1, view->shape.elements(), out.data());
    return out;
  }
  std::vector<float> floats(const std::string& name) const { return floats(recorded, name); }
  std::vector<std::int32_t> ints(const std::string& name) const {
    const ConstTensorView* view = recorded.find(name);
    expects(view != nullptr, "a recorded tensor");
    const auto* data = view->as<std::int32_t>();
    return {data, data + view->shape.elements()};
  }
  bool has(const std::string& name) const { return recorded.find(name) != nullptr; }

  DecodedImage image(int number) const {
    const ConstTensorView* view = recorded.find("pixels." + std::to_string(number));
    expects(view != nullptr, "recorded pixels");
    DecodedImage out(view->shape[1], view->shape[0], 3, "PNG");
    const auto* data = static_cast<const std::uint8_t*>(view->data);
    out.pixels.assign(data, data + view->shape.elements());
    return out;
  }

  std::filesystem::path folder;
  ModelSpec spec;
  std::shared_ptr<const Checkpoint> weights;
  Checkpoint recorded;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<StreamModel> text;
  std::unique_ptr<VisualEncoder> images;
};

// The families there are.
inline constexpr const char* kTinyFamilies[] = {"llava-1.5",       "llava-1.5-full", "llava-next",
                                                "llava-onevision", "janus",          "qwen2-vl",
                                                "qwen2.5-vl",      "idefics3",       "smolvlm"};

inline std::string test_name(std::string family) {
  for (char& c : family) c = c == '-' || c == '.' ? '_' : c;
  return family;
}

}  // namespace tessera
