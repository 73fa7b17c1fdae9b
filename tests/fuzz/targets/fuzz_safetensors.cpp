// safetensors headers, and shard indexes (inputs that begin with '{'). Oracle: what the reader
// accepts, a second, naive checker accepts too, and every view lies inside the file.
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/shard_index.h"
#include "engine/core/error.h"
#include "tests/fuzz/targets/fuzz_support.h"
#include "tests/support/safetensors_builder.h"

namespace tessera::fuzz {
namespace {

using NaiveJson = nlohmann::ordered_json;
using Wide = unsigned __int128;

const std::map<std::string, unsigned> kSizes = {{"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F64", 8},
                                                {"I8", 1},  {"U8", 1},   {"I16", 2}, {"I32", 4},
                                                {"I64", 8}, {"BOOL", 1}};

// Generates every byte that a tensor claims; each must be generated exactly once.
void check_naively(std::string_view file, const Container& accepted) {
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) {
    length = length * 256 + static_cast<unsigned char>(file[static_cast<std::size_t>(i)]);
  }
  const NaiveJson header = NaiveJson::parse(file.substr(8, length), nullptr, false);
  require(header.is_object(), "the header is a JSON object");
  const std::string_view data = file.substr(8 + length);
  std::vector<unsigned char> generated(data.size(), 0);
  std::size_t count = 0;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    ++count;
    Wide bytes = kSizes.at(entry.at("dtype").get<std::string>());
    bool empty = false;
    for (const auto& extent : entry.at("shape")) {
      require(extent.is_number_unsigned(), "extents are unsigned integers");
      empty = empty || extent == 0u;
      bytes *= extent.get<std::uint64_t>();
      require(empty || bytes < (Wide{1} << 64), "a size of 64 bits");
    }
    const Wide begin = entry.at("data_offsets").at(0).get<std::uint64_t>();
    const Wide end = entry.at("data_offsets").at(1).get<std::uint64_t>();
    require(begin + (empty ? 0 : bytes) == end, "offsets span the shape");
    require(end <= data.size(), "the tensor ends inside the file");
    for (Wide i = begin; i < end; ++i) ++generated[static_cast<std::size_t>(i)];
  }
  for (const unsigned char times : generated) require(times == 1, "each byte belongs to one tensor");
  require(count == accepted.tensors.size(), "as many tensors");
}

// Reads the first and last byte of each tensor: the sanitizer sees any that is not there.
void touch(std::span<const std::byte> file, const Container& accepted) {
  unsigned sum = 0;
  for (const StoredTensor& tensor : accepted.tensors) {
    if (tensor.begin == tensor.end) continue;
    const volatile std::byte* data = file.data();
    sum += std::to_integer<unsigned>(data[tensor.begin]);
    sum += std::to_integer<unsigned>(data[tensor.end - 1]);
  }
  require(sum < 0xffffffff, "");
}

void check_index(std::string_view text, const ShardIndex& accepted) {
  NaiveJson json;
  try {
    json = NaiveJson::parse(text);
  } catch (const NaiveJson::out_of_range&) {
    return;  // a number next to the map that no double holds: the reader steps over it
  } catch (const NaiveJson::parse_error&) {
    require(false, "the index is a JSON object");
  }
  const NaiveJson& map = json.at("weight_map");
  require(map.size() == accepted.shard_of.size(), "as many tensors");
  for (const auto& [name, number] : accepted.shard_of) {
    require(number < accepted.shards.size(), "shard numbers are in range");
    const std::string& shard = accepted.shards[number];
    require(map.at(name) == shard, "each tensor in its shard");
    require(shard.find('/') == std::string::npos && shard.front() != '.', "plain names");
  }
}

// Moves a tensor whole, or lists it once more under another name.
void move_or_repeat(std::string& header, Choice& choice) {
  static constexpr std::string_view kKey = "\"data_offsets\":[";
  std::vector<std::size_t> places;
  for (std::size_t at = header.find(kKey); at != std::string::npos;
       at = header.find(kKey, at + 1)) {
    places.push_back(at);
  }
  if (places.empty()) return;
  const std::size_t begin = places[choice.below(places.size())] + kKey.size();
  const std::size_t end = std::min(header.find(']', begin), header.size() - 1);
  if (choice.one_in(2)) {
    const char* text = header.c_str() + begin;
    char* comma = nullptr;
    const std::uint64_t first = std::strtoull(text, &comma, 10);
    const std::uint64_t last = std::strtoull(*comma == ',' ? comma + 1 : comma, nullptr, 10);
    const std::uint64_t shift = choice.below(17) - 8;
    header.replace(begin, end - begin,
                   std::to_string(first + shift) + "," + std::to_string(last + shift));
    return;
  }
  const std::size_t dtype = header.rfind("{\"dtype\"", begin);
  const std::size_t close = header.find('}', end);
  if (dtype == std::string::npos || close == std::string::npos) return;
  const std::string name = "n" + std::to_string(choice.below(100));
  header.insert(close + 1, ",\"" + name + "\":" + header.substr(dtype, close + 1 - dtype));
}

// Changes one number of the header and mends its length, or its text, or the data after it.
std::string mutate(std::string_view input, Choice& choice) {
  const bool index = input.starts_with("{");
  if (!index && input.size() < 10) return {};
  const auto length =
      index ? input.size()
            : static_cast<unsigned char>(input[0]) + 256u * static_cast<unsigned char>(input[1]);
  if (!index && length > input.size() - 8) return {};
  std::string header(index ? input : input.substr(8, length));
  std::string data(index ? std::string_view{} : input.substr(8 + length));
  for (std::size_t edits = 1 + choice.below(3); edits > 0; --edits) {
    std::vector<std::size_t> numbers;
    for (std::size_t i = 1; i < header.size(); ++i) {
      if (std::isdigit(header[i]) && !std::isalnum(header[i - 1])) numbers.push_back(i);
    }
    const std::size_t kind = choice.below(9);
    if (kind < 4 && !numbers.empty()) {
      const std::size_t at = numbers[choice.below(numbers.size())];
      const std::size_t digits = header.find_first_not_of("0123456789", at) - at;
      const std::uint64_t value = std::strtoull(header.c_str() + at, nullptr, 10);
      header.replace(at, digits, std::to_string(other_number(value, choice)));
    } else if (kind == 8) {
      move_or_repeat(header, choice);
    } else if (kind == 4) {
      static constexpr std::string_view kWords[] = {
          "F32",          "BF16",       "U8", "I64", "F8_E4M3", "dtype", "shape",
          "data_offsets", "weight_map", "[",  "]",   "{",       "}",     ",",
          "\"",           ":",          " ",  "-",   "null"};
      header.insert(choice.below(header.size() + 1), kWords[choice.below(std::size(kWords))]);
    } else if (kind == 5 && !header.empty()) {
      header.erase(choice.below(header.size()), 1 + choice.below(8));
    } else if (kind == 6) {
      data.resize(choice.one_in(2) ? data.size() + 1 : data.size() - (data.empty() ? 0 : 1));
    } else if (kind == 7 && header.size() > 4) {
      const std::size_t from = choice.below(header.size());
      header.insert(choice.below(header.size()), header.substr(from, choice.below(80)));
    }
  }
  return index ? header : safetensors_file(header, 0) + data;
}

std::vector<std::string> seeds() {
  const std::string a = header_entry("a", "F32", "[2,3]", "[0,24]");
  const std::string b = header_entry("b", "U8", "[4]", "[24,28]");
  const std::string meta = R"("__metadata__":{"format":"pt"})";
  return {safetensors_file("{" + a + "}", 24),
          safetensors_file("{" + a + "," + b + "}", 28),
          safetensors_file("{" + meta + "," + b + "," + a + "}   ", 28),
          safetensors_file("{" + header_entry("e", "F16", "[0,3]", "[0,0]") + "," + a + "}", 24),
          safetensors_file("{" + header_entry("s", "I64", "[]", "[0,8]") + "}", 8),
          safetensors_file("{}", 0),
          R"({"metadata":{"total_size":48},"weight_map":{"a":"x.bin","b":"y.bin","c":"x.bin"}})",
          R"({"weight_map":{"a":"model-00001-of-00002.safetensors"}})"};
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  tessera::fuzz::write_seeds_if_asked(tessera::fuzz::seeds());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  const std::string_view text = fuzz::as_text(data, size);
  try {
    if (text.starts_with("{")) {
      fuzz::check_index(text, parse_shard_index(text, "f"));
    } else {
      const auto bytes = std::as_bytes(std::span(data, size));
      const Container accepted = parse_safetensors(bytes, "f");
      fuzz::touch(bytes, accepted);
      fuzz::check_naively(text, accepted);
    }
  } catch (const Error& error) {
    fuzz::require(error.exit_code() == 4 && !error.info().code.empty(),
                  "a bad file is a bad model");
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  tessera::fuzz::Choice choice(seed);
  if (!choice.one_in(5)) {
    const std::string changed = tessera::fuzz::mutate(tessera::fuzz::as_text(data, size), choice);
    if (!changed.empty()) return tessera::fuzz::release(changed, data, max_size);
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
