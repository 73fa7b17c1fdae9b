// Opens a model by name: what the program is linked with, everything else from disk.
#include "engine/families/open_model.h"

#include "engine/checkpoint/quantised.h"
#include "engine/families/describe.h"
#include "engine/families/linked_models.h"

namespace tessera {

namespace {

class CheckpointSource : public TensorSource {
 public:
  explicit CheckpointSource(std::shared_ptr<const Checkpoint> checkpoint)
      : checkpoint_(std::move(checkpoint)) {}

  ConstTensorView get(const std::string& name) override {
    const ConstTensorView* view = checkpoint_->find(name);
    expects(view != nullptr, "the checkpoint was checked before it is loaded");
    return *view;
  }
  ConstTensorView get_stored(const std::string& name) override {
    return checkpoint_->find_stored(name);
  }
  DType stored_type(const std::string& name) override { return checkpoint_->stored_type(name); }
  void done(const std::string& name) override { checkpoint_->release(name); }
  void done_part(const std::string& name, std::size_t begin, std::size_t end) override {
    checkpoint_->release(name, begin, end);
  }
  std::string file_of(const std::string& name) const override { return checkpoint_->file_of(name); }

 private:
  std::shared_ptr<const Checkpoint> checkpoint_;
};

}  // namespace

std::unique_ptr<TensorSource> source_of(std::shared_ptr<const Checkpoint> checkpoint) {
  return std::make_unique<CheckpointSource>(std::move(checkpoint));
}

Checkpoint open_weights(const std::filesystem::path& path, const ModelSpec& spec) {
  Checkpoint weights = spec.parts.files.empty()
                           ? Checkpoint::open(path)
                           : Checkpoint::open_parts(spec.parts.files, spec.parts.rule);
  if (spec.quantised != nullptr) weights.dequantise(*spec.quantised);
  return weights;
}

std::string quantised_title(const ModelSpec& spec) {
  return spec.quantised == nullptr ? "" : " (" + spec.quantised->name + ")";
}

const LinkedModels* source_with(std::string_view name) {
  const LinkedModels* const linked = linked_models();
  return linked != nullptr && linked->has(name) ? linked : nullptr;
}

OpenedModel open_model(const std::string& name, const FamilyOptions& options) {
  if (const LinkedModels* made_up = source_with(name)) return made_up->open(name, options);
  return open_model(load_model_spec(name, options));
}

UsableModel open_usable(const std::string& name) {
  try {
    return {open_model(name, {.use = ModelUse::kAll}), {}};
  } catch (const Error& error) {
    if (source_with(name) != nullptr || !describes_images(name)) throw;
    try {
      return {open_model(name, {.use = ModelUse::kDescribe}), error.what()};
    } catch (const Error&) {  // the first one says more
    }
    throw;
  }
}

OpenedModel open_model(ModelSpec spec) {
  OpenedModel model;
  Checkpoint weights = open_weights(spec.weights, spec);
  if (spec.describe && !spec.describe->tower.folder.empty() &&
      !has_tower(spec.describe->tower, weights)) {
    weights.add(Checkpoint::open(spec.describe->tower.folder));
  }
  model.weights = std::make_shared<const Checkpoint>(std::move(weights));
  if (spec.generates()) {
    check_tensors(spec, *model.weights);
    model.vq_weights = model.weights;
    if (!spec.vq_weights.empty()) {
      model.vq_weights = std::make_shared<const Checkpoint>(Checkpoint::open(spec.vq_weights));
      check_vq_tensors(spec, *model.vq_weights);
    }
  }
  if (spec.describe) settle_describing(spec, *model.weights);
  spec.title += quantised_title(spec);
  model.spec = std::move(spec);
  model.source = source_of(model.weights);
  return model;
}

}  // namespace tessera
