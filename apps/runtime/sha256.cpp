// SHA-256 by Nettle.
#include "apps/runtime/sha256.h"

#include <nettle/sha2.h>

#include <array>
#include <cstring>
#include <vector>

#include "engine/core/file_stream.h"

namespace tessera {

namespace {

void add(struct sha256_ctx& context, std::string_view data) {
  sha256_update(&context, data.size(), reinterpret_cast<const std::uint8_t*>(data.data()));
}

std::array<std::uint8_t, SHA256_DIGEST_SIZE> bytes_of(struct sha256_ctx& context) {
  std::array<std::uint8_t, SHA256_DIGEST_SIZE> digest;
  sha256_digest(&context, digest.size(), digest.data());
  return digest;
}

std::string finish(struct sha256_ctx& context) {
  const auto digest = bytes_of(context);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const std::uint8_t byte : digest) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

}  // namespace

std::string sha256_hex(std::string_view data) {
  struct sha256_ctx context;
  sha256_init(&context);
  add(context, data);
  return finish(context);
}

std::array<std::uint64_t, 2> sha256_half(std::span<const float> values) {
  return sha256_half({&values, 1});
}

std::array<std::uint64_t, 2> sha256_half(std::span<const std::span<const float>> lists) {
  struct sha256_ctx context;
  sha256_init(&context);
  for (const std::span<const float> values : lists) {
    add(context, {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }
  std::array<std::uint64_t, 2> out;
  std::memcpy(out.data(), bytes_of(context).data(), sizeof out);
  return out;
}

std::string sha256_of_file(const std::filesystem::path& path) {
  struct sha256_ctx context;
  sha256_init(&context);
  InputFile file(path);
  std::vector<char> piece(std::size_t{1} << 20);
  while (const std::size_t count = file.read(piece.data(), piece.size())) {
    add(context, {piece.data(), count});
  }
  return finish(context);
}

}  // namespace tessera
