#include "apps/runtime/shared_model.h"

#include <optional>
#include <utility>

#include "engine/backend/precise_products.h"
#include "engine/core/storage.h"
#include "engine/decoding/loop_settings.h"
#include "engine/families/open_model.h"

namespace tessera {

namespace {

std::size_t index_of(TokenSpace space) { return static_cast<std::size_t>(space); }

// "f32, bf16, q8": what a device keeps.
std::string kept_names(const Backend& backend) {
  std::string out;
  for (const std::string_view name : kKeptNames) {
    if (!backend.keeps(*storage_named(name))) continue;
    out += (out.empty() ? "" : ", ") + std::string(name);
  }
  return out;
}

std::string flag_of(const Setting& row) { return "--" + std::string(row.name); }

}  // namespace

SharedModel::SharedModel(ModelPlace place)
    : place_(std::move(place)),
      backend_(make_backend(place_.device,
                            {.threads = place_.threads,
                             .inputs = place_.inputs.bf16 ? CpuOptions::Inputs::kBF16
                                                          : CpuOptions::Inputs::kByWeights},
                            place_.cuda)) {
  if (place_.inputs.precise && !set_precise(*backend_, true)) refuse_inputs(setting::kPrecise);
  if (place_.inputs.bf16 && backend_->device() != Device{}) refuse_inputs(setting::kBf16Inputs);
  if (place_.inputs.bf16 && place_.storage != DType::kBF16 && place_.storage != DType::kFile) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_INPUTS_DTYPE",
                 .where = flag_of(setting::kBf16Inputs),
                 .expected = "weights of bf16",
                 .found = std::string(dtype_name(place_.storage)),
                 .hint = "add --dtype bf16, or leave the flag out"});
  }
  if (backend_->keeps(place_.storage)) return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_DTYPE_DEVICE",
               .where = "--dtype",
               .expected = kept_names(*backend_) + " on " + backend_->name(),
               .found = std::string(dtype_name(place_.storage)),
               .hint = "choose --device cpu for " + std::string(dtype_name(place_.storage))});
}

void SharedModel::refuse_inputs(const Setting& row) const {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_INPUTS_DEVICE",
               .where = flag_of(row),
               .expected = "the CPU, as other devices round inputs as they do",
               .found = backend_->name(),
               .hint = "choose --device cpu with it"});
}

std::shared_ptr<const StreamModel> SharedModel::space_of(TokenSpace space) const {
  return models_[index_of(space)].lock();
}

std::shared_ptr<const StreamModel> SharedModel::whole() const {
  auto text = space_of(TokenSpace::kText);
  return text == space_of(TokenSpace::kImage) ? text : nullptr;
}

std::size_t SharedModel::weight_bytes() const {
  const auto text = space_of(TokenSpace::kText), image = space_of(TokenSpace::kImage);
  std::size_t bytes = text != nullptr ? text->weight_bytes() : 0;
  if (image != nullptr && image != text) bytes += image->weight_bytes();
  return bytes;
}

std::shared_ptr<const StreamModel> SharedModel::load(TokenSpace space,
                                                     FunctionRef<StreamModel()> alone) {
  if (auto model = space_of(space)) return model;
  const bool both =
      wanted_[0] > 0 && wanted_[1] > 0 && !loaded(TokenSpace::kText) && !loaded(TokenSpace::kImage);
  std::optional<OpenedModel> opened;
  if (both) opened = open_model(place_.folder.string(), {.use = ModelUse::kAll});
  // A family may read its two halves apart: then there is no model with both.
  const bool whole = opened && opened->spec.model.vocab > 0 && opened->spec.model.codes > 0;
  const auto model = std::make_shared<const StreamModel>(
      whole ? load_stream_model(*opened, *backend_, place_.storage) : alone());
  for (auto& each : models_) {
    if (whole || &each == &models_[index_of(space)]) each = model;
  }
  return model;
}

// A task that loaded one of the spaces before keeps its own; those to come share this one.
std::shared_ptr<const StreamModel> SharedModel::load_whole(FunctionRef<StreamModel()> both) {
  if (auto model = whole()) return model;
  const auto model = std::make_shared<const StreamModel>(both());
  for (auto& each : models_) each = model;
  return model;
}

ModelShare::ModelShare(std::shared_ptr<SharedModel> model, WrittenSpaces spaces)
    : model_(std::move(model)),
      space_(spaces == WrittenSpaces::kImage ? TokenSpace::kImage : TokenSpace::kText),
      both_(spaces == WrittenSpaces::kBoth) {
  ++model_->wanted_[index_of(space_)];
  if (both_) ++model_->wanted_[index_of(TokenSpace::kImage)];
}

ModelShare::~ModelShare() {
  --model_->wanted_[index_of(space_)];
  if (both_) --model_->wanted_[index_of(TokenSpace::kImage)];
}

bool ModelShare::loaded_by_others() const {
  return weights_ == nullptr && (both_ ? model_->whole() != nullptr : model_->loaded(space_));
}

void ModelShare::load(FunctionRef<StreamModel()> alone) {
  weights_ = both_ ? model_->load_whole(alone) : model_->load(space_, alone);
}

std::unique_ptr<ModelShare> SharedModels::share(ModelPlace place, WrittenSpaces spaces) {
  if (place.folder.empty()) {
    return std::make_unique<ModelShare>(std::make_shared<SharedModel>(place), spaces);
  }
  std::erase_if(models_, [](const auto& each) { return each.second.expired(); });
  std::weak_ptr<SharedModel>& known = models_[place];
  std::shared_ptr<SharedModel> model = known.lock();
  if (model == nullptr) known = model = std::make_shared<SharedModel>(place);
  return std::make_unique<ModelShare>(std::move(model), spaces);
}

std::size_t SharedModels::weight_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [place, known] : models_) {
    if (const auto model = known.lock()) bytes += model->weight_bytes();
  }
  return bytes;
}

}  // namespace tessera
