// ITU-T H.264, clauses 7.3 and 7.4.3 (frame_num). Only what stands before that number is parsed.
#include "video/codec/h264_numbers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/core/index.h"

namespace tessera {

namespace {

// Bits of a unit after its first byte, without the bytes that keep start codes apart. Past the end
// come zeros, and sound() is false.
class Bits {
 public:
  explicit Bits(std::span<const std::uint8_t> unit) {
    constexpr std::size_t kMax = 4096;
    int zeros = 0;
    for (std::size_t i = 1; i < unit.size() && bytes_.size() < kMax; ++i) {
      if (zeros >= 2 && unit[i] == 3) {
        zeros = 0;
        continue;
      }
      zeros = unit[i] == 0 ? zeros + 1 : 0;
      bytes_.push_back(unit[i]);
    }
  }
  std::uint32_t take(unsigned count) {
    std::uint32_t value = 0;
    for (; count > 0; --count, ++at_) {
      const bool there = at_ / 8 < bytes_.size();
      value = value << 1 | (there ? bytes_[at_ / 8] >> (7 - at_ % 8) & 1u : 0u);
      sound_ = sound_ && there;
    }
    return value;
  }
  // Exp-Golomb, unsigned.
  std::uint32_t golomb() {
    unsigned zeros = 0;
    while (sound_ && zeros < 32 && take(1) == 0) ++zeros;
    sound_ = sound_ && zeros < 32;
    return sound_ ? (1u << zeros) - 1 + take(zeros) : 0;
  }
  bool sound() const { return sound_; }

 private:
  std::vector<std::uint8_t> bytes_;
  std::size_t at_ = 0;
  bool sound_ = true;
};

void skip_scaling_list(Bits& bits, int size) {
  std::int64_t last = 8, next = 8;
  for (int i = 0; i < size && bits.sound(); ++i) {
    if (next != 0) {
      const std::int64_t code = bits.golomb();
      const std::int64_t delta = code % 2 != 0 ? (code + 1) / 2 : -(code / 2);
      next = (last + delta + 256) & 255;
    }
    last = next == 0 ? last : next;
  }
}

bool has_chroma_facts(std::uint32_t profile) {
  constexpr std::array kProfiles = {100u, 110u, 122u, 244u, 44u,  83u, 86u,
                                    118u, 128u, 138u, 139u, 134u, 135u};
  return std::find(kProfiles.begin(), kProfiles.end(), profile) != kProfiles.end();
}

std::size_t length_at(std::span<const std::uint8_t> bytes, std::size_t count) {
  std::size_t value = 0;
  for (std::size_t i = 0; i < count; ++i) value = value << 8 | bytes[i];
  return value;
}

// Calls `take` with each unit; false as soon as it says so.
template <typename Take>
bool each_unit(std::span<const std::uint8_t> bytes, std::size_t length_bytes, Take&& take) {
  if (length_bytes > 0) {
    while (bytes.size() > length_bytes) {
      const std::size_t length = length_at(bytes, length_bytes);
      bytes = bytes.subspan(length_bytes);
      if (length > bytes.size()) return true;
      if (length > 0 && !take(bytes.first(length))) return false;
      bytes = bytes.subspan(length);
    }
    return true;
  }
  constexpr std::array<std::uint8_t, 3> kStart = {0, 0, 1};
  auto at = std::search(bytes.begin(), bytes.end(), kStart.begin(), kStart.end());
  while (at != bytes.end()) {
    at += 3;
    const auto end = std::search(at, bytes.end(), kStart.begin(), kStart.end());
    if (at != end && !take(std::span<const std::uint8_t>(at, end))) return false;
    at = end;
  }
  return true;
}

}  // namespace

H264Numbers::H264Numbers(std::span<const std::uint8_t> head) {
  images_.fill(255);
  const auto keep = [this](std::span<const std::uint8_t> one) { return unit(one); };
  if (head.size() < 7 || head[0] != 1) {
    each_unit(head, 0, keep);
    return;
  }
  length_bytes_ = (head[4] & 3u) + 1;
  std::size_t at = 5;
  for (const unsigned mask : {31u, 255u}) {  // sets of sequences, then of images
    if (at >= head.size()) return;
    for (unsigned left = head[at++] & mask; left > 0 && at + 2 <= head.size(); --left) {
      const std::size_t length = length_at(head.subspan(at), 2);
      at += 2;
      if (length > head.size() - at) return;
      if (length > 0) unit(head.subspan(at, length));
      at += length;
    }
  }
}

bool H264Numbers::follows(std::span<const std::uint8_t> packet) {
  in_packet_ = false;
  return each_unit(packet, length_bytes_,
                   [this](std::span<const std::uint8_t> one) { return unit(one); });
}

bool H264Numbers::unit(std::span<const std::uint8_t> unit) {
  switch (unit[0] & 31) {
    case 1:
    case 2:
    case 5:
      return slice(unit);
    case 7:
      sequence_set(unit);
      return true;
    case 8:
      image_set(unit);
      return true;
    default:
      return true;
  }
}

void H264Numbers::sequence_set(std::span<const std::uint8_t> unit) {
  Bits bits(unit);
  Set set = {.there = true};
  const std::uint32_t profile = bits.take(8);
  bits.take(16);
  const std::uint32_t id = bits.golomb();
  if (has_chroma_facts(profile)) {
    const std::uint32_t chroma = bits.golomb();
    if (chroma == 3) set.planes = bits.take(1) != 0;
    bits.golomb();
    bits.golomb();
    bits.take(1);
    if (bits.take(1) != 0) {
      for (int list = 0; list < (chroma == 3 ? 12 : 8); ++list) {
        if (bits.take(1) != 0) skip_scaling_list(bits, list < 6 ? 16 : 64);
      }
    }
  }
  set.bits = bits.golomb() + 4;
  const std::uint32_t order = bits.golomb();
  if (order == 0) bits.golomb();
  if (order == 1) {
    bits.take(1);
    bits.golomb();
    bits.golomb();
    for (std::uint32_t left = std::min(bits.golomb(), 255u); left > 0; --left) bits.golomb();
  }
  bits.golomb();
  set.gaps = bits.take(1) != 0;
  if (bits.sound() && id < sequences_.size() && set.bits <= 16) sequences_[id] = set;
}

void H264Numbers::image_set(std::span<const std::uint8_t> unit) {
  Bits bits(unit);
  const std::uint32_t id = bits.golomb(), sequence = bits.golomb();
  if (bits.sound() && id < images_.size() && sequence < sequences_.size()) {
    images_[id] = low_bits<std::uint8_t>(sequence);
  }
}

bool H264Numbers::slice(std::span<const std::uint8_t> unit) {
  if (std::exchange(in_packet_, true)) return true;  // another slice or field of the same image
  Bits bits(unit.first(std::min<std::size_t>(unit.size(), 32)));
  bits.golomb();
  bits.golomb();
  const std::uint32_t id = bits.golomb();
  if (!bits.sound() || id >= images_.size() || images_[id] >= sequences_.size()) return true;
  const Set& set = sequences_[images_[id]];
  if (!set.there) return true;
  if (set.planes) bits.take(2);
  const std::uint32_t number = bits.take(set.bits);
  if (!bits.sound()) return true;
  const bool resets = (unit[0] & 31) == 5;
  // 0 and 1 may follow an image that begins to count anew, which is notified far after here.
  const bool counts_anew = resets || number <= 1 || set.gaps || !last_;
  const bool follows =
      counts_anew || number == *last_ || number == ((*last_ + 1) & ((1u << set.bits) - 1));
  if ((unit[0] & 0x60) != 0) last_ = number;  // a reference image
  return follows;
}

}  // namespace tessera
