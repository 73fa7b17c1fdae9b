#include "engine/checkpoint/gguf_write.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "engine/core/dtype.h"
#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::uint64_t kAlignment = 32;
constexpr int kMaxFileRank = 4;

// Little-endian, of as many bytes as the number has.
template <typename Number>
void put(std::string& out, Number number) {
  static_assert(std::endian::native == std::endian::little);
  const std::size_t at = out.size();
  out.resize(at + sizeof number);
  std::memcpy(out.data() + at, &number, sizeof number);
}

void put_text(std::string& out, std::string_view text) {
  put(out, std::uint64_t{text.size()});
  out += text;
}

void put_kind(std::string& out, GgufKind kind) { put(out, static_cast<std::uint32_t>(kind)); }

void put_array(std::string& out, GgufKind element, std::uint64_t count) {
  put_kind(out, GgufKind::kArray);
  put_kind(out, element);
  put(out, count);
}

std::string_view chars_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::uint64_t aligned(std::uint64_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

template <typename Bits, Bits (*kNarrow)(float)>
void write_plain(const float* from, std::int64_t blocks, std::byte* out) {
  for (std::int64_t i = 0; i < blocks; ++i, out += sizeof(Bits)) {
    const Bits bits = kNarrow(from[i]);
    std::memcpy(out, &bits, sizeof bits);
  }
}

void write_f32(const float* from, std::int64_t blocks, std::byte* out) {
  if (blocks > 0) std::memcpy(out, from, to_size(blocks) * sizeof(float));
}

struct PlainWriter {
  std::string_view name;
  BlockWriter write;
};
// Formats of one number a block.
constexpr std::array kPlain = {PlainWriter{"F32", write_f32},
                               PlainWriter{"F16", write_plain<std::uint16_t, float_to_f16>},
                               PlainWriter{"BF16", write_plain<std::uint16_t, float_to_bf16>}};

// All that stands in front of the tensors.
std::string front_of(const GgufKeys& keys, std::span<const GgufPlanned> tensors) {
  std::string out = "GGUF";
  put(out, std::uint32_t{3});
  put(out, std::uint64_t{tensors.size()});
  put(out, std::uint64_t{keys.size()});
  out += keys.encoded();
  std::uint64_t offset = 0;
  for (const GgufPlanned& tensor : tensors) {
    expects(fits_gguf(tensor.shape, *tensor.type), "tensors of whole blocks");
    put_text(out, tensor.name);
    put(out, narrow<std::uint32_t>(tensor.shape.rank()));
    for (int axis = tensor.shape.rank() - 1; axis >= 0; --axis) {
      put(out, narrow<std::uint64_t>(tensor.shape[axis]));
    }
    put(out, tensor.type->id);
    put(out, offset);
    offset += aligned(tensor.bytes());
  }
  out.resize(aligned(out.size()));
  return out;
}

std::uint64_t bytes_of(std::span<const GgufPlanned> tensors) {
  std::uint64_t out = 0;
  for (const GgufPlanned& tensor : tensors) out += aligned(tensor.bytes());
  return out;
}

}  // namespace

std::string& GgufKeys::value_of(std::string_view key) {
  const auto found = std::find_if(values_.begin(), values_.end(),
                                  [&](const auto& pair) { return pair.first == key; });
  expects(key != "general.alignment", "tensors are aligned as in files without that key");
  if (found == values_.end()) return values_.emplace_back(key, "").second;
  found->second.clear();
  return found->second;
}

std::string GgufKeys::encoded() const {
  std::string out;
  for (const auto& [key, value] : values_) {
    put_text(out, key);
    out += value;
  }
  return out;
}

void GgufKeys::text(std::string_view key, std::string_view value) {
  std::string& out = value_of(key);
  put_kind(out, GgufKind::kString);
  put_text(out, value);
}

void GgufKeys::u32(std::string_view key, std::uint32_t value) {
  std::string& out = value_of(key);
  put_kind(out, GgufKind::kU32);
  put(out, value);
}

void GgufKeys::f32(std::string_view key, float value) {
  std::string& out = value_of(key);
  put_kind(out, GgufKind::kF32);
  put(out, value);
}

void GgufKeys::boolean(std::string_view key, bool value) {
  std::string& out = value_of(key);
  put_kind(out, GgufKind::kBool);
  put(out, std::uint8_t{value});
}

void GgufKeys::texts(std::string_view key, std::span<const std::string> values) {
  std::string& out = value_of(key);
  put_array(out, GgufKind::kString, values.size());
  for (const std::string& value : values) put_text(out, value);
}

void GgufKeys::i32s(std::string_view key, std::span<const std::int32_t> values) {
  std::string& out = value_of(key);
  put_array(out, GgufKind::kI32, values.size());
  for (const std::int32_t value : values) put(out, value);
}

void GgufKeys::f32s(std::string_view key, std::span<const float> values) {
  std::string& out = value_of(key);
  put_array(out, GgufKind::kF32, values.size());
  for (const float value : values) put(out, value);
}

void GgufKeys::copy(std::string_view key, const GgufValue& value) {
  std::string& out = value_of(key);
  if (const auto array = value.array()) {
    put_array(out, array->element(), array->left());
    out += chars_of(value.body());
    return;
  }
  put_kind(out, value.kind());
  if (value.text()) return put_text(out, *value.text());
  out += chars_of(value.body());
}

bool fits_gguf(const Shape& shape, const BlockType& type) {
  return shape.rank() >= 1 && shape.rank() <= kMaxFileRank &&
         shape[shape.rank() - 1] % type.numbers == 0;
}

BlockWriter block_writer(const BlockType& type) {
  for (const PlainWriter& plain : kPlain) {
    if (plain.name == type.name) return plain.write;
  }
  return type.write;
}

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufKeys& keys,
                       std::vector<GgufPlanned> tensors)
    : GgufWriter(path, front_of(keys, tensors), std::move(tensors)) {}

GgufWriter::GgufWriter(const std::filesystem::path& path, std::string_view front,
                       std::vector<GgufPlanned>&& tensors)
    : tensors_(std::move(tensors)), bytes_(front.size() + bytes_of(tensors_)), file_(path, bytes_) {
  file_.append(std::as_bytes(std::span(front.data(), front.size())));
}

void GgufWriter::append(std::span<const std::byte> data) {
  if (data.empty()) return;
  while (current_ < tensors_.size() && tensors_[current_].bytes() == 0) ++current_;
  expects(current_ < tensors_.size(), "a tensor is open");
  const std::uint64_t size = tensors_[current_].bytes();
  expects(data.size() <= size - written_, "bytes of one tensor");
  file_.append(data);
  written_ += data.size();
  if (written_ < size) return;
  static constexpr std::array<std::byte, kAlignment> kZeros{};
  file_.append(std::span(kZeros).first(aligned(size) - size));
  ++current_;
  written_ = 0;
}

bool GgufWriter::publish(Publish publish) {
  expects(file_.size() == bytes_, "every tensor was written");
  return file_.publish(publish);
}

}  // namespace tessera
