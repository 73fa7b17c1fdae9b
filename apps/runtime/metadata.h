// Reads what an image file says about its making: our own JSON block, the `parameters` text of
// AUTOMATIC1111's web UI and of stable-diffusion.cpp, and ComfyUI's graph. All of it is a
// stranger's text: limited in size and depth, shown as plain text, never a path or a command.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/runtime/facts.h"
#include "engine/core/error.h"

namespace tessera {

enum class MetadataOrigin : std::uint8_t { kNone, kTessera, kA1111, kStableDiffusionCpp, kComfyUi };
std::string_view metadata_origin_name(MetadataOrigin origin);

struct ImageMetadata {
  MetadataOrigin origin = MetadataOrigin::kNone;
  std::optional<ImageFacts> facts;  // kTessera
  // Names as the file has them, in its order; prompts first as "Prompt" and "Negative prompt".
  std::vector<std::pair<std::string, std::string>> fields;
  std::string digital_source_type;  // XMP; empty if the file has none
  std::vector<std::string> warnings;
};

// Error of `kind` when the file is no whole PNG. Metadata that cannot be understood becomes a
// warning.
ImageMetadata read_metadata(const std::filesystem::path& path,
                              ErrorKind kind = ErrorKind::kGeneral);

// The parts, for tests. `parameters` text to fields; the JSON graph of ComfyUI to fields (Error
// when it is no such graph).
std::vector<std::pair<std::string, std::string>> parse_a1111(std::string_view text);
std::vector<std::pair<std::string, std::string>> parse_comfy_graph(std::string_view json,
                                                                   const std::string& file);

}  // namespace tessera
