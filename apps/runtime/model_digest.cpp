// Digests of a model's files.
#include "apps/runtime/model_digest.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "apps/runtime/sha256.h"
#include "engine/checkpoint/gguf.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

constexpr std::size_t kDigits = 16;
constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;
constexpr std::size_t kSampleBytes = 64;

void append_bytes(std::span<const std::byte> bytes, std::string& facts) {
  const std::size_t end = facts.size();
  facts.resize(end + bytes.size());
  if (!bytes.empty()) std::memcpy(facts.data() + end, bytes.data(), bytes.size());
}

// The first, middle and last bytes of a tensor.
void add_samples(std::span<const std::byte> bytes, std::string& facts) {
  const std::size_t count = std::min(bytes.size(), kSampleBytes);
  for (const std::size_t at : {std::size_t{0}, (bytes.size() - count) / 2, bytes.size() - count}) {
    append_bytes(bytes.subspan(at, count), facts);
  }
}

std::string weights_digest(const Checkpoint& weights) {
  std::string facts;
  for (const auto& [name, unused] : weights.tensors()) {
    const ConstTensorView& view = *weights.find(name);  // of blocks: the numbers
    facts += name + " " + std::string(dtype_name(view.dtype)) + " " + view.shape.to_string() + "\n";
    add_samples({view.raw(), view.bytes()}, facts);
    if (weights.blocks_of(name) != nullptr) weights.release(name);
  }
  return sha256_hex(facts).substr(0, kDigits);
}

// Of GGUF files: all that stands in front of the tensors, which is keys, tokens, names and types,
// and the tensors as they are.
std::string files_digest(const Checkpoint& weights) {
  std::set<std::string> files;
  for (const auto& [name, view] : weights.tensors()) files.insert(weights.file_of(name));
  std::string facts;
  for (const std::string& path : files) {
    const MappedFile file(path);
    const GgufFile gguf = parse_gguf(file.bytes(), path);
    std::size_t begin = file.bytes().size();
    for (const GgufTensor& tensor : gguf.tensors) {
      begin = std::min(begin, std::size_t{tensor.begin});
    }
    append_bytes(file.bytes().first(begin), facts);
    for (const GgufTensor& tensor : gguf.tensors) {
      add_samples(file.bytes().subspan(tensor.begin, tensor.end - tensor.begin), facts);
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
  if (model.spec().describe && !model.spec().describe->tower.folder.empty()) {
    const std::filesystem::path& encoder = model.spec().describe->tower.folder;
    for (const char* name : {"config.json", "preprocessor_config.json", "processor_config.json"}) {
      if (!file_exists(encoder / name)) continue;
      out[(encoder.filename() / name).string()] =
          sha256_hex(read_file(encoder / name, kMaxFileBytes)).substr(0, kDigits);
    }
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
