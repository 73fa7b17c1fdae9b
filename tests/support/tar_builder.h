// Tar archives made field by field, right or wrong, for tests and as seeds of the fuzzer. Written
// apart from the program's own writer, so that the two check each other.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace tessera {

class TarText {
 public:
  struct Header {
    std::string name;
    std::string size_field;  // 12 bytes; empty: octal of the size given next to it
    char type = '0';
    std::string prefix, link;
    std::string magic = std::string(
        "ustar\0"
        "00",
        8);
  };

  // A member with its contents and padding.
  TarText& file(const std::string& name, std::string_view bytes) {
    return header({.name = name}, bytes.size()).data(bytes);
  }
  TarText& header(const Header& header, std::uint64_t size) {
    std::string block(512, '\0');
    put(block, 0, header.name.substr(0, 100));
    put(block, 100, "0000644");
    put(block, 108, "0000000");
    put(block, 116, "0000000");
    put(block, 124, header.size_field.empty() ? octal(size, 11) : header.size_field);
    put(block, 136, "00000000000");
    put(block, 156, std::string(1, header.type));
    put(block, 157, header.link);
    put(block, 257, header.magic);
    put(block, 345, header.prefix);
    text_ += sealed(block);
    return *this;
  }
  TarText& data(std::string_view bytes) {
    text_ += bytes;
    text_.append((512 - bytes.size() % 512) % 512, '\0');
    return *this;
  }
  // Member of type 'x' or 'g' with whole records.
  TarText& pax(std::string_view records, char type = 'x') {
    return header({.name = "pax", .type = type}, records.size()).data(records);
  }
  TarText& gnu_name(const std::string& name, char type = 'L') {
    const std::string bytes = name + std::string(1, '\0');
    return header({.name = "././@LongLink", .type = type, .magic = std::string("ustar  \0", 8)},
                  bytes.size())
        .data(bytes);
  }
  TarText& raw(std::string_view bytes) {
    text_ += bytes;
    return *this;
  }
  std::string end() const { return text_ + std::string(1024, '\0'); }
  const std::string& text() const { return text_; }

  // "19 path=a/b.jpg\n"
  static std::string record(const std::string& key, const std::string& value) {
    const std::string body = " " + key + "=" + value + "\n";
    std::size_t length = body.size();
    while (length != body.size() + std::to_string(length).size()) {
      length = body.size() + std::to_string(length).size();
    }
    return std::to_string(length) + body;
  }
  // Puts the right checksum into a header block.
  static std::string sealed(std::string block) {
    block.replace(148, 8, "        ");
    unsigned sum = 0;
    for (const char c : block) sum += static_cast<unsigned char>(c);
    block.replace(148, 8, octal(sum, 6) + std::string("\0 ", 2));
    return block;
  }
  static std::string octal(std::uint64_t value, int digits) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%0*llo", digits, static_cast<unsigned long long>(value));
    return buffer;
  }

 private:
  static void put(std::string& block, std::size_t at, const std::string& text) {
    block.replace(at, text.size(), text);
  }
  std::string text_;
};

}  // namespace tessera
