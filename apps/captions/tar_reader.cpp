// The reader walks header by header. IEEE Std 1003.1-2001, pax: "ustar Interchange Format" and "pax
// Interchange Format"; GNU tar manual, "Basic Tar Format", for types L, K and S.
#include "apps/captions/tar_reader.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "apps/captions/tar_format.h"
#include "apps/captions/text_forms.h"
#include "engine/core/index.h"

namespace tessera {

using tar::field;
using tar::kBlock;

namespace {

constexpr std::size_t kStepBytes = std::size_t{1} << 20;

std::string_view until_nul(std::string_view text) { return text.substr(0, text.find('\0')); }

std::uint64_t padding_of(std::uint64_t size) { return (kBlock - size % kBlock) % kBlock; }

bool all_zero(std::string_view block) {
  return block.find_first_not_of('\0') == std::string_view::npos;
}

// What a file that is no tar looks like.
std::string looks_like(std::string_view head) {
  if (head.starts_with("\x1f\x8b")) return "gzip data (name it .tar.gz)";
  if (head.starts_with("\x28\xb5\x2f\xfd")) return "Zstandard data (name it .tar.zst)";
  if (head.starts_with("\xfd"
                       "7zXZ"))
    return "xz data (unpack it with unxz)";
  if (head.starts_with("BZh")) return "bzip2 data (unpack it with bunzip2)";
  if (head.starts_with("PK\3\4")) return "a zip archive";
  return "a header whose checksum is wrong";
}

}  // namespace

// What pax and GNU headers say about the member that follows them.
struct TarReader::Extras {
  std::optional<std::string> pax_path, gnu_name;
  std::optional<std::uint64_t> size;
  bool sparse = false, pax_seen = false, gnu_seen = false, link_seen = false;
  bool any() const { return pax_seen || gnu_seen || link_seen; }
};

std::string safe_member_name(std::string_view name) {
  if (name.empty() || name.size() > TarReader::kMaxNameBytes || name.front() == '/') return {};
  if (!is_printable(name)) return {};
  std::string out;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('/', at), name.size());
    const std::string_view part = name.substr(at, end - at);
    if (part == "..") return {};
    if (!part.empty() && part != ".") {
      if (!out.empty()) out += '/';
      out += part;
    }
    at = end + 1;
  }
  return out;
}

TarReader::TarReader(ByteSource& source, std::string file)
    : source_(&source), file_(std::move(file)) {}

void TarReader::fail(const char* code, std::string expected, std::string found) const {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = code,
               .file = file_,
               .where = "header at byte " + std::to_string(header_at_),
               .expected = std::move(expected),
               .found = std::move(found)});
}

// False at the very end of the source.
bool TarReader::read_block(std::string& block) {
  block.resize(kBlock);
  const std::size_t got = source_->read(block.data(), kBlock);
  at_ += got;
  if (got == 0) return false;
  if (got < kBlock) {
    fail("E_TAR_CUT", "a header of 512 bytes", std::to_string(got) + " bytes, then the end");
  }
  return true;
}

std::string TarReader::read_bytes(std::uint64_t size) {
  // A source that unpacks knows but a bound of its size: no more is allocated than twice what came.
  std::string bytes;
  while (bytes.size() < size) {
    const std::size_t done = bytes.size();
    const std::uint64_t step = std::min<std::uint64_t>(size - done, std::max(done, kStepBytes));
    bytes.resize(done + step);
    const std::size_t got = source_->read(bytes.data() + done, bytes.size() - done);
    at_ += got;
    if (done + got < bytes.size()) {
      fail("E_TAR_CUT", std::to_string(size) + " bytes of contents",
           std::to_string(done + got) + ", then the end");
    }
  }
  return bytes;
}

void TarReader::skip_bytes(std::uint64_t size) {
  std::string buffer;
  while (size > 0) {
    buffer.resize(std::min<std::uint64_t>(size, 1 << 16));
    const std::size_t got = source_->read(buffer.data(), buffer.size());
    at_ += got;
    size -= got;
    if (got < buffer.size()) {
      fail("E_TAR_CUT", std::to_string(size) + " more bytes of contents or padding", "the end");
    }
  }
}

void TarReader::check_sum(std::string_view block) const {
  std::string_view text = field(block, tar::kSum);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  std::int64_t sum = -1;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), sum, 8);
  // Old writers summed signed bytes.
  const bool right = status == std::errc{} && (sum == tar::header_sum<unsigned char>(block) ||
                                               sum == tar::header_sum<signed char>(block));
  if (right) return;
  if (header_at_ == 0) fail("E_TAR_MAGIC", "a tar archive", looks_like(block));
  fail("E_TAR_CHECKSUM", "a header whose checksum fits", "a damaged one");
}

// Octal digits with spaces before and spaces or NULs after, or base 256 when the top bit is set.
std::uint64_t TarReader::number(std::string_view text, const char* what) const {
  const auto first = byte_of(text.front());
  if ((first & 0x80) != 0) {
    if ((first & 0x40) != 0) fail("E_TAR_NUMBER", std::string("a ") + what, "a negative number");
    std::uint64_t value = first & 0x3f;
    for (const char c : text.substr(1)) {
      if (value >> 55 != 0) fail("E_TAR_NUMBER", std::string("a ") + what, "2^63 or more");
      value = value << 8 | byte_of(c);
    }
    return value;
  }
  std::string_view digits = text;
  digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
  std::uint64_t value = 0;
  const auto [end, status] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 8);
  const std::string_view after(end, to_size(digits.data() + digits.size() - end));
  const bool clean = after.find_first_not_of(std::string_view("\0 ", 2)) == std::string_view::npos;
  if (status != std::errc{} || !clean) {
    fail("E_TAR_NUMBER", std::string("a ") + what + " in octal digits",
         "\"" + std::string(until_nul(text)) + "\"");
  }
  return value;
}

// Bytes of contents that follow the header, proven to lie in the archive.
std::uint64_t TarReader::data_size(std::string_view block, char type, const Extras& extras) const {
  const std::uint64_t written = number(field(block, tar::kSize), "size");
  // Hard links repeat the size of their target without its bytes. For the other kinds without
  // contents readers disagree whether bytes follow.
  if (type == '1') return 0;
  const std::uint64_t size = extras.size.value_or(written);
  if (type >= '2' && type <= '6' && size != 0) {
    fail("E_TAR_TYPE", "no contents in a member of type " + std::string(1, type),
         std::to_string(size) + " bytes");
  }
  const std::uint64_t rest = source_->size() - std::min(at_, source_->size());
  if (size > rest) {
    fail("E_TAR_CUT", "a member of " + std::to_string(size) + " bytes",
         std::to_string(rest) + " bytes up to the end");
  }
  return size;
}

// After the first block of zeros: nothing but zeros may follow, or an archive that was joined to
// this one would be lost without a word.
void TarReader::read_end() {
  over_ = true;
  std::string buffer;
  while (true) {
    buffer.resize(std::size_t{1} << 16);
    const std::size_t got = source_->read(buffer.data(), buffer.size());
    if (got == 0) return;
    if (!all_zero(std::string_view(buffer).substr(0, got))) {
      fail("E_TAR_TRAILING", "zeros after the end of the archive",
           "other bytes after byte " + std::to_string(at_));
    }
    at_ += got;
  }
}

void TarReader::read_pax(std::string_view text, bool global, Extras& extras) {
  while (!text.empty()) {
    std::size_t length = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), length);
    const auto digits = to_size(end - text.data());
    if (status != std::errc{} || digits >= text.size() || *end != ' ' || length > text.size() ||
        length < digits + 4 || text[length - 1] != '\n') {
      fail("E_TAR_PAX", "records of the form \"length key=value\"", "something else");
    }
    const std::string_view record = text.substr(digits + 1, length - digits - 2);
    text.remove_prefix(length);
    const std::size_t equals = record.find('=');
    if (equals == 0 || equals == std::string_view::npos) {
      fail("E_TAR_PAX", "a key and a value in every record", "a record without one");
    }
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    const bool sparse = key.starts_with("GNU.sparse.");
    if (global && (sparse || key == "path" || key == "size")) {
      fail("E_TAR_PAX", "no \"" + std::string(key) + "\" for all members together", "one");
    }
    extras.sparse = extras.sparse || sparse;
    if (key == "path") extras.pax_path = std::string(value);
    if (key != "size") continue;
    std::uint64_t size = 0;
    const auto parsed = std::from_chars(value.data(), value.data() + value.size(), size);
    if (parsed.ec != std::errc{} || parsed.ptr != value.data() + value.size() || size >> 63 != 0) {
      fail("E_TAR_PAX", "a size below 2^63", "\"" + std::string(value.substr(0, 40)) + "\"");
    }
    extras.size = size;
  }
}

// True if the block was a header about the next one, which is now taken in.
bool TarReader::read_extras(char type, std::uint64_t size, Extras& extras) {
  if (type != 'x' && type != 'g' && type != 'L' && type != 'K') return false;
  if (size > kMaxPaxBytes) {
    fail("E_TAR_PAX", "at most " + std::to_string(kMaxPaxBytes) + " bytes of names and keys",
         std::to_string(size));
  }
  bool& seen = type == 'L' ? extras.gnu_seen : type == 'K' ? extras.link_seen : extras.pax_seen;
  if (type != 'g' && std::exchange(seen, true)) {
    fail("E_TAR_PAX", "one header of type " + std::string(1, type) + " a member", "two");
  }
  const std::string text = read_bytes(size);
  skip_bytes(padding_of(size));
  if (type == 'L') extras.gnu_name = std::string(until_nul(text));
  if (type == 'x' || type == 'g') read_pax(text, type == 'g', extras);
  return true;
}

// Old GNU sparse files: more blocks of the map follow while the flag says so.
void TarReader::skip_sparse_map(std::string block) {
  for (std::size_t flag = 482; block[flag] != '\0'; flag = 504) {
    if (!read_block(block)) fail("E_TAR_CUT", "more of a sparse map", "the end");
  }
}

// The member of this header, or nullopt if it is one to step over.
std::optional<TarMember> TarReader::member(std::string_view block, char type, std::uint64_t size,
                                           const Extras& extras) {
  std::string name(until_nul(field(block, tar::kName)));
  const std::string_view prefix = until_nul(field(block, tar::kPrefix));
  const bool posix = field(block, tar::kMagic) == tar::kPosixMagic;
  if (posix && !prefix.empty()) name = std::string(prefix) + "/" + name;
  if (extras.gnu_name) name = *extras.gnu_name;
  if (extras.pax_path) name = *extras.pax_path;
  // Before POSIX a folder was a file whose name ends in a slash.
  if (type == '5' || ((type == '0' || type == '\0') && name.ends_with('/'))) {
    ++counts_.folders;
    return std::nullopt;
  }
  const std::string safe = safe_member_name(name);
  if ((type != '0' && type != '\0') || extras.sparse || safe.empty()) {
    ++counts_.skipped;
    return std::nullopt;
  }
  ++counts_.members;
  return TarMember{safe, at_, size};
}

std::optional<TarMember> TarReader::next() {
  if (over_) return std::nullopt;
  over_ = true;  // unless this call ends well
  skip_bytes(std::exchange(rest_, 0));
  Extras extras;
  std::string block;
  while (true) {
    header_at_ = at_;
    if (!read_block(block)) {
      fail("E_TAR_END", "two blocks of zeros at the end", "the end without them");
    }
    if (all_zero(block)) {
      if (extras.any()) fail("E_TAR_PAX", "a member after its pax or GNU header", "the end");
      read_end();
      return std::nullopt;
    }
    check_sum(block);
    const char type = block[tar::kType.at];
    const bool about_next = type == 'x' || type == 'g' || type == 'L' || type == 'K';
    const std::uint64_t size = data_size(block, type, about_next ? Extras{} : extras);
    if (read_extras(type, size, extras)) continue;
    if (type == 'S') skip_sparse_map(block);
    auto found = member(block, type, size, extras);
    if (found) {
      over_ = false;
      unread_ = size;
      rest_ = size + padding_of(size);
      return found;
    }
    skip_bytes(size + padding_of(size));
    extras = Extras{};
  }
}

std::string TarReader::read() {
  const std::uint64_t size = std::exchange(unread_, 0);
  expects(size <= rest_, "the contents of a member are read once");
  rest_ -= size;
  over_ = true;  // unless this call ends well
  std::string bytes = read_bytes(size);
  over_ = false;
  return bytes;
}

}  // namespace tessera
