// Text models: keys and tensors of a GGUF file, out of a folder or out of another such file.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/runtime/completion_model.h"
#include "apps/runtime/gguf_tokenizer.h"
#include "apps/runtime/quantize_tensors.h"
#include "apps/runtime/text_stops.h"
#include "engine/checkpoint/gguf_weights.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/storage.h"
#include "engine/families/gguf_config.h"
#include "tokenizers/text/listed_tokenizer.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

// --- from a folder

class FolderToFile {
 public:
  FolderToFile(const fs::path& folder, const QuantizeJob& job)
      : folder_(folder), job_(job), model_(CompletionModel::open(folder)) {}

  QuantizeReport run() {
    const GgufConfigKeys config = put_config();
    put_texts();
    architecture_ = config.architecture;
    divisors_ = config.divisors;
    if (!divisors_.empty()) tensors_.push_back(divisors());
    const WeightRoles roles = weight_roles(model_->spec(), model_->weights());
    for (const TensorSpec& tensor : model_->spec().tensors) add(tensor, roles);
    put_file_type(job_.types, tensors_, keys_);
    QuantizeReport report;
    const std::set<fs::path> files = weight_files(model_->weights());
    report.bytes_before = bytes_of_files(files);
    report.finished = write_tensors(job_.options.output, keys_, tensors_, files, job_, report);
    model_->weights().verify_unchanged();
    return report;
  }

 private:
  GgufConfigKeys put_config() {
    GgufKeys of_config;
    GgufConfigKeys config = write_gguf_config(model_->text(), of_config);
    for (const std::string& said : config.said) job_.listener.on_notice(said);
    keys_.text("general.architecture", config.architecture);
    keys_.text("general.type", "model");
    keys_.text("general.name", fs::weakly_canonical(folder_).filename().string());
    keys_.append(of_config);
    return config;
  }

  void put_texts() {
    write_gguf_texts(list_tokenizer(folder_, model_->spec().model.vocab), model_->stops(), keys_);
    const fs::path generation = generation_path(folder_);
    if (file_exists(generation)) keys_.text(kGgufGeneration, read_file(generation, 1 << 20));
    const std::optional<FolderTemplate>& chat = model_->chat_template();
    if (!chat) return;
    keys_.text("tokenizer.chat_template", chat->text);
    for (const auto& [name, unused] : chat->special_tokens) {
      if (name == "bos_token" || name == "eos_token" || !chat->source.names(name)) continue;
      job_.listener.on_notice("the chat template reads " + name + ", for which there is no key");
    }
  }

  TensorOnItsWay divisors() const {
    const auto count = std::ssize(divisors_);
    return {.name = std::string(kGgufFrequencies),
            .file = folder_.string(),
            .shape = Shape{count},
            .type = block_type_of(DType::kF32),
            .as_it_is = std::as_bytes(std::span(divisors_)),
            .read = {},
            .done = {}};
  }

  // Rows of queries and keys that files have in pairs, of heads of so many rows; 0 = none.
  std::int64_t paired_width(const std::string& own) const {
    return paired_rows(architecture_, own) == PairedRows::kNone
               ? 0
               : model_->spec().model.transformer.head_dim;
  }

  void add(const TensorSpec& spec, const WeightRoles& roles) {
    const Checkpoint& weights = model_->weights();
    const ConstTensorView view = weights.tensors().find(spec.name)->second;
    const std::string own = gguf_name(spec.name), file = weights.file_of(spec.name);
    expects(!own.empty(), "files have a name for every tensor of a text model");
    const auto role = roles.find(spec.name);
    const BlockType* type = block_type_of(DType::kF32);  // of norms and biases, whatever they were
    if (role != roles.end()) {
      type = &settled_type(job_.types, job_.options.requantize, role->second, spec.shape,
                           block_type_of(view.dtype), own, file, job_.listener);
    }
    const std::int64_t width = paired_width(own);
    const std::int64_t unit = spec.shape.rank() == 2 ? spec.shape[1] : 1;
    const auto read = [&weights, name = spec.name, width, unit](std::int64_t first,
                                                                std::int64_t count, float* out) {
      const ConstTensorView& numbers = *weights.find(name);
      if (width == 0) return read_numbers(numbers, first, 1, count, out);
      for (std::int64_t at = first / unit; at < (first + count) / unit; ++at, out += unit) {
        read_numbers(numbers, unpaired_place(at, width) * unit, 1, unit, out);
      }
    };
    tensors_.push_back({.name = own,
                        .file = file,
                        .shape = spec.shape,
                        .type = type,
                        .as_it_is = {},
                        .read = read,
                        .done = [&weights, name = spec.name] { weights.release(name); }});
    if (role == roles.end()) return;
    set_matrix(tensors_.back(), role->second, block_type_of(view.dtype), job_.inputs, spec.name);
  }

  fs::path folder_;
  const QuantizeJob& job_;
  std::unique_ptr<CompletionModel> model_;
  GgufKeys keys_;
  std::string architecture_;
  std::vector<float> divisors_;
  std::vector<TensorOnItsWay> tensors_;
};

// --- from a GGUF file

class FileToFile {
 public:
  FileToFile(const fs::path& path, const QuantizeJob& job)
      : parts_(gguf_parts(path)), job_(job), model_(CompletionModel::open(path)) {
    for (const fs::path& part : parts_) files_.emplace_back(part);
  }

  QuantizeReport run() {
    GgufKeys keys = copied_keys();
    const WeightRoles roles = weight_roles(model_->spec(), model_->weights());
    for (std::size_t i = 0; i < files_.size(); ++i) {
      const GgufFile part = parse_gguf(files_[i].bytes(), parts_[i].string());
      for (const GgufWeight& weight :
           gguf_weights(*model_->weights().gguf(), part, i, parts_[i].string())) {
        add(weight, roles);
      }
    }
    put_file_type(job_.types, tensors_, keys);
    QuantizeReport report;
    const std::set<fs::path> files(parts_.begin(), parts_.end());
    report.bytes_before = bytes_of_files(files);
    report.finished = write_tensors(job_.options.output, keys, tensors_, files, job_, report);
    model_->weights().verify_unchanged();
    return report;
  }

 private:
  // All but what tells of the file itself.
  GgufKeys copied_keys() const {
    GgufKeys out;
    const GgufFile& head = *model_->weights().gguf();
    const auto copy = [&](std::string_view key) {
      if (const GgufValue* value = head.find(key)) out.copy(key, *value);
    };
    copy("general.architecture");  // first, as in other files
    for (const auto& [key, unused] : head.keys) {
      const bool own =
          key.starts_with("split.") || key == "general.alignment" || key == "general.architecture";
      if (!own) copy(key);
    }
    return out;
  }

  void add(const GgufWeight& weight, const WeightRoles& roles) {
    const GgufTensor& tensor = weight.tensor;
    const MappedFile& file = files_[weight.file];
    TensorOnItsWay out{
        .name = tensor.name,
        .file = file.path().string(),
        .shape = tensor.shape,
        .type = tensor.type,
        .as_it_is = {},
        .read = {},
        .done = [&file, tensor] { file.release(tensor.begin, tensor.end - tensor.begin); }};
    const auto role = roles.find(weight.name);
    if (role != roles.end()) {
      out.type = &settled_type(job_.types, job_.options.requantize, role->second, tensor.shape,
                               tensor.type, tensor.name, out.file, job_.listener);
      set_matrix(out, role->second, tensor.type, job_.inputs, weight.name);
    }
    // Rows stay in the order that files have.
    const std::span<const std::byte> bytes =
        file.bytes().subspan(tensor.begin, tensor.end - tensor.begin);
    if (out.type == tensor.type) {
      out.as_it_is = bytes;
    } else {
      out.read = [bytes, type = tensor.type](std::int64_t first, std::int64_t count, float* to) {
        type->read(bytes.data() + to_size(first / type->numbers) * type->bytes,
                   count / type->numbers, to);
      };
    }
    tensors_.push_back(std::move(out));
  }

  std::vector<fs::path> parts_;
  const QuantizeJob& job_;
  std::unique_ptr<CompletionModel> model_;
  std::vector<MappedFile> files_;
  std::vector<TensorOnItsWay> tensors_;
};

}  // namespace

QuantizeReport quantize_text(const fs::path& path, const QuantizeJob& job) {
  if (is_gguf_file(path)) return FileToFile(path, job).run();
  return FolderToFile(path, job).run();
}

}  // namespace tessera
