// torch.save archives (inputs that begin with "PK") and bare pickles. Oracle: tensors lie inside
// the entry of their storage and inside the file, entries do not overlap, recomputed the slow way.
#include <map>
#include <tuple>

#include "engine/checkpoint/pickle.h"
#include "engine/checkpoint/torch_file.h"
#include "engine/checkpoint/zip.h"
#include "engine/core/error.h"
#include "tests/fuzz/targets/fuzz_support.h"
#include "tests/support/torch_builder.h"

namespace tessera::fuzz {
namespace {

using Wide = unsigned __int128;

// The farthest element by adding up each axis, in arithmetic that cannot wrap.
void check_tensor(const PickledTensor& tensor) {
  Wide elements = 1, last = tensor.offset;
  for (int axis = 0; axis < tensor.shape.rank(); ++axis) {
    elements *= static_cast<Wide>(tensor.shape[axis]);
    require(elements < (Wide{1} << 64), "element counts of 64 bits");
  }
  if (elements == 0) {
    require(tensor.offset <= tensor.storage_size, "an empty tensor begins inside its storage");
    return;
  }
  Wide dense = 1;
  for (int axis = tensor.shape.rank() - 1; axis >= 0; --axis) {
    const auto extent = static_cast<Wide>(tensor.shape[axis]);
    const Wide stride = tensor.strides.empty()
                            ? dense
                            : static_cast<Wide>(tensor.strides[static_cast<std::size_t>(axis)]);
    last += (extent - 1) * stride;
    dense *= extent;
  }
  require(last < tensor.storage_size, "the last element lies inside the storage");
  require(last + 1 == tensor.reach, "the reach is the last element");
}

void check_pickle(std::string_view text) {
  for (const PickledTensor& tensor : read_pickled_state(text, "f").tensors) {
    check_tensor(tensor);
    require(!tensor.name.empty() && tensor.name.size() <= 1024, "tensor names are bounded");
  }
}

void check_archive(std::span<const std::byte> file) {
  const auto entries = read_zip(file, "f");
  for (const auto& [name, entry] : entries) {
    require(Wide{entry.begin} + entry.size <= file.size(), "entries lie inside the file");
    // The directory follows the last entry, so an entry's end is never the file's.
    require(Wide{entry.begin} + entry.size + 22 <= file.size(),
            "entries end before the end record");
    const std::uint64_t directory = read_le(file, file.size() - 6, 4);
    require(directory == 0xffffffff || entry.begin + entry.size <= directory,
            "entries end before the central directory");
    for (const auto& [other_name, other] : entries) {
      if (name == other_name || entry.size == 0 || other.size == 0) continue;
      require(entry.begin + entry.size <= other.begin || other.begin + other.size <= entry.begin,
              "entries do not overlap");
    }
  }
  for (const StoredTensor& tensor : parse_torch_file(file, "f").tensors) {
    require(tensor.begin <= tensor.end && tensor.end <= file.size(), "tensors lie inside the file");
    bool inside = tensor.begin == tensor.end;
    for (const auto& [name, entry] : entries) {
      inside = inside || (tensor.begin >= entry.begin && tensor.end <= entry.begin + entry.size);
    }
    require(inside, "each tensor lies in one entry");
  }
}

// Places of the fields of the zip records in the text: (offset, bytes).
std::vector<std::pair<std::size_t, int>> zip_fields(std::string_view text) {
  std::vector<std::pair<std::size_t, int>> out;
  for (std::size_t at = text.find("PK"); at != std::string_view::npos;
       at = text.find("PK", at + 1)) {
    const auto add = [&](std::initializer_list<std::pair<int, int>> fields) {
      for (const auto& [offset, bytes] : fields) {
        out.emplace_back(at + static_cast<std::size_t>(offset), bytes);
      }
    };
    const std::string_view kind = text.substr(at + 2, 2);
    if (kind == "\3\4") add({{6, 2}, {8, 2}, {14, 4}, {18, 4}, {22, 4}, {26, 2}, {28, 2}});
    if (kind == "\1\2") {
      add({{8, 2}, {10, 2}, {16, 4}, {20, 4}, {24, 4}, {28, 2}, {30, 2}, {32, 2}, {42, 4}});
    }
    if (kind == "\7\10") add({{4, 4}});
    if (kind == "\6\6") add({{4, 8}, {24, 8}, {32, 8}, {40, 8}, {48, 8}});
    if (kind == "\6\7") add({{8, 8}});
    if (kind == "\5\6") add({{8, 2}, {10, 2}, {12, 4}, {16, 4}, {20, 2}});
  }
  return out;
}

// An entry a little longer or shorter than it was, in both sizes of its central header.
bool resize_entry(std::string& text, Choice& choice) {
  std::vector<std::size_t> places;
  for (std::size_t at = text.find("PK\1\2"); at != std::string::npos;
       at = text.find("PK\1\2", at + 1)) {
    if (at + 28 <= text.size()) places.push_back(at + 20);
  }
  if (places.empty()) return false;
  const std::size_t at = places[choice.below(places.size())];
  const std::uint64_t size = read_le(std::as_bytes(std::span(text)), at, 4);
  std::string value;
  append_le(value, size + choice.below(9) - 4, 4);
  text.replace(at, 8, value + value);
  return true;
}

std::string mutate_zip(std::string text, Choice& choice) {
  const auto fields = zip_fields(text);
  if (fields.empty()) return {};
  if (choice.one_in(4) && resize_entry(text, choice)) return text;
  for (std::size_t edits = 1 + choice.below(2); edits > 0; --edits) {
    // Sizes and offsets are worth more tries than flags.
    auto [at, bytes] = fields[choice.below(fields.size())];
    if (bytes == 2 && choice.one_in(2)) std::tie(at, bytes) = fields[choice.below(fields.size())];
    if (at + static_cast<std::size_t>(bytes) > text.size()) continue;
    const std::uint64_t old = read_le(std::as_bytes(std::span(text)), at, bytes);
    std::string value;
    append_le(value, other_number(old, choice), bytes);
    // Sizes stand twice, packed and unpacked: one alone is refused at once.
    const bool is_size =
        bytes == 4 && text.substr(at - std::min<std::size_t>(at, 20), 4) == "PK\1\2";
    text.replace(at, value.size(), value);
    if (is_size && !choice.one_in(4) && at + 8 <= text.size()) text.replace(at + 4, 4, value);
  }
  return text;
}

// Inserts, drops, repeats or alters one construct of a pickle.
std::string mutate_pickle(std::string text, Choice& choice) {
  static const std::int64_t kSize[] = {2, 3}, kStride[] = {3, 1};
  static const std::string kParts[] = {
      "(",
      "t",
      "}",
      "]",
      ")",
      "0",
      "1",
      "2",
      "N",
      "R",
      "b",
      "Q",
      "s",
      "u",
      "a",
      "e",
      "h\1",
      "q\1",
      "K\1",
      "K\7",
      "\x85",
      "\x86",
      "\x87",
      "\x88",
      "\x89",
      "\x93",
      "\x94",
      "X\1\0\0\0a",
      "ccollections\nOrderedDict\n",
      "ctorch\nFloatStorage\n",
      "ctorch._utils\n_rebuild_parameter\n",
      "ctorch._utils\n_rebuild_tensor_v2\n",
      "cargparse\nNamespace\n",
      "\x81",
      PickleText().integer(1 << 20).stop().substr(2, 5),
      PickleText().integer(INT64_MAX).stop().substr(2, 10),
      PickleText().tensor("HalfStorage", "0", 12, 0, kSize, kStride).stop().substr(2)};
  for (std::size_t edits = 1 + choice.below(3); edits > 0; --edits) {
    const std::size_t at = std::min(text.size(), 2 + choice.below(text.size() + 1));
    switch (choice.below(5)) {
      case 0:
        text.insert(at, kParts[choice.below(std::size(kParts))]);
        break;
      case 1:
        text.erase(std::min(at, text.size()), 1 + choice.below(6));
        break;
      case 2:
        text.insert(at, text.substr(choice.below(text.size() + 1), choice.below(60)));
        break;
      case 3:
        text.resize(at);
        break;
      default: {  // a number: BININT or BININT1
        const std::size_t number = text.find_first_of("JK", at);
        if (number == std::string::npos) break;
        const std::size_t bytes = text[number] == 'J' ? 4 : 1;
        if (number + 1 + bytes > text.size()) break;
        std::string value;
        append_le(value,
                  other_number(
                      read_le(std::as_bytes(std::span(text)), number + 1, static_cast<int>(bytes)),
                      choice),
                  static_cast<int>(bytes));
        text.replace(number + 1, bytes, value);
      }
    }
    if (text.empty()) return text;
  }
  return text;
}

std::vector<std::string> seeds() {
  const std::int64_t size[] = {3, 2}, stride[] = {1, 3};
  const std::string strided = PickleText()
                                  .op('}')
                                  .text("w")
                                  .tensor("BFloat16Storage", "0", 12, 1, size, stride)
                                  .op('s')
                                  .stop();
  const std::string nested = PickleText()
                                 .op('}')
                                 .text("model")
                                 .raw(simple_pickle().substr(2, simple_pickle().size() - 3))
                                 .op('s')
                                 .stop();
  std::vector<std::string> out = {simple_pickle(), strided, nested, simple_pickle(1, 1)};
  for (const std::string& pickle : {simple_pickle(), strided, nested}) {
    ZipPlan plan = torch_plan(pickle);
    // A CRC of zero means "not computed": changes of the pickle are not all refused for it.
    plan.items[0].crc = plan.items[0].descriptor_crc = 0;
    out.push_back(build_zip(plan));
    plan.items[3].flags = plan.items[3].local_flags = 0x0800;
    plan.items[3].local_full = true;
    out.push_back(build_zip(plan));
    plan.items[2].wide = true;
    plan.end64 = false;
    out.push_back(build_zip(plan));
  }
  return out;
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
    if (text.starts_with("PK")) {
      fuzz::check_archive(std::as_bytes(std::span(data, size)));
    } else {
      fuzz::check_pickle(text);
    }
  } catch (const Error& error) {
    fuzz::require(error.exit_code() == 4 && !error.info().code.empty(),
                  "a bad file is a bad model");
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace tessera::fuzz;
  Choice choice(seed);
  if (!choice.one_in(5)) {
    const std::string text(as_text(data, size));
    const std::string changed =
        text.starts_with("PK") ? mutate_zip(text, choice) : mutate_pickle(text, choice);
    if (!changed.empty()) return release(changed, data, max_size);
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
