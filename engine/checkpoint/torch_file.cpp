// Joins the archive and its pickle: each tensor becomes a byte range of a stored entry.
#include "engine/checkpoint/torch_file.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "engine/checkpoint/pickle.h"
#include "engine/checkpoint/zip.h"
#include "engine/core/checked.h"
#include "engine/core/error.h"

namespace tessera {

namespace {

using ZipEntries = std::map<std::string, ZipEntry, std::less<>>;

// The first bytes of the magic number that torch.save wrote before it wrote zip archives.
constexpr std::array<unsigned char, 14> kOldMagic = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c,
                                                     0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

[[noreturn]] void refuse_torch(const std::string& file, const char* code, std::string where,
                               std::string expected, std::string found, std::string hint = {}) {
  throw Error({.kind = ErrorKind::kModel,
               .code = code,
               .file = file,
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

bool begins_with(std::span<const std::byte> bytes, std::span<const unsigned char> magic) {
  return bytes.size() >= magic.size() &&
         std::equal(magic.begin(), magic.end(), bytes.begin(),
                    [](unsigned char want, std::byte have) { return std::byte{want} == have; });
}

bool is_zip(std::span<const std::byte> bytes) {
  return bytes.size() >= 4 && read_le(bytes, 0, 4) == 0x04034b50;
}

bool is_old_format(std::span<const std::byte> bytes) {
  constexpr std::size_t kTarMagicAt = 257;
  constexpr std::array<unsigned char, 5> kTarMagic = {'u', 's', 't', 'a', 'r'};
  return begins_with(bytes, kOldMagic) ||
         (bytes.size() > kTarMagicAt && begins_with(bytes.subspan(kTarMagicAt), kTarMagic));
}

// The folder inside the archive that everything lies in, with its slash.
std::string find_prefix(const ZipEntries& entries, const std::string& file) {
  std::string prefix;
  for (const auto& [name, entry] : entries) {
    const std::size_t slash = name.find('/');
    if (slash == std::string::npos || name.substr(slash) != "/data.pkl") continue;
    if (!prefix.empty()) {
      refuse_torch(file, "E_PT_NO_PICKLE", "archive", "one data.pkl", "two");
    }
    prefix = name.substr(0, slash + 1);
  }
  if (prefix.empty()) {
    refuse_torch(file, "E_PT_NO_PICKLE", "archive", "an entry NAME/data.pkl",
                 std::to_string(entries.size()) + " other entries");
  }
  if (entries.contains(prefix + "constants.pkl")) {
    refuse_torch(file, "E_PT_TORCHSCRIPT", "archive", "a state dict written by torch.save",
                 "a TorchScript program", "load it in PyTorch and save its state_dict()");
  }
  for (const auto& [name, entry] : entries) {
    if (entry.stored) continue;
    refuse_torch(file, "E_ZIP_COMPRESSED", "entry \"" + name.substr(0, 120) + "\"",
                 "entries stored as they are", "a compressed one");
  }
  return prefix;
}

std::string_view contents(std::span<const std::byte> bytes, const ZipEntry& entry) {
  return {reinterpret_cast<const char*>(bytes.data()) + entry.begin, entry.size};
}

// The storage that a tensor lies in must be there with exactly the size the pickle gives it.
const ZipEntry& find_storage(const ZipEntries& entries, const std::string& prefix,
                             const PickledTensor& tensor, const std::string& file) {
  const std::string name = prefix + "data/" + tensor.storage;
  const auto bytes = checked_mul(tensor.storage_size, dtype_size(tensor.dtype));
  const auto found = entries.find(name);
  if (found == entries.end() || !bytes || found->second.size != *bytes) {
    refuse_torch(
        file, "E_PT_STORAGE", tensor_place(tensor.name),
        "the entry \"" + name.substr(0, 200) + "\" with " + std::to_string(tensor.storage_size) +
            " elements of " + std::string(dtype_name(tensor.dtype)),
        found == entries.end() ? "no such entry" : std::to_string(found->second.size) + " bytes");
  }
  return found->second;
}

}  // namespace

bool looks_like_torch_file(std::span<const std::byte> bytes) {
  return is_zip(bytes) || is_old_format(bytes);
}

Container parse_torch_file(std::span<const std::byte> bytes, const std::string& file) {
  if (is_old_format(bytes)) {
    refuse_torch(file, "E_PT_OLD_FORMAT", "byte 0",
                 "the zip format of torch.save (PyTorch 1.6 and later)", "the format before it",
                 "load it with weights_only=True in PyTorch and save it again");
  }
  if (!is_zip(bytes)) {
    refuse_torch(file, "E_PT_MAGIC", "byte 0", "a zip archive written by torch.save",
                 "other bytes");
  }
  const ZipEntries entries = read_zip(bytes, file);
  const std::string prefix = find_prefix(entries, file);
  const ZipEntry& pickle = entries.find(prefix + "data.pkl")->second;
  // Zero stands for "not computed", which torch.save can be told to write.
  if (pickle.crc32 != 0 && crc32(bytes.subspan(pickle.begin, pickle.size)) != pickle.crc32) {
    refuse_torch(file, "E_PT_CRC", "data.pkl", "contents that match their CRC-32", "damaged bytes");
  }
  if (const auto order = entries.find(prefix + "byteorder");
      order != entries.end() && contents(bytes, order->second) != "little") {
    refuse_torch(file, "E_PT_BYTE_ORDER", "byteorder", "little", "another");
  }
  PickledState state = read_pickled_state(contents(bytes, pickle), file);
  Container out;
  out.metadata["torch.root"] = state.root;
  for (PickledTensor& tensor : state.tensors) {
    const ZipEntry& storage = find_storage(entries, prefix, tensor, file);
    const std::uint64_t size = dtype_size(tensor.dtype);
    StoredTensor stored{.name = std::move(tensor.name),
                        .dtype = tensor.dtype,
                        .shape = tensor.shape,
                        .begin = storage.begin + tensor.offset * size,
                        .end = storage.begin + tensor.reach * size,
                        .strides = std::move(tensor.strides)};
    out.tensors.push_back(std::move(stored));
  }
  return out;
}

}  // namespace tessera
