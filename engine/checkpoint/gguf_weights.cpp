// Names: the gguf package's table of tensors (constants.py, tensor_mapping.py). Order of rows: its
// converter of Llama, which turns every head's halves into pairs.
#include "engine/checkpoint/gguf_weights.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "engine/checkpoint/container.h"
#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

struct NamePair {
  std::string_view own, wanted;
};
constexpr std::array kModelNames = {NamePair{"token_embd", "model.embed_tokens"},
                                    NamePair{"output_norm", "model.norm"},
                                    NamePair{"output", "lm_head"}};
constexpr std::array kLayerNames = {
    NamePair{"attn_norm", "input_layernorm"},    NamePair{"attn_q", "self_attn.q_proj"},
    NamePair{"attn_k", "self_attn.k_proj"},      NamePair{"attn_v", "self_attn.v_proj"},
    NamePair{"attn_q_norm", "self_attn.q_norm"}, NamePair{"attn_k_norm", "self_attn.k_norm"},
    NamePair{"attn_output", "self_attn.o_proj"}, NamePair{"ffn_norm", "post_attention_layernorm"},
    NamePair{"ffn_gate", "mlp.gate_proj"},       NamePair{"ffn_up", "mlp.up_proj"},
    NamePair{"ffn_down", "mlp.down_proj"}};

// Those of Gemma 3, which has norms on both sides of a part; the others are as above.
constexpr std::array kGemmaNames = {NamePair{"post_attention_norm", "post_attention_layernorm"},
                                    NamePair{"ffn_norm", "pre_feedforward_layernorm"},
                                    NamePair{"post_ffw_norm", "post_feedforward_layernorm"}};

[[noreturn]] void refuse(const char* code, const std::string& file, std::string where,
                         std::string expected, std::string found, std::string hint = {}) {
  throw Error({.kind = ErrorKind::kModel,
               .code = code,
               .file = file,
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

std::string_view wanted_of(std::span<const NamePair> names, std::string_view own) {
  for (const NamePair& name : names) {
    if (name.own == own) return name.wanted;
  }
  return {};
}

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight"; other names stay.
std::string wanted_name(const std::string& architecture, const std::string& own) {
  const std::size_t dot = own.rfind('.');
  if (dot == std::string::npos) return own;
  const std::string_view stem = std::string_view(own).substr(0, dot);
  const std::string leaf = own.substr(dot);
  if (leaf != ".weight" && leaf != ".bias") return own;
  if (!stem.starts_with("blk.")) {
    const std::string_view wanted = wanted_of(kModelNames, stem);
    return wanted.empty() ? own : std::string(wanted) + leaf;
  }
  const std::string_view rest = stem.substr(4);
  const std::size_t end = rest.find('.');
  if (end == std::string_view::npos || end == 0 || rest.find_first_not_of("0123456789") != end) {
    return own;
  }
  const std::string_view part = rest.substr(end + 1);
  std::string_view wanted;
  if (architecture == "gemma3") wanted = wanted_of(kGemmaNames, part);
  if (wanted.empty()) wanted = wanted_of(kLayerNames, part);
  if (wanted.empty()) return own;
  return "model.layers." + std::string(rest.substr(0, end)) + "." + std::string(wanted) + leaf;
}

// Heads of a tensor whose rows a converter paired; 0 = none.
std::int64_t paired_heads(const GgufFile& head, const std::string& architecture,
                          const GgufTensor& tensor, const std::string& file) {
  if (architecture != "llama" || !tensor.name.starts_with("blk.")) return 0;
  const bool query = tensor.name.find(".attn_q.") != std::string::npos;
  if (!query && tensor.name.find(".attn_k.") == std::string::npos) return 0;
  const std::string all = architecture + ".attention.head_count";
  const GgufValue* value = query ? nullptr : head.find(all + "_kv");
  const std::string key = value != nullptr ? all + "_kv" : all;
  if (value == nullptr) value = head.find(all);
  const std::int64_t heads = value == nullptr ? 0 : value->integer().value_or(0);
  const std::int64_t rows = tensor.shape.rank() == 2 ? tensor.shape[0] : tensor.numbers();
  if (heads < 1 || rows % heads != 0 || rows / heads % 2 != 0) {
    refuse("E_GGUF_MODEL", file, "key \"" + key + "\"",
           "a number of heads that cuts the " + std::to_string(rows) + " rows of " + tensor.name +
               " into heads of even width",
           heads < 1 ? "no such number" : std::to_string(heads));
  }
  return heads;
}

}  // namespace

bool is_gguf_file(const fs::path& path) {
  if (path.has_extension() || is_folder(path) || !file_exists(path)) {
    return path.extension() == ".gguf";
  }
  return looks_like_gguf(MappedFile(path).bytes());
}

std::vector<fs::path> gguf_parts(const fs::path& path) {
  constexpr std::string_view kOf = "-of-", kEnd = ".gguf";
  constexpr std::size_t kDigits = 5, kTail = 1 + kDigits + 4 + kDigits + 5;
  const std::string name = path.filename().string();
  if (name.size() <= kTail) return {path};
  const std::string_view tail = std::string_view(name).substr(name.size() - kTail);
  const auto number = [&](std::size_t at) {
    int value = 0;
    const char* begin = tail.data() + at;
    const auto [stop, error] = std::from_chars(begin, begin + kDigits, value);
    return error == std::errc() && stop == begin + kDigits ? value : -1;
  };
  const int own = number(1), count = number(1 + kDigits + kOf.size());
  const bool split = tail[0] == '-' && tail.substr(1 + kDigits, kOf.size()) == kOf &&
                     tail.ends_with(kEnd) && own >= 0 && count >= 0;
  if (!split) return {path};
  if (own < 1 || own > count) {
    refuse("E_GGUF_PARTS", path.string(), "file name", "a part from 1 to " + std::to_string(count),
           std::to_string(own));
  }
  std::vector<fs::path> out;
  for (int i = 1; i <= count; ++i) {
    std::string digits = std::to_string(i);
    digits.insert(0, kDigits - digits.size(), '0');
    std::string part = name;
    out.push_back(path.parent_path() / part.replace(name.size() - kTail + 1, kDigits, digits));
  }
  return out;
}

void check_gguf_part(const GgufFile& part, std::size_t number, std::size_t count,
                     const std::string& file) {
  const auto check = [&](const char* key, std::size_t wanted) {
    const GgufValue* value = part.find(key);
    if (value == nullptr && count == 1) return;
    const std::optional<std::int64_t> found = value == nullptr ? std::nullopt : value->integer();
    if (found == to_index(wanted)) return;
    refuse(
        "E_GGUF_PARTS", file, "key \"" + std::string(key) + "\"",
        std::to_string(wanted) + (count == 1 ? ": the file is a part of a model" : ""),
        value == nullptr ? "no such key"
        : found          ? std::to_string(*found)
                         : "no whole number",
        count == 1 ? "name the parts NAME-00001-of-00002.gguf and so on, as they were made" : "");
  };
  check("split.count", count);
  check("split.no", number);
}

std::string gguf_architecture(const GgufFile& head, const std::string& file) {
  const GgufValue* value = head.find("general.architecture");
  const std::optional<std::string_view> text = value == nullptr ? std::nullopt : value->text();
  if (!text) {
    refuse("E_GGUF_MODEL", file, "key \"general.architecture\"", "a name",
           value == nullptr ? "no such key" : std::string(gguf_kind_name(value->kind())));
  }
  return std::string(*text);
}

std::vector<GgufWeight> gguf_weights(const GgufFile& head, const GgufFile& part, std::size_t number,
                                     const std::string& file) {
  const std::string architecture = gguf_architecture(head, file);
  std::vector<GgufWeight> out;
  for (const GgufTensor& tensor : part.tensors) {
    out.push_back({.name = wanted_name(architecture, tensor.name),
                   .tensor = tensor,
                   .file = number,
                   .paired_heads = paired_heads(head, architecture, tensor, file)});
  }
  return out;
}

void read_gguf_weight(const GgufWeight& weight, std::span<const std::byte> bytes, float* out) {
  if (weight.paired_heads == 0) return read_gguf_tensor(weight.tensor, bytes, out);
  const Shape& shape = weight.tensor.shape;
  const std::int64_t rows = shape.rank() == 2 ? shape[0] : weight.tensor.numbers();
  const auto columns = to_size(weight.tensor.numbers() / rows);
  std::vector<float> paired(to_size(weight.tensor.numbers()));
  read_gguf_tensor(weight.tensor, bytes, paired.data());
  const std::int64_t width = rows / weight.paired_heads, half = width / 2;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t first = row / width * width, within = row % width;
    const std::int64_t from = first + 2 * (within % half) + within / half;
    std::copy_n(paired.data() + to_size(from) * columns, columns, out + to_size(row) * columns);
  }
}

}  // namespace tessera
