// IEEE Std 1003.1-2001, pax: "ustar Interchange Format"; the bytes are those of Python's tarfile.
#include "apps/captions/tar_writer.h"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>

#include "apps/captions/tar_format.h"
#include "apps/captions/tar_reader.h"
#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

void put(std::string& block, tar::Field field, std::string_view text) {
  block.replace(field.at, text.size(), text);
}

std::string octal(std::uint64_t value, int digits) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%0*" PRIo64, digits, value);
  return buffer;
}

// Prefix and name, joined by a slash when read; nullopt if the fields cannot hold it.
std::optional<std::pair<std::string_view, std::string_view>> split_name(std::string_view name) {
  if (name.size() <= tar::kName.size) return std::pair{std::string_view{}, name};
  if (name.size() > tar::kPrefix.size + 1 + tar::kName.size) return std::nullopt;
  // The first slash after which the rest fits: the shortest prefix.
  const std::size_t from = name.size() - tar::kName.size - 1;
  const std::size_t slash = name.find('/', std::max<std::size_t>(from, 1));
  if (slash == std::string_view::npos || slash > tar::kPrefix.size) return std::nullopt;
  return std::pair{name.substr(0, slash), name.substr(slash + 1)};
}

std::string header(std::string_view prefix, std::string_view name, char type, std::uint64_t size) {
  std::string block(tar::kBlock, '\0');
  put(block, tar::kName, name);
  put(block, tar::kMode, "0000644");
  put(block, tar::kUid, "0000000");
  put(block, tar::kGid, "0000000");
  put(block, tar::kSize, octal(size, 11));
  put(block, tar::kTime, "00000000000");
  put(block, tar::kType, std::string_view(&type, 1));
  put(block, tar::kMagic, tar::kPosixMagic);
  put(block, tar::kPrefix, prefix);
  const auto sum = narrow<std::uint64_t>(tar::header_sum<unsigned char>(block));
  put(block, tar::kSum, octal(sum, 6) + std::string("\0 ", 2));
  return block;
}

void append_padded(std::string& out, std::string_view bytes) {
  out += bytes;
  out.append((tar::kBlock - bytes.size() % tar::kBlock) % tar::kBlock, '\0');
}

// "length path=name\n", where the length counts itself.
std::string pax_path(std::string_view name) {
  const std::string body = " path=" + std::string(name) + "\n";
  std::size_t length = body.size() + 1;
  while (std::to_string(length).size() + body.size() != length) {
    length = std::to_string(length).size() + body.size();
  }
  return std::to_string(length) + body;
}

}  // namespace

std::string tar_member(std::string_view name, std::string_view bytes) {
  expects(safe_member_name(name) == name, "names of members are safe");
  expects(bytes.size() >> 33 == 0, "members stay below 8 GiB");
  std::string out;
  const auto parts = split_name(name);
  if (parts) {
    out = header(parts->first, parts->second, '0', bytes.size());
  } else {
    const std::string record = pax_path(name);
    out = header("", "././@PaxHeader", 'x', record.size());
    append_padded(out, record);
    out += header("", name.substr(0, tar::kName.size), '0', bytes.size());
  }
  append_padded(out, bytes);
  return out;
}

std::string tar_end(std::uint64_t size) {
  const std::uint64_t rest = (size + 2 * tar::kBlock) % tar::kRecord;
  return std::string(2 * tar::kBlock + (rest == 0 ? 0 : tar::kRecord - rest), '\0');
}

}  // namespace tessera
