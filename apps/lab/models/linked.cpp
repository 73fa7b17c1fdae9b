// The models of the laboratory in a program that is linked with this object.
#include "apps/lab/models/test_models.h"
#include "engine/families/linked_models.h"

namespace tessera {

namespace {

class LaboratoryModels final : public LinkedModels {
 public:
  bool has(std::string_view name) const override { return is_made_up_model(name); }
  bool describes(std::string_view name) const override { return is_made_up_captioner(name); }
  OpenedModel open(const std::string& name, const FamilyOptions& options) const override {
    return make_up_model(name, options);
  }
};

}  // namespace

const LinkedModels* linked_models() {
  static const LaboratoryModels models;
  return &models;
}

}  // namespace tessera
