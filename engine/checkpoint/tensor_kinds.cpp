// Kinds of tensors by what their names hold.
#include "engine/checkpoint/tensor_kinds.h"

#include <algorithm>
#include <array>

namespace tessera {

namespace {

enum class Part : std::uint8_t { kBegin, kMiddle, kEnd };

struct TensorKind {
  Part part;
  std::string_view text;
  std::string_view name;
};

// The first that any name has: marks of one scheme only come before those that several share.
constexpr std::array kTensorKinds = {
    TensorKind{Part::kMiddle, ".lora_A.", "of a LoRA adapter"},
    TensorKind{Part::kEnd, ".g_idx", "quantised by GPTQ"},
    TensorKind{Part::kEnd, ".qzeros", "quantised by AWQ"},
    TensorKind{Part::kMiddle, ".quant_state.", "quantised to 4 bits by bitsandbytes"},
    TensorKind{Part::kEnd, ".SCB", "quantised to 8 bits by bitsandbytes"},
    TensorKind{Part::kEnd, ".weight_packed", "quantised by compressed-tensors"},
    TensorKind{Part::kEnd, ".weight_scale_inv", "of FP8 with scales"},
    TensorKind{Part::kEnd, ".weight_scale", "quantised, with scales"},
    TensorKind{Part::kBegin, "_orig_mod.", "saved from a compiled model: remove \"_orig_mod.\""},
    TensorKind{Part::kBegin, "module.", "saved from a parallel model: remove \"module.\""},
};

bool has(std::string_view name, const TensorKind& kind) {
  switch (kind.part) {
    case Part::kBegin:
      return name.starts_with(kind.text);
    case Part::kMiddle:
      return name.find(kind.text) != name.npos;
    case Part::kEnd:
      return name.ends_with(kind.text);
  }
  return false;
}

}  // namespace

std::string explained(const Checkpoint& checkpoint, std::string found) {
  for (const TensorKind& kind : kTensorKinds) {
    for (const auto& [name, unused] : checkpoint.tensors()) {
      if (has(name, kind)) return "tensors " + std::string(kind.name) + ": " + found;
    }
  }
  return found;
}

}  // namespace tessera
