// Digests of a model's files.
#include "apps/runtime/model_digest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/runtime/sha256.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

constexpr std::size_t kDigits = 16;
constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;
constexpr std::size_t kSampleBytes = 64;

std::string weights_digest(const Checkpoint& weights) {
  std::string facts;
  for (const auto& [name, unused] : weights.tensors()) {
    const ConstTensorView& view = *weights.find(name);  // of blocks: the numbers
    const auto* bytes = static_cast<const char*>(view.data);
    const auto size = view.bytes();
    const std::size_t count = std::min(size, kSampleBytes);
    facts += name + " " + std::string(dtype_name(view.dtype)) + " " + view.shape.to_string() + "\n";
    for (const std::size_t at : {std::size_t{0}, (size - count) / 2, size - count}) {
      facts.append(bytes + at, count);
    }
    if (weights.blocks_of(name) != nullptr) weights.release(name);
  }
  return sha256_hex(facts).substr(0, kDigits);
}

}  // namespace

Json model_digest(const CaptionModel& model) {
  Json out = Json::object();
  for (const char* name :
       {"config.json", "generation_config.json", "preprocessor_config.json",
        "processor_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model",
        "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
        "chat_template.json", "chat_template.jinja"}) {
    const std::filesystem::path path = model.spec().folder / name;
    if (model.spec().folder.empty() || !file_exists(path)) continue;
    out[name] = sha256_hex(read_file(path, kMaxFileBytes)).substr(0, kDigits);
  }
  // One that was given in place of the folder's.
  const std::filesystem::path given = model.chat().template_file();
  if (!given.empty() && given.parent_path() != model.spec().folder) {
    out["chat_template"] = sha256_hex(read_file(given, kMaxFileBytes)).substr(0, kDigits);
  }
  out["weights"] = weights_digest(model.weights());
  return out;
}

}  // namespace tessera
