// A compressed archive as the bytes it unpacks to: gzip (RFC 1952) or Zstandard (RFC 8878).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "engine/core/file_stream.h"

namespace tessera {

enum class Packing : std::uint8_t { kNone, kGzip, kZstd };

// By the ending of a shard's name, without case: .tar; .tar.gz or .tgz; .tar.zst or .tzst.
// nullopt: no shard. `name_of_shard` is the name without that ending ("x.tar.gz" is "x").
std::optional<Packing> shard_packing(const std::filesystem::path& path);
std::filesystem::path shard_stem(const std::filesystem::path& path);

// Reads front to back. Buffers take 64 KiB and what the library needs: for gzip 40 KiB, for
// Zstandard 64 KiB more and a window of at most 128 MiB.
// Several gzip members or Zstandard frames in a row are one stream; zeros may follow the last.
// Errors kGeneral, with the byte of the compressed file: E_TAR_MAGIC (not packed so), E_TAR_CUT,
// E_TAR_PACKED (damaged, or a checksum that does not fit), E_TAR_TRAILING (other bytes after the
// end), E_TAR_SIZE (it unpacks to more than size()). Bytes before a damaged place may be read.
class UnpackedSource final : public ByteSource {
 public:
  // gzip cannot pack closer; Zstandard can, but no images do.
  static constexpr std::uint64_t kMaxRatio = 1032;
  static constexpr std::uint64_t kSlackBytes = std::uint64_t{1} << 20;  // of short files

  // `packed` is borrowed and read from its beginning. `file` is the name in messages.
  UnpackedSource(ByteSource& packed, Packing packing, std::string file);
  ~UnpackedSource() override;

  std::size_t read(char* data, std::size_t size) override;
  // An upper bound, from kMaxRatio and the compressed bytes.
  std::uint64_t size() const override { return most_; }

 private:
  class Stream;
  class Gzip;
  class Zstd;
  class Input;

  std::unique_ptr<Input> input_;
  std::unique_ptr<Stream> stream_;
  std::uint64_t given_ = 0, most_ = 0;
};

}  // namespace tessera
