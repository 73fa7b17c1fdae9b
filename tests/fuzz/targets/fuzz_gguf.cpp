// GGUF files. Oracle: what the reader accepts lies inside the file, no byte belongs to two tensors,
// every number can be read, and every element of every array.
#include <vector>

#include "engine/checkpoint/gguf.h"
#include "engine/core/error.h"
#include "tests/fuzz/targets/fuzz_support.h"
#include "tests/support/gguf_builder.h"

namespace tessera::fuzz {
namespace {

std::vector<std::string> gguf_seeds() {
  const std::string keys =
      gguf_key("general.architecture", 8, gguf_text("llama")) +
      gguf_key("general.alignment", 4, gguf_number(32, 4)) +
      gguf_key("tokens", 9,
               gguf_number(8, 4) + gguf_number(2, 8) + gguf_text("a") + gguf_text("")) +
      gguf_key("types", 9, gguf_number(5, 4) + gguf_number(2, 8) + gguf_number(7, 8)) +
      gguf_key("flag", 7, gguf_number(1, 1)) + gguf_key("eps", 6, gguf_number(0x3727c5ac, 4));
  std::vector<std::string> out;
  for (const BlockType& type : block_types()) {
    const auto row = static_cast<std::uint64_t>(type.numbers);
    out.push_back(gguf_file(
        {.keys = 6,
         .tensors = 2,
         .lists = keys + gguf_tensor("a", {row, 1}, type.id, 0) + gguf_tensor("b", {4}, 0, 256),
         .data = 272}));
  }
  return out;
}

void check_keys(const GgufFile& gguf) {
  std::size_t read = 0;
  for (const auto& [name, value] : gguf.keys) {
    auto array = value.array();
    while (array && array->left() > 0) {
      const GgufValue element = array->next();
      read += element.text().value_or("").size() + (element.number() ? 1 : 0);
    }
    read += value.text().value_or("").size() + (value.number() ? 1 : 0);
  }
  require(read < (std::size_t{1} << 40), "");
}

void check_tensors(const GgufFile& gguf, std::span<const std::byte> bytes) {
  std::vector<unsigned char> taken(bytes.size(), 0);
  for (const GgufTensor& tensor : gguf.tensors) {
    require(tensor.begin <= tensor.end && tensor.end <= bytes.size(), "tensors lie in the file");
    for (std::uint64_t at = tensor.begin; at < tensor.end; ++at) {
      require(taken[at]++ == 0, "a byte belongs to one tensor");
    }
    std::vector<float> numbers(static_cast<std::size_t>(tensor.numbers()));
    read_gguf_tensor(tensor, bytes, numbers.data());
  }
}

// Another number in the place of one of 4 or 8 bytes, at a place that may hold one.
std::string mutate_number(std::string file, Choice& choice) {
  const std::size_t width = choice.one_in(2) ? 8 : 4;
  if (file.size() < 32) return file;
  const std::size_t at = 4 + choice.below(file.size() - 4 - width);
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(file[at + i]);
  }
  file.replace(at, width, gguf_number(other_number(value, choice), static_cast<int>(width)));
  return file;
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  tessera::fuzz::write_seeds_if_asked(tessera::fuzz::gguf_seeds());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const GgufFile gguf = parse_gguf(bytes, "f");
    fuzz::check_keys(gguf);
    fuzz::check_tensors(gguf, bytes);
  } catch (const Error& error) {
    fuzz::require(error.info().code.starts_with("E_GGUF_"), "an error of this reader");
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace tessera::fuzz;
  Choice choice(seed);
  if (choice.one_in(3)) return LLVMFuzzerMutate(data, size, max_size);
  return release(mutate_number(std::string(as_text(data, size)), choice), data, max_size);
}
