// The wire form of Protocol Buffers, read field by field out of bytes that may be anything: no
// recursion, no allocation, every length checked against what is left.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

struct ProtoField {
  std::uint32_t number = 0;
  enum class Kind : std::uint8_t { kVarint, kFixed64, kBytes, kFixed32 } kind = Kind::kVarint;
  std::uint64_t value = 0;  // of the numeric kinds
  std::string_view bytes;   // of kBytes: a string or a message

  float as_float() const;  // of kFixed32
};

class ProtoReader {
 public:
  // `where` names the message, `base` is its place in the file: for messages.
  ProtoReader(std::string_view bytes, const std::string& file, std::string where,
              std::size_t base = 0)
      : bytes_(bytes), file_(&file), where_(std::move(where)), base_(base) {}

  // False at the end. Error kModel, E_TOK_PROTO, for a broken field or a group.
  bool next(ProtoField& field);
  // Error kModel, E_TOK_PROTO, unless the field is of this kind.
  void expect(const ProtoField& field, ProtoField::Kind kind) const;
  // Where the bytes of the field just read begin in the file.
  std::size_t place() const { return base_ + begin_; }
  [[noreturn]] void fail(std::string expected, std::string found) const;

 private:
  std::uint64_t varint();
  std::string_view bytes_;
  const std::string* file_;
  std::string where_;
  std::size_t base_;
  std::size_t at_ = 0, begin_ = 0;
};

}  // namespace tessera
