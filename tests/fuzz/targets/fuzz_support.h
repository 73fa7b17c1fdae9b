// What the fuzz targets share: a source of choices for their mutators, numbers worth trying, seeds
// written out on request, and the end of the run when an oracle disagrees.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/philox.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace tessera::fuzz {

// Ends the run: libFuzzer keeps the input and reports a crash.
inline void require(bool condition, const char* oracle) {
  if (condition) return;
  std::fprintf(stderr, "oracle failed: %s\n", oracle);
  std::abort();
}

class Choice {
 public:
  explicit Choice(unsigned seed) : seed_(seed) {}
  std::uint32_t next() { return philox4x32({count_++, 0, 0, 0}, {seed_, 0x66757a7a})[0]; }
  std::size_t below(std::size_t bound) { return next() % bound; }
  bool one_in(std::size_t n) { return below(n) == 0; }

 private:
  std::uint32_t seed_;
  std::uint32_t count_ = 0;
};

inline constexpr std::uint64_t kEdges[] = {0,
                                           1,
                                           2,
                                           3,
                                           7,
                                           8,
                                           9,
                                           31,
                                           32,
                                           33,
                                           63,
                                           64,
                                           65,
                                           255,
                                           256,
                                           1023,
                                           1024,
                                           1025,
                                           4096,
                                           4097,
                                           16384,
                                           16385,
                                           65535,
                                           65536,
                                           65537,
                                           (1u << 20),
                                           (1u << 20) + 1,
                                           (1u << 22),
                                           (1u << 22) + 1,
                                           (1u << 24) + 1,
                                           0x7fffffff,
                                           0x80000000,
                                           0xffffffff,
                                           0x100000000,
                                           0x3fffffffffffffff,
                                           0x7fffffffffffffff,
                                           0x8000000000000000,
                                           0xfffffffffffffffe,
                                           0xffffffffffffffff};

// A number near `value` or near a limit.
inline std::uint64_t other_number(std::uint64_t value, Choice& choice) {
  switch (choice.below(5)) {
    case 0:
      return value + 1;
    case 1:
      return value - 1;
    case 2:
      return value * 2;
    case 3:
      return value + 4 * choice.below(16);
    default:
      return kEdges[choice.below(std::size(kEdges))];
  }
}

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Puts `text` back into the fuzzer's buffer; its new size.
inline std::size_t release(const std::string& text, std::uint8_t* data, std::size_t max_size) {
  const std::size_t size = std::min(text.size(), max_size);
  std::copy_n(text.data(), size, reinterpret_cast<char*>(data));
  return size;
}

// With TESSERA_FUZZ_SEEDS=FOLDER the program writes its seeds there and ends.
inline void write_seeds_if_asked(const std::vector<std::string>& seeds) {
  const char* folder = std::getenv("TESSERA_FUZZ_SEEDS");
  if (folder == nullptr) return;
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    const std::filesystem::path path =
        std::filesystem::path(folder) / ("seed-" + std::to_string(i));
    std::ofstream(path, std::ios::binary) << seeds[i];
  }
  std::exit(0);
}

}  // namespace tessera::fuzz
