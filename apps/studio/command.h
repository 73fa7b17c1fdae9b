// What a user of the viewer may ask for. Commands are data: panels, the key map, the self-test and
// dropped files all post the same ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "apps/runtime/generate_request.h"
#include "engine/decoding/decode_method.h"

namespace tessera {

enum class SeedMode : std::uint8_t { kLocked, kPlusOne, kRandom };

// All that decides an image. Empty settings come from the model's preset.
struct GenerateSettings {
  std::string model;  // as resolve_model() takes it; empty = the bundled default
  std::string prompt;
  std::optional<std::string> negative_prompt;
  SettingValues sampling;
  DecodeMethod method;
  std::string draft_model;
  std::optional<DType> storage;
  std::uint64_t seed = 0;
  std::int64_t width = 0, height = 0;  // pixels; 0 = what the model does
  std::int64_t frames = 0;             // of a video; 0 = the model's own length
  bool operator==(const GenerateSettings&) const = default;
};

// Queues `count` images. kLocked: all of settings.seed; kPlusOne: counting up from it; kRandom:
// random each.
struct GenerateCommand {
  GenerateSettings settings;
  SeedMode seed_mode = SeedMode::kLocked;
  std::int64_t count = 1;
};
// Queues two images that are to be looked at side by side.
struct CompareCommand {
  GenerateSettings left, right;
};
// Two that are there already.
struct CompareExistingCommand {
  std::uint64_t left = 0, right = 0;
};
// Ends the running image after its pass and keeps what there is, also as a file.
struct StopCommand {};
// Takes a queued image out of the queue, or a finished one off the list (its file stays).
struct DropGenerationCommand {
  std::uint64_t number = 0;
};
// A dropped or chosen file: opens it at full size. recall, when not 0, asks for the settings it
// records as well; the answer carries the number.
struct OpenCommand {
  std::filesystem::path path;
  std::uint64_t recall = 0;
};
// What is looked at side by side stays, however many others are generated or opened. Takes the place
// of the command before.
struct KeepCommand {
  std::vector<std::uint64_t> generations;
  std::vector<std::filesystem::path> files;
  bool operator==(const KeepCommand&) const = default;
};
// Shows another folder's images; what is generated from now on is saved there.
struct FolderCommand {
  std::filesystem::path path;
};
// Describes images with the captioner; prune_method empty = all visual tokens.
struct CaptionCommand {
  std::vector<std::filesystem::path> images;
  std::string model;   // empty = the bundled captioner
  std::string prompt;  // empty = the model's own
  std::string prune_method;
  double prune_rate = 0;  // fraction removed
};
// Describes all images of the folder that have no text yet, newest first, in the way of `how`,
// whose images are not looked at. They are handed on a few at a time.
struct CaptionFolderCommand {
  CaptionCommand how;
};
struct StopCaptionsCommand {};
// Writes a text as the image's .txt sidecar, in place of what was there unless only_new.
struct SaveCaptionCommand {
  std::filesystem::path image;
  std::string text;
  bool only_new = false;  // a file that is there already stays, and is notified as a problem
};
// The same for all texts that were written and not saved; files that are there already stay.
struct SaveAllCaptionsCommand {};
// Opens a video in place of the one that is open, which stops at once; shows its first frame.
struct OpenFilmCommand {
  std::filesystem::path path;
};
// What the open video is notified; nothing happens where none is open. Without a value it turns round.
// Playing from the last frame begins at the first.
struct FilmPlayCommand {
  std::optional<bool> on;
};
struct FilmLoopCommand {
  std::optional<bool> on;
};
// Shows a frame by its number, kept within the video; playing goes on from there.
struct FilmSeekCommand {
  std::int64_t frame = 0;
};
// So many frames on (or back) from the one that was asked for last; playing ends.
struct FilmStepCommand {
  std::int64_t by = 0;
};
// One of kFilmSpeeds; another one becomes the nearest.
struct FilmSpeedCommand {
  double speed = 1;
};
struct CloseFilmCommand {};

using Command =
    std::variant<GenerateCommand, CompareCommand, CompareExistingCommand, StopCommand,
                 DropGenerationCommand, OpenCommand, KeepCommand, FolderCommand, CaptionCommand,
                 CaptionFolderCommand, StopCaptionsCommand, SaveAllCaptionsCommand,
                 SaveCaptionCommand, OpenFilmCommand, FilmPlayCommand, FilmLoopCommand,
                 FilmSeekCommand, FilmStepCommand, FilmSpeedCommand, CloseFilmCommand>;

}  // namespace tessera
