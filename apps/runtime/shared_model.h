// Weights that tasks of one folder have in common: one generates images, another describes them,
// both over the same transformer on the same device. A space that no open task asks for is not
// loaded.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "engine/backend/backend.h"
#include "engine/core/function_ref.h"
#include "engine/decoding/loop_settings.h"
#include "engine/model/stream_model.h"

namespace tessera {

// Which model, where, and stored how. Tasks for which all of it is equal share.
struct ModelPlace {
  std::filesystem::path folder;  // empty: a model without files, which is not shared
  std::string device;
  CudaOptions cuda;
  int threads = 0;
  ProductInputs inputs;
  DType storage = DType::kF32;

  friend bool operator<(const ModelPlace& a, const ModelPlace& b) { return a.key() < b.key(); }

 private:
  std::tuple<std::filesystem::path, std::string, bool, bool, bool, int, ProductInputs, DType> key()
      const {
    return {folder, device, cuda.deterministic, cuda.tf32, cuda.overlap, threads, inputs, storage};
  }
};

class SharedModel {
 public:
  // Error kUsage for an unknown device, or one that does not keep the storage type or has other
  // products than `inputs` asks for; also where no weight can be of bf16 and they ask for that.
  explicit SharedModel(ModelPlace place);

  Backend& backend() const { return *backend_; }
  DType storage() const { return place_.storage; }
  // Whether load(space) reads nothing any more.
  bool loaded(TokenSpace space) const { return space_of(space) != nullptr; }
  // Bytes of what is loaded.
  std::size_t weight_bytes() const;

 private:
  friend class ModelShare;
  [[noreturn]] void refuse_inputs(const Setting& row) const;
  std::shared_ptr<const StreamModel> space_of(TokenSpace space) const;
  // The model that has both spaces, if one is loaded.
  std::shared_ptr<const StreamModel> whole() const;
  std::shared_ptr<const StreamModel> load(TokenSpace space, FunctionRef<StreamModel()> alone);
  std::shared_ptr<const StreamModel> load_whole(FunctionRef<StreamModel()> both);

  ModelPlace place_;
  std::unique_ptr<Backend> backend_;
  int wanted_[2] = {0, 0};  // tasks, by space
  // Held by the tasks that loaded them.
  std::weak_ptr<const StreamModel> models_[2];
};

// What a task writes of a model.
enum class WrittenSpaces : std::uint8_t { kText, kImage, kBoth };

// One task's part in a model.
class ModelShare {
 public:
  ModelShare(std::shared_ptr<SharedModel> model, WrittenSpaces spaces);
  ~ModelShare();
  ModelShare(const ModelShare&) = delete;
  ModelShare& operator=(const ModelShare&) = delete;

  const SharedModel& model() const { return *model_; }
  Backend& backend() const { return model_->backend(); }
  // Whether another task has loaded what load() gives.
  bool loaded_by_others() const;
  // A model that writes the space, or both. Where tasks of both are open and nothing is loaded yet,
  // one model of both; else `alone` loads what this task writes. Error kModel, kMemory.
  void load(FunctionRef<StreamModel()> alone);
  // After load().
  bool has_weights() const { return weights_ != nullptr; }
  // Of a task that writes both: its text.
  const TokenModel& tokens() const { return weights_->space(space_); }
  const StreamModel& weights() const { return *weights_; }

 private:
  std::shared_ptr<SharedModel> model_;
  TokenSpace space_;
  bool both_;
  std::shared_ptr<const StreamModel> weights_;
};

// Models that are open in a runtime, by their place.
class SharedModels {
 public:
  std::unique_ptr<ModelShare> share(ModelPlace place, WrittenSpaces spaces);
  // Of all models, each counted once.
  std::size_t weight_bytes() const;

 private:
  std::map<ModelPlace, std::weak_ptr<SharedModel>> models_;
};

}  // namespace tessera
