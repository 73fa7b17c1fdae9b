// Samples of a WebDataset shard: neighbouring members of a tar archive that share a key, which is
// the path up to the first dot of its base name. One image a sample.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apps/captions/tar_reader.h"
#include "engine/core/error.h"

namespace tessera {

struct SampleMember {
  std::string extension;  // after the first dot of the base name, as written: "jpg", "seg.png"
  std::string bytes;      // empty unless the reader was notified to carry it
};

struct TarSample {
  std::string key;
  std::uint64_t offset = 0;          // of the contents of its first member
  SampleMember image;              // meaningless in a failed sample
  std::vector<SampleMember> others;  // the other members, in their order
  std::optional<ErrorInfo> failure;  // why there is no image to caption
  bool repeated = false;             // failed because its key was there before
};

enum class Carry : std::uint8_t { kImageOnly, kEverything };

class SampleReader {
 public:
  static constexpr std::uint64_t kMaxMemberBytes = std::uint64_t{256} << 20;
  static constexpr std::uint64_t kMaxSampleBytes = std::uint64_t{512} << 20;
  static constexpr std::size_t kMaxMembers = 1024;
  static constexpr std::size_t kMaxKeyBytes = std::size_t{256} << 20;  // of all keys of a shard

  SampleReader(ByteSource& source, std::string file, Carry carry);

  // The next sample, failed ones included; nullopt at the end. An Error of the archive is thrown
  // after the samples before it were given, and ends the shard.
  std::optional<TarSample> next();

  const TarCounts& counts() const { return tar_.counts(); }
  std::uint64_t without_key() const { return without_key_; }  // members with no key or extension

 private:
  struct Member {
    TarMember place;
    std::string key, extension;
  };
  std::optional<Member> next_member();
  void take(TarSample& sample, const Member& member);
  void finish(TarSample& sample);
  void fail(TarSample& sample, const char* code, std::string expected, std::string found) const;

  TarReader tar_;
  std::string file_;
  Carry carry_;
  std::optional<Member> ahead_;  // first member of the next sample; its contents are not read yet
  bool started_ = false;
  std::exception_ptr ended_by_;
  std::uint64_t without_key_ = 0, sample_bytes_ = 0;
  std::size_t key_bytes_ = 0;
  std::unordered_map<std::string, std::uint64_t> seen_;  // key -> offset
};

// Image endings: png, jpg, jpeg, webp, gif, bmp, without case. What a file really is, its first
// bytes say later.
bool is_image_extension(std::string_view extension);

// "a/b.seg.png" -> key "a/b", extension "seg.png". Empty strings if there is no key or no dot.
struct KeyParts {
  std::string_view key, extension;
};
KeyParts split_key(std::string_view name);

}  // namespace tessera
