// The end record leads to the central directory, that to the local headers; each step is checked
// against the one before.
#include "engine/checkpoint/zip.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/checkpoint/container.h"
#include "engine/core/checked.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::uint64_t kMaxEntries = 100'000;
constexpr std::uint64_t kEndSize = 22, kEnd64Size = 56, kLocatorSize = 20;
constexpr std::uint64_t kCentralSize = 46, kLocalSize = 30;
constexpr std::uint32_t kLocalMagic = 0x04034b50, kCentralMagic = 0x02014b50,
                        kDescriptorMagic = 0x08074b50, kEndMagic = 0x06054b50,
                        kEnd64Magic = 0x06064b50, kLocatorMagic = 0x07064b50;
constexpr unsigned kFlagDescriptor = 0x0008;  // sizes follow the contents
constexpr unsigned kFlagUtf8 = 0x0800;
constexpr std::uint64_t kFull16 = 0xffff, kFull32 = 0xffffffff;

std::string at_byte(std::uint64_t offset) { return "byte " + std::to_string(offset); }

class ZipReader {
 public:
  ZipReader(std::span<const std::byte> bytes, const std::string& file)
      : bytes_(bytes), file_(file) {}

  std::map<std::string, ZipEntry, std::less<>> read() {
    find_directory();
    std::uint64_t at = directory_begin_;
    for (std::uint64_t i = 0; i < count_; ++i) at = read_entry(at);
    if (at != directory_end_) {
      refuse("E_ZIP_DIRECTORY", at, "the central directory to end at " + at_byte(directory_end_),
             std::to_string(count_) + " entries that end before");
    }
    check_overlap();
    return std::move(entries_);
  }

 private:
  struct Range {
    std::uint64_t begin, end;
    std::string_view name;
  };

  [[noreturn]] void refuse(const char* code, std::uint64_t offset, std::string expected,
                           std::string found, std::string_view name = {}) const {
    std::string where = at_byte(offset);
    if (!name.empty()) where += ", entry \"" + std::string(name.substr(0, 120)) + "\"";
    throw Error({.kind = ErrorKind::kModel,
                 .code = code,
                 .file = file_,
                 .where = std::move(where),
                 .expected = std::move(expected),
                 .found = std::move(found)});
  }

  std::uint64_t get(std::uint64_t at, int size) const { return read_le(bytes_, at, size); }

  void find_directory() {
    if (bytes_.size() < kEndSize) {
      refuse("E_ZIP_END", 0, "a zip archive of 22 bytes or more", std::to_string(bytes_.size()));
    }
    const std::uint64_t end = bytes_.size() - kEndSize;
    if (get(end, 4) != kEndMagic || get(end + 20, 2) != 0) {
      refuse("E_ZIP_END", end, "the end record of a zip archive as the last 22 bytes",
             "other bytes: the file is cut short or something was added");
    }
    count_ = get(end + 10, 2);
    std::uint64_t size = get(end + 12, 4);
    directory_begin_ = get(end + 16, 4);
    directory_end_ = end;
    if (get(end + 4, 2) != 0 || get(end + 6, 2) != 0 || get(end + 8, 2) != count_) {
      refuse("E_ZIP_END", end, "an archive in one part", "one of several");
    }
    if (end >= kLocatorSize && get(end - kLocatorSize, 4) == kLocatorMagic) {
      size = read_end64(end - kLocatorSize, size);
    }
    if (count_ > kMaxEntries) {
      refuse("E_ZIP_COUNT", end, "at most " + std::to_string(kMaxEntries) + " entries",
             std::to_string(count_));
    }
    if (directory_begin_ > directory_end_ || directory_end_ - directory_begin_ != size) {
      refuse("E_ZIP_DIRECTORY", end,
             "a central directory that reaches from its offset to the end record",
             std::to_string(size) + " bytes at " + std::to_string(directory_begin_));
    }
  }

  // The wide end record; fields of the narrow one must agree with it or be all ones.
  std::uint64_t read_end64(std::uint64_t locator, std::uint64_t narrow_size) {
    if (locator < kEnd64Size || get(locator + 8, 8) != locator - kEnd64Size ||
        get(locator - kEnd64Size, 4) != kEnd64Magic) {
      refuse("E_ZIP64", locator, "a zip64 end record right before its locator", "none");
    }
    const std::uint64_t record = locator - kEnd64Size;
    const std::uint64_t count = get(record + 32, 8), size = get(record + 40, 8),
                        begin = get(record + 48, 8);
    const auto agrees = [](std::uint64_t narrow, std::uint64_t wide, std::uint64_t full) {
      return narrow == full || narrow == wide;
    };
    if (get(record + 4, 8) != kEnd64Size - 12 || get(record + 24, 8) != count ||
        !agrees(count_, count, kFull16) || !agrees(narrow_size, size, kFull32) ||
        !agrees(directory_begin_, begin, kFull32)) {
      refuse("E_ZIP64", record, "two end records that agree", "two that do not");
    }
    count_ = count;
    directory_begin_ = begin;
    directory_end_ = record;
    return size;
  }

  std::uint64_t read_entry(std::uint64_t at) {
    if (directory_end_ - at < kCentralSize || get(at, 4) != kCentralMagic) {
      refuse("E_ZIP_DIRECTORY", at, "an entry of the central directory", "other bytes");
    }
    const std::uint64_t name_size = get(at + 28, 2), extra_size = get(at + 30, 2);
    const std::uint64_t total = kCentralSize + name_size + extra_size + get(at + 32, 2);
    if (directory_end_ - at < total) {
      refuse("E_ZIP_DIRECTORY", at, "an entry of " + std::to_string(total) + " bytes",
             "the end of the central directory");
    }
    const std::string name = read_name(at + kCentralSize, name_size);
    const auto flags = narrow<unsigned>(get(at + 8, 2));
    if ((flags & ~(kFlagDescriptor | kFlagUtf8)) != 0) {
      refuse("E_ZIP_FLAGS", at, "an entry that is not encrypted or patched",
             "flags " + std::to_string(flags), name);
    }
    const std::uint64_t method = get(at + 10, 2);
    ZipEntry entry{.crc32 = narrow<std::uint32_t>(get(at + 16, 4)), .stored = method == 0};
    std::uint64_t unpacked = get(at + 24, 4), local = get(at + 42, 4);
    entry.size = get(at + 20, 4);
    widen(at + kCentralSize + name_size, extra_size, {&unpacked, &entry.size, &local}, name);
    if (entry.stored && unpacked != entry.size) {
      refuse("E_ZIP_DIRECTORY", at, "a stored entry of one size",
             std::to_string(entry.size) + " and " + std::to_string(unpacked), name);
    }
    read_local(local, flags, method, unpacked, name, entry);
    const auto [place, added] = entries_.emplace(name, entry);
    if (!added) refuse("E_ZIP_DUPLICATE", at, "each name once", "it again", name);
    ranges_.push_back({local, entry.begin + entry.size, place->first});
    return at + total;
  }

  std::string read_name(std::uint64_t at, std::uint64_t size) const {
    const std::string name(reinterpret_cast<const char*>(bytes_.data()) + at, size);
    const bool climbs = ("/" + name + "/").find("/../") != std::string::npos;
    if (!is_tensor_name(name) || name.front() == '/' || climbs ||
        name.find('\\') != std::string::npos) {
      refuse("E_ZIP_NAME", at, "a relative name without control characters", "another", name);
    }
    return name;
  }

  // Fields of all ones are found, in this order, in the zip64 extra field.
  void widen(std::uint64_t at, std::uint64_t size, std::array<std::uint64_t*, 3> fields,
             std::string_view name) const {
    const std::uint64_t end = at + size;
    while (end - at >= 4) {
      const std::uint64_t id = get(at, 2), length = get(at + 2, 2);
      at += 4;
      if (length > end - at) break;
      std::uint64_t left = length;
      for (std::uint64_t* field : fields) {
        if (id != 1 || *field != kFull32) continue;
        if (left < 8) refuse("E_ZIP64", at, "eight more bytes", std::to_string(left), name);
        *field = get(at + length - left, 8);
        left -= 8;
      }
      at += length;
    }
  }

  void read_local(std::uint64_t at, unsigned flags, std::uint64_t method, std::uint64_t unpacked,
                  const std::string& name, ZipEntry& entry) const {
    if (at > directory_begin_ || directory_begin_ - at < kLocalSize + name.size()) {
      refuse("E_ZIP_RANGE", at, "a local header before the central directory", "none", name);
    }
    const bool later = (flags & kFlagDescriptor) != 0;
    const auto agrees = [&](std::uint64_t field, std::uint64_t central) {
      return field == central || field == kFull32 || (later && field == 0);
    };
    const std::string_view local_name(
        reinterpret_cast<const char*>(bytes_.data()) + at + kLocalSize, name.size());
    if (get(at, 4) != kLocalMagic || get(at + 6, 2) != flags || get(at + 8, 2) != method ||
        get(at + 26, 2) != name.size() || local_name != name ||
        !agrees(get(at + 14, 4), entry.crc32) || !agrees(get(at + 18, 4), entry.size) ||
        !agrees(get(at + 22, 4), unpacked)) {
      refuse("E_ZIP_LOCAL", at, "a local header equal to the central one", "another", name);
    }
    entry.begin = at + kLocalSize + name.size() + get(at + 28, 2);
    if (entry.begin > directory_begin_ || entry.size > directory_begin_ - entry.begin) {
      refuse("E_ZIP_RANGE", at, std::to_string(entry.size) + " bytes before the central directory",
             std::to_string(directory_begin_ - std::min(directory_begin_, entry.begin)), name);
    }
    if (later) check_descriptor(entry, name);
  }

  void check_descriptor(const ZipEntry& entry, const std::string& name) const {
    const std::uint64_t at = entry.begin + entry.size;
    if (at > directory_begin_ || directory_begin_ - at < 8 || get(at, 4) != kDescriptorMagic ||
        get(at + 4, 4) != entry.crc32) {
      refuse("E_ZIP_LOCAL", at, "a data descriptor equal to the central header", "another", name);
    }
  }

  void check_overlap() {
    std::sort(ranges_.begin(), ranges_.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < ranges_.size(); ++i) {
      if (ranges_[i].begin >= ranges_[i - 1].end) continue;
      refuse("E_ZIP_OVERLAP", ranges_[i].begin,
             "an entry after byte " + std::to_string(ranges_[i - 1].end),
             "one inside \"" + std::string(ranges_[i - 1].name.substr(0, 80)) + "\"",
             ranges_[i].name);
    }
  }

  std::span<const std::byte> bytes_;
  const std::string& file_;
  std::uint64_t count_ = 0, directory_begin_ = 0, directory_end_ = 0;
  std::map<std::string, ZipEntry, std::less<>> entries_;
  std::vector<Range> ranges_;
};

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xedb88320u : 0u);
    table[i] = value;
  }
  return table;
}

}  // namespace

std::map<std::string, ZipEntry, std::less<>> read_zip(std::span<const std::byte> bytes,
                                                      const std::string& file) {
  return ZipReader(bytes, file).read();
}

std::uint32_t crc32(std::span<const std::byte> data) {
  static constexpr std::array<std::uint32_t, 256> kTable = make_crc_table();
  std::uint32_t value = 0xffffffffu;
  for (const std::byte byte : data) {
    value = (value >> 8) ^ kTable[(value ^ std::to_integer<std::uint32_t>(byte)) & 0xff];
  }
  return ~value;
}

}  // namespace tessera
