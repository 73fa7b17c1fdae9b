// Models of images and videos: a copy of their folder in which the matrices of the transformer are
// in a GGUF file and all other tensors in a safetensors file, as an index says.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/runtime/quantize_source.h"
#include "apps/runtime/quantize_tensors.h"
#include "engine/checkpoint/gguf_weights.h"
#include "engine/core/atomic_file.h"
#include "engine/core/file_stream.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/storage.h"
#include "engine/families/open_model.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr const char* kBlocks = "model-blocks.gguf";
constexpr const char* kRest = "model-rest.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

[[noreturn]] void refuse_model(const fs::path& file, std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_QUANTIZE_MODEL",
               .file = file.string(),
               .where = "model",
               .expected = std::move(expected),
               .found = std::move(found)});
}

// A folder under another name next to the one that it becomes; removed unless it did or is kept for
// a later run. One process at a time.
class NewFolder {
 public:
  explicit NewFolder(const fs::path& target)
      : target_(target),
        path_(target_.string() + ".part"),
        lock_(target_.string() + ".lock", AppendFile::Lock::kExclusive) {
    make_folders_durable(path_);
  }
  ~NewFolder() {
    std::error_code ignored;  // the error that led here is the one that counts
    if (!path_.empty() && !kept_) fs::remove_all(path_, ignored);
    fs::remove(lock_.path(), ignored);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const fs::path& path() const { return path_; }
  void keep() { kept_ = true; }

  void publish() {
    const fs::path old = path_.string() + "-old";
    const bool replaces = file_exists(target_);
    if (replaces) rename_durable(target_, old);
    rename_durable(path_, target_);
    path_.clear();
    std::error_code ignored;  // the new folder is there
    if (replaces) fs::remove_all(old, ignored);
  }

 private:
  fs::path target_, path_;
  AppendFile lock_;
  bool kept_ = false;
};

void copy_bytes(const fs::path& from, const fs::path& to) {
  InputFile in(from, ErrorKind::kModel);
  AtomicFile out(to, in.size());
  std::vector<char> buffer(std::size_t{1} << 20);
  while (const std::size_t got = in.read(buffer.data(), buffer.size())) {
    out.append(std::as_bytes(std::span(buffer.data(), got)));
  }
  out.publish();
}

// Files of other forms of the same weights, which a folder of them would choose from.
bool is_weight_name(const std::string& name) {
  const bool model = name.starts_with("model") || name.starts_with("pytorch_model");
  const bool weights = name.ends_with(".safetensors") || name.ends_with(".bin") ||
                       name.ends_with(".pt") || name.ends_with(".pth") || name.ends_with(".gguf");
  return (model && weights) || name.ends_with(".index.json");
}

class FolderCopy {
 public:
  FolderCopy(const fs::path& folder, const QuantizeJob& job)
      : folder_(folder), job_(job), model_(open(folder)), target_(output_path(job.options)) {
    if (problem_.empty()) return;
    job_.listener.on_notice("the copy is made to describe images, as the model generates none: " +
                            problem_);
  }

  QuantizeReport run() {
    sort_tensors();
    QuantizeReport report;
    const std::set<fs::path> files = weight_files(weights());
    report.bytes_before = bytes_of_files(files);
    if (!write_blocks(files, report)) {
      target_.keep();
      return report;
    }
    write_rest(report);
    write_index();
    copy_others(folder_, target_.path(), true);
    weights().verify_unchanged();
    check_copy();
    target_.publish();
    if (!model_.spec.draft_model.empty()) {
      job_.listener.on_notice("the model " + model_.spec.draft_model +
                              ", which drafts for this one, is looked for next to the copy");
    }
    report.finished = true;
    return report;
  }

 private:
  OpenedModel open(const fs::path& folder) {
    if (!is_folder(folder) || !file_exists(folder / "config.json")) {
      refuse_model(folder, "a folder with a config.json, or a text model",
                   is_folder(folder) ? "a folder without one" : "a file");
    }
    UsableModel usable = open_usable(folder.string());
    problem_ = std::move(usable.problem);
    return std::move(usable.model);
  }

  const Checkpoint& weights() const { return *model_.weights; }

  void sort_tensors() {
    const WeightRoles roles = weight_roles(model_.spec, weights());
    for (const auto& [name, view] : weights().tensors()) {
      const auto role = roles.find(name);
      const BlockType* const blocks = weights().blocks_of(name);
      const BlockType* const source = blocks != nullptr ? blocks : block_type_of(view.dtype);
      const BlockType* type = source;
      if (role != roles.end()) {
        type = &settled_type(job_.types, job_.options.requantize, role->second, view.shape, source,
                             name, weights().file_of(name), job_.listener);
      }
      const bool stays = type == source && blocks == nullptr;
      if (stays) {
        rest_.push_back(name);
        continue;
      }
      add(name, view.shape, *type);
      if (role == roles.end()) continue;
      set_matrix(tensors_.back(), role->second, source, job_.inputs, name);
    }
    if (tensors_.empty()) {
      refuse_model(folder_, "matrices of another type than " + job_.options.type, "none");
    }
  }

  void add(const std::string& name, const Shape& shape, const BlockType& type) {
    tensors_.push_back({.name = name,
                        .file = weights().file_of(name),
                        .shape = shape,
                        .type = &type,
                        .as_it_is = {},
                        .read =
                            [this, name](std::int64_t first, std::int64_t count, float* out) {
                              read_numbers(*weights().find(name), first, 1, count, out);
                            },
                        .done = [this, name] { weights().release(name); }});
  }

  bool write_blocks(const std::set<fs::path>& files, QuantizeReport& report) {
    GgufKeys keys;
    keys.text("general.architecture", kPlainArchitecture);
    put_file_type(job_.types, tensors_, keys);
    return write_tensors(target_.path() / kBlocks, keys, tensors_, files, job_, report);
  }

  void write_rest(QuantizeReport& report) {
    std::map<std::string, ConstTensorView> views;
    for (const std::string& name : rest_) views.emplace(name, *weights().find(name));
    if (views.empty()) return;
    const fs::path path = target_.path() / kRest;
    write_safetensors(path, views, {{"format", "pt"}});
    report.bytes_after += fs::file_size(path);
  }

  void write_index() const {
    nlohmann::ordered_json map = nlohmann::ordered_json::object();
    for (const TensorOnItsWay& tensor : tensors_) map[tensor.name] = kBlocks;
    for (const std::string& name : rest_) map[name] = kRest;
    write_file_atomic(target_.path() / kIndex,
                      nlohmann::ordered_json({{"weight_map", std::move(map)}}).dump(1) + "\n");
  }

  // All files but those with the weights; what begins with a dot is a tool's.
  void copy_others(const fs::path& from, const fs::path& to, bool top) const {
    std::set<fs::path> opened;
    for (const fs::path& file : weight_files(weights())) opened.insert(fs::weakly_canonical(file));
    for (const fs::path& path : list_folder(from)) {
      const std::string name = path.filename().string();
      if (name.starts_with('.')) continue;
      if (is_folder(path)) {
        make_folders_durable(to / name);
        copy_others(path, to / name, false);
        continue;
      }
      const bool ours = opened.contains(fs::weakly_canonical(path));
      if (!ours && !(top && is_weight_name(name))) copy_bytes(path, to / name);
    }
  }

  // The copy is opened as the model was, before it gets its name.
  void check_copy() {
    const OpenedModel copy = open(target_.path());
    const bool same = copy.weights->tensors().size() == weights().tensors().size() &&
                      copy.spec.family == model_.spec.family;
    if (same) return;
    refuse_model(folder_, "a copy with the tensors of the folder",
                 std::to_string(copy.weights->tensors().size()) + " in place of " +
                     std::to_string(weights().tensors().size()));
  }

  fs::path folder_;
  const QuantizeJob& job_;
  std::string problem_;  // why it generates nothing
  OpenedModel model_;
  NewFolder target_;
  std::vector<TensorOnItsWay> tensors_;
  std::vector<std::string> rest_;
};

}  // namespace

QuantizeReport quantize_folder(const fs::path& path, const QuantizeJob& job) {
  return FolderCopy(path, job).run();
}

}  // namespace tessera
