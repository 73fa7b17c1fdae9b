// See protobuf.h.
#include "tokenizers/text/protobuf.h"

#include <bit>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

float ProtoField::as_float() const { return std::bit_cast<float>(low_bits<std::uint32_t>(value)); }

void ProtoReader::fail(std::string expected, std::string found) const {
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_TOK_PROTO",
               .file = *file_,
               .where = where_ + ", byte " + std::to_string(base_ + at_),
               .expected = std::move(expected),
               .found = std::move(found)});
}

std::uint64_t ProtoReader::varint() {
  std::uint64_t out = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (at_ >= bytes_.size()) fail("a number", "the end");
    const auto byte = byte_of(bytes_[at_++]);
    out |= std::uint64_t{byte & 0x7fU} << shift;
    if ((byte & 0x80U) == 0) return out;
  }
  fail("a number of at most ten bytes", "a longer one");
}

bool ProtoReader::next(ProtoField& field) {
  if (at_ >= bytes_.size()) return false;
  const std::uint64_t key = varint();
  field = {};
  field.number = low_bits<std::uint32_t>(key >> 3);
  if (key >> 3 == 0 || key >> 3 > 0x1fffffff) fail("a field number", std::to_string(key >> 3));
  const auto fixed = [&](unsigned count) {
    if (bytes_.size() - at_ < count) fail(std::to_string(count) + " bytes", "the end");
    for (unsigned i = 0; i < count; ++i)
      field.value |= std::uint64_t{byte_of(bytes_[at_ + i])} << 8 * i;
    at_ += count;
  };
  switch (key & 7) {
    case 0:
      field.value = varint();
      return true;
    case 1:
      field.kind = ProtoField::Kind::kFixed64;
      fixed(8);
      return true;
    case 2: {
      field.kind = ProtoField::Kind::kBytes;
      const std::uint64_t length = varint();
      if (length > bytes_.size() - at_)
        fail("a field that ends within its message", std::to_string(length) + " bytes");
      begin_ = at_;
      field.bytes = bytes_.substr(at_, length);
      at_ += length;
      return true;
    }
    case 5:
      field.kind = ProtoField::Kind::kFixed32;
      fixed(4);
      return true;
    default:
      fail("a number, a string or a message", "wire type " + std::to_string(key & 7));
  }
}

void ProtoReader::expect(const ProtoField& field, ProtoField::Kind kind) const {
  if (field.kind != kind)
    fail("field " + std::to_string(field.number) + " in its own form", "another");
}

}  // namespace tessera
