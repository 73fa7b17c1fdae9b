// zlib.h, "inflate"; zstd.h, "Streaming decompression".
#include "apps/captions/unpacked_source.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <new>
#include <string_view>
#include <utility>

#include "apps/captions/text_forms.h"
#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

struct Ending {
  std::string_view text;
  Packing packing;
};
constexpr std::array kShardEndings = {
    Ending{".tar", Packing::kNone},  Ending{".tar.gz", Packing::kGzip},
    Ending{".tgz", Packing::kGzip},  Ending{".tar.zst", Packing::kZstd},
    Ending{".tzst", Packing::kZstd},
};

// The ending that makes this the name of a shard; a name that is nothing else has none.
const Ending* shard_ending(std::string_view name) {
  const std::string lower = ascii_lower_case(name);
  for (const Ending& ending : kShardEndings) {
    if (lower.size() > ending.text.size() && lower.ends_with(ending.text)) return &ending;
  }
  return nullptr;
}

}  // namespace

std::optional<Packing> shard_packing(const fs::path& path) {
  const Ending* ending = shard_ending(path.filename().native());
  return ending == nullptr ? std::nullopt : std::optional(ending->packing);
}

fs::path shard_stem(const fs::path& path) {
  std::string name = path.filename().string();
  const Ending* ending = shard_ending(name);
  if (ending != nullptr) name.resize(name.size() - ending->text.size());
  return name;
}

// The compressed bytes, a buffer at a time.
class UnpackedSource::Input {
 public:
  Input(ByteSource& source, std::string file) : source_(source), file_(std::move(file)) {}

  // What lies ahead; empty at the end of the file.
  std::string_view ahead() {
    if (at_ == end_) {
      end_ = source_.read(buffer_.data(), buffer_.size());
      at_ = 0;
    }
    return std::string_view(buffer_.data(), end_).substr(at_);
  }
  void take(std::size_t bytes) {
    at_ += bytes;
    taken_ += bytes;
  }
  std::uint64_t taken() const { return taken_; }
  std::uint64_t size() const { return source_.size(); }

  [[noreturn]] void fail(const char* code, std::string expected, std::string found) const {
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = code,
                 .file = file_,
                 .where = "byte " + std::to_string(taken_),
                 .expected = std::move(expected),
                 .found = std::move(found)});
  }
  // After the last member or frame.
  void expect_zeros() {
    for (std::string_view more = ahead(); !more.empty(); more = ahead()) {
      if (more.find_first_not_of('\0') != std::string_view::npos) {
        fail("E_TAR_TRAILING", "nothing but zeros after the compressed archive", "other bytes");
      }
      take(more.size());
    }
  }

 private:
  ByteSource& source_;
  std::string file_;
  std::array<char, std::size_t{64} << 10> buffer_;
  std::size_t at_ = 0, end_ = 0;
  std::uint64_t taken_ = 0;
};

// A read may end where the data turn out to be bad: what came before is given, the error comes with
// the next read.
class UnpackedSource::Stream {
 public:
  virtual ~Stream() = default;
  // At least one byte, or none at the end.
  virtual std::size_t some(char* data, std::size_t size) = 0;
};

// Members one after another; inflate checks the CRC and the length of each.
class UnpackedSource::Gzip final : public Stream {
 public:
  explicit Gzip(Input& input) : input_(input) {
    const int status = inflateInit2(&state_, 16 + MAX_WBITS);  // 16: gzip and nothing else
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    expects(status == Z_OK, "zlib is the one that was built with");
  }
  ~Gzip() override { inflateEnd(&state_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  std::size_t some(char* data, std::size_t size) override {
    // zlib counts in unsigned int.
    const auto room = narrow<uInt>(std::min<std::size_t>(size, std::size_t{1} << 20));
    while (!over_) {
      if (status_ == Z_STREAM_END) {
        next_member();
        continue;
      }
      if (status_ != Z_OK) refuse();
      const std::string_view from = input_.ahead();
      if (from.empty()) input_.fail("E_TAR_CUT", "gzip data to their end", "the end of the file");
      state_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(from.data()));
      state_.avail_in = narrow<uInt>(from.size());
      state_.next_out = reinterpret_cast<Bytef*>(data);
      state_.avail_out = room;
      status_ = inflate(&state_, Z_NO_FLUSH);
      if (status_ == Z_BUF_ERROR) status_ = Z_OK;  // more input is needed
      input_.take(from.size() - state_.avail_in);
      if (state_.avail_out < room) return room - state_.avail_out;
    }
    return 0;
  }

 private:
  void next_member() {
    first_ = false;
    const std::string_view more = input_.ahead();
    over_ = more.empty() || more.front() != '\x1f';
    if (over_) return input_.expect_zeros();
    inflateReset(&state_);
    status_ = Z_OK;
  }
  [[noreturn]] void refuse() {
    if (status_ == Z_MEM_ERROR) throw std::bad_alloc();
    const std::string why = state_.msg == nullptr ? "other bytes" : state_.msg;
    if (first_ && why == "incorrect header check") {
      input_.fail("E_TAR_MAGIC", "gzip data", "other bytes");
    }
    input_.fail("E_TAR_PACKED", "sound gzip data", why);
  }

  Input& input_;
  z_stream state_{};
  int status_ = Z_OK;
  bool first_ = true, over_ = false;
};

// Frames one after another; the library checks a frame's checksum where it has one.
class UnpackedSource::Zstd final : public Stream {
 public:
  explicit Zstd(Input& input) : input_(input), state_(ZSTD_createDStream()) {
    if (!state_) throw std::bad_alloc();
  }

  // The library checks frames that fit into the room it is given otherwise than longer ones, so the
  // room is always the same, whatever the caller's.
  std::size_t some(char* data, std::size_t size) override {
    if (given_ == ready_) ready_ = fill(), given_ = 0;
    const std::size_t count = std::min(size, ready_ - given_);
    std::copy_n(room_.data() + given_, count, data);
    given_ += count;
    return count;
  }

 private:
  std::size_t fill() {
    ZSTD_outBuffer out{room_.data(), room_.size(), 0};
    while (!over_ && out.pos == 0) {
      if (left_ == 0 && !first_) {
        next_frame();
        continue;
      }
      if (ZSTD_isError(left_) != 0) refuse();
      const std::string_view from = input_.ahead();
      if (frame_begins_ && !from.empty()) expect_frame(from.front());
      ZSTD_inBuffer in{from.data(), from.size(), 0};
      left_ = ZSTD_decompressStream(state_.get(), &out, &in);
      input_.take(in.pos);
      // Without input the library gives what it holds back, or nothing.
      if (from.empty() && out.pos == 0 && left_ != 0) {
        input_.fail("E_TAR_CUT", "Zstandard data to their end", "the end of the file");
      }
      if (ZSTD_isError(left_) == 0) first_ = false;
    }
    return out.pos;
  }
  void next_frame() {
    const std::string_view more = input_.ahead();
    over_ = more.empty() || more.front() == '\0';
    if (over_) return input_.expect_zeros();
    left_ = 1;
    frame_begins_ = true;
  }
  // RFC 8878, 3.1: a frame begins with 28, a skippable one with 50 to 5F. The library may also read
  // the forms before version 0.8; they have no RFC, and what it gives of a damaged one depends on
  // the room it has.
  void expect_frame(char byte) {
    frame_begins_ = false;
    const auto magic = static_cast<unsigned char>(byte);
    if (magic == 0x28 || magic >> 4 == 5) return;
    if (first_) input_.fail("E_TAR_MAGIC", "Zstandard data", "other bytes");
    input_.fail("E_TAR_PACKED", "sound Zstandard data", "a frame of another form");
  }
  [[noreturn]] void refuse() {
    const ZSTD_ErrorCode code = ZSTD_getErrorCode(left_);
    if (code == ZSTD_error_memory_allocation) throw std::bad_alloc();
    if (first_ && code == ZSTD_error_prefix_unknown) {
      input_.fail("E_TAR_MAGIC", "Zstandard data", "other bytes");
    }
    input_.fail("E_TAR_PACKED", "sound Zstandard data", ZSTD_getErrorName(left_));
  }

  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };
  Input& input_;
  std::unique_ptr<ZSTD_DStream, Free> state_;
  std::array<char, std::size_t{64} << 10> room_;
  std::size_t given_ = 0, ready_ = 0;  // of what lies in the room
  std::size_t left_ = 1;  // as the library says it: 0 after a frame, or an error
  bool first_ = true, over_ = false, frame_begins_ = true;
};

UnpackedSource::UnpackedSource(ByteSource& packed, Packing packing, std::string file)
    : input_(std::make_unique<Input>(packed, std::move(file))) {
  // No sum overflows: files are shorter than 2^48.
  most_ = std::min(packed.size(), std::uint64_t{1} << 48) * kMaxRatio + kSlackBytes;
  if (packing == Packing::kGzip) stream_ = std::make_unique<Gzip>(*input_);
  if (packing == Packing::kZstd) stream_ = std::make_unique<Zstd>(*input_);
  expects(stream_ != nullptr, "a compressed archive");
}

UnpackedSource::~UnpackedSource() = default;

std::size_t UnpackedSource::read(char* data, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    const std::size_t got = stream_->some(data + done, size - done);
    if (got == 0) break;
    done += got;
    given_ += got;
    if (given_ > most_) {
      input_->fail("E_TAR_SIZE",
                   "at most " + std::to_string(kMaxRatio) + " times the bytes of the file",
                   "an archive that unpacks to more");
    }
  }
  return done;
}

}  // namespace tessera
