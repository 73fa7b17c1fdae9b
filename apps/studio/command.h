// What a user of the viewer may ask for. Commands are data: panels, the key map, the self-test and
// dropped files all post the same ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "apps/pipeline/generate_pipeline.h"
#include "engine/decoding/decode_method.h"

namespace tessera {

enum class SeedMode : std::uint8_t { kLocked, kPlusOne, kRandom };

// All that decides a picture. Empty settings come from the model's preset.
struct PaintSettings {
  std::string model;  // as resolve_model() takes it; empty = the bundled default
  std::string prompt;
  std::optional<std::string> negative_prompt;
  SamplingChoice sampling;
  DecodeMethod method;
  std::string draft_model;
  std::optional<DType> storage;
  std::uint64_t seed = 0;
  std::int64_t width = 0, height = 0;  // pixels; 0 = what the model does
  bool operator==(const PaintSettings&) const = default;
};

// Queues `count` pictures. kLocked: all of settings.seed; kPlusOne: counting up from it; kRandom:
// drawn by lot each.
struct PaintCommand {
  PaintSettings settings;
  SeedMode seed_mode = SeedMode::kLocked;
  std::int64_t count = 1;
};
// Queues two pictures that are to be looked at side by side.
struct CompareCommand {
  PaintSettings left, right;
};
// Two that are there already.
struct CompareExistingCommand {
  std::uint64_t left = 0, right = 0;
};
// Ends the running picture after its pass and keeps what there is, also as a file.
struct StopCommand {};
// Takes a queued picture out of the queue, or a finished one off the list (its file stays).
struct DropPaintingCommand {
  std::uint64_t number = 0;
};
// A dropped or chosen file: opens it at full size and recalls the settings it records.
struct OpenCommand {
  std::filesystem::path path;
};
// Shows another folder's pictures; what is painted from now on is saved there.
struct FolderCommand {
  std::filesystem::path path;
};
// Describes pictures with the captioner; prune_method empty = all visual tokens.
struct CaptionCommand {
  std::vector<std::filesystem::path> pictures;
  std::string model;   // empty = the bundled captioner
  std::string prompt;  // empty = the model's own
  std::string prune_method;
  double prune_rate = 0;  // fraction removed
};
struct StopCaptionsCommand {};
// Writes a text as the picture's .txt sidecar, in place of what was there.
struct SaveCaptionCommand {
  std::filesystem::path picture;
  std::string text;
};

using Command = std::variant<PaintCommand, CompareCommand, CompareExistingCommand, StopCommand,
                             DropPaintingCommand, OpenCommand, FolderCommand, CaptionCommand,
                             StopCaptionsCommand, SaveCaptionCommand>;

}  // namespace tessera
