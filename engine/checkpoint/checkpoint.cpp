// Finding, mapping and joining weight files into one table of named views.
#include "engine/checkpoint/checkpoint.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <set>
#include <utility>

#include "engine/checkpoint/container.h"
#include "engine/checkpoint/gguf_weights.h"
#include "engine/checkpoint/quantised.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/shard_index.h"
#include "engine/checkpoint/torch_file.h"
#include "engine/core/block_types.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/lfs_pointer.h"
#include "engine/core/storage.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

bool ends_with_any(const std::string& name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

bool is_torch_name(const std::string& name) {
  return ends_with_any(name, {".bin", ".pt", ".pth", ".ckpt"});
}

bool is_weight_file(const std::string& name) {
  return is_torch_name(name) || name.ends_with(".safetensors");
}

// The type under which a tensor's own bytes can be read where they stand.
std::optional<DType> stored_as(const GgufWeight& weight) {
  if (weight.paired_heads > 0) return std::nullopt;
  const std::string_view type = weight.tensor.type->name;
  if (type == "F32") return DType::kF32;
  if (type == "F16") return DType::kF16;
  if (type == "BF16") return DType::kBF16;
  return std::nullopt;
}

// "a, b, c" of the first ten names and how many more there are.
std::string first_names(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 10;
  std::string out;
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    out += (i > 0 ? ", " : "") + names[i].substr(0, 80);
  }
  if (names.size() > kShown) out += " and " + std::to_string(names.size() - kShown) + " more";
  return out;
}

// The one file of a model folder to begin with, by the names that published folders use.
fs::path choose_file(const fs::path& folder) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                           "pytorch_model.bin.index.json"}) {
    if (file_exists(folder / name)) return folder / name;
  }
  std::vector<std::string> indexes, weights;
  for (const fs::path& path : list_folder(folder)) {
    const std::string name = path.filename().string();
    if (name.ends_with(".index.json")) indexes.push_back(name);
    if (is_weight_file(name)) weights.push_back(name);
  }
  const std::vector<std::string>& candidates = indexes.empty() ? weights : indexes;
  if (candidates.empty()) {
    refuse_model(
        "E_CKPT_NONE", folder.string(), "",
        "model.safetensors, an .index.json, or one .safetensors, .pt, .pth, .bin or .ckpt file",
        "none of them");
  }
  if (candidates.size() > 1) {
    refuse_model("E_CKPT_AMBIGUOUS", folder.string(), "", "one weight file or one index",
                 std::to_string(candidates.size()) + ": " + first_names(candidates),
                 "name the file itself");
  }
  return folder / candidates.front();
}

bool is_aligned(const void* data, DType dtype) {
  return reinterpret_cast<std::uintptr_t>(data) % dtype_size(dtype) == 0;
}

}  // namespace

struct Checkpoint::Impl {
  // Where a tensor's bytes come from; no file: memory of our own.
  struct Origin {
    int file = -1;
    std::size_t offset = 0;
    std::size_t length = 0;
  };

  std::string label;
  std::vector<MappedFile> files;
  std::vector<Tensor> owned;
  std::map<std::string, ConstTensorView, std::less<>> tensors;
  std::map<std::string, Origin, std::less<>> origins;
  std::map<std::string, std::string> metadata;
  // Tensors whose numbers are computed when find() is asked for them, and kept until release().
  struct Computed {
    std::function<void(TensorView out)> read;
    std::optional<GgufWeight> gguf;  // of a GGUF file
    std::vector<Origin> parts;       // what it is made of, besides its own origin
    Tensor numbers;
    Tensor stored;  // of find_stored(), where the file has the rows in another order
  };
  std::map<std::string, Computed, std::less<>> computed;
  std::set<std::string, std::less<>> spare;
  bool dequantised = false;
  std::optional<GgufFile> gguf;  // the first file of such a model

  std::string file_name(int file) const {
    return file < 0 ? label : nth(files, file).path().string();
  }

  // Maps one weight file and adds what it holds. A name that an earlier file already gave is an
  // error.
  void add_file(const fs::path& path) {
    files.emplace_back(path);
    const MappedFile& file = files.back();
    const std::string name = path.filename().string();
    refuse_pointer(file, path);
    refuse_other_name(file, path);
    const bool torch = !name.ends_with(".safetensors") &&
                       (looks_like_torch_file(file.bytes()) || is_torch_name(name));
    Container container = torch ? parse_torch_file(file.bytes(), path.string())
                                : parse_safetensors(file.bytes(), path.string());
    std::uint64_t copied = 0;
    for (const StoredTensor& stored : container.tensors) add_stored(file, stored, copied);
    metadata.merge(container.metadata);
  }

  // One GGUF model, of all its parts.
  void add_gguf(const fs::path& path) {
    const std::vector<fs::path> parts = gguf_parts(path);
    std::vector<GgufFile> parsed;
    const std::size_t first = files.size();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      files.emplace_back(parts[i]);
      refuse_pointer(files.back(), parts[i]);
      const std::string name = parts[i].string();
      parsed.push_back(parse_gguf(files.back().bytes(), name));
      check_gguf_part(parsed.back(), i, parts.size(), name);
      for (const GgufWeight& weight :
           gguf_weights(parsed.front(), parsed.back(), first + i, name)) {
        add_gguf_weight(weight);
      }
    }
    check_part_tensors(parsed, parts.front());
    gguf = std::move(parsed.front());
  }

  // A file of an index: tensors in blocks, under the names that the model has.
  void add_blocks(const fs::path& path) {
    const std::size_t number = files.size();
    files.emplace_back(path);
    refuse_pointer(files.back(), path);
    const GgufFile parsed = parse_gguf(files.back().bytes(), path.string());
    for (const GgufWeight& weight : gguf_weights(parsed, parsed, number, path.string())) {
      add_gguf_weight(weight);
    }
  }

  // A part of another model has other tensors than the first one counts.
  void check_part_tensors(const std::vector<GgufFile>& parts, const fs::path& first) const {
    constexpr const char* kKey = "split.tensors.count";
    const GgufValue* value = parts.front().find(kKey);
    if (parts.size() == 1 || value == nullptr) return;
    std::size_t count = 0;
    for (const GgufFile& part : parts) count += part.tensors.size();
    if (value->integer() == to_index(count)) return;
    refuse_model("E_GGUF_PARTS", first.string(), std::string("key \"") + kKey + "\"",
                 std::to_string(count) + ", the tensors of all parts",
                 value->integer() ? std::to_string(*value->integer()) : "no whole number");
  }

  void add_gguf_weight(const GgufWeight& weight) {
    const MappedFile& file = files[weight.file];
    const GgufTensor& tensor = weight.tensor;
    const std::byte* data = file.bytes().data() + tensor.begin;
    const std::optional<DType> dtype = stored_as(weight);
    const bool mapped = dtype && is_aligned(data, *dtype);
    if (const auto known = origins.find(weight.name); known != origins.end()) {
      refuse_model("E_CKPT_DUPLICATE", file.path().string(), tensor_place(tensor.name),
                   "each tensor in one file", "it in " + file_name(known->second.file) + " too");
    }
    origins.emplace(weight.name,
                    Origin{narrow<int>(weight.file), tensor.begin, tensor.end - tensor.begin});
    tensors.emplace(weight.name, ConstTensorView{mapped ? *dtype : DType::kF32, tensor.shape,
                                                 mapped ? data : nullptr, Device{}});
    if (mapped) return;
    const auto read = [weight, bytes = file.bytes()](TensorView out) {
      read_gguf_weight(weight, bytes, out.f32());
    };
    computed.emplace(weight.name, Computed{read, weight, {}, Tensor(), Tensor()});
  }

  void add_quantised(QuantisedWeight weight) {
    const auto read = [numbers = std::move(weight.read)](TensorView out) { numbers(out.f32()); };
    Computed made{read, std::nullopt, {}, Tensor(), Tensor()};
    // Messages name the file of the first part.
    const Origin own = origins.find(weight.parts.front())->second;
    for (const std::string& part : weight.parts) {
      made.parts.push_back(origins.find(part)->second);
      tensors.erase(part);
      origins.erase(part);
    }
    origins.emplace(weight.name, own);
    tensors.emplace(weight.name, ConstTensorView{DType::kF32, weight.shape, nullptr, Device{}});
    computed.emplace(weight.name, std::move(made));
  }

  // Of files that each have a part of it; `parts` are their tensors, and file i of this is theirs.
  void add_joined(const std::string& name, PartAxis axis, std::span<const Checkpoint> parts,
                  std::span<const std::string> names) {
    std::vector<ConstTensorView> views;
    Computed made;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Impl& part = *parts[i].impl_;
      const auto found = part.tensors.find(name);
      const std::size_t count = part.tensors.size();
      if (found == part.tensors.end() || count != parts.front().tensors().size()) {
        refuse_model("E_CKPT_PARTS", names[i], tensor_place(name),
                     "the tensors of " + names.front(),
                     found == part.tensors.end() ? "none" : std::to_string(count) + " tensors");
      }
      views.push_back(found->second);
      Origin origin = part.origins.find(name)->second;
      if (origin.file >= 0) origin.file = narrow<int>(i);
      made.parts.push_back(origin);
    }
    const Shape shape = joined_shape(axis, views, name, names);
    origins.emplace(name, made.parts.front());
    tensors.emplace(name, ConstTensorView{views.front().dtype, shape, nullptr, Device{}});
    made.read = [axis, views = std::move(views)](TensorView out) { join_parts(axis, views, out.raw()); };
    computed.emplace(name, std::move(made));
  }

  void take_files(Impl& other) {
    for (MappedFile& file : other.files) files.push_back(std::move(file));
    for (Tensor& tensor : other.owned) owned.push_back(std::move(tensor));
  }

  // The numbers of a computed tensor, where they are not there yet.
  static void read(Computed& tensor, ConstTensorView& view) {
    if (view.data != nullptr) return;
    tensor.numbers = Tensor::host(view.dtype, view.shape);
    tensor.read(tensor.numbers.view());
    view = std::as_const(tensor.numbers).view();
  }

  static DType stored_type(const Computed& tensor, const ConstTensorView& view) {
    if (!tensor.gguf) return kept_as(view.dtype, DType::kFile);
    const auto own = storage_in_gguf(tensor.gguf->tensor.type->id);
    return kept_as(own.value_or(DType::kF32), DType::kFile);
  }

  // The tensor as its file has it. Blocks are read where they are, numbers need an address for
  // them.
  ConstTensorView as_stored(Computed& tensor, ConstTensorView& view) {
    const DType dtype = stored_type(tensor, view);
    if (!tensor.gguf || storage_in_gguf(tensor.gguf->tensor.type->id) != dtype) {  // never kept so
      read(tensor, view);
      return view;
    }
    const GgufWeight& weight = *tensor.gguf;
    const std::span<const std::byte> bytes = files[weight.file].bytes();
    if (weight.paired_heads == 0 && dtype_block(dtype).numbers > 1) {
      return {dtype, weight.tensor.shape, bytes.data() + weight.tensor.begin, Device{}};
    }
    if (tensor.stored.empty()) {
      tensor.stored = Tensor::host(dtype, weight.tensor.shape);
      copy_gguf_weight(weight, bytes, tensor.stored.view().raw());
    }
    return std::as_const(tensor.stored).view();
  }

  static void drop(Computed& tensor, ConstTensorView& view) {
    tensor.numbers = Tensor();
    tensor.stored = Tensor();
    view.data = nullptr;
  }

  void release(const Origin& origin) const {
    if (origin.file >= 0) nth(files, origin.file).release(origin.offset, origin.length);
  }

  static void refuse_pointer(const MappedFile& file, const fs::path& path) {
    const auto bytes = file.bytes();
    if (!is_lfs_pointer({reinterpret_cast<const char*>(bytes.data()), bytes.size()})) return;
    refuse_model("E_CKPT_POINTER", path.string(), "", "weights", "a git-lfs pointer to them",
                 "run `git lfs pull` in this folder, or download the file itself");
  }

  // The reference reads a file as its name says, and fails.
  static void refuse_other_name(const MappedFile& file, const fs::path& path) {
    const std::string name = path.filename().string();
    const char* found = looks_like_torch_file(file.bytes())    ? "torch.save"
                        : looks_like_safetensors(file.bytes()) ? "safetensors"
                        : looks_like_gguf(file.bytes())        ? "GGUF"
                                                               : "";
    const bool torch = is_torch_name(name), own = name.ends_with(".safetensors");
    if (*found == 0 || (!torch && !own)) return;
    if (found == std::string_view(torch ? "torch.save" : "safetensors")) return;
    const std::string other = found == std::string_view("torch.save")    ? "pytorch_model.bin"
                              : found == std::string_view("safetensors") ? "model.safetensors"
                                                                         : "model.gguf";
    refuse_model("E_CKPT_NAME", path.string(), "", "what its name says",
                 std::string("a file of ") + found, "rename it: " + other);
  }

  // Strided and misaligned tensors are copied. Many of them may share bytes, so that the copies
  // could outgrow the file without bound; they may not.
  void add_stored(const MappedFile& file, const StoredTensor& stored, std::uint64_t& copied) {
    const std::byte* data = file.bytes().data() + stored.begin;
    Origin origin{narrow<int>(files.size()) - 1, stored.begin, stored.end - stored.begin};
    ConstTensorView view{stored.dtype, stored.shape, data, Device{}};
    if (!stored.strides.empty() || !is_aligned(data, stored.dtype)) {
      copied += view.bytes();
      if (copied > file.bytes().size()) {
        refuse_model("E_CKPT_COPIES", file.path().string(), tensor_place(stored.name),
                     "strided or misaligned tensors of at most " +
                         std::to_string(file.bytes().size()) + " bytes in all",
                     std::to_string(copied), "save them as tensor.contiguous()");
      }
      owned.push_back(gather(stored, data));
      view = std::as_const(owned.back()).view();
    }
    if (const auto known = origins.find(stored.name); known != origins.end()) {
      refuse_model("E_CKPT_DUPLICATE", file.path().string(), tensor_place(stored.name),
                   "each tensor in one file", "it in " + file_name(known->second.file) + " too");
    }
    origins.emplace(stored.name, origin);
    tensors.emplace(stored.name, view);
  }

  // A dense copy of a tensor that is strided or lies at an odd address.
  static Tensor gather(const StoredTensor& stored, const std::byte* data) {
    Tensor out = Tensor::host(stored.dtype, stored.shape);
    auto* to = out.view().raw();
    if (stored.strides.empty()) {
      if (out.bytes() > 0) std::memcpy(to, data, out.bytes());
      return out;
    }
    const std::size_t size = dtype_size(stored.dtype);
    const int rank = stored.shape.rank();
    std::array<std::int64_t, kMaxRank> index{};
    for (std::int64_t n = stored.shape.elements(); n > 0; --n, to += size) {
      std::int64_t element = 0;
      for (int i = 0; i < rank; ++i) {
        const auto axis = to_size(i);
        element += index[axis] * stored.strides[axis];
      }
      std::memcpy(to, data + to_size(element) * size, size);
      for (int i = rank - 1; i >= 0; --i) {
        if (++nth(index, i) < stored.shape[i]) break;
        nth(index, i) = 0;
      }
    }
    return out;
  }

  void add_index(const fs::path& path) {
    const ShardIndex index = parse_shard_index(read_file(path, kMaxIndexBytes), path.string());
    for (const std::string& shard : index.shards) {
      const fs::path file = path.parent_path() / shard;
      is_gguf_file(file) ? add_blocks(file) : add_file(file);
    }
    check_against(index, path);
  }

  // Every tensor must lie in the file that the index says, and no file may hold another one.
  void check_against(const ShardIndex& index, const fs::path& path) const {
    std::vector<std::string> missing, surplus;
    for (const auto& [name, shard] : index.shard_of) {
      const auto found = origins.find(name);
      if (found == origins.end() || found->second.file != narrow<int>(shard)) {
        missing.push_back(name + " (in " + index.shards[shard] + ")");
      }
    }
    for (const auto& [name, origin] : origins) {
      const auto found = index.shard_of.find(name);
      if (found == index.shard_of.end() || origin.file != narrow<int>(found->second)) {
        surplus.push_back(name);
      }
    }
    if (missing.empty() && surplus.empty()) return;
    std::string found;
    if (!missing.empty()) {
      found = std::to_string(missing.size()) + " missing: " + first_names(missing);
    }
    if (!surplus.empty()) {
      found += (found.empty() ? "" : "; ") + std::to_string(surplus.size()) +
               " surplus: " + first_names(surplus);
    }
    refuse_model("E_IDX_TENSORS", path.string(), "weight_map",
                 std::to_string(index.shard_of.size()) + " tensors as listed", found);
  }
};

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Checkpoint Checkpoint::open(const fs::path& path) {
  auto impl = std::make_unique<Impl>();
  impl->label = path.string();
  const fs::path file = is_folder(path) ? choose_file(path) : path;
  if (is_gguf_file(file)) {
    impl->add_gguf(file);
  } else if (file.filename().string().ends_with(".index.json")) {
    impl->add_index(file);
  } else {
    impl->add_file(file);
  }
  return Checkpoint(std::move(impl));
}

Checkpoint Checkpoint::open_parts(std::span<const fs::path> files, PartRule rule) {
  std::vector<Checkpoint> parts;
  std::vector<std::string> names;
  for (const fs::path& file : files) {
    parts.push_back(open(file));
    names.push_back(file.string());
  }
  auto impl = std::make_unique<Impl>();
  impl->label = names.front();
  for (const auto& [name, view] : parts.front().tensors()) {
    impl->add_joined(name, rule(name), parts, names);
  }
  for (Checkpoint& part : parts) impl->take_files(*part.impl_);
  return Checkpoint(std::move(impl));
}

Checkpoint Checkpoint::from_tensors(std::string label, std::map<std::string, Tensor> tensors) {
  auto impl = std::make_unique<Impl>();
  impl->label = std::move(label);
  for (auto& [name, tensor] : tensors) {
    impl->tensors.emplace(name, std::as_const(tensor).view());
    impl->origins.emplace(name, Impl::Origin{});
    impl->owned.push_back(std::move(tensor));
  }
  return Checkpoint(std::move(impl));
}

void Checkpoint::add(Checkpoint other) {
  const int first = narrow<int>(impl_->files.size());
  for (auto& [name, origin] : other.impl_->origins) {
    if (const auto known = impl_->origins.find(name); known != impl_->origins.end()) {
      refuse_model("E_CKPT_DUPLICATE", other.file_of(name), tensor_place(name),
                   "each tensor in one file",
                   "it in " + impl_->file_name(known->second.file) + " too");
    }
  }
  for (auto& [name, origin] : other.impl_->origins) {
    Impl::Origin moved = origin;
    if (moved.file >= 0) moved.file += first;
    impl_->origins.emplace(name, moved);
  }
  impl_->tensors.merge(other.impl_->tensors);
  for (MappedFile& file : other.impl_->files) impl_->files.push_back(std::move(file));
  for (Tensor& tensor : other.impl_->owned) impl_->owned.push_back(std::move(tensor));
  for (auto& [name, tensor] : other.impl_->computed) {
    if (tensor.gguf) tensor.gguf->file += to_size(first);
    for (Impl::Origin& part : tensor.parts) {
      if (part.file >= 0) part.file += first;
    }
    impl_->computed.emplace(name, std::move(tensor));
  }
  impl_->spare.merge(other.impl_->spare);
  impl_->dequantised = impl_->dequantised || other.impl_->dequantised;
}

void Checkpoint::dequantise(const QuantisedScheme& scheme) {
  QuantisedTensors found = find_quantised(scheme, *this);
  for (QuantisedWeight& weight : found.weights) impl_->add_quantised(std::move(weight));
  for (const std::string& name : found.unread) {
    impl_->tensors.erase(name);
    impl_->origins.erase(name);
  }
  impl_->spare.insert(found.spare.begin(), found.spare.end());
  impl_->dequantised = true;
}

const ConstTensorView* Checkpoint::find(std::string_view name) const {
  const auto found = impl_->tensors.find(name);
  if (found == impl_->tensors.end()) return nullptr;
  const auto computed = impl_->computed.find(name);
  if (computed != impl_->computed.end()) Impl::read(computed->second, found->second);
  return &found->second;
}

const std::map<std::string, ConstTensorView, std::less<>>& Checkpoint::tensors() const {
  return impl_->tensors;
}

const std::map<std::string, std::string>& Checkpoint::metadata() const { return impl_->metadata; }

const GgufFile* Checkpoint::gguf() const { return impl_->gguf ? &*impl_->gguf : nullptr; }

const BlockType* Checkpoint::blocks_of(std::string_view name) const {
  const auto found = impl_->computed.find(name);
  if (found == impl_->computed.end() || !found->second.gguf) return nullptr;
  const BlockType* const type = found->second.gguf->tensor.type;
  return type->numbers > 1 ? type : nullptr;
}

DType Checkpoint::stored_type(std::string_view name) const {
  const auto block = impl_->computed.find(name);
  const ConstTensorView& view = impl_->tensors.find(name)->second;
  if (block != impl_->computed.end()) return Impl::stored_type(block->second, view);
  return kept_as(view.dtype, DType::kFile);
}

ConstTensorView Checkpoint::find_stored(std::string_view name) const {
  ConstTensorView& view = impl_->tensors.find(name)->second;
  const auto block = impl_->computed.find(name);
  return block == impl_->computed.end() ? view : impl_->as_stored(block->second, view);
}

bool Checkpoint::dequantised() const { return impl_->dequantised; }

bool Checkpoint::is_spare(std::string_view name) const { return impl_->spare.contains(name); }

std::string Checkpoint::file_of(std::string_view name) const {
  const auto found = impl_->origins.find(name);
  return found == impl_->origins.end() ? impl_->label : impl_->file_name(found->second.file);
}

std::uint64_t Checkpoint::total_bytes() const {
  std::uint64_t total = 0;
  for (const auto& [name, view] : impl_->tensors) total += view.bytes();
  return total;
}

void Checkpoint::verify_unchanged() const {
  for (const MappedFile& file : impl_->files) {
    if (!file.changed_on_disk()) continue;
    refuse_model("E_IO_CHANGED", file.path().string(), "", "the file as it was when it was opened",
                 "another size, time or file under this name");
  }
}

void Checkpoint::release(std::string_view name) const {
  const auto found = impl_->origins.find(name);
  if (found == impl_->origins.end()) return;
  const auto computed = impl_->computed.find(name);
  if (computed != impl_->computed.end()) {
    Impl::drop(computed->second, impl_->tensors.find(name)->second);
    for (const Impl::Origin& part : computed->second.parts) impl_->release(part);
  }
  impl_->release(found->second);
}

void Checkpoint::release(std::string_view name, std::size_t begin, std::size_t end) const {
  const auto found = impl_->origins.find(name);
  if (found == impl_->origins.end() || found->second.file < 0) return;
  if (impl_->computed.contains(name)) return;  // its numbers stand elsewhere, and go at once
  const Impl::Origin& origin = found->second;
  expects(begin <= end && end <= origin.length, "a range of the tensor");
  nth(impl_->files, origin.file).release(origin.offset + begin, end - begin);
}

}  // namespace tessera
