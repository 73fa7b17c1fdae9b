// Named, read-only tensor views over weight files: one safetensors file, a sharded index, or a
// pickled .pt/.pth/.bin through a reader that never runs code. Data stays mapped, not copied.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/joined_parts.h"
#include "engine/core/tensor.h"

namespace tessera {

struct BlockType;
struct GgufFile;
struct QuantisedScheme;

class Checkpoint {
 public:
  // A weight file, a folder with model.safetensors, *.safetensors.index.json,
  // pytorch_model*.bin(.index.json), or one .pt. All checks of the container happen here; nothing
  // is allocated from declared sizes. Error kModel.
  static Checkpoint open(const std::filesystem::path& path);

  // One model in several files, each with a part of every matrix, as `rule` says. Error kModel
  // (E_CKPT_PARTS): files whose names, types or shapes differ.
  static Checkpoint open_parts(std::span<const std::filesystem::path> files, PartRule rule);

  // Tensors made in memory (seeded test models, random weights for benchmarks); `label` stands for
  // the file name in messages.
  static Checkpoint from_tensors(std::string label, std::map<std::string, Tensor> tensors);

  // Takes another one's files and tensors in: an image encoder with files of its own. Error kModel
  // (E_CKPT_DUPLICATE) for a name that both have.
  void add(Checkpoint other);

  // In the place of tensors that together are a quantised matrix, the matrix: "x.weight" of f32, whose
  // numbers are read when find() is asked for them. Error kModel, see find_quantised().
  void dequantise(const QuantisedScheme& scheme);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  // nullptr when absent. tensors() has types and shapes without reading numbers.
  const ConstTensorView* find(std::string_view name) const;
  // Sorted by name.
  const std::map<std::string, ConstTensorView, std::less<>>& tensors() const;
  const std::map<std::string, std::string>& metadata() const;
  // The keys of a GGUF model's first file, borrowed; null for weights of other files.
  const GgufFile* gguf() const;
  // The format of a tensor that the file has in blocks of several numbers and find() reads as f32;
  // null for others.
  const BlockType* blocks_of(std::string_view name) const;
  // Whether dequantise() found a matrix.
  bool dequantised() const;
  // Whether a model that has no such tensor may ignore it: zeros that a quantising tool added.
  bool is_spare(std::string_view name) const;
  // The type that weights are kept as where a tensor is to stay as its file has it; f32 for numbers
  // that are never kept so. find() reads blocks of several numbers as f32.
  DType stored_type(std::string_view name) const;
  // The tensor as its file has it where it is kept so, rows in the order of find(). The name is there.
  // Blocks lie where they are mapped, at any address. Valid until release().
  ConstTensorView find_stored(std::string_view name) const;
  std::string file_of(std::string_view name) const;  // the shard, for messages
  std::uint64_t total_bytes() const;
  // Error kModel if a weight file was changed, cut or replaced since it was opened.
  void verify_unchanged() const;
  // Tells the kernel that a tensor's pages will not be read again.
  void release(std::string_view name) const;
  // The same of bytes [begin, end) of the tensor.
  void release(std::string_view name, std::size_t begin, std::size_t end) const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Writes a safetensors file (sorted, aligned, atomic). Used by tests and tools.
void write_safetensors(const std::filesystem::path& path,
                       const std::map<std::string, ConstTensorView>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace tessera
