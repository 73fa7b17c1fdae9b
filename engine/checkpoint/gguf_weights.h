// The tensors of a language model in GGUF files, one or several, by the names that loaders here use
// and with rows in the order that they expect. One place says of which type a tensor is and gives
// its numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/gguf.h"

namespace tessera {

struct GgufWeight {
  std::string name;      // "model.layers.0.self_attn.q_proj.weight"
  GgufTensor tensor;     // as its file has it
  std::size_t file = 0;  // number of the part that holds it
  // Heads whose rows stand as pairs of neighbours, (x0, y0, x1, y1 ...), where loaders want the
  // first halves of all pairs first; 0 = rows stand as they are wanted.
  std::int64_t paired_heads = 0;
};

// Whether the file is one by its name, NAME.gguf, or of a name without an ending by its first
// bytes, as stores name files by digests.
bool is_gguf_file(const std::filesystem::path& path);

// The files of a model of which `path` is one: "NAME-00001-of-00003.gguf" and its neighbours, else
// `path` alone. Error kModel, E_GGUF_PARTS, for a number that cannot be.
std::vector<std::filesystem::path> gguf_parts(const std::filesystem::path& path);

// That a parsed part belongs where its name says: split.no and split.count. E_GGUF_PARTS.
void check_gguf_part(const GgufFile& part, std::size_t number, std::size_t count,
                     const std::string& file);

// general.architecture. E_GGUF_MODEL if it is missing or no text.
std::string gguf_architecture(const GgufFile& head, const std::string& file);
// The architecture of files whose tensors have the names of the checkpoint that they are from.
inline constexpr std::string_view kPlainArchitecture = "tessera";

// The name that files have for what loaders call `wanted`; empty where they have none.
std::string gguf_name(std::string_view wanted);
// Whose heads' rows stand in pairs in files of the architecture, by the file's name.
enum class PairedRows : std::uint8_t { kNone, kQuery, kKey };
PairedRows paired_rows(std::string_view architecture, std::string_view own);
// Where in a file the wanted row stands, of heads of `width` rows in pairs.
std::int64_t paired_place(std::int64_t row, std::int64_t width);
std::int64_t unpaired_place(std::int64_t place, std::int64_t width);  // the row that stands there

// The tensors of part `number`, renamed. `head`: the first part, which has the model's keys. Names
// that are not a language model's stay. E_GGUF_MODEL for query or key heads that do not divide
// rows.
std::vector<GgufWeight> gguf_weights(const GgufFile& head, const GgufFile& part, std::size_t number,
                                     const std::string& file);

// All numbers as f32, rows in the wanted order. bytes: of the whole file.
void read_gguf_weight(const GgufWeight& weight, std::span<const std::byte> bytes, float* out);
// The same as the file has them: tensor.end - tensor.begin bytes.
void copy_gguf_weight(const GgufWeight& weight, std::span<const std::byte> bytes, std::byte* out);

}  // namespace tessera
