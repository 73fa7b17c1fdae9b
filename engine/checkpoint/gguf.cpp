#include "engine/checkpoint/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "engine/checkpoint/container.h"
#include "engine/core/checked.h"
#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint64_t kMaxKeys = 4096;
constexpr std::uint64_t kMaxKeyBytes = 1024;
constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 24;
constexpr std::uint64_t kMaxAlignment = std::uint64_t{1} << 16;
constexpr std::string_view kAlignmentKey = "general.alignment";

struct KindRow {
  std::string_view name;
  int bytes;  // 0 = with a length of its own
};
constexpr std::array<KindRow, 13> kKinds = {{{"u8", 1},
                                             {"i8", 1},
                                             {"u16", 2},
                                             {"i16", 2},
                                             {"u32", 4},
                                             {"i32", 4},
                                             {"f32", 4},
                                             {"bool", 1},
                                             {"string", 0},
                                             {"array", 0},
                                             {"u64", 8},
                                             {"i64", 8},
                                             {"f64", 8}}};
const KindRow& row_of(GgufKind kind) { return nth(kKinds, kind); }

// The kind of an id that is below kKinds.size().
GgufKind kind_of(std::uint64_t id) { return static_cast<GgufKind>(id); }

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class GgufReader {
 public:
  GgufReader(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  GgufFile read() {
    if (bytes_.size() < 24) {
      refuse("E_GGUF_SHORT", "byte 0", "a GGUF file of 24 bytes or more",
             std::to_string(bytes_.size()));
    }
    if (!looks_like_gguf(bytes_)) refuse("E_GGUF_MAGIC", "byte 0", "\"GGUF\"", "other bytes");
    at_ = kMagic.size();
    read_version();
    const std::uint64_t tensors = count("tensors", kMaxTensors);
    const std::uint64_t keys = count("keys", kMaxKeys);
    for (std::uint64_t i = 0; i < keys; ++i) read_key();
    for (std::uint64_t i = 0; i < tensors; ++i) read_tensor();
    place_tensors();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const char* code, std::string where, std::string expected,
                           std::string found, std::string hint = {}) const {
    throw Error({.kind = ErrorKind::kModel,
                 .code = code,
                 .file = file_,
                 .where = std::move(where),
                 .expected = std::move(expected),
                 .found = std::move(found),
                 .hint = std::move(hint)});
  }

  std::string here() const { return "byte " + std::to_string(at_); }
  std::string key_place(std::string_view key) const {
    return here() + ", key \"" + std::string(key.substr(0, 120)) + "\"";
  }

  // The next bytes; what the file has too few of is named.
  std::span<const std::byte> take(std::uint64_t size, std::string_view what) {
    if (size > bytes_.size() - at_) {
      refuse("E_GGUF_TRUNCATED", here(), std::to_string(size) + " bytes of " + std::string(what),
             std::to_string(bytes_.size() - at_));
    }
    const auto out = bytes_.subspan(at_, size);
    at_ += size;
    return out;
  }

  std::uint64_t number(int size, std::string_view what) {
    return read_le(take(std::uint64_t(size), what), 0, size);
  }

  std::uint64_t count(const std::string& what, std::uint64_t limit) {
    const std::string place = here();
    const std::uint64_t out = number(8, "a number of " + what);
    if (out > limit) {
      refuse("E_GGUF_COUNT", place, "at most " + std::to_string(limit) + " " + what,
             std::to_string(out));
    }
    return out;
  }

  void read_version() {
    const std::uint64_t version = number(4, "a version");
    if (version == 2 || version == 3) {
      out_.version = version == 2 ? 2 : 3;
      return;
    }
    const bool swapped = (version & 0xffff) == 0;
    refuse("E_GGUF_VERSION", "byte 4", "version 2 or 3, little-endian", std::to_string(version),
           swapped ? "the file is big-endian: convert it for this machine"
                   : "convert the model again with today's tools");
  }

  std::string_view text(const char* code, const std::string& what, std::uint64_t limit) {
    const std::string place = here();
    const std::uint64_t size = number(8, "the length of " + what);
    if (size > limit) {
      refuse(code, place, what + " of at most " + std::to_string(limit) + " bytes",
             std::to_string(size));
    }
    const std::string_view out = text_of(take(size, what));
    if (!is_valid_utf8(out)) refuse("E_GGUF_TEXT", place, what + " in UTF-8", "other bytes");
    return out;
  }

  GgufKind kind(std::string_view key) {
    const std::string place = key_place(key);
    const std::uint64_t id = number(4, "a type of value");
    if (id >= kKinds.size()) {
      refuse("E_GGUF_VALUE", place, "a type of value from 0 to 12", std::to_string(id));
    }
    return kind_of(id);
  }

  void read_key() {
    const std::string place = here();
    const std::string_view key = text("E_GGUF_KEY", "a key", kMaxKeyBytes);
    if (!is_tensor_name(key)) {
      refuse("E_GGUF_KEY", place,
             "a key of 1.." + std::to_string(kMaxKeyBytes) + " bytes without control characters",
             std::to_string(key.size()) + " bytes");
    }
    const GgufKind own = kind(key);
    GgufValue value = own == GgufKind::kArray ? array(key) : GgufValue(own, scalar(own, key));
    if (!out_.keys.emplace(key, value).second) {
      refuse("E_GGUF_DUPLICATE", key_place(key), "each key once", "it again");
    }
  }

  // The bytes of a value, checked. Of a string: without its length.
  std::span<const std::byte> scalar(GgufKind own, std::string_view key) {
    if (own == GgufKind::kString) {
      const std::string_view value =
          text("E_GGUF_VALUE", "the value of \"" + std::string(key.substr(0, 120)) + "\"",
               kMaxTextBytes);
      return bytes_.subspan(at_ - value.size(), value.size());
    }
    const auto out = take(std::uint64_t(row_of(own).bytes), "a value");
    if (own == GgufKind::kBool && std::to_integer<unsigned>(out[0]) > 1) {
      refuse("E_GGUF_VALUE", key_place(key), "0 or 1",
             std::to_string(std::to_integer<unsigned>(out[0])));
    }
    return out;
  }

  GgufValue array(std::string_view key) {
    const GgufKind element = kind(key);
    if (element == GgufKind::kArray) {
      refuse("E_GGUF_VALUE", key_place(key), "an array of plain values", "arrays in an array");
    }
    const std::uint64_t elements = count("elements", kMaxElements);
    const std::uint64_t begin = at_;
    if (row_of(element).bytes > 0 && element != GgufKind::kBool) {
      take(elements * std::uint64_t(row_of(element).bytes), "an array");
    } else {
      for (std::uint64_t i = 0; i < elements; ++i) scalar(element, key);
    }
    return {element, elements, bytes_.subspan(begin, at_ - begin)};
  }

  void read_tensor() {
    const std::string place = here();
    const std::string_view name = text("E_GGUF_NAME", "a tensor's name", kMaxTensorName);
    if (!is_tensor_name(name)) {
      refuse("E_GGUF_NAME", place,
             "a name of 1.." + std::to_string(kMaxTensorName) + " bytes without control characters",
             std::to_string(name.size()) + " bytes");
    }
    GgufTensor tensor;
    tensor.name = name;
    const std::string own = tensor_place(name);
    const std::uint64_t rank = number(4, "a rank");
    if (rank > std::uint64_t(kMaxGgufRank)) {
      refuse("E_GGUF_RANK", own, "at most 4 dimensions", std::to_string(rank));
    }
    std::vector<std::int64_t> extents;
    for (std::uint64_t i = 0; i < rank; ++i) {
      const std::uint64_t extent = number(8, "a dimension");
      if (extent > std::uint64_t{INT64_MAX}) {
        refuse("E_GGUF_SHAPE", own, "a dimension below 2^63", std::to_string(extent));
      }
      extents.insert(extents.begin(), std::int64_t(extent));  // files begin with the innermost
    }
    tensor.shape = Shape(extents);
    tensor.type = type_of(number(4, "a type"), own);
    tensor.begin = number(8, "an offset");
    tensor.end = size_of(tensor, own);
    out_.tensors.push_back(std::move(tensor));
  }

  const BlockType* type_of(std::uint64_t id, const std::string& own) const {
    const BlockType* type = id > UINT32_MAX ? nullptr : find_block_type(std::uint32_t(id));
    if (type != nullptr) return type;
    const std::string_view name = unread_block_name(std::uint32_t(id));
    std::string known;
    for (const BlockType& one : block_types())
      known += (known.empty() ? "" : " ") + std::string(one.name);
    refuse("E_GGUF_TYPE", own, "a type of " + known,
           name.empty() ? std::to_string(id) : std::string(name),
           name.empty() ? "" : "take a file of another type of this model, Q4_K_M or Q8_0");
  }

  // Bytes of the tensor.
  std::uint64_t size_of(const GgufTensor& tensor, const std::string& own) const {
    const std::int64_t row = tensor.shape.rank() == 0 ? 1 : tensor.shape[tensor.shape.rank() - 1];
    if (row % tensor.type->numbers != 0) {
      refuse("E_GGUF_BLOCKS", own,
             "rows of whole blocks of " + std::to_string(tensor.type->numbers) + " for " +
                 std::string(tensor.type->name),
             "rows of " + std::to_string(row));
    }
    const auto numbers = checked_product(tensor.shape.extents());
    const auto blocks =
        numbers ? std::optional(*numbers / std::uint64_t(tensor.type->numbers)) : numbers;
    const auto size = blocks ? checked_mul(*blocks, tensor.type->bytes) : blocks;
    if (!size || *numbers > std::uint64_t{INT64_MAX} || *size > std::uint64_t{INT64_MAX}) {
      refuse("E_GGUF_SHAPE", own, "a size below 2^63 bytes", "shape " + tensor.shape.to_string());
    }
    return *size;
  }

  std::uint64_t alignment() const {
    const GgufValue* const value = out_.find(kAlignmentKey);
    if (value == nullptr) return kGgufAlignment;
    const std::int64_t own = value->integer().value_or(0);
    const bool power = own > 0 && std::has_single_bit(std::uint64_t(own));
    if (!power || std::uint64_t(own) > kMaxAlignment) {
      refuse("E_GGUF_ALIGNMENT", "key \"" + std::string(kAlignmentKey) + "\"",
             "a power of two up to " + std::to_string(kMaxAlignment), std::to_string(own));
    }
    return std::uint64_t(own);
  }

  // Offsets in the file count from the first aligned byte after the list of tensors. Tensors lie
  // inside the file, each at an aligned place, and share no byte.
  void place_tensors() {
    const std::uint64_t step = alignment();
    const std::uint64_t start = (at_ + step - 1) / step * step;
    std::vector<const GgufTensor*> sorted;
    for (GgufTensor& tensor : out_.tensors) {
      const std::string own = tensor_place(tensor.name);
      if (tensor.begin % step != 0) {
        refuse("E_GGUF_OFFSET", own, "an offset in steps of " + std::to_string(step),
               std::to_string(tensor.begin));
      }
      const auto begin = checked_add(start, tensor.begin);
      const auto end = begin ? checked_add(*begin, tensor.end) : begin;
      if (!end || *end > bytes_.size()) {
        refuse("E_GGUF_TRUNCATED", own,
               std::to_string(tensor.end) + " bytes from byte " + std::to_string(tensor.begin) +
                   " of the data",
               "a file of " + std::to_string(bytes_.size()) + " bytes, data from " +
                   std::to_string(start));
      }
      tensor.begin = *begin;
      tensor.end = *end;
      sorted.push_back(&tensor);
    }
    refuse_shared_bytes(sorted);
    refuse_shared_names(sorted);
  }

  void refuse_shared_bytes(std::vector<const GgufTensor*>& sorted) const {
    std::sort(sorted.begin(), sorted.end(), [](const GgufTensor* a, const GgufTensor* b) {
      return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
    });
    for (std::size_t i = 1; i < sorted.size(); ++i) {
      if (sorted[i]->begin >= sorted[i - 1]->end) continue;
      refuse("E_GGUF_OVERLAP", tensor_place(sorted[i]->name), "bytes of its own",
             "bytes of " + tensor_place(sorted[i - 1]->name));
    }
  }

  void refuse_shared_names(std::vector<const GgufTensor*>& sorted) const {
    std::sort(sorted.begin(), sorted.end(),
              [](const GgufTensor* a, const GgufTensor* b) { return a->name < b->name; });
    const auto twice = std::adjacent_find(
        sorted.begin(), sorted.end(),
        [](const GgufTensor* a, const GgufTensor* b) { return a->name == b->name; });
    if (twice == sorted.end()) return;
    refuse("E_GGUF_DUPLICATE", tensor_place((*twice)->name), "each name once", "it again");
  }

  std::span<const std::byte> bytes_;
  const std::string& file_;
  std::uint64_t at_ = 0;
  GgufFile out_;
};

}  // namespace

std::string_view gguf_kind_name(GgufKind kind) { return row_of(kind).name; }

std::optional<std::int64_t> GgufValue::integer() const {
  switch (kind_) {
    case GgufKind::kU8:
    case GgufKind::kU16:
    case GgufKind::kU32:
    case GgufKind::kU64: {
      const std::uint64_t bits = read_le(body_, 0, row_of(kind_).bytes);
      return bits > std::uint64_t{INT64_MAX} ? std::nullopt : std::optional(std::int64_t(bits));
    }
    case GgufKind::kI8:
    case GgufKind::kI16:
    case GgufKind::kI32:
    case GgufKind::kI64: {
      const int unused = 64 - 8 * row_of(kind_).bytes;
      const std::uint64_t bits = read_le(body_, 0, row_of(kind_).bytes);
      return std::bit_cast<std::int64_t>(bits << unused) >> unused;  // the sign fills up
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> GgufValue::number() const {
  if (kind_ == GgufKind::kF32) {
    return double{std::bit_cast<float>(std::uint32_t(read_le(body_, 0, 4)))};
  }
  if (kind_ == GgufKind::kF64) return std::bit_cast<double>(read_le(body_, 0, 8));
  const auto whole = integer();
  return whole ? std::optional(double(*whole)) : std::nullopt;
}

std::optional<bool> GgufValue::boolean() const {
  if (kind_ != GgufKind::kBool) return std::nullopt;
  return std::to_integer<unsigned>(body_[0]) != 0;
}

std::optional<std::string_view> GgufValue::text() const {
  return kind_ == GgufKind::kString ? std::optional(text_of(body_)) : std::nullopt;
}

std::optional<GgufArray> GgufValue::array() const {
  return kind_ == GgufKind::kArray ? std::optional(GgufArray(*this)) : std::nullopt;
}

GgufValue GgufArray::next() {
  expects(left_ > 0, "an array has a next element");
  --left_;
  std::uint64_t size = std::uint64_t(row_of(element_).bytes);
  if (element_ == GgufKind::kString) {
    size = read_le(body_, 0, 8);
    body_ = body_.subspan(8);
  }
  const auto own = body_.first(size);
  body_ = body_.subspan(size);
  return {element_, own};
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = keys.find(key);
  return found == keys.end() ? nullptr : &found->second;
}

bool looks_like_gguf(std::span<const std::byte> bytes) {
  return text_of(bytes).starts_with(kMagic);
}

GgufFile parse_gguf(std::span<const std::byte> bytes, const std::string& file) {
  return GgufReader(bytes, file).read();
}

void read_gguf_tensor(const GgufTensor& tensor, std::span<const std::byte> bytes, float* out) {
  tensor.type->read(bytes.data() + tensor.begin, tensor.numbers() / tensor.type->numbers, out);
}

}  // namespace tessera
