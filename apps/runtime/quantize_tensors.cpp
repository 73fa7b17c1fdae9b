#include "apps/runtime/quantize_tensors.h"

#include <algorithm>
#include <cmath>

#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::int64_t kNumbersAtOnce = std::int64_t{1} << 20;
constexpr float kLargestHalf = 65504.0f;

class NumberWriter {
 public:
  NumberWriter(const TensorOnItsWay& tensor, GgufWriter& writer)
      : tensor_(tensor), writer_(writer), write_(block_writer(*tensor.type)) {
    expects(write_ != nullptr, "the format has a writer");
  }

  void run() {
    const std::int64_t all = tensor_.shape.elements();
    const std::int64_t row = tensor_.shape[tensor_.shape.rank() - 1];
    const std::int64_t rows =
        std::max<std::int64_t>(1, kNumbersAtOnce / std::max<std::int64_t>(row, 1));
    for (std::int64_t first = 0; first < all; first += rows * row) {
      part(first, std::min(rows * row, all - first));
    }
  }

 private:
  void part(std::int64_t first, std::int64_t count) {
    numbers_.resize(to_size(count));
    tensor_.read(first, count, numbers_.data());
    check(first);
    const BlockType& type = *tensor_.type;
    bytes_.resize(to_size(count / type.numbers) * type.bytes);
    write_(numbers_.data(), count / type.numbers, bytes_.data());
    writer_.append(bytes_);
  }

  void check(std::int64_t first) const {
    const bool half = tensor_.type->name == "F16";
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      const float size = std::abs(numbers_[i]);
      if (std::isfinite(size) && !(half && size > kLargestHalf)) continue;
      throw Error({.kind = ErrorKind::kModel,
                   .code = "E_WEIGHT_NOT_FINITE",
                   .file = tensor_.file,
                   .where = tensor_.name + " index " + std::to_string(first + to_index(i)),
                   .expected = half ? "numbers up to 65504, the largest f16" : "finite weights",
                   .found = std::to_string(numbers_[i])});
    }
  }

  const TensorOnItsWay& tensor_;
  GgufWriter& writer_;
  BlockWriter write_;
  std::vector<float> numbers_;
  std::vector<std::byte> bytes_;
};

}  // namespace

std::set<std::filesystem::path> weight_files(const Checkpoint& weights) {
  std::set<std::filesystem::path> out;
  for (const auto& [name, unused] : weights.tensors()) out.insert(weights.file_of(name));
  return out;
}

std::uint64_t bytes_of_files(const std::set<std::filesystem::path>& files) {
  std::uint64_t out = 0;
  for (const std::filesystem::path& file : files) out += std::filesystem::file_size(file);
  return out;
}

const BlockType& settled_type(const QuantizeTypes& types, bool requantize, WeightRole role,
                              const Shape& shape, const BlockType* source, const std::string& name,
                              const std::string& file, QuantizeListener& listener) {
  const ChosenType chosen = types.choose(role, shape, source);
  if (source != nullptr && source->numbers > 1 && chosen.type != source && !requantize) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_QUANTIZE_BLOCKS",
                 .file = file,
                 .where = "tensor \"" + name + "\"",
                 .expected = "weights that were not rounded to blocks before",
                 .found = std::string(source->name),
                 .hint = "take the model that the file was made from, or --requantize"});
  }
  if (!chosen.why.empty()) {
    listener.on_notice(name + " is " + std::string(chosen.type->name) + ": " + chosen.why);
  }
  return *chosen.type;
}

void put_file_type(const QuantizeTypes& types, std::span<const TensorOnItsWay> tensors,
                   GgufKeys& keys) {
  constexpr std::uint32_t kLayoutOfBlocks = 2;  // the one that files have had since 2023
  keys.u32("general.file_type", types.file_type());
  const bool blocks = std::any_of(tensors.begin(), tensors.end(), [](const TensorOnItsWay& tensor) {
    return tensor.type->numbers > 1;
  });
  if (blocks) keys.u32("general.quantization_version", kLayoutOfBlocks);
}

bool write_tensors(const std::filesystem::path& path, const GgufKeys& keys,
                   std::span<const TensorOnItsWay> tensors, QuantizeListener& listener,
                   QuantizeReport& report) {
  std::vector<GgufPlanned> planned;
  for (const TensorOnItsWay& tensor : tensors) {
    planned.push_back({tensor.name, tensor.type, tensor.shape});
  }
  GgufWriter writer(path, keys, planned);
  std::uint64_t written = writer.bytes();
  for (const GgufPlanned& tensor : planned) written -= tensor.bytes();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorOnItsWay& tensor = tensors[i];
    if (tensor.read) {
      NumberWriter(tensor, writer).run();
    } else {
      writer.append(tensor.as_it_is);
    }
    if (tensor.done) tensor.done();
    QuantizeReport::Share& share = report.types[std::string(tensor.type->name)];
    ++share.tensors;
    share.bytes += planned[i].bytes();
    written += planned[i].bytes();
    if (!listener.on_tensor(tensor.name, written, writer.bytes())) return false;
  }
  writer.publish();
  report.bytes_after += writer.bytes();
  return true;
}

}  // namespace tessera
