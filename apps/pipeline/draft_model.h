// A second model that guesses for the first: opened and checked against it, loaded when painting
// begins.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apps/pipeline/prompt_encoder.h"
#include "engine/decoding/drafters/model_drafter.h"
#include "engine/families/open_model.h"

namespace tessera {

// Error kModel, E_MODEL_DRAFT, for a folder that guesses for other models only.
void check_paints(const FamilySpec& spec, const std::string& name);

class DraftModel {
 public:
  // `name` as resolve_model() takes it. Error kUsage, E_DRAFT_CODES, E_DRAFT_GRID or
  // E_DRAFT_STREAM, naming both models' figures when it does not speak the target's codes; kModel
  // for a bad model.
  static std::unique_ptr<DraftModel> open(const std::string& name, const StreamModelConfig& target,
                                          const std::string& target_name, Backend& backend);

  // A draft model that imitates a guided law runs without guidance of its own.
  DraftItem item(const std::string& prompt, const std::optional<std::string>& negative,
                 const LawSettings& law) const;
  // Reads the weights at the first call.
  std::unique_ptr<ModelDrafter> make_drafter(const DraftLimits& limits);
  std::size_t bytes(const DraftLimits& limits) const;  // weights, cache and buffers
  const std::string& name() const { return name_; }

 private:
  DraftModel(std::string name, OpenedModel opened, Backend& backend);

  std::string name_;
  OpenedModel opened_;
  Backend& backend_;
  PromptEncoder prompts_;
  DType storage_;
  std::optional<StreamModel> model_;
};

}  // namespace tessera
