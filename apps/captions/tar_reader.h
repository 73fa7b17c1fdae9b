// A tar archive as a stream of regular files: POSIX ustar and pax, GNU long names and large sizes.
// Nothing is ever unpacked to disk. Links, devices, sparse files and names that leave the archive
// are stepped over and counted; whatever two readers could understand differently ends the archive.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/core/file_stream.h"

namespace tessera {

struct TarMember {
  std::string name;          // printable UTF-8, relative, without ".", ".." and empty parts
  std::uint64_t offset = 0;  // of the first byte of the contents, from the start of the archive
  std::uint64_t size = 0;    // offset + size never exceeds the archive
};

struct TarCounts {
  std::uint64_t members = 0;  // given out
  std::uint64_t folders = 0;
  std::uint64_t skipped = 0;  // links, devices, sparse files, unsafe names
};

class TarReader {
 public:
  static constexpr std::uint64_t kMaxPaxBytes = std::uint64_t{64} << 10;
  static constexpr std::size_t kMaxNameBytes = 4096;

  // `file` is the name in messages. The source is borrowed and read from its beginning.
  TarReader(ByteSource& source, std::string file);

  // The next regular file, nullopt after the end of the archive. Error kGeneral, with the byte of
  // the header: E_TAR_MAGIC (no tar at all), E_TAR_CUT, E_TAR_END (no end marker), E_TAR_CHECKSUM,
  // E_TAR_NUMBER, E_TAR_PAX, E_TAR_TYPE, E_TAR_TRAILING (bytes after the end). After an error the
  // archive is over; the members before it were whole.
  std::optional<TarMember> next();
  // Contents of the member that next() gave last; at most once for each.
  std::string read();

  const TarCounts& counts() const { return counts_; }

 private:
  struct Extras;

  [[noreturn]] void fail(const char* code, std::string expected, std::string found) const;
  bool read_block(std::string& block);
  std::string read_bytes(std::uint64_t size);
  void skip_bytes(std::uint64_t size);
  void check_sum(std::string_view block) const;
  std::uint64_t number(std::string_view text, const char* what) const;
  std::uint64_t data_size(std::string_view block, char type, const Extras& extras) const;
  void read_end();
  bool read_extras(char type, std::uint64_t size, Extras& extras);
  void read_pax(std::string_view text, bool global, Extras& extras);
  void skip_sparse_map(std::string block);
  std::optional<TarMember> member(std::string_view block, char type, std::uint64_t size,
                                  const Extras& extras);

  ByteSource* source_;
  std::string file_;
  std::uint64_t at_ = 0;         // bytes taken from the source
  std::uint64_t header_at_ = 0;  // of the header under way
  std::uint64_t rest_ = 0;       // contents and padding of the present member not yet taken
  std::uint64_t unread_ = 0;     // contents of it that read() will give
  bool over_ = false;
  TarCounts counts_;
};

// The name without "." and empty parts; empty if it is absolute, has a ".." part, is longer than
// kMaxNameBytes or is not printable UTF-8.
std::string safe_member_name(std::string_view name);

}  // namespace tessera
