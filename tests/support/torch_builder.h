// Makes archives as torch.save writes them, whole or damaged in one chosen field: seeds for fuzzing
// and bad samples for the corpus of bad files of bad files.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/zip.h"

namespace tessera {

inline void append_le(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(i < 8 ? value >> (8 * i) : 0);
}

// One entry, with every field that the two headers carry; a test changes what it wants wrong.
struct ZipItem {
  std::string name;
  std::string contents;
  std::string local_name = name;
  std::uint64_t flags = 0x0808, local_flags = flags;
  std::uint64_t method = 0, local_method = method;
  std::uint64_t crc = crc32(std::as_bytes(std::span(contents)));
  std::uint64_t packed = contents.size(), unpacked = contents.size();
  std::uint64_t descriptor_crc = crc;  // only with flag 8; without it the local header has all
  bool local_full = false;             // all ones for the sizes of the local header: "see above"
  std::uint64_t local_offset = UINT64_MAX;  // UINT64_MAX: where it really is
  bool wide = false;                        // sizes and offset in a zip64 extra field
};

struct ZipPlan {
  std::vector<ZipItem> items;
  bool end64 = true;
  std::uint64_t count = UINT64_MAX;  // UINT64_MAX: as many as there are
  std::uint64_t directory_shift = 0, directory_growth = 0;
  std::string comment, tail;
  std::uint64_t disk = 0;
  std::uint64_t locator_shift = 0;
};

inline std::string build_zip(const ZipPlan& plan) {
  constexpr std::uint64_t kAlignment = 64;
  std::string out;
  std::vector<std::uint64_t> offsets;
  for (const ZipItem& item : plan.items) {
    offsets.push_back(out.size());
    append_le(out, 0x04034b50, 4);
    append_le(out, 0, 2);
    append_le(out, item.local_flags, 2);
    append_le(out, item.local_method, 2);
    const bool later = (item.local_flags & 8) != 0;
    append_le(out, 0, 4);  // time
    append_le(out, later ? 0 : item.crc, 4);
    append_le(out, later ? 0 : item.local_full ? 0xffffffff : item.packed, 4);
    append_le(out, later ? 0 : item.local_full ? 0xffffffff : item.unpacked, 4);
    append_le(out, item.local_name.size(), 2);
    const std::uint64_t bare = out.size() + 2 + item.local_name.size() + 4;
    const std::uint64_t padding = (kAlignment - bare % kAlignment) % kAlignment;
    append_le(out, padding + 4, 2);
    out += item.local_name + "FB";
    append_le(out, padding, 2);
    out.append(padding, 'Z');
    out += item.contents;
    if (!later) continue;
    append_le(out, 0x08074b50, 4);
    append_le(out, item.descriptor_crc, 4);
    append_le(out, item.packed, 4);
    append_le(out, item.unpacked, 4);
  }
  const std::uint64_t begin = out.size();
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    const ZipItem& item = plan.items[i];
    const std::uint64_t offset = item.local_offset == UINT64_MAX ? offsets[i] : item.local_offset;
    append_le(out, 0x02014b50, 4);
    append_le(out, 0, 4);
    append_le(out, item.flags, 2);
    append_le(out, item.method, 2);
    append_le(out, 0, 4);
    append_le(out, item.crc, 4);
    append_le(out, item.wide ? 0xffffffff : item.packed, 4);
    append_le(out, item.wide ? 0xffffffff : item.unpacked, 4);
    append_le(out, item.name.size(), 2);
    append_le(out, item.wide ? 28 : 0, 2);
    append_le(out, 0, 10);  // comment, disk, attributes
    append_le(out, item.wide ? 0xffffffff : offset, 4);
    out += item.name;
    if (item.wide) {
      append_le(out, 1, 2);
      append_le(out, 24, 2);
      append_le(out, item.unpacked, 8);
      append_le(out, item.packed, 8);
      append_le(out, offset, 8);
    }
  }
  const std::uint64_t size = out.size() - begin + plan.directory_growth;
  const std::uint64_t count = plan.count == UINT64_MAX ? plan.items.size() : plan.count;
  if (plan.end64) {
    const std::uint64_t record = out.size();
    append_le(out, 0x06064b50, 4);
    append_le(out, 44, 8);
    append_le(out, 0, 12);  // versions and disks
    append_le(out, count, 8);
    append_le(out, count, 8);
    append_le(out, size, 8);
    append_le(out, begin + plan.directory_shift, 8);
    append_le(out, 0x07064b50, 4);
    append_le(out, 0, 4);
    append_le(out, record + plan.locator_shift, 8);
    append_le(out, 1, 4);
  }
  append_le(out, 0x06054b50, 4);
  append_le(out, plan.disk, 4);
  append_le(out, count, 2);
  append_le(out, count, 2);
  append_le(out, size, 4);
  append_le(out, begin + plan.directory_shift, 4);
  append_le(out, plan.comment.size(), 2);
  return out + plan.comment + plan.tail;
}

// Pickle protocol 2, one method a construct.
class PickleText {
 public:
  PickleText() { bytes_ = std::string("\x80\x02", 2); }
  PickleText& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  PickleText& op(unsigned char code) { return raw(std::string(1, static_cast<char>(code))); }
  PickleText& text(std::string_view value) {
    op('X');
    append_le(bytes_, value.size(), 4);
    return raw(value);
  }
  PickleText& integer(std::int64_t value) {
    if (value >= INT32_MIN && value <= INT32_MAX) {
      op('J');
      append_le(bytes_, static_cast<std::uint64_t>(value), 4);
      return *this;
    }
    op(0x8a).op(8);
    append_le(bytes_, static_cast<std::uint64_t>(value), 8);
    return *this;
  }
  PickleText& name(std::string_view module, std::string_view attribute) {
    return op('c').raw(module).raw("\n").raw(attribute).raw("\n");
  }
  PickleText& integers(std::span<const std::int64_t> values) {
    op('(');
    for (const std::int64_t value : values) integer(value);
    return op('t');
  }
  PickleText& storage(std::string_view type, std::string_view key, std::int64_t size) {
    return op('(')
        .text("storage")
        .name("torch", type)
        .text(key)
        .text("cpu")
        .integer(size)
        .op('t')
        .op('Q');
  }
  // A call of _rebuild_tensor_v2.
  PickleText& tensor(std::string_view type, std::string_view key, std::int64_t storage_size,
                     std::int64_t offset, std::span<const std::int64_t> size,
                     std::span<const std::int64_t> stride) {
    name("torch._utils", "_rebuild_tensor_v2").op('(');
    storage(type, key, storage_size).integer(offset).integers(size).integers(stride);
    return op(0x89).name("collections", "OrderedDict").op(')').op('R').op('t').op('R');
  }
  std::string stop() const { return bytes_ + "."; }

 private:
  std::string bytes_;
};

// {"a": tensor of floats [rows, cols]} over a storage of rows * cols elements.
inline std::string simple_pickle(std::int64_t rows = 2, std::int64_t cols = 3) {
  const std::int64_t size[] = {rows, cols}, stride[] = {cols, 1};
  return PickleText()
      .op('}')
      .text("a")
      .tensor("FloatStorage", "0", rows * cols, 0, size, stride)
      .op('s')
      .stop();
}

inline ZipPlan torch_plan(const std::string& pickle, std::size_t storage_bytes = 24) {
  ZipPlan plan;
  plan.items.push_back({"x/data.pkl", pickle});
  plan.items.push_back({"x/byteorder", "little"});
  plan.items.push_back({"x/data/0", std::string(storage_bytes, '\1')});
  plan.items.push_back({"x/version", "3\n"});
  return plan;
}

inline std::string torch_archive(const std::string& pickle, std::size_t storage_bytes = 24) {
  return build_zip(torch_plan(pickle, storage_bytes));
}

}  // namespace tessera
