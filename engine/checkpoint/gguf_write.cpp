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

// Little-endian, of as many bytes as the number has.
template <typename Number>
void put_number(std::string& out, Number number) {
  static_assert(std::endian::native == std::endian::little);
  const std::size_t at = out.size();
  out.resize(at + sizeof number);
  std::memcpy(out.data() + at, &number, sizeof number);
}

void put_text(std::string& out, std::string_view text) {
  put_number(out, std::uint64_t{text.size()});
  out += text;
}

void put_kind(std::string& out, GgufKind kind) {
  put_number(out, static_cast<std::uint32_t>(kind));
}

void put_array(std::string& out, GgufKind element, std::uint64_t count) {
  put_kind(out, GgufKind::kArray);
  put_kind(out, element);
  put_number(out, count);
}

std::string_view chars_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::uint64_t padded(std::uint64_t size) {
  return (size + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
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
  put_number(out, std::uint32_t{3});
  put_number(out, std::uint64_t{tensors.size()});
  put_number(out, std::uint64_t{keys.size()});
  out += keys.encoded();
  std::uint64_t offset = 0;
  for (const GgufPlanned& tensor : tensors) {
    expects(fits_gguf(tensor.shape, *tensor.type), "tensors of whole blocks");
    put_text(out, tensor.name);
    put_number(out, narrow<std::uint32_t>(tensor.shape.rank()));
    for (int axis = tensor.shape.rank() - 1; axis >= 0; --axis) {
      put_number(out, narrow<std::uint64_t>(tensor.shape[axis]));
    }
    put_number(out, tensor.type->id);
    put_number(out, offset);
    offset += padded(tensor.bytes());
  }
  out.resize(padded(out.size()));
  return out;
}

std::uint64_t bytes_of(std::span<const GgufPlanned> tensors) {
  std::uint64_t out = 0;
  for (const GgufPlanned& tensor : tensors) out += padded(tensor.bytes());
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
  put_number(out, value);
}

void GgufKeys::f32(std::string_view key, float value) {
  std::string& out = value_of(key);
  put_kind(out, GgufKind::kF32);
  put_number(out, value);
}

void GgufKeys::boolean(std::string_view key, bool value) {
  std::string& out = value_of(key);
  put_kind(out, GgufKind::kBool);
  put_number(out, std::uint8_t{value});
}

void GgufKeys::texts(std::string_view key, std::span<const std::string> values) {
  std::string& out = value_of(key);
  put_array(out, GgufKind::kString, values.size());
  for (const std::string& value : values) put_text(out, value);
}

void GgufKeys::i32s(std::string_view key, std::span<const std::int32_t> values) {
  std::string& out = value_of(key);
  put_array(out, GgufKind::kI32, values.size());
  for (const std::int32_t value : values) put_number(out, value);
}

void GgufKeys::f32s(std::string_view key, std::span<const float> values) {
  std::string& out = value_of(key);
  put_array(out, GgufKind::kF32, values.size());
  for (const float value : values) put_number(out, value);
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

void GgufKeys::append(const GgufKeys& others) {
  for (const auto& [key, value] : others.values_) value_of(key) = value;
}

bool fits_gguf(const Shape& shape, const BlockType& type) {
  return shape.rank() >= 1 && shape.rank() <= kMaxGgufRank &&
         shape[shape.rank() - 1] % type.numbers == 0;
}

BlockWriter block_writer(const BlockType& type) {
  for (const PlainWriter& plain : kPlain) {
    if (plain.name == type.name) return plain.write;
  }
  return type.write;
}

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufKeys& keys,
                       std::vector<GgufPlanned> tensors, std::string source)
    : GgufWriter(path, front_of(keys, tensors), std::move(tensors), std::move(source)) {}

GgufWriter::GgufWriter(const std::filesystem::path& path, std::string_view front,
                       std::vector<GgufPlanned>&& tensors, std::string source)
    : tensors_(std::move(tensors)),
      bytes_(front.size() + bytes_of(tensors_)),
      file_(path, std::move(source)) {
  if (take_up(front)) return;
  file_.restart();
  file_.append(front);
}

// Whether the part that is there begins as this file does and ends between two tensors of it.
bool GgufWriter::take_up(std::string_view front) {
  if (file_.note().empty() || file_.front(front.size()) != front) return false;
  std::uint64_t end = front.size();
  std::size_t done = 0;
  for (; done < tensors_.size() && end < file_.size(); ++done)
    end += padded(tensors_[done].bytes());
  if (end != file_.size()) return false;
  current_ = done;
  return true;
}

void GgufWriter::append(std::span<const std::byte> data) {
  if (data.empty()) return;
  while (current_ < tensors_.size() && tensors_[current_].bytes() == 0) ++current_;
  expects(current_ < tensors_.size(), "a tensor is open");
  const std::uint64_t size = tensors_[current_].bytes();
  expects(data.size() <= size - written_, "bytes of one tensor");
  file_.append(chars_of(data));
  written_ += data.size();
  if (written_ < size) return;
  static constexpr std::array<char, kGgufAlignment> kZeros{};
  file_.append({kZeros.data(), padded(size) - size});
  ++current_;
  written_ = 0;
}

void GgufWriter::mark(std::string_view note) {
  expects(written_ == 0, "no tensor is open");
  file_.mark(note);
}

void GgufWriter::publish() {
  expects(file_.size() == bytes_, "every tensor was written");
  file_.publish();
}

}  // namespace tessera
