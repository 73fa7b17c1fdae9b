// Digests of a model's files.
#include "apps/runtime/model_digest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/runtime/sha256.h"
#include "engine/checkpoint/gguf.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

constexpr std::size_t kDigits = 16;
constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;
constexpr std::size_t kSampleBytes = 64;

// The first, middle and last bytes of a tensor.
void add_samples(const std::byte* from, std::size_t size, std::string& facts) {
  const auto* bytes = reinterpret_cast<const char*>(from);
  const std::size_t count = std::min(size, kSampleBytes);
  for (const std::size_t at : {std::size_t{0}, (size - count) / 2, size - count}) {
    facts.append(bytes + at, count);
  }
}

std::string weights_digest(const Checkpoint& weights) {
  std::string facts;
  for (const auto& [name, view] : weights.tensors()) {
    facts += name + " " + std::string(dtype_name(view.dtype)) + " " + view.shape.to_string() + "\n";
    add_samples(static_cast<const std::byte*>(view.data), view.bytes(), facts);
  }
  return sha256_hex(facts).substr(0, kDigits);
}

// Of tensors as the files have them, in blocks or not, with all that stands in front of them: keys,
// tokens, names and types.
std::string files_digest(const Checkpoint& weights) {
  std::set<std::string> files;
  for (const auto& [name, view] : weights.tensors()) files.insert(weights.file_of(name));
  std::string facts;
  for (const std::string& path : files) {
    const MappedFile file(path);
    const GgufFile gguf = parse_gguf(file.bytes(), path);
    std::size_t begin = file.bytes().size();
    for (const GgufTensor& tensor : gguf.tensors) begin = std::min(begin, std::size_t{tensor.begin});
    facts.append(reinterpret_cast<const char*>(file.bytes().data()), begin);
    for (const GgufTensor& tensor : gguf.tensors) {
      add_samples(file.bytes().data() + tensor.begin, tensor.end - tensor.begin, facts);
    }
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
  // One that was given in place of the model's.
  const std::filesystem::path given = model.chat().template_file();
  const bool own = given.parent_path() == model.spec().folder || given == model.spec().weights;
  if (!given.empty() && !own) {
    out["chat_template"] = sha256_hex(read_file(given, kMaxFileBytes)).substr(0, kDigits);
  }
  const bool files = model.weights().gguf() != nullptr;
  out["weights"] = files ? files_digest(model.weights()) : weights_digest(model.weights());
  return out;
}

}  // namespace tessera
