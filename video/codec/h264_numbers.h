// The numbers that H.264 gives its reference images, followed from packet to packet: an image
// that is missing leaves a gap, also where the decoder goes on without a word. Internal to
// video/codec.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace tessera {

class H264Numbers {
 public:
  // `head`: the stream's extra data, an avcC box or start codes, or nothing.
  explicit H264Numbers(std::span<const std::uint8_t> head);
  // The next packet in order of decoding. False where an image is missing before it. What cannot
  // be parsed is the decoder's to refuse: true.
  bool follows(std::span<const std::uint8_t> packet);
  // Whatever comes next follows.
  void forget() { last_.reset(); }

 private:
  struct Set {  // of a sequence
    bool there = false, gaps = false, planes = false;
    unsigned bits = 0;  // of a number
  };

  bool unit(std::span<const std::uint8_t> unit);
  bool slice(std::span<const std::uint8_t> unit);
  void sequence_set(std::span<const std::uint8_t> unit);
  void image_set(std::span<const std::uint8_t> unit);

  std::size_t length_bytes_ = 0;  // before each unit; 0: start codes
  std::array<Set, 32> sequences_{};
  std::array<std::uint8_t, 256> images_{};  // sequence of each, 255: none
  std::optional<std::uint32_t> last_;         // number of the last reference image
  bool in_packet_ = false;                    // a slice of the packet was seen
};

}  // namespace tessera
