#include "apps/runtime/quantize_tensors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "apps/runtime/quantize_source.h"
#include "engine/core/block_write.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/json.h"
#include "engine/core/thread_pool.h"

namespace tessera {

namespace {

constexpr std::int64_t kNumbersAtOnce = std::int64_t{1} << 20;
constexpr double kMaxSum = std::numeric_limits<double>::max();

class NumberWriter {
 public:
  NumberWriter(const TensorOnItsWay& tensor, GgufWriter& writer, ThreadPool& pool)
      : tensor_(tensor),
        writer_(writer),
        pool_(pool),
        write_(block_writer(*tensor.type)),
        row_(tensor.shape[tensor.shape.rank() - 1]) {
    expects(write_ != nullptr, "the format has a writer");
    expects(tensor.inputs.empty() || std::ssize(tensor.inputs) == row_, "an input a column");
  }

  void run() {
    const std::int64_t all = tensor_.shape.elements();
    const std::int64_t rows =
        std::max<std::int64_t>(1, kNumbersAtOnce / std::max<std::int64_t>(row_, 1));
    for (std::int64_t first = 0; first < all; first += rows * row_) {
      part(first, std::min(rows * row_, all - first));
    }
  }

  double error() const { return error_; }
  double size() const { return size_; }

 private:
  void part(std::int64_t first, std::int64_t count) {
    numbers_.resize(to_size(count));
    tensor_.read(first, count, numbers_.data());
    check(first);
    const BlockType& type = *tensor_.type;
    bytes_.resize(to_size(count / type.numbers) * type.bytes);
    const std::int64_t rows = count / std::max<std::int64_t>(row_, 1);
    errors_.assign(to_size(rows), {});
    pool_.parallel_for(rows, 1, [&](std::int64_t from, std::int64_t to, int) {
      for (std::int64_t row = from; row < to; ++row) write_row(row);
    });
    for (const auto& [error, size] : errors_) {
      error_ += error;
      size_ += size;
    }
    writer_.append(bytes_);
  }

  void write_row(std::int64_t row) {
    const BlockType& type = *tensor_.type;
    const std::int64_t blocks = row_ / type.numbers;
    const float* const from = numbers_.data() + row * row_;
    std::byte* const to = bytes_.data() + to_size(row * blocks) * type.bytes;
    const BlockForm* const form = find_block_form(type.id);
    if (form != nullptr && !tensor_.inputs.empty()) {
      write_searched(*form, type.bytes, from, tensor_.inputs.data(), blocks, to);
    } else {
      write_(from, blocks, to);
    }
    if (tensor_.read_before == 0) return;
    std::vector<float> back(to_size(row_));
    type.read(to, blocks, back.data());
    auto& [error, size] = nth(errors_, row);
    for (std::size_t i = 0; i < back.size(); ++i) {
      const double weight = tensor_.inputs.empty() ? 1.0 : to_double(tensor_.inputs[i]);
      const double number = to_double(from[i]), off = number - to_double(back[i]);
      error += weight * off * off;
      size += weight * number * number;
    }
  }

  void check(std::int64_t first) const {
    const bool half = tensor_.type == block_type_of(DType::kF16);
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      const float size = std::abs(numbers_[i]);
      if (std::isfinite(size) && !(half && size > kMaxF16)) continue;
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
  ThreadPool& pool_;
  BlockWriter write_;
  std::int64_t row_;
  std::vector<float> numbers_;
  std::vector<std::byte> bytes_;
  std::vector<std::pair<double, double>> errors_;  // of rows: its squares, the numbers'
  double error_ = 0, size_ = 0;
};

// Sums over the matrices that were written, as QuantizeReport has them.
struct Errors {
  double error = 0, size = 0;
};

std::string note_of(const Errors& errors) {
  return Json({{"error", errors.error}, {"size", errors.size}}).dump();
}

Errors noted(const std::string& note) {
  if (note.empty()) return {};
  const Json sums = parse_json(note, "note");
  const JsonReader reader(sums, "note");
  const auto sum = [&](const char* key) { return reader.number(key, 0, kMaxSum); };
  return {.error = sum("error"), .size = sum("size")};
}

void write_tensor(const TensorOnItsWay& tensor, GgufWriter& writer, ThreadPool& pool,
                  Errors& errors) {
  if (tensor.read) {
    NumberWriter numbers(tensor, writer, pool);
    numbers.run();
    errors.error += numbers.error();
    errors.size += numbers.size();
  } else {
    writer.append(tensor.as_it_is);
  }
  if (tensor.done) tensor.done();
}

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

void set_matrix(TensorOnItsWay& tensor, WeightRole role, const BlockType* source,
                const InputSquares& inputs, const std::string& name) {
  if (role == WeightRole::kTable) return;
  const BlockType& own = source != nullptr ? *source : *block_type_of(DType::kF32);
  tensor.read_before = std::uint64_t(tensor.shape.elements() / own.numbers) * own.bytes;
  const auto found = inputs.find(name);
  if (found != inputs.end()) tensor.inputs = found->second;
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
                   std::span<const TensorOnItsWay> tensors,
                   const std::set<std::filesystem::path>& files, const QuantizeJob& job,
                   QuantizeReport& report) {
  std::vector<GgufPlanned> planned;
  for (const TensorOnItsWay& tensor : tensors) {
    planned.push_back({tensor.name, tensor.type, tensor.shape});
  }
  GgufWriter writer(path, keys, planned, source_of(job.options, files));
  std::uint64_t written = writer.bytes();
  for (const GgufPlanned& tensor : planned) written -= tensor.bytes();
  Errors errors = noted(writer.note());
  ThreadPool pool;
  double marked = monotonic_seconds();
  const std::size_t before = writer.done();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorOnItsWay& tensor = tensors[i];
    if (i >= before) write_tensor(tensor, writer, pool, errors);
    QuantizeReport::Share& share = report.types[std::string(tensor.type->name)];
    ++share.tensors;
    share.bytes += planned[i].bytes();
    report.read_before += tensor.read_before;
    if (tensor.read_before > 0) report.read_after += planned[i].bytes();
    written += planned[i].bytes();
    if (i < before) continue;
    const bool go_on = job.listener.on_tensor(tensor.name, written, writer.bytes());
    if (!go_on || monotonic_seconds() - marked >= job.options.mark_seconds) {
      writer.mark(note_of(errors));
      marked = monotonic_seconds();
    }
    if (go_on) continue;
    writer.keep();
    return false;
  }
  writer.publish();
  report.error += errors.error;
  report.size += errors.size;
  report.bytes_after += writer.bytes();
  return true;
}

}  // namespace tessera
