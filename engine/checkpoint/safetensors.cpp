// Reader: a fixed grammar over the JSON scanner, then the layout of all tensors together.
#include "engine/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <unordered_set>
#include <utility>

#include "engine/core/checked.h"
#include "engine/core/index.h"
#include "engine/core/json_scan.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeader = std::uint64_t{16} << 20;
constexpr std::uint64_t kMaxMetadata = std::uint64_t{1} << 20;
constexpr int kHeaderDepth = 3;

constexpr std::array<std::pair<std::string_view, DType>, 12> kDTypes = {{
    {"F32", DType::kF32},
    {"BF16", DType::kBF16},
    {"F16", DType::kF16},
    {"F64", DType::kF64},
    {"I8", DType::kI8},
    {"U8", DType::kU8},
    {"I16", DType::kI16},
    {"I32", DType::kI32},
    {"I64", DType::kI64},
    {"BOOL", DType::kBool},
    {"F8_E4M3", DType::kF8E4M3},
    {"F8_E5M2", DType::kF8E5M2},
}};
constexpr std::array<std::string_view, 12> kUnsupported = {
    "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F6_E2M3", "F6_E3M2",
    "F4",      "U16",     "U32",     "U64",         "C64",         "F8",      "C128"};

[[noreturn]] void refuse(const std::string& file, const char* code, std::string where,
                         std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kModel,
               .code = code,
               .file = file,
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found)});
}

std::string span_text(std::uint64_t begin, std::uint64_t end) {
  return std::to_string(begin) + ".." + std::to_string(end);
}

class HeaderReader {
 public:
  HeaderReader(std::string_view header, const std::string& file)
      : scanner_(header, file, {.max_bytes = kMaxHeader, .max_depth = kHeaderDepth}, kLengthBytes),
        file_(file) {}

  Container read() {
    want(scanner_.next(), JsonKind::kObjectBegin);
    for (JsonToken key = scanner_.next(); key.kind == JsonKind::kKey; key = scanner_.next()) {
      const std::string name(key.text);
      if (!seen_.insert(name).second) {
        refuse(file_, "E_ST_DUPLICATE", place(key, name), "each name once", "it again");
      }
      if (name == "__metadata__") {
        read_metadata();
      } else {
        read_tensor(key, name);
      }
    }
    want(scanner_.next(), JsonKind::kEnd);
    return std::move(out_);
  }

 private:
  std::string place(const JsonToken& token, std::string_view name) const {
    return scanner_.place(token.offset) + ", " + tensor_place(name);
  }

  void want(const JsonToken& token, JsonKind kind) const {
    if (token.kind == kind) return;
    refuse(file_, "E_ST_GRAMMAR", scanner_.place(token.offset), std::string(json_kind_name(kind)),
           std::string(json_kind_name(token.kind)));
  }

  void read_metadata() {
    want(scanner_.next(), JsonKind::kObjectBegin);
    std::uint64_t total = 0;
    for (JsonToken key = scanner_.next(); key.kind == JsonKind::kKey; key = scanner_.next()) {
      const std::string name(key.text);
      const std::size_t offset = key.offset;
      const JsonToken value = scanner_.next();
      if (value.kind != JsonKind::kString) {
        refuse(file_, "E_ST_METADATA", scanner_.place(value.offset), "a string in __metadata__",
               std::string(json_kind_name(value.kind)));
      }
      total += name.size() + value.text.size();
      if (total > kMaxMetadata) {
        refuse(file_, "E_ST_METADATA", scanner_.place(offset),
               "at most " + std::to_string(kMaxMetadata) + " bytes of metadata", "more");
      }
      if (!out_.metadata.emplace(name, value.text).second) {
        refuse(file_, "E_ST_DUPLICATE", place({JsonKind::kKey, offset, {}}, "__metadata__." + name),
               "each name once", "it again");
      }
    }
  }

  void read_tensor(const JsonToken& key, const std::string& name) {
    if (!is_tensor_name(name)) {
      refuse(file_, "E_ST_NAME", place(key, name),
             "a name of 1.." + std::to_string(kMaxTensorName) + " bytes without control characters",
             std::to_string(name.size()) + " bytes");
    }
    if (out_.tensors.size() >= kMaxTensors) {
      refuse(file_, "E_ST_COUNT", place(key, name),
             "at most " + std::to_string(kMaxTensors) + " tensors", "one more");
    }
    const JsonToken open = scanner_.next();
    want(open, JsonKind::kObjectBegin);
    StoredTensor tensor{.name = name};
    bool has_dtype = false, has_shape = false, has_offsets = false;
    for (JsonToken field = scanner_.next(); field.kind == JsonKind::kKey; field = scanner_.next()) {
      bool* had = field.text == "dtype"          ? &has_dtype
                  : field.text == "shape"        ? &has_shape
                  : field.text == "data_offsets" ? &has_offsets
                                                 : nullptr;
      if (had == nullptr || *had) {
        refuse(file_, had == nullptr ? "E_ST_FIELD" : "E_ST_DUPLICATE", place(field, name),
               "dtype, shape and data_offsets, once each",
               "\"" + std::string(field.text.substr(0, 60)) + "\"");
      }
      *had = true;
      if (had == &has_dtype) read_dtype(tensor);
      if (had == &has_shape) read_shape(tensor);
      if (had == &has_offsets) read_offsets(tensor);
    }
    if (!has_dtype || !has_shape || !has_offsets) {
      refuse(file_, "E_ST_FIELD", place(open, name), "dtype, shape and data_offsets",
             std::string("no ") + (!has_dtype   ? "dtype"
                                   : !has_shape ? "shape"
                                                : "data_offsets"));
    }
    check_size(open, tensor);
    out_.tensors.push_back(std::move(tensor));
  }

  void read_dtype(StoredTensor& tensor) {
    const JsonToken token = scanner_.next();
    want(token, JsonKind::kString);
    for (const auto& [name, dtype] : kDTypes) {
      if (name == token.text) {
        tensor.dtype = dtype;
        return;
      }
    }
    std::string known;
    for (const auto& entry : kDTypes)
      known += (known.empty() ? "" : " ") + std::string(entry.first);
    const bool published =
        std::find(kUnsupported.begin(), kUnsupported.end(), token.text) != kUnsupported.end();
    refuse(file_, published ? "E_ST_DTYPE_UNSUPPORTED" : "E_ST_DTYPE", place(token, tensor.name),
           "an element type of " + known,
           "\"" + std::string(token.text.substr(0, 40)) + "\"" +
               (published ? ", which is not supported" : ""));
  }

  // The next value of an array as an unsigned integer; nullopt at the array's end.
  std::optional<std::uint64_t> next_integer(const StoredTensor& tensor, const char* code) {
    const JsonToken token = scanner_.next();
    if (token.kind == JsonKind::kArrayEnd) return std::nullopt;
    std::uint64_t value = 0;
    const char* end = token.text.data() + token.text.size();
    const auto [stop, status] = token.kind == JsonKind::kNumber
                                    ? std::from_chars(token.text.data(), end, value)
                                    : std::from_chars_result{nullptr, std::errc::invalid_argument};
    if (status != std::errc{} || stop != end) {
      refuse(file_, code, place(token, tensor.name), "an unsigned 64-bit integer",
             token.kind == JsonKind::kNumber ? std::string(token.text.substr(0, 40))
                                             : std::string(json_kind_name(token.kind)));
    }
    return value;
  }

  void read_shape(StoredTensor& tensor) {
    const JsonToken open = scanner_.next();
    want(open, JsonKind::kArrayBegin);
    std::vector<std::int64_t> extents;
    while (const auto extent = next_integer(tensor, "E_ST_SHAPE")) {
      if (extents.size() == kMaxRank) {
        refuse(file_, "E_ST_RANK", place(open, tensor.name),
               "at most " + std::to_string(kMaxRank) + " dimensions", "more");
      }
      if (*extent > std::uint64_t{INT64_MAX}) {
        refuse(file_, "E_ST_OVERFLOW", place(open, tensor.name), "a dimension below 2^63",
               std::to_string(*extent));
      }
      extents.push_back(to_index(*extent));
    }
    tensor.shape = Shape(extents);
  }

  void read_offsets(StoredTensor& tensor) {
    const JsonToken open = scanner_.next();
    want(open, JsonKind::kArrayBegin);
    const auto begin = next_integer(tensor, "E_ST_OFFSETS");
    const auto end = begin ? next_integer(tensor, "E_ST_OFFSETS") : std::nullopt;
    if (!end || next_integer(tensor, "E_ST_OFFSETS") || *begin > *end) {
      refuse(file_, "E_ST_OFFSETS", place(open, tensor.name), "two integers, begin <= end",
             begin && end ? span_text(*begin, *end) : "fewer");
    }
    tensor.begin = *begin;
    tensor.end = *end;
  }

  void check_size(const JsonToken& token, const StoredTensor& tensor) const {
    const auto elements = checked_product(tensor.shape.extents());
    const auto bytes = elements ? checked_mul(*elements, dtype_size(tensor.dtype)) : std::nullopt;
    if (!bytes || *bytes > std::uint64_t{INT64_MAX}) {
      refuse(file_, "E_ST_OVERFLOW", place(token, tensor.name), "a size below 2^63 bytes",
             "shape " + tensor.shape.to_string());
    }
    if (*bytes != tensor.end - tensor.begin) {
      refuse(
          file_, "E_ST_SIZE", place(token, tensor.name),
          std::to_string(*bytes) + " bytes for " + std::string(dtype_name(tensor.dtype)) + " " +
              tensor.shape.to_string(),
          span_text(tensor.begin, tensor.end) + " = " + std::to_string(tensor.end - tensor.begin));
    }
  }

  JsonScanner scanner_;
  const std::string& file_;
  Container out_;
  std::unordered_set<std::string> seen_;
};

// Offsets in the header count from the end of the header. Together they must cover the rest of the
// file exactly.
void check_layout(std::vector<StoredTensor>& tensors, std::uint64_t data_size,
                  const std::string& file) {
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t covered = 0;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.end > data_size) {
      refuse(file, "E_ST_TRUNCATED", tensor_place(tensor.name),
             "its bytes " + span_text(tensor.begin, tensor.end) + " inside the data",
             "a file that ends at byte " + std::to_string(data_size) + " of the data");
    }
    if (tensor.begin != covered) {
      refuse(file, tensor.begin > covered ? "E_ST_HOLE" : "E_ST_OVERLAP", tensor_place(tensor.name),
             "its first byte at " + std::to_string(covered) + ", where the one before ends",
             std::to_string(tensor.begin));
    }
    covered = tensor.end;
  }
  if (covered < data_size) {
    refuse(file, "E_ST_TRAILING", "end of the file", std::to_string(covered) + " bytes of tensors",
           std::to_string(data_size));
  }
}

std::string_view find_header(std::span<const std::byte> bytes, const std::string& file) {
  if (bytes.size() < kLengthBytes + 2) {
    refuse(file, "E_ST_SHORT", "byte 0", "a safetensors file of 10 bytes or more",
           std::to_string(bytes.size()));
  }
  const std::uint64_t length = read_le(bytes, 0, 8);
  const std::uint64_t room = std::min(kMaxHeader, std::uint64_t{bytes.size() - kLengthBytes});
  if (length < 2 || length > room) {
    refuse(file, "E_ST_HEADER_SIZE", "byte 0",
           "a header length of 2.." + std::to_string(room) + " bytes", std::to_string(length));
  }
  std::string_view header(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  if (header.front() != '{') {
    refuse(file, "E_ST_HEADER_START", "byte 8", "'{'",
           "byte " + std::to_string(byte_of(header.front())));
  }
  const std::size_t last = header.find_last_not_of(' ');
  if (header[last] != '}') {
    refuse(file, "E_ST_HEADER_PAD", "byte " + std::to_string(kLengthBytes + last),
           "'}' and then only spaces", "byte " + std::to_string(byte_of(header[last])));
  }
  return header.substr(0, last + 1);
}

}  // namespace

bool is_tensor_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxTensorName) return false;
  for (std::size_t at = 0; at < name.size();) {
    const Utf8Char c = decode_utf8(name, at);
    if (!c.valid || c.code < 0x20 || (c.code >= 0x7f && c.code < 0xa0)) return false;
    at += c.length;
  }
  return true;
}

std::string tensor_place(std::string_view name) {
  constexpr std::size_t kShown = 120;
  return "tensor \"" + std::string(name.substr(0, kShown)) + (name.size() > kShown ? "..." : "") +
         "\"";
}

std::uint64_t read_le(std::span<const std::byte> data, std::uint64_t at, int bytes) {
  std::uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) {
    value = (value << 8) | std::to_integer<std::uint64_t>(data[at + narrow<unsigned>(i)]);
  }
  return value;
}

bool looks_like_safetensors(std::span<const std::byte> bytes) {
  return bytes.size() > kLengthBytes && read_le(bytes, 0, 8) <= bytes.size() - kLengthBytes &&
         bytes[kLengthBytes] == std::byte{'{'};
}

Container parse_safetensors(std::span<const std::byte> bytes, const std::string& file) {
  const std::uint64_t header_end = kLengthBytes + (bytes.size() < 8 ? 0 : read_le(bytes, 0, 8));
  const std::string_view header = find_header(bytes, file);
  Container out = HeaderReader(header, file).read();
  check_layout(out.tensors, bytes.size() - header_end, file);
  for (StoredTensor& tensor : out.tensors) {
    tensor.begin += header_end;
    tensor.end += header_end;
  }
  return out;
}

}  // namespace tessera
