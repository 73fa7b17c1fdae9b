// The table of checkpoint families: how a folder or file is recognised, and how it becomes a spec.
// A new family is one file, one row here and its tests (docs/adding-a-model.md).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/json.h"
#include "engine/families/model_spec.h"

namespace tessera {

// What a model is wanted for.
enum class ModelUse : std::uint8_t {
  kGenerate,
  kDescribe,
  kAll,  // whichever of the two its files are for; both over one transformer where they are
};

struct FamilyOptions {
  // Pixels that are asked for, 0 = the model's own; only for families whose files do not say
  // (LlamaGen .pt), or which write images of several sizes.
  std::int64_t width = 0, height = 0;
  ModelUse use = ModelUse::kGenerate;

  std::int64_t side() const { return width == height ? width : 0; }  // of a square, else 0
};

// A folder with config.json and weights, or one .pt weight file. Reads the configuration and, where
// a family has none, names and shapes of the weights; never their contents, and never runs code
// that a repository ships. Error kModel: file, JSON path, allowed range, value; an unknown family
// lists the known ones (E_FAMILY_UNKNOWN; E_FAMILY under ModelUse::kDescribe).
ModelSpec load_model_spec(const std::filesystem::path& path, const FamilyOptions& options = {});

// The configuration of a model that generates, for instance out of a test; `file` is its name in
// messages. Families that need weight shapes refuse.
ModelSpec parse_family_config(std::string_view json, const std::string& file,
                              const FamilyOptions& options = {});
// The same of one that describes, from what config.json, preprocessor_config.json and
// video_preprocessor_config.json hold; `folder` is their place in messages.
ModelSpec parse_describing_config(std::shared_ptr<const Json> config,
                                  const std::optional<Json>& preprocessor,
                                  const std::optional<Json>& video_preprocessor,
                                  const std::filesystem::path& folder);

// Families that generate: "chameleon", "cosmos", "emu3", "janus", "llamagen", "nbp".
std::vector<std::string_view> family_names();
// model_types that describe images: "llava, llava_next, ...".
std::string describing_types();
// Whether the folder's config.json names one of them.
bool describes_images(const std::filesystem::path& folder);

// The image encoder of a config.json; `file` is its name in messages. Error kModel naming file,
// JSON path, what was expected and what was found.
VisionTower parse_vision_tower(const Json& config, const std::string& file);

// Published preprocessing by name: "llava-1.5" (authors: pad), "llava-1.5-hf" (crop), "llava-next"
// (grid order of Hugging Face), "llava-next-authors", "llava-onevision", "janus" (authors),
// "janus-hf", "qwen2-vl", "idefics3", "smolvlm", "smolvlm-500m", "emu3", "chameleon". Error kUsage,
// E_POLICY, for another name.
PreprocessPolicy preprocess_policy(std::string_view name);
std::vector<std::string> preprocess_policy_names();

// Chat forms of all families: "llava-1.5", "llava-1.6-yi", "qwen2-vl", ...
std::vector<const ChatForm*> chat_forms();

}  // namespace tessera
