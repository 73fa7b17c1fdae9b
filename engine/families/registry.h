// The table of checkpoint families: how a folder or file is recognised, and how it becomes a spec.
// A new family is one file, one row here and its tests (docs/adding-a-model.md).
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/families/family_spec.h"

namespace tessera {

struct FamilyOptions {
  std::int64_t image_size = 0;  // pixels; only for families whose files do not say (LlamaGen .pt)
};

// A folder with config.json and weights, or one .pt weight file. Reads the configuration and, where
// a family has none, names and shapes of the weights; never their contents, and never runs code
// that a repository ships. Error kModel: file, JSON path, allowed range, value; an unknown family
// lists the known ones.
FamilySpec load_family_spec(const std::filesystem::path& path, const FamilyOptions& options = {});

// The configuration alone, for instance out of a test; `file` is its name in messages. Families
// that need weight shapes refuse.
FamilySpec parse_family_config(std::string_view json, const std::string& file,
                               const FamilyOptions& options = {});

// "cosmos", "emu3", "janus", "llamagen".
std::vector<std::string_view> family_names();

}  // namespace tessera
